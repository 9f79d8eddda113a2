package cuda_test

import (
	"os"
	"syscall"
	"testing"

	"kvbench/internal/cudadrv/testdouble"
	"kvbench/transport"
	"kvbench/transport/cuda"
)

// TestPIDNamespaces has the second process in a PID namespace of its own.
func TestPIDNamespaces(t *testing.T) {
	testdouble.Need(t)
	if os.Geteuid() != 0 {
		testdouble.Skip(t, "pidns", "needs root, to make a PID namespace")
	}
	cmd := testdouble.Command(childVar + "=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	child := startCommand(t, cmd)
	l := must(child.Listen(t.Context(), transport.Config{}))(t)
	_, err := cuda.New().Dial(t.Context(), l.Address(), transport.Config{})
	says(t, err, transport.ErrUnavailable, "do not cross PID namespaces", "--pid=host", "hostPID")
	own := must(cuda.New().Listen(t.Context(), transport.Config{}))(t)
	defer own.Close()
	_, err = child.DialTarget(t.Context(), own.Address(), transport.Config{})
	says(t, err, transport.ErrUnavailable, "do not cross PID namespaces")
}
