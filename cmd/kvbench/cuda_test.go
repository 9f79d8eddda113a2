package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kvbench/internal/cudadrv/testdouble"
)

// TestCUDAIsRefused asks for the transport where it cannot be used, in a process
// whose driver is the library of a folder.
func TestCUDAIsRefused(t *testing.T) {
	broken, double := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "libcuda.so.1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		folder string
		needs  func() error
		want   string
	}{
		"no driver": {broken, func() error { return nil },
			"no CUDA driver: libcuda.so.1 not found or not loadable"},
		"host memory": {double, func() error { return testdouble.Build(double, false) },
			"transport cuda moves cuda memory only, and a run makes host memory only so far"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.needs(); errors.Is(err, exec.ErrNotFound) {
				skipOrFail(t, "cuda-double", err.Error())
			} else if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], "loopback", "--transport", "cuda", "--model", "llama-3.1-8b", "--context", "1K")
			cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+c.folder)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != exitFailed || !strings.Contains(stderr.String(), c.want) {
				t.Errorf("got %v, %q; want exit status %d and %q", err, stderr.String(), exitFailed, c.want)
			}
		})
	}
}
