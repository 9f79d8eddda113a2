package rdma

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"kvbench/internal/cudadrv/testdouble"
	"kvbench/internal/rendezvous"
	"kvbench/internal/ucx"
	"kvbench/transport"
)

// The test binary is a peer too, when it is started with asPeer set: one that can be
// stopped and killed.
const asPeer = "RDMA_TEST_PEER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(asPeer); kind != "" {
		address := []byte(os.Getenv("RDMA_TEST_ADDRESS"))
		lane, operation, _ := strings.Cut(os.Getenv("RDMA_TEST_LANE"), " ")
		err := error(nil)
		if kind == posting {
			err = bePosting(lane, operation, address)
		} else {
			err = bePeer(kind, lane, address)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, _ = io.Copy(io.Discard, os.Stdin) // it is killed before that ends
		os.Exit(0)
	}
	// UCX without CUDA takes GPU memory where it can be told that it is the host's.
	os.Setenv("CUDA_DOUBLE_REACHABLE", "1")
	os.Exit(testdouble.Main(m))
}

const (
	peerMemory = 16 << 20
	silent     = "silent" // introduces itself as an initiator, and does nothing more
	serving    = "target"
	posting    = "initiator" // is told of the other side's memory, and writes to it or reads it without end
)

// bePeer connects and prints what the other side may need of it.
func bePeer(kind, lane string, address []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if kind == silent {
		f, _ := familyOf(lane)
		w, err := ucx.NewWorker(ucx.Options{Settings: settings(f, transport.Config{}), Slots: 1, Window: 1, PeerErrors: f.peerErrors})
		if err != nil {
			return err
		}
		own, err := w.Address()
		if err != nil {
			return err
		}
		var answer hello
		_, err = rendezvous.Dial(ctx, address, "", rendezvous.Initiator, hello{Worker: own, Lane: lane, Outstanding: 1}, &answer, patience)
		fmt.Println("met")
		return err
	}
	tg, err := New().DialTarget(ctx, address, transport.Config{Lane: lane, MaxOutstanding: 64})
	if err != nil {
		return err
	}
	memory, err := allocate(tg)
	if err != nil {
		return err
	}
	region, err := tg.Register(memory)
	if err != nil {
		return err
	}
	ad, err := tg.Advertise(region)
	fmt.Println(base64.StdEncoding.EncodeToString(ad))
	return err
}

// allocate returns memory of peerMemory bytes that the endpoint's lane can be used with.
func allocate(e transport.Endpoint) (transport.Memory, error) {
	memory, err := e.(transport.Allocator).Allocate(peerMemory)
	if errors.Is(err, transport.ErrUnsupported) {
		return transport.HostBytes(make([]byte, peerMemory)), nil
	}
	return memory, err
}

// peer is such a process.
type peer struct {
	*exec.Cmd
	in   io.WriteCloser
	said string // what it printed
}

func startPeer(t *testing.T, kind, lane string, address transport.Address) *peer {
	t.Helper()
	p := &peer{Cmd: exec.Command(os.Args[0])}
	p.Env = append(os.Environ(), asPeer+"="+kind, "RDMA_TEST_LANE="+lane, "RDMA_TEST_ADDRESS="+string(address))
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err == nil {
		p.in, err = p.StdinPipe()
	}
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Process.Kill()
		p.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the peer says %q and ends: %v", line, err)
	}
	p.said = strings.TrimSpace(line)
	return p
}

const (
	// patience is with what takes no time, on a machine that is busy with other things.
	patience = time.Minute
	// never is a peer timeout that is not what a connection ends by.
	never = 10 * patience
)

// rounds waits for n rounds of the thread of a connection's worker. One has begun after
// whatever was posted before the call, and ended, after two.
func rounds(c *connection, n int) {
	for range n {
		// It is answered between two rounds, also with an error once UCX has given up.
		c.engine.do(func() { _, _ = c.engine.worker.Address() })
	}
}

// stuck waits until UCX has begun with what was posted, and comes no further.
func stuck(c *connection) {
	for moved := ^uint64(0); moved != c.engine.moved(); {
		moved = c.engine.moved()
		rounds(c, 10)
	}
}

// inTime fails a test when f does not return.
func inTime(t *testing.T, doing string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s has not ended in %v", doing, patience)
	}
}

// served is the initiator of a connection to a peer of its own.
func served(t *testing.T, l transport.Listener, lane string) (transport.Initiator, *peer) {
	t.Helper()
	return servedBy(t, l, lane, func() (transport.Initiator, error) { return l.AcceptInitiator(t.Context()) })
}

// servedBy is served with an accept of the test.
func servedBy(t *testing.T, l transport.Listener, lane string, accept func() (transport.Initiator, error)) (transport.Initiator, *peer) {
	t.Helper()
	accepted := make(chan transport.Initiator, 1)
	go func() {
		in, err := accept()
		if err != nil {
			t.Error(err)
			in = nil
		}
		accepted <- in
	}()
	p := startPeer(t, serving, lane, l.Address())
	in := <-accepted
	if in == nil {
		t.FailNow()
	}
	return in, p
}

// servedWith is served with a peer timeout that begins once the two are connected.
func servedWith(t *testing.T, l transport.Listener, lane string, timeout time.Duration) (transport.Initiator, *peer) {
	t.Helper()
	return servedBy(t, l, lane, func() (transport.Initiator, error) { // as AcceptInitiator does
		var in *initiator
		if err := l.(*listener).answer(t.Context(), rendezvous.Target, func(c *connection) { in = newInitiator(c) }); err != nil {
			return nil, err
		}
		in.engine.do(in.engine.worker.Greet)
		<-in.greeted
		in.cfg.PeerTimeout = timeout
		in.start()
		return in, nil
	})
}

// TestLostWhileConnecting: a peer that is killed when the two have met, and UCX has
// yet to connect them.
func TestLostWhileConnecting(t *testing.T) {
	needUCX(t)
	for name, lane := range map[string]string{"shm": "shm", "tcp": "tcp", "tcp by two devices": "tcp"} {
		t.Run(name, func(t *testing.T) {
			if name != lane { // where there are two, this is what UCX 1.13 aborts on
				t.Setenv("UCX_MAX_RNDV_RAILS", "2")
			}
			l, err := New().Listen(t.Context(), transport.Config{Lane: lane, PeerTimeout: never})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			met, accepted := make(chan *target, 1), make(chan error, 1)
			go func() { // as AcceptTarget does
				var tg *target
				err := l.(*listener).answer(t.Context(), rendezvous.Initiator, func(c *connection) { tg = newTarget(c) })
				if err == nil {
					tg.start()
					met <- tg
					err = tg.greet(t.Context())
				}
				accepted <- err
			}()
			p := startPeer(t, silent, lane, l.Address())
			rounds((<-met).connection, 100)
			p.Process.Kill()
			inTime(t, "accepting", func() {
				if err := <-accepted; !errors.Is(err, transport.ErrPeer) {
					t.Errorf("accepting: %v, want ErrPeer", err)
				}
			})
			in, _ := served(t, l, lane) // this side lives
			in.Close()
		})
	}
}

// TestLostWithTransfers: a peer that is stopped, so that what is on its way to it
// piles up, and then killed. Every transfer ends, Close returns, and its memory is
// given back, though UCX cannot end an endpoint that has something to send on
// every lane.
func TestLostWithTransfers(t *testing.T) {
	needUCX(t)
	for _, c := range []struct {
		lane, operation string
		op              transport.Op
	}{
		{"shm", "put", transport.Write},
		{"shm", "am", transport.Write},
		{"shm", "get", transport.Read},
		{"tcp", "put", transport.Write},
		{"tcp", "am", transport.Write},
		{"tcp", "get", transport.Read},
	} {
		t.Run(c.lane+" "+c.operation, func(t *testing.T) {
			mapped := sharedBytes(t)
			cfg := transport.Config{Lane: c.lane, Operation: c.operation, MaxOutstanding: 64, PeerTimeout: never}
			l, err := New().Listen(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			in, p := served(t, l, c.lane)
			defer in.Close()
			transfer, memory := prepare(t, in, p.said, c.op)
			if lost := move(t, in, transfer, 1, func() {}, func() {}); lost > 0 {
				t.Error("lost before anything happened")
			}
			lost := move(t, in, transfer, cfg.MaxOutstanding, p.stop, func() {
				stuck(in.(*initiator).connection)
				p.Process.Kill()
			})
			// Reading shared memory takes no peer.
			if alone := c.lane == "shm" && c.op == transport.Read; lost == 0 && !alone {
				t.Errorf("a peer that is stopped has acknowledged %d transfers", cfg.MaxOutstanding)
			}
			inTime(t, "Close", func() { in.Close() })
			clear(memory.Bytes) // still this side's
			if c.lane == "shm" {
				if err := in.(transport.Allocator).Free(memory); err != nil {
					t.Error(err)
				}
			}
			// What a worker keeps that cannot be ended is UCX's own, not the memory of
			// the two sides.
			if now := sharedBytes(t); now >= mapped+peerMemory {
				t.Errorf("%d bytes of shared memory are mapped, %d before", now, mapped)
			}
		})
	}
}

// TestSilentPeer: a peer that lives and does nothing any more. After the timeout the
// connection is given up, and what the peer may yet touch stays where it is, Go's
// memory too.
func TestSilentPeer(t *testing.T) {
	needUCX(t)
	for _, lane := range []string{"shm", "tcp"} {
		t.Run(lane, func(t *testing.T) {
			cfg := transport.Config{Lane: lane, Operation: "am", MaxOutstanding: 64, PeerTimeout: never}
			l, err := New().Listen(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			in, p := servedWith(t, l, lane, 100*time.Millisecond)
			transfer, _ := prepare(t, in, p.said, transport.Write)
			if transfer.Local, err = in.Register(transport.HostBytes(make([]byte, peerMemory))); err != nil {
				t.Fatal(err)
			}
			if lost := move(t, in, transfer, cfg.MaxOutstanding, p.stop, func() {}); lost == 0 {
				t.Errorf("a peer that is stopped has acknowledged %d transfers", cfg.MaxOutstanding)
			}
			inTime(t, "Close", func() { in.Close() })
			p.Process.Signal(syscall.SIGCONT)
			for range 3 { // which ends the process where pinned memory was lost
				finalized := make(chan struct{})
				runtime.SetFinalizer(new([64]byte), func(*[64]byte) { close(finalized) })
				for !isClosed(finalized) {
					runtime.GC()
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
}

// stop stops every thread of the process.
func (p *peer) stop() {
	p.Process.Signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	for !status.Stopped() {
		if _, err := syscall.Wait4(p.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil && err != syscall.EINTR {
			panic(err)
		}
	}
}

// prepare registers memory, imports the peer's and returns a transfer of 1/64 of it, in pieces that are each a message of its own.
func prepare(t *testing.T, in transport.Initiator, advertisement string, op transport.Op) (transport.Transfer, transport.Memory) {
	t.Helper()
	ad, err := base64.StdEncoding.DecodeString(advertisement)
	if err != nil {
		t.Fatal(err)
	}
	remote, err := in.Import(ad)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := allocate(in)
	if err != nil {
		t.Fatal(err)
	}
	local, err := in.Register(memory)
	if err != nil {
		t.Fatal(err)
	}
	transfer := transport.Transfer{Op: op, Local: local, Remote: remote[0]}
	const piece = 16 << 10
	for i := range int64(16) {
		transfer.Descriptors = append(transfer.Descriptors, transport.Descriptor{Local: i * piece, Remote: i * piece, Length: piece})
	}
	return transfer, memory
}

// move posts a transfer n times over, and returns how many of them were lost. What
// is to happen before and after they are posted does.
func move(t *testing.T, in transport.Initiator, transfer transport.Transfer, n int, before, after func()) (lost int) {
	t.Helper()
	before()
	for transfer.ID = range uint64(n) {
		if err := in.Post(transfer); err != nil {
			t.Fatal(err)
		}
	}
	after()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for left := n; left > 0; {
		if err := in.Wait(ctx); err != nil {
			t.Fatalf("%d transfers are neither delivered nor lost: %v", left, err)
		}
		done := make([]transport.Completion, n)
		got, _ := in.Poll(done)
		for _, c := range done[:got] {
			switch {
			case c.Err == nil:
			case errors.Is(c.Err, transport.ErrPeer):
				lost++
			default:
				t.Errorf("transfer %d: %v does not wrap ErrPeer", c.ID, c.Err)
			}
		}
		left -= got
	}
	return lost
}

// sharedBytes is how much shared memory this process has mapped.
func sharedBytes(t *testing.T) (n int64) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.Contains(line, "/SYSV") && !strings.Contains(line, "/dev/shm/") {
			continue
		}
		var from, to int64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			t.Fatal(err)
		}
		n += to - from
	}
	return n
}
