package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"kvbench/internal/cudadrv/testdouble"
)

// doubleDir holds the test double of libcuda once buildDouble was called.
var doubleDir string

var buildDouble = sync.OnceValue(func() (err error) {
	if doubleDir, err = os.MkdirTemp("", "kvbench-double"); err != nil {
		return err
	}
	return testdouble.Build(doubleDir, false)
})

// withDouble starts kvbench with the test double of libcuda in the driver's place, and
// skips where that cannot be built.
func withDouble(t *testing.T, env ...string) launch {
	t.Helper()
	err := buildDouble()
	if errors.Is(err, exec.ErrNotFound) {
		skipOrFail(t, "cuda-double", err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	return launch{env: append([]string{"LD_LIBRARY_PATH=" + doubleDir}, env...)}
}

// llama70B is a request of 512 tokens of Llama-2-70B: 80 layers, 167.8 MB.
var llama70B = []string{"--model", "llama-2-70b", "--context", "512", "--calibrate", "off", "--warmup", "1", "--requests", "2", "--verify", "full"}

// TestCUDALoopback moves whole requests between the GPU memory of two processes.
func TestCUDALoopback(t *testing.T) {
	for _, direction := range []string{"push", "pull"} {
		t.Run(direction, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run.json")
			args := append([]string{"loopback", "--transport", "cuda", "--direction", direction, "--out", out}, llama70B...)
			withDouble(t).start(t, args...).end(patience).want(t, exitDone)
			r := readRun(t, out)
			c := r.Cells[0]
			if c.Bytes != 167_772_160 || c.Requests != 2 || c.Verify.Checked == 0 || c.Verify.Mismatched != 0 {
				t.Errorf("%d requests of %d bytes, verification %+v; want 2 of 167772160, all of it right", c.Requests, c.Bytes, c.Verify)
			}
			if r.Config["memory"] != "cuda:0" || r.Transport.Lane != "cuda/same device (HBM copy)" || r.Transport.Device != "cuda:0" {
				t.Errorf("memory %q, lane %q, device %q", r.Config["memory"], r.Transport.Lane, r.Transport.Device)
			}
		})
	}
}

// TestCUDAIsRefused asks for the transport where it cannot be used, in a process
// whose driver is a library that does not load.
func TestCUDAIsRefused(t *testing.T) {
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "libcuda.so.1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	l := launch{env: []string{"LD_LIBRARY_PATH=" + broken}}
	l.start(t, "loopback", "--transport", "cuda").end(patience).want(t, exitFailed, "no CUDA driver: libcuda.so.1 not found or not loadable")
}

// TestMemoryFlags: what can be wrong with where the KV cache lies is said before
// anything is looked for.
func TestMemoryFlags(t *testing.T) {
	for line, says := range map[string]string{
		"--memory tape":                         `--memory "tape" is not known`,
		"--memory cuda":                         `--memory "cuda" is not known: choose host, or cuda:N`,
		"--memory cuda:-1":                      `--memory "cuda:-1" is not known`,
		"--memory host --transport cuda":        "--memory host with --transport cuda",
		"--memory cuda:0 --gpu-device 1":        "name two GPUs",
		"--gpu-device 1":                        "--gpu-device has no effect on host memory",
		"--gpu-device -1 --transport cuda":      "--gpu-device -1: give the number of a GPU",
		"--hugepages --memory cuda:0":           "--hugepages has no effect on GPU memory",
		"--lock --transport cuda":               "--lock has no effect on GPU memory",
		"--device eth0 --transport cuda":        "--device has no effect on CUDA IPC",
		"--socket-buffer 1MiB --transport cuda": "--socket-buffer has no effect on CUDA IPC",
	} {
		t.Run(line, func(t *testing.T) {
			kvbench(t, append([]string{"loopback"}, strings.Fields(line)...)...).want(t, exitUsage, says)
		})
	}
}
