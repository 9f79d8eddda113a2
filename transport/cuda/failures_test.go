package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kvbench/internal/cudadrv/testdouble"
	"kvbench/transport"
	"kvbench/transport/cuda"
	"kvbench/transport/transporttest"
	"kvbench/transport/transporttest/remote"
)

// says complains unless an error wraps want and contains every text.
func says(t *testing.T, err, want error, texts ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want one that wraps %q", err, want)
	}
	for _, text := range texts {
		if err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("got error %q, want it to contain %q", err, text)
		}
	}
}

func contains(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Error("no error")
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got error %q, want it to contain %q", err, text)
		}
	}
}

// session is this process as target, with memory of a device, and a child as
// initiator.
type session struct {
	target    transport.Target
	initiator transport.Initiator
	memory    transporttest.Buffer
	region    transport.Region
	local     transport.Region
}

// connect makes a session. The initiator has memory registered and nothing imported. The
// target's memory is memoryOf the device, unless of says otherwise.
func connect(t *testing.T, child *remote.Transport, device int, cfg transport.Config, of ...func(device int) transporttest.Allocator) *session {
	t.Helper()
	s := &session{}
	of = append(of, memoryOf)
	l := must(cuda.New().Listen(t.Context(), cfg))(t)
	defer l.Close()
	s.initiator = must(child.Dial(t.Context(), l.Address(), cfg))(t)
	s.target = must(l.AcceptTarget(t.Context()))(t)
	s.memory = must(of[0](device)(1 << 20))(t)
	s.region = must(s.target.Register(s.memory.Memory()))(t)
	local := must(child.Alloc(1 << 20))(t)
	s.local = must(s.initiator.Register(local.Memory()))(t)
	return s
}

// share has the initiator import the target's region.
func (s *session) share(t *testing.T) ([]transport.RemoteRegion, error) {
	t.Helper()
	return s.initiator.Import(must(s.target.Advertise(s.region))(t))
}

// must ends the test on an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestUnavailable provokes what keeps a host from using the transport.
func TestUnavailable(t *testing.T) {
	testdouble.Only(t)
	for _, c := range []struct {
		name, env string
		want      []string
	}{
		{"no device", "CUDA_DOUBLE_DEVICES=0", []string{"no CUDA device", "nvidia-smi -L"}},
		{"hidden devices", "CUDA_VISIBLE_DEVICES=", []string{"no CUDA device", `CUDA_VISIBLE_DEVICES="" hides`}},
		{"no driver", "LD_LIBRARY_PATH=" + brokenLibrary(t), []string{"no CUDA driver: libcuda.so.1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			child := start(t, 0, c.env)
			says(t, child.Probe(t.Context()), transport.ErrUnavailable, c.want...)
			_, err := child.Listen(t.Context(), transport.Config{})
			says(t, err, transport.ErrUnavailable, c.want...)
		})
	}
}

// brokenLibrary is a folder whose libcuda.so.1 does not load.
func brokenLibrary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/libcuda.so.1", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSameProcess(t *testing.T) {
	testdouble.Need(t)
	l := must(cuda.New().Listen(t.Context(), transport.Config{}))(t)
	defer l.Close()
	_, err := cuda.New().Dial(t.Context(), l.Address(), transport.Config{})
	says(t, err, transport.ErrUnavailable, "does not open in the process that made it", "two processes")
}

// hidden begins the error of an import where this process does not see the owner's device,
// which is device 1. Other reasons follow.
const hidden = `the peer's device GPU-6b766265-6e63-6820-646f-75626c650001 is not visible in this process (CUDA_VISIBLE_DEVICES="0"): let both see both devices; if they do: `

// TestImportFails provokes what keeps memory of device 1 here from being opened on
// device 0 there.
func TestImportFails(t *testing.T) {
	testdouble.Only(t)
	old := t.TempDir()
	if err := testdouble.Build(old, true); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		env  []string
		want []string
	}{
		{"no peer access", []string{"CUDA_DOUBLE_PEERS=0"},
			[]string{"no peer access from CUDA device 0", "nvidia-smi topo -p2p r"}},
		{"no peer access to a hidden device", []string{"CUDA_DOUBLE_PEERS=0", "CUDA_VISIBLE_DEVICES=0"},
			[]string{hidden + "no peer access from CUDA device 0", "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"}},
		{"hidden device", []string{"CUDA_VISIBLE_DEVICES=0", "CUDA_DOUBLE_FAIL=cuIpcOpenMemHandle_v2:0:101"},
			[]string{hidden + "no peer access from CUDA device 0", "CUDA_ERROR_INVALID_DEVICE (101)", "nvidia-smi topo -p2p r"}},
		{"hidden device, otherwise", []string{"CUDA_VISIBLE_DEVICES=0", "CUDA_DOUBLE_FAIL=cuIpcOpenMemHandle_v2:1:205"},
			[]string{hidden + "open the peer's GPU memory: cuIpcOpenMemHandle_v2: CUDA_ERROR_MAP_FAILED (205)"}},
		{"not supported", []string{"CUDA_DOUBLE_FAIL=cuIpcOpenMemHandle_v2:1:801"},
			[]string{"CUDA_ERROR_NOT_SUPPORTED (801)", "use the transport tcp with GPU memory"}},
		{"out of memory", []string{"CUDA_DOUBLE_FAIL=cuIpcOpenMemHandle_v2:1:2"},
			[]string{"open the peer's GPU memory", "CUDA_ERROR_OUT_OF_MEMORY (2)", "nvidia-smi shows it"}},
		{"old driver", []string{"LD_LIBRARY_PATH=" + old, "CUDA_DOUBLE_DRIVER=10020"},
			[]string{"CUDA driver too old for cuIpcOpenMemHandle_v2", "CUDA 11.0 or newer is needed"}},
		{"opened where it was made", []string{"CUDA_DOUBLE_FAIL=cuIpcOpenMemHandle_v2:1:201"},
			[]string{"CUDA_ERROR_INVALID_CONTEXT (201)", "does not open in the process that made it"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			child := start(t, 0, c.env...)
			s := connect(t, child, 1, transport.Config{})
			_, err := s.share(t)
			contains(t, err, c.want...)
			closeBoth(t, s)
		})
	}
}

func closeBoth(t *testing.T, s *session) {
	t.Helper()
	if err := errors.Join(s.initiator.Close(), s.target.Close(), s.memory.Free()); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestImportOfFreedMemory(t *testing.T) {
	testdouble.Only(t)
	s := connect(t, start(t, 0), 0, transport.Config{})
	ad := must(s.target.Advertise(s.region))(t)
	if err := s.memory.Free(); err != nil {
		t.Fatal(err)
	}
	_, err := s.initiator.Import(ad)
	contains(t, err, "CUDA_ERROR_INVALID_HANDLE (400)", "freed it or gone")
}

func TestRegisterFails(t *testing.T) {
	testdouble.Only(t)
	s := connect(t, start(t, 0), 0, transport.Config{})
	defer closeBoth(t, s)
	second := must(memoryOf(1)(4096))(t)
	defer second.Free()
	for _, e := range []transport.Endpoint{s.target, s.initiator} {
		_, err := e.Register(transport.HostBytes(make([]byte, 16)))
		says(t, err, transport.ErrUnsupported, "register host memory for cuda, which moves GPU memory only")
	}
	m := s.memory.Memory()
	m.Length++
	_, err := s.target.Register(m)
	says(t, err, transport.ErrBounds, "register 1048577 bytes at offset 4608 of an allocation of 1053184")
	m.Length = 0
	_, err = s.target.Register(m)
	says(t, err, transport.ErrBounds)
	m.Pointer, m.Length = 0x1000, 1
	_, err = s.target.Register(m)
	contains(t, err, "register 0x1000", "CUDA_ERROR_INVALID_VALUE")
	m.Device = 7
	_, err = s.target.Register(m)
	contains(t, err, "no CUDA device 7 among the 2 that this process sees")
}

// TestSecondDevice registers memory of two devices at one initiator.
func TestSecondDevice(t *testing.T) {
	testdouble.Only(t)
	child := start(t, 0)
	l := must(child.Listen(t.Context(), transport.Config{}))(t)
	in := must(cuda.New().Dial(t.Context(), l.Address(), transport.Config{}))(t)
	defer in.Close()
	for device := range 2 {
		b := must(memoryOf(device)(4096))(t)
		defer b.Free()
		_, err := in.Register(b.Memory())
		if device == 0 && err != nil {
			t.Fatal(err)
		}
		if device == 1 {
			says(t, err, transport.ErrUnsupported, "device 1 beside that of device 0", "a connection for each")
		}
	}
}

// TestCopyFails has a call of the copying side fail.
func TestCopyFails(t *testing.T) {
	testdouble.Only(t)
	for _, call := range []string{"cuMemcpyDtoDAsync_v2", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime"} {
		t.Run(call, func(t *testing.T) {
			s := connect(t, start(t, 0, "CUDA_DOUBLE_FAIL="+call+":1:700"), 0, transport.Config{})
			remote := must(s.share(t))(t)
			if err := s.initiator.Post(s.write(remote[0], 1)); err != nil {
				t.Fatal(err)
			}
			c := wait(t, s.initiator)
			says(t, c.Err, transport.ErrDevice, "copy on CUDA device 0", call, "CUDA_ERROR_ILLEGAL_ADDRESS (700)")
			var notices [1]transport.Notice
			_, err := s.target.Notifications(t.Context(), notices[:])
			says(t, err, transport.ErrPeer)
			closeBoth(t, s)
		})
	}
}

// TestCloseOfPeersMemoryFails has the initiator's driver refuse to close what it opened.
func TestCloseOfPeersMemoryFails(t *testing.T) {
	testdouble.Only(t)
	s := connect(t, start(t, 0, "CUDA_DOUBLE_FAIL=cuIpcCloseMemHandle:1:700"), 0, transport.Config{})
	remote := must(s.share(t))(t)
	// The initiator ends, and the end of it all gives the memory back.
	if err := s.target.Deregister(s.region); err != nil {
		t.Error(err)
	}
	err := s.initiator.Post(s.write(remote[0], 1))
	says(t, err, transport.ErrDevice, "close the peer's GPU memory", "cuIpcCloseMemHandle")
	if errors.Is(err, transport.ErrPeer) {
		t.Errorf("%v: the peer is not lost", err)
	}
	var notices [1]transport.Notice
	_, err = s.target.Notifications(t.Context(), notices[:])
	says(t, err, transport.ErrPeer)
	s.initiator.Close()
	s.target.Close()
}

// awhile is a PeerTimeout that a test waits for: long enough for a busy machine not to
// reach it before.
const awhile = 3 * time.Second

// TestCopyIsUnderWay ends an initiator with a copy added whose end cannot be waited for:
// what the copy touches stays.
func TestCopyIsUnderWay(t *testing.T) {
	t.Parallel()
	testdouble.Only(t)
	// The copy is held back; the event after it is refused, and so are the wait for the
	// stream and its end, which in the double is a wait, too.
	hold, trace := filepath.Join(t.TempDir(), "hold"), filepath.Join(t.TempDir(), "copies")
	child := start(t, 0, "CUDA_DOUBLE_HOLD="+hold, "CUDA_DOUBLE_TRACE="+trace,
		"CUDA_DOUBLE_FAIL=cuEventRecord:2:719,cuStreamSynchronize:1:719,cuStreamDestroy_v2:1:719")
	s := connect(t, child, 0, transport.Config{PeerTimeout: awhile})
	remote := must(s.share(t))(t)
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.initiator.Post(s.write(remote[0], 1)); err != nil {
		t.Fatal(err)
	}
	says(t, wait(t, s.initiator).Err, transport.ErrDevice, "cuEventRecord", "CUDA error 719")
	contains(t, s.initiator.Close(), "cuStreamSynchronize", "a copy may be under way still")
	says(t, s.initiator.Deregister(s.local), transport.ErrBusy)
	// The copy may write to the target's memory, too.
	says(t, s.target.Close(), transport.ErrBusy, "the peer has not let go")
	before := len(must(os.ReadFile(trace))(t))
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	for len(must(os.ReadFile(trace))(t)) == before { // until the copy has ended
		if _, err := child.Alloc(16); err != nil {
			t.Fatalf("during the copy: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
	// Of memory of its own: had the first copy found its memory gone, every later wait
	// would fail.
	own := must(child.Alloc(16))(t)
	if _, err := own.ReadAt(make([]byte, 16), 0); err != nil {
		t.Errorf("after the copy: %v", err)
	}
}

// write is a transfer of the whole region.
func (s *session) write(to transport.RemoteRegion, id uint64) transport.Transfer {
	return transport.Transfer{ID: id, Op: transport.Write, Local: s.local, Remote: to, Descriptors: []transport.Descriptor{{Length: 1 << 20}}}
}

// wait returns the next completion.
func wait(t *testing.T, in transport.Initiator) transport.Completion {
	t.Helper()
	var done [1]transport.Completion
	for {
		n, err := in.Poll(done[:])
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

// signalChild sends a signal. One that stops the child has done so on return.
func signalChild(t *testing.T, child *remote.Transport, s os.Signal) {
	t.Helper()
	p := child.Process()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
	for s == syscall.SIGSTOP && !stopped(t, p.Pid) {
		time.Sleep(time.Millisecond)
	}
}

// stopped reports whether all threads of a process are stopped.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of %d: %v, %v", pid, threads, err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil || !bytes.Contains(stat, []byte(") T ")) {
			return false
		}
	}
	return true
}

// TestInitiatorIsKilled frees memory that a process had open when it died.
func TestInitiatorIsKilled(t *testing.T) {
	testdouble.Need(t)
	child := start(t, 0)
	s := connect(t, child, 0, transport.Config{})
	must(s.share(t))(t)
	signalChild(t, child, syscall.SIGKILL)
	var notices [1]transport.Notice
	_, err := s.target.Notifications(t.Context(), notices[:])
	says(t, err, transport.ErrPeer)
	child.Close() // reaps it: the double takes a zombie for alive
	if err := errors.Join(s.target.Deregister(s.region), s.memory.Free(), s.target.Close()); err != nil {
		t.Error(err)
	}
}

// TestInitiatorHangs holds memory back that a stopped process has open.
func TestInitiatorHangs(t *testing.T) {
	t.Parallel()
	testdouble.Need(t)
	child := start(t, 0)
	s := connect(t, child, 0, transport.Config{PeerTimeout: awhile})
	must(s.share(t))(t)
	signalChild(t, child, syscall.SIGSTOP)
	says(t, s.target.Deregister(s.region), transport.ErrBusy, fmt.Sprint("has not let go of it within ", awhile))
	says(t, s.target.Close(), transport.ErrBusy, fmt.Sprint("has not let go of this side's memory within ", awhile))
	signalChild(t, child, syscall.SIGCONT)
	if err := s.initiator.Close(); err != nil {
		t.Error(err)
	}
	if err := s.memory.Free(); err != nil {
		t.Errorf("after the initiator's Close: %v", err)
	}
}

// TestTargetDies loses the target under load, with this process as initiator.
func TestTargetDies(t *testing.T) {
	t.Parallel()
	testdouble.Need(t)
	for signal, c := range map[os.Signal]struct {
		timeout time.Duration
		want    string
	}{
		syscall.SIGKILL: {time.Minute, "it closed the connection"},
		syscall.SIGSTOP: {awhile, fmt.Sprint("it said nothing for ", awhile)},
	} {
		t.Run(fmt.Sprint(signal), func(t *testing.T) {
			t.Parallel()
			child := start(t, 0)
			cfg := transport.Config{PeerTimeout: c.timeout}
			l := must(child.Listen(t.Context(), cfg))(t)
			in := must(cuda.New().Dial(t.Context(), l.Address(), cfg))(t)
			target := must(l.AcceptTarget(t.Context()))(t)
			there, here := must(child.Alloc(1<<20))(t), must(memoryOf(0)(1<<20))(t)
			region := must(target.Register(there.Memory()))(t)
			s := &session{initiator: in, local: must(in.Register(here.Memory()))(t)}
			remote := must(in.Import(must(target.Advertise(region))(t)))(t)
			signalChild(t, child, signal)
			var failure error
			for id := uint64(1); failure == nil && t.Context().Err() == nil; id++ {
				if failure = in.Post(s.write(remote[0], id)); failure == nil {
					failure = wait(t, in).Err
				}
			}
			says(t, failure, transport.ErrPeer, c.want)
			if err := errors.Join(in.Close(), here.Free()); err != nil {
				t.Error(err)
			}
			signalChild(t, child, syscall.SIGKILL)
		})
	}
}
