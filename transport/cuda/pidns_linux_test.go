package cuda_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"kvbench/internal/cudadrv/testdouble"
	"kvbench/internal/testenv"
	"kvbench/transport"
	"kvbench/transport/cuda"
	"kvbench/transport/transporttest"
	"kvbench/transport/transporttest/remote"
)

// startInNamespace starts the second process in a PID namespace of its own.
func startInNamespace(t *testing.T, device int, env ...string) *remote.Transport {
	t.Helper()
	testdouble.Need(t)
	if os.Geteuid() != 0 {
		testenv.Skip(t, "pidns", "needs root, to make a PID namespace")
	}
	cmd := testdouble.Command(append(env, fmt.Sprint(childVar, "=", device))...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	return startCommand(t, cmd)
}

// TestPIDNamespaces has the second process in a PID namespace of its own, on a device
// that file descriptors do not share the memory of.
func TestPIDNamespaces(t *testing.T) {
	testdouble.Only(t)
	for _, c := range []struct{ env, lacks string }{
		{"CUDA_DOUBLE_VMM=0", "CUDA device 0 (Test double 0) has no virtual memory management"},
		{"CUDA_DOUBLE_FDS=0", "CUDA device 0 (Test double 0) does not export memory as file descriptors"},
	} {
		child := startInNamespace(t, 0, c.env)
		l := must(child.Listen(t.Context(), transport.Config{}))(t)
		_, err := cuda.New().Dial(t.Context(), l.Address(), transport.Config{})
		says(t, err, transport.ErrUnavailable, "do not cross PID namespaces", "--pid=host", "hostPID",
			"nor can file descriptors carry the memory across, at the peer: "+c.lacks)
		own := must(cuda.New().Listen(t.Context(), transport.Config{}))(t)
		defer own.Close()
		_, err = child.DialTarget(t.Context(), own.Address(), transport.Config{})
		says(t, err, transport.ErrUnavailable, "do not cross PID namespaces", "at this side: "+c.lacks)
	}
}

// TestConformanceAcrossPIDNamespaces runs the suite where file descriptors alone get
// memory across, and between two devices where there are two.
func TestConformanceAcrossPIDNamespaces(t *testing.T) {
	needShareable(t)
	device := 1
	if testdouble.Real() {
		device = 0
	}
	peer := startInNamespace(t, device, shareableVar+"=1")
	transporttest.Run(t, transporttest.Subject{
		Listener: peer, ListenerMemory: peer.Alloc,
		Dialer: cuda.New(), DialerMemory: shareableOf(0),
		Config: transport.Config{Streams: 3, BusyPoll: true},
		All:    testdouble.Real(), Part: 4,
	})
}

// TestMemoryAcrossPIDNamespaces: the endpoint makes memory that gets across, and refuses
// what does not.
func TestMemoryAcrossPIDNamespaces(t *testing.T) {
	needShareable(t)
	s := connect(t, startInNamespace(t, 0), 0, transport.Config{}, shareableOf)
	legacy := must(memoryOf(0)(4096))(t)
	defer legacy.Free()
	_, err := s.target.Register(legacy.Memory())
	says(t, err, transport.ErrUnavailable, "register memory that has legacy handles only", "do not cross PID namespaces", "--pid=host",
		"register memory that the connection allocates")
	own := must(s.target.(transport.Allocator).Allocate(1 << 20))(t)
	s.region = must(s.target.Register(own))(t)
	remote := must(s.share(t))(t)
	if err := s.initiator.Post(s.write(remote[0], 1)); err != nil {
		t.Fatal(err)
	}
	if c := wait(t, s.initiator); c.Err != nil {
		t.Error(c.Err)
	}
	for _, e := range []transport.Endpoint{s.target, s.initiator} {
		if got := e.Path().Details["handles"]; got != "posix_fd" {
			t.Errorf("handles %v, want posix_fd", got)
		}
	}
	closeBoth(t, s)
}
