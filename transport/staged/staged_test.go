package staged_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/internal/cudadrv/testdouble"
	"kvbench/transport"
	"kvbench/transport/rdma"
	"kvbench/transport/staged"
	"kvbench/transport/tcp"
	"kvbench/transport/transporttest"
	"kvbench/transport/transporttest/gpu"
	"kvbench/transport/transporttest/remote"
)

// childVar makes a process serve one side of a test.
const childVar = "STAGED_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) == "" {
		os.Exit(testdouble.Main(m))
	}
	if err := remote.Serve(staged.Over(tcp.New()), gpuMemory); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// gpuMemory is what is staged, on device 0.
var gpuMemory = gpu.Memory(0, (*cudadrv.Context).Alloc)

func TestConformance(t *testing.T) {
	testdouble.Need(t)
	for i, c := range []struct {
		name  string
		inner transport.Transport
		cfg   transport.Config
	}{
		{"TCP", tcp.New(), transport.Config{}},
		{"TCPThreeStreamsBusy", tcp.New(), transport.Config{Streams: 3, BusyPoll: true}},
		{"UCXTCP", rdma.New(), transport.Config{Lane: "tcp"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Subject{
				Listener: staged.Over(c.inner), ListenerMemory: gpuMemory, Config: c.cfg,
				All: testdouble.Real(), Part: i + 1,
			})
		})
	}
}

// connect makes a pair in this process with memory of size bytes on both sides.
func connect(t testing.TB, size int64) (in transport.Initiator, target transport.Target, local transport.Region, remote transport.RemoteRegion, memory [2]transport.Memory) {
	t.Helper()
	testdouble.Need(t)
	over := staged.Over(tcp.New())
	l := must(over.Listen(t.Context(), transport.Config{}))(t)
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		var err error
		target, err = l.AcceptTarget(t.Context())
		accepted <- err
	}()
	in = must(over.Dial(t.Context(), l.Address(), transport.Config{}))(t)
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), target.Close()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	for i, e := range []transport.Endpoint{in, target} {
		memory[i] = must(e.(transport.Allocator).Allocate(size))(t)
	}
	local = must(in.Register(memory[0]))(t)
	theirs := must(target.Register(memory[1]))(t)
	remote = must(in.Import(must(target.Advertise(theirs))(t)))(t)[0]
	return in, target, local, remote, memory
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// move posts a transfer and waits for its completion.
func move(t testing.TB, in transport.Initiator, x transport.Transfer) transport.Completion {
	t.Helper()
	var done [1]transport.Completion
	return moveInto(t, in, x, done[:])
}

// moveInto is move with the place of the completion, so that it allocates nothing.
func moveInto(t testing.TB, in transport.Initiator, x transport.Transfer, done []transport.Completion) transport.Completion {
	t.Helper()
	if err := in.Post(x); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := in.Poll(done)
		if n == 1 {
			return done[0]
		}
		if err == nil {
			err = in.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestMemory: an endpoint's memory is reached by its own calls, and by no others.
func TestMemory(t *testing.T) {
	in, target, local, remote, memory := connect(t, 1<<20)
	from, to := in.(transport.Copier), target.(transport.Copier)
	if err := from.CopyIn(memory[0], 100, []byte("moved")); err != nil {
		t.Fatal(err)
	}
	x := transport.Transfer{Op: transport.Write, Local: local, Remote: remote, Descriptors: []transport.Descriptor{{Local: 100, Remote: 7, Length: 5}}}
	if c := move(t, in, x); c.Err != nil {
		t.Fatal(c.Err)
	}
	var got [5]byte
	if err := to.CopyOut(memory[1], 7, got[:]); err != nil || string(got[:]) != "moved" {
		t.Errorf("got %q, %v", got, err)
	}
	for name, c := range map[string]struct{ err, want error }{
		"out beyond the end":    {to.CopyOut(memory[1], 1<<20-4, got[:]), transport.ErrBounds},
		"in beyond the end":     {to.CopyIn(memory[1], 1<<20-4, got[:]), transport.ErrBounds},
		"the other side's":      {to.CopyOut(memory[0], 0, got[:]), transport.ErrRegion},
		"free what is in use":   {in.(transport.Allocator).Free(memory[0]), transport.ErrBusy},
		"free the other side's": {in.(transport.Allocator).Free(memory[1]), transport.ErrRegion},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: error %v, want one that wraps %q", name, c.err, c.want)
		}
	}
	if _, err := in.(transport.Allocator).Allocate(0); !errors.Is(err, transport.ErrBounds) {
		t.Errorf("Allocate of nothing: %v", err)
	}
	if err := in.Deregister(local); err != nil {
		t.Fatal(err)
	}
	if err := in.(transport.Allocator).Free(memory[0]); err != nil {
		t.Errorf("Free of what is registered no more: %v", err)
	}
	if err := target.Close(); err != nil {
		t.Fatal(err)
	}
	if err := to.CopyOut(memory[1], 0, got[:]); !errors.Is(err, transport.ErrRegion) {
		t.Errorf("CopyOut after Close: %v", err)
	}
}

// TestStages reads what the path says of the stages: one WRITE of 9 MiB in two
// descriptors is three chunks of 3 MiB, out at one side and in at the other.
func TestStages(t *testing.T) {
	const size = 9 << 20
	in, target, local, remote, _ := connect(t, size)
	x := transport.Transfer{Op: transport.Write, Local: local, Remote: remote, Descriptors: []transport.Descriptor{{Length: size / 3}, {Local: size / 3, Remote: size / 3, Length: size / 3 * 2}}}
	if c := move(t, in, x); c.Err != nil {
		t.Fatal(c.Err)
	}
	here, there := in.Path().Staging, target.Path().Staging
	for name, s := range map[string]transport.StageTime{"to host": here.ToHost, "from host": there.FromHost, "wire": here.Wire} {
		if s.Chunks != 3 || s.Bytes != size || s.Seconds <= 0 || s.BytesPerSecond != float64(s.Bytes)/s.Seconds || s.AloneAlpha <= 0 || s.AloneBandwidth <= 0 {
			t.Errorf("%s: %+v, want 3 chunks of %d bytes", name, s, size)
		}
	}
	for name, s := range map[string]transport.StageTime{"from host": here.FromHost, "to host": there.ToHost, "wire": there.Wire} {
		if s.Chunks != 0 || s.Bytes != 0 {
			t.Errorf("%s at the other side: %+v, want nothing", name, s)
		}
	}
	if here.ChunkBytes != 4<<20 || here.PinnedBytes != 32<<20 || here.PinSeconds <= 0 {
		t.Errorf("%+v, want chunks of 4 MiB in 32 MiB", here)
	}
	if lane := in.Path().Lane; lane != "tcp/lo" {
		t.Errorf("lane %q", lane)
	}
}

// TestRefusedRegion tells an initiator why its transfer cannot be.
func TestRefusedRegion(t *testing.T) {
	in, target, local, remote, _ := connect(t, 4096)
	if err := target.Deregister(transport.Region{ID: remote.ID}); err != nil {
		t.Fatal(err)
	}
	c := move(t, in, transport.Transfer{Op: transport.Write, Local: local, Remote: remote, Descriptors: []transport.Descriptor{{Length: 1}}})
	if !errors.Is(c.Err, transport.ErrPeer) || !strings.Contains(c.Err.Error(), "region 1: unknown region") {
		t.Errorf("got %v", c.Err)
	}
}

// start starts a process with the transport, of whose driver's calls some fail. Its copies
// begin so late that calibration has one size only.
func start(t *testing.T, fail string, env ...string) *remote.Transport {
	t.Helper()
	testdouble.Only(t)
	cmd := testdouble.Command(append(env, childVar+"=1", "CUDA_DOUBLE_DELAY_US=25000", "CUDA_DOUBLE_FAIL="+fail)...)
	cmd.Stderr = os.Stderr
	child := must(remote.Start(cmd))(t)
	t.Cleanup(func() { child.Close() })
	return child
}

// dial makes an initiator here and its target in a child.
func dial(t *testing.T, child *remote.Transport, cfg transport.Config) (transport.Initiator, transport.Target) {
	t.Helper()
	l := must(child.Listen(t.Context(), cfg))(t)
	dialled := make(chan transport.Initiator, 1)
	go func() {
		in, err := staged.Over(tcp.New()).Dial(t.Context(), l.Address(), cfg)
		if err != nil {
			t.Error(err)
		}
		dialled <- in
	}()
	target := must(l.AcceptTarget(t.Context()))(t)
	return <-dialled, target
}

// TestCalibrationFails after it has launched a copy: its memory outlives the copy, or the
// double would call the address illegal.
func TestCalibrationFails(t *testing.T) {
	for name, c := range map[string]struct {
		fail string
		cfg  transport.Config
	}{
		"to the host":   {fail: "cuEventRecord:2:719"},
		"from the host": {fail: "cuEventRecord:12:719"}, // five rounds of one size in the other direction are 10
		"in its wait":   {fail: "cuEventSynchronize:1:719"},
		"as it asks":    {fail: "cuEventQuery:1:719", cfg: transport.Config{BusyPoll: true}}, // as chunks are waited for
	} {
		t.Run(name, func(t *testing.T) {
			l := must(start(t, c.fail).Listen(t.Context(), c.cfg))(t)
			dialled := make(chan error, 1)
			go func() {
				_, err := staged.Over(tcp.New()).Dial(t.Context(), l.Address(), c.cfg)
				dialled <- err
			}()
			_, err := l.AcceptTarget(t.Context())
			if err == nil || !strings.Contains(err.Error(), "CUDA error 719") || strings.Contains(err.Error(), "CUDA_ERROR_ILLEGAL_ADDRESS") {
				t.Errorf("AcceptTarget: %v", err)
			}
			if err := <-dialled; err == nil {
				t.Error("dialled a side that could not copy")
			}
		})
	}
}

// TestCopyIsUnderWay ends a target with a copy launched whose end cannot be waited for:
// what the copy touches stays, or reading the ring would end the process.
func TestCopyIsUnderWay(t *testing.T) {
	// Calibration records 2 events in each of 5 rounds, in both directions; its first
	// size takes so long that it has no other. The 22nd is the end of the first chunk. The
	// end of a stream is a wait in the double, so it is refused too.
	hold, trace := filepath.Join(t.TempDir(), "hold"), filepath.Join(t.TempDir(), "copies")
	child := start(t, "cuEventRecord:22:719,cuStreamSynchronize:0:719,cuStreamDestroy_v2:0:719", "CUDA_DOUBLE_HOLD="+hold, "CUDA_DOUBLE_TRACE="+trace)
	in, target := dial(t, child, transport.Config{})
	defer in.Close()
	there, here := must(child.Alloc(1<<20))(t), must(gpuMemory(1<<20))(t)
	local := must(in.Register(here.Memory()))(t)
	region := must(target.Register(there.Memory()))(t)
	remote := must(in.Import(must(target.Advertise(region))(t)))(t)[0]
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := move(t, in, transport.Transfer{Op: transport.Write, Local: local, Remote: remote, Descriptors: []transport.Descriptor{{Length: 1 << 20}}})
	if !errors.Is(c.Err, transport.ErrPeer) || !strings.Contains(c.Err.Error(), "cuEventRecord") {
		t.Errorf("the transfer: %v", c.Err)
	}
	if err := target.Close(); err == nil || !strings.Contains(err.Error(), "a copy may be under way still") {
		t.Errorf("Close: %v", err)
	}
	if err := target.Deregister(region); !errors.Is(err, transport.ErrBusy) {
		t.Errorf("Deregister: %v", err)
	}
	before := readTrace(t, trace)[child.Process().Pid].copies
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	for readTrace(t, trace)[child.Process().Pid].copies == before { // until the copy has ended
		if _, err := child.Alloc(1); err != nil {
			t.Fatalf("during the copy: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := child.Alloc(1); err != nil {
		t.Errorf("after the copy: %v", err)
	}
}

// TestTargetProcess loses the target's process under load. That of a stopped one shows
// after PeerTimeout, which is long enough for a busy machine to meet in.
func TestTargetProcess(t *testing.T) {
	t.Parallel()
	testdouble.Need(t)
	for signal, timeout := range map[syscall.Signal]time.Duration{syscall.SIGKILL: time.Minute, syscall.SIGSTOP: 4 * time.Second} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			// A TCP connection that nobody answers on would last for a quarter of an hour.
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := testdouble.Command(childVar + "=1")
			cmd.Stderr = os.Stderr
			child := must(remote.Start(cmd))(t)
			defer child.Close()
			defer child.Process().Signal(syscall.SIGKILL)
			in, target := dial(t, child, transport.Config{PeerTimeout: timeout})
			defer in.Close()
			there, here := must(child.Alloc(1<<20))(t), must(gpuMemory(1<<20))(t)
			local := must(in.Register(here.Memory()))(t)
			remote := must(in.Import(must(target.Advertise(must(target.Register(there.Memory()))(t)))(t)))(t)[0]
			if err := child.Process().Signal(signal); err != nil {
				t.Fatal(err)
			}
			var failure error
			for failure == nil {
				failure = in.Post(transport.Transfer{Op: transport.Write, Local: local, Remote: remote, Descriptors: []transport.Descriptor{{Length: 1 << 20}}})
				var done [1]transport.Completion
				for n := 0; n == 0 && failure == nil; {
					if failure = in.Wait(ctx); failure == nil {
						n, failure = in.Poll(done[:])
					}
				}
				failure = cmp.Or(failure, done[0].Err)
			}
			if !errors.Is(failure, transport.ErrPeer) {
				t.Errorf("got %v, want an error that wraps ErrPeer", failure)
			}
		})
	}
}

// TestAsOnADriver: what scripts/gpu-check runs of these tests needs a driver and nothing
// else. It leaves out the conformance suite, which looks at the double nowhere.
func TestAsOnADriver(t *testing.T) {
	t.Parallel()
	testdouble.AsOnADriver(t, "Memory|Stages|TargetProcess|Allocate")
}
