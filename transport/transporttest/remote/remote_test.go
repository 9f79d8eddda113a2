package remote_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"kvbench/internal/testenv"
	"kvbench/transport/mem"
	"kvbench/transport/tcp"
	"kvbench/transport/transporttest"
	"kvbench/transport/transporttest/remote"
)

const childVar = "REMOTE_TEST_CHILD"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(childVar) {
	case "":
		os.Exit(m.Run())
	case "tcp":
		err = remote.Serve(tcp.New(), transporttest.HostMemory)
	case "broken":
		err = remote.Serve(mem.New(mem.Corrupt), transporttest.HostMemory)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func start(t *testing.T, child string) *remote.Transport {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	variable, value := testenv.EndAtOnce()
	cmd.Env = append(os.Environ(), childVar+"="+child, variable+"="+value)
	cmd.Stderr = os.Stderr
	r, err := remote.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("end of the child: %v", err)
		}
	})
	return r
}

// TestConformance runs the suite over a transport that passes it in one process.
func TestConformance(t *testing.T) {
	child := start(t, "tcp")
	transporttest.Run(t, transporttest.Subject{
		Listener: child, ListenerMemory: child.Alloc,
		Dialer: tcp.New(), DialerMemory: transporttest.HostMemory,
	})
}

// TestFaultIsSeen holds a broken transport in a child up to the suite.
func TestFaultIsSeen(t *testing.T) {
	child := start(t, "broken")
	name, complaints := transporttest.FirstFailure(transporttest.Subject{Listener: child, ListenerMemory: child.Alloc})
	if name == "" {
		t.Fatal("a transport that flips a bit passed every case")
	}
	t.Logf("caught by %s: %.120s", name, complaints[0])
}
