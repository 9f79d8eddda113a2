package cuda_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"kvbench/internal/cudadrv"
	"kvbench/internal/cudadrv/testdouble"
	"kvbench/internal/testenv"
	"kvbench/transport/cuda"
	"kvbench/transport/transporttest"
	"kvbench/transport/transporttest/gpu"
	"kvbench/transport/transporttest/remote"
)

const (
	// childVar names the device whose memory a child process has: it serves one side
	// of the tests.
	childVar = "CUDA_TEST_CHILD"
	// shareableVar has it make memory that file descriptors share.
	shareableVar = "CUDA_TEST_SHAREABLE"
)

func TestMain(m *testing.M) {
	var device int
	if n, _ := fmt.Sscan(os.Getenv(childVar), &device); n == 1 {
		memory := memoryOf(device)
		if os.Getenv(shareableVar) != "" {
			memory = shareableOf(device)
		}
		if err := remote.Serve(cuda.New(), memory); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// So that memory of both kinds is refused to be freed while the peer has it.
	os.Setenv("CUDA_DOUBLE_STRICT", "1")
	os.Exit(testdouble.Main(m))
}

// start starts a process that serves the transport with memory of a device.
func start(t testing.TB, device int, env ...string) *remote.Transport {
	t.Helper()
	testdouble.Need(t)
	return startCommand(t, testdouble.Command(append(env, fmt.Sprint(childVar, "=", device))...))
}

func startCommand(t testing.TB, cmd *exec.Cmd) *remote.Transport {
	t.Helper()
	cmd.Stderr = os.Stderr
	r, err := remote.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// memoryOf is the suite's Allocator on a device.
func memoryOf(device int) transporttest.Allocator {
	return gpu.Memory(device, (*cudadrv.Context).Alloc)
}

// shareableOf is memoryOf with memory that file descriptors share.
func shareableOf(device int) transporttest.Allocator {
	return gpu.Memory(device, (*cudadrv.Context).AllocShareable)
}

// needShareable skips where file descriptors do not share device 0's memory.
func needShareable(t *testing.T) {
	t.Helper()
	testdouble.Need(t)
	d := must(cudadrv.Open())(t)
	if err := d.CheckShareable(must(d.Device(0))(t)); err != nil {
		testenv.Skip(t, "cuda-vmm", err.Error())
	}
}

// TestAsOnADriver: what scripts/gpu-check runs of these tests needs a driver and nothing
// else. It leaves out the conformance suite, which looks at the double nowhere.
func TestAsOnADriver(t *testing.T) {
	t.Parallel()
	testdouble.AsOnADriver(t, "DescriptorsAreClosed|SameProcess|Killed|Dies|Allocate")
}
