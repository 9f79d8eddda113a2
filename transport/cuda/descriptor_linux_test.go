package cuda_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"kvbench/internal/cudadrv/testdouble"
	"kvbench/transport"
	"kvbench/transport/cuda"
	"kvbench/transport/transporttest/remote"
)

// openFiles counts a process's file descriptors.
func openFiles(t *testing.T, pid int) int {
	t.Helper()
	return len(must(os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)))(t))
}

// TestDescriptorsAreClosed shares and takes back a region many times, and looks at what
// both processes have open.
func TestDescriptorsAreClosed(t *testing.T) {
	needShareable(t)
	child := start(t, 0)
	cycle := func() {
		s := connect(t, child, 0, transport.Config{}, shareableOf)
		for range 10 {
			must(s.share(t))(t)
			if err := s.target.Deregister(s.region); err != nil {
				t.Fatal(err)
			}
			s.region = must(s.target.Register(s.memory.Memory()))(t)
		}
		must(s.share(t))(t)
		closeBoth(t, s)
	}
	cycle() // what stays from the first is the drivers'
	here, there := openFiles(t, os.Getpid()), openFiles(t, child.Process().Pid)
	for range 5 {
		cycle()
	}
	// Each connection leaves the child the memory that it registered, which the double
	// keeps in a file: it is too much for two to have one block.
	there += 5
	if got := openFiles(t, os.Getpid()); got > here {
		t.Errorf("this process has %d files open, where it had %d", got, here)
	}
	if got := openFiles(t, child.Process().Pid); got > there {
		t.Errorf("the second process has %d files open, where %d are to be", got, there)
	}
}

// TestImportByDescriptorFails provokes what keeps memory of device 1 here from being
// opened on device 0 there. What fails once leaves nothing behind and can be tried again.
func TestImportByDescriptorFails(t *testing.T) {
	testdouble.Only(t)
	old := t.TempDir()
	if err := testdouble.Build(old, true); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		env   []string
		want  []string
		again bool // it works the next time
	}{
		{"no peer access", []string{"CUDA_DOUBLE_PEERS=0"},
			[]string{"no peer access from CUDA device 0", "nvidia-smi topo -p2p r"}, false},
		{"no peer access to a hidden device", []string{"CUDA_DOUBLE_PEERS=0", "CUDA_VISIBLE_DEVICES=0"},
			[]string{hidden + "no peer access from CUDA device 0", "cuMemSetAccess: CUDA_ERROR_INVALID_DEVICE"}, false},
		{"hidden device", []string{"CUDA_VISIBLE_DEVICES=0", "CUDA_DOUBLE_FAIL=cuMemImportFromShareableHandle:1:101"},
			[]string{hidden + "no peer access from CUDA device 0", "cuMemImportFromShareableHandle: CUDA_ERROR_INVALID_DEVICE (101)"}, true},
		{"hidden device, otherwise", []string{"CUDA_VISIBLE_DEVICES=0", "CUDA_DOUBLE_FAIL=cuMemMap:1:205"},
			[]string{hidden + "open the peer's GPU memory: cuMemMap: CUDA_ERROR_MAP_FAILED (205)"}, true},
		{"not supported", []string{"CUDA_DOUBLE_FAIL=cuMemImportFromShareableHandle:1:801"},
			[]string{"cuMemImportFromShareableHandle: CUDA_ERROR_NOT_SUPPORTED (801)", "use the transport tcp with GPU memory"}, true},
		{"out of memory", []string{"CUDA_DOUBLE_FAIL=cuMemAddressReserve:1:2"},
			[]string{"open the peer's GPU memory", "CUDA_ERROR_OUT_OF_MEMORY (2)"}, true},
		{"no virtual memory", []string{"CUDA_DOUBLE_VMM=0"},
			[]string{"open the peer's GPU memory, which file descriptors share, at this side", "CUDA device 0 (Test double 0) has no virtual memory management"}, false},
		{"old driver", []string{"LD_LIBRARY_PATH=" + old, "CUDA_DOUBLE_DRIVER=10010"},
			[]string{"CUDA driver too old for cuMemCreate", "CUDA 10.2 or newer is needed"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			child := start(t, 0, c.env...)
			s := connect(t, child, 1, transport.Config{}, shareableOf)
			before := openFiles(t, child.Process().Pid)
			_, err := s.share(t)
			contains(t, err, c.want...)
			if after := openFiles(t, child.Process().Pid); after > before {
				t.Errorf("%d files are open there, where %d were", after, before)
			}
			if _, err := s.share(t); (err == nil) != c.again {
				t.Errorf("second Import: %v", err)
			}
			closeBoth(t, s)
		})
	}
}

// connectTo makes a session with a child as target, which has nothing registered.
func connectTo(t *testing.T, child *remote.Transport, cfg transport.Config) *session {
	t.Helper()
	l := must(child.Listen(t.Context(), cfg))(t)
	s := &session{initiator: must(cuda.New().Dial(t.Context(), l.Address(), cfg))(t)}
	s.target = must(l.AcceptTarget(t.Context()))(t)
	s.memory = must(memoryOf(0)(1 << 20))(t)
	t.Cleanup(func() { s.memory.Free() })
	s.local = must(s.initiator.Register(s.memory.Memory()))(t)
	return s
}

// fromChild is a child as target and this process as initiator.
func fromChild(t *testing.T, child *remote.Transport) (*session, transport.Advertisement) {
	t.Helper()
	s := connectTo(t, child, transport.Config{})
	there := must(child.Alloc(1 << 20))(t)
	s.region = must(s.target.Register(there.Memory()))(t)
	return s, must(s.target.Advertise(s.region))(t)
}

// TestExportFails has the target's driver make no descriptor, the first time.
func TestExportFails(t *testing.T) {
	testdouble.Only(t)
	s, ad := fromChild(t, start(t, 0, shareableVar+"=1", "CUDA_DOUBLE_FAIL=cuMemExportToShareableHandle:1:2"))
	_, err := s.initiator.Import(ad)
	contains(t, err, "the peer's driver made no file descriptor of its memory: CUDA error 2", "ulimit -n")
	if _, err := s.initiator.Import(ad); err != nil {
		t.Errorf("second Import: %v", err)
	}
	if err := errors.Join(s.initiator.Close(), s.target.Close()); err != nil {
		t.Error(err)
	}
}

// TestImportOfWithdrawnDescriptor: the target has taken the region back before it was
// asked.
func TestImportOfWithdrawnDescriptor(t *testing.T) {
	needShareable(t)
	s := connect(t, start(t, 0), 0, transport.Config{}, shareableOf)
	ad := must(s.target.Advertise(s.region))(t)
	if err := s.target.Deregister(s.region); err != nil {
		t.Fatal(err)
	}
	_, err := s.initiator.Import(ad)
	says(t, err, transport.ErrRegion, "withdrawn")
	closeBoth(t, s)
}

// TestNoLegacyHandles registers memory at a target whose driver makes no handle of it.
func TestNoLegacyHandles(t *testing.T) {
	testdouble.Only(t)
	for name, c := range map[string]struct{ env, want string }{
		"shareable": {"", "the memory that the connection allocates is shared by file descriptors instead"},
		"not":       {"CUDA_DOUBLE_VMM=0", "nor by file descriptor, at this side: CUDA device 0 (Test double 0) has no virtual memory management"},
	} {
		child := start(t, 0, "CUDA_DOUBLE_NO_LEGACY=0", c.env)
		s := connectTo(t, child, transport.Config{})
		there := must(child.Alloc(4096))(t)
		_, err := s.target.Register(there.Memory())
		says(t, err, transport.ErrUnsupported, "cuIpcGetMemHandle: CUDA_ERROR_NOT_SUPPORTED (801)", c.want)
		if err := errors.Join(s.initiator.Close(), s.target.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
