package rdma

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"kvbench/internal/testenv"
	"kvbench/transport"
)

// wayToLose is a lane and an operation on which something waits for a peer that is killed.
type wayToLose struct {
	lane, operation string
	op              transport.Op
}

func (w wayToLose) String() string { return w.lane + " " + w.operation }

// TestLostDescriptors: a peer that is killed costs this side no file descriptor, whatever
// UCX still held for it, so that a consumer that serves on is not used up. Left out is
// what UCX 1.13 gives up on, an initiator that is killed while its puts over tcp are
// answered: that worker is never called again, and keeps its descriptors.
func TestLostDescriptors(t *testing.T) {
	needUCX(t)
	for _, w := range []wayToLose{
		{"shm", "am", transport.Write},
		{"tcp", "put", transport.Write},
		{"tcp", "am", transport.Write},
		{"tcp", "get", transport.Read},
	} {
		t.Run(w.String(), func(t *testing.T) {
			t.Run("target lost", func(t *testing.T) { losesNothing(t, w, loseTarget) })
			if w.lane == "tcp" && w.operation == "put" {
				return
			}
			t.Run("initiator lost", func(t *testing.T) { losesNothing(t, w, loseInitiator) })
		})
	}
}

// losesNothing loses a peer a few times over and counts. Once in a few hundred times UCX
// gives up on one of them as well, which is another matter: two of those are let pass.
func losesNothing(t *testing.T, w wayToLose, lose func(*testing.T, transport.Listener, wayToLose) *engine) {
	l, err := New().Listen(t.Context(), transport.Config{Lane: w.lane, Operation: w.operation, MaxOutstanding: 64, PeerTimeout: never})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	lose(t, l, w) // what the process opens once and keeps
	peers, gaveUp := 2, 0
	if testenv.Full {
		peers = 10
	}
	for counted := 0; counted < peers; {
		before := descriptors(t)
		if lose(t, l, w).state == retired {
			if gaveUp++; gaveUp > 2 {
				t.Fatalf("UCX gave up on %d peers that were killed, and not on %d", gaveUp, counted)
			}
			continue
		}
		counted++
		if now := descriptors(t); len(now) != len(before) {
			t.Errorf("%d file descriptors after a peer was killed, %d before:\n%s", len(now), len(before), strings.Join(now, "\n"))
		}
	}
}

// descriptors are this process's, by what they lead to.
func descriptors(t *testing.T) (open []string) {
	t.Helper()
	const at = "/proc/self/fd"
	entries, err := os.ReadDir(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		to, _ := os.Readlink(at + "/" + e.Name()) // that of the listing itself is closed by now
		open = append(open, e.Name()+" "+to)
	}
	return open
}

// loseTarget is the end of a target that had been stopped with transfers on their way to it.
func loseTarget(t *testing.T, l transport.Listener, w wayToLose) *engine {
	in, p := served(t, l, w.lane)
	transfer, memory := prepare(t, in, p.said, w.op)
	lost := move(t, in, transfer, 64, p.stop, func() {
		stuck(in.(*initiator).connection)
		p.Process.Kill()
	})
	if lost == 0 {
		t.Error("a peer that is stopped has acknowledged everything")
	}
	inTime(t, "Close", func() { in.Close() })
	if w.lane == "shm" {
		if err := in.(transport.Allocator).Free(memory); err != nil {
			t.Error(err)
		}
	}
	p.Wait()
	return in.(*initiator).engine
}

// loseInitiator is the end of an initiator in the middle of its transfers.
func loseInitiator(t *testing.T, l transport.Listener, w wayToLose) *engine {
	accepted := make(chan transport.Target, 1)
	go func() {
		tg, err := l.AcceptTarget(t.Context())
		if err != nil {
			t.Error(err)
		}
		accepted <- tg
	}()
	p := startPeer(t, posting, w.String(), l.Address())
	tg := <-accepted
	if tg == nil {
		t.FailNow()
	}
	memory, err := allocate(tg)
	if err != nil {
		t.Fatal(err)
	}
	region, err := tg.Register(memory)
	if err != nil {
		t.Fatal(err)
	}
	ad, err := tg.Advertise(region)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(p.in, base64.StdEncoding.EncodeToString(ad))
	transfers := int64(3)
	if testenv.Full {
		transfers = 1 + rand.Int64N(30)
		t.Logf("killed after %d transfers", transfers)
	}
	for deadline := time.Now().Add(patience); tg.Path().Counters.PayloadBytes < transfers*peerMemory; time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d transfers have not been made in %v", transfers, patience)
		}
	}
	p.Process.Kill()
	inTime(t, "Close", func() { tg.Close() })
	if w.lane == "shm" {
		if err := tg.(transport.Allocator).Free(memory); err != nil {
			t.Error(err)
		}
	}
	p.in.Close()
	p.Wait()
	return tg.(*target).engine
}

// bePosting connects, reads what the other side advertises and moves it without end, in
// messages that are long enough to be fetched.
func bePosting(lane, operation string, address []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const outstanding = 16
	in, err := New().Dial(ctx, address, transport.Config{Lane: lane, Operation: operation, MaxOutstanding: outstanding})
	if err != nil {
		return err
	}
	fmt.Println("met")
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return err
	}
	ad, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	remote, err := in.Import(ad)
	if err != nil {
		return err
	}
	memory, err := allocate(in)
	if err != nil {
		return err
	}
	local, err := in.Register(memory)
	if err != nil {
		return err
	}
	transfer := transport.Transfer{Local: local, Remote: remote[0], Op: transport.Write}
	if operation == "get" {
		transfer.Op = transport.Read
	}
	const piece = 1 << 20
	for at := int64(0); at < peerMemory; at += piece {
		transfer.Descriptors = append(transfer.Descriptors, transport.Descriptor{Local: at, Remote: at, Length: piece})
	}
	done := make([]transport.Completion, outstanding)
	for room := outstanding; ; {
		for ; room > 0; room-- {
			if err := in.Post(transfer); err != nil {
				return err
			}
		}
		if err := in.Wait(ctx); err != nil {
			return err
		}
		n, err := in.Poll(done)
		if err != nil {
			return err
		}
		room += n
	}
}
