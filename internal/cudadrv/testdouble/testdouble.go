// Package testdouble builds libraries that stand in for libcuda.so.1 and
// libnvidia-ml.so.1 in tests, and starts a test binary again with them in the
// driver's place. What they know of devices is in libcuda/double.h and
// libnvml/nvml.c. They are test doubles: they have the names, signatures and error
// codes of the driver's calls over plain memory, and say nothing about speed.
//
// Packages that use internal/cudadrv or internal/nvml call Main from their TestMain.
// No package of the product imports this one.
package testdouble

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kvbench/internal/testenv"
)

//go:embed libcuda libnvml
var sources embed.FS

const (
	// libraryPath is where the dynamic linker looks first.
	libraryPath = "LD_LIBRARY_PATH"
	// selector says what the tests run against: nothing for the double, "none" for
	// the machine's driver. The process that Main starts has the double's folder in it.
	selector = "CUDA_DOUBLE"
	// owner is the ID of the process that removes the double's folder.
	owner = "CUDA_DOUBLE_OWNER"
	// requirement is KVBENCH_REQUIRE's word for the double.
	requirement = "cuda-double"
)

// Build puts the libraries into dir: libcuda.so.1 and libnvidia-ml.so.1. Old ones lack
// the calls that came after CUDA 10.1. It refuses where the tests run against the
// machine's driver, which may have no C compiler: such a test calls Only before.
func Build(dir string, old bool) error {
	if Real() {
		return errors.New("the test double is not built for a run against a driver")
	}
	return errors.Join(
		build("libcuda", filepath.Join(dir, "libcuda.so.1"), old),
		build("libnvml", filepath.Join(dir, "libnvidia-ml.so.1"), old),
	)
}

// build makes a library of a folder of sources, or takes it from the cache.
func build(folder, library string, old bool) error {
	command := []string{"cc", "-shared", "-fPIC", "-pthread", "-O2", "-Wall", "-Wextra", "-Werror"}
	if old {
		command = append(command, "-DOLD_DRIVER")
	}
	name, err := cacheName(filepath.Base(library), command, folder)
	if err == nil && !fromCache(name, library) {
		if err = compile(command, folder, library); err == nil {
			toCache(name, library)
		}
	}
	if err != nil {
		return fmt.Errorf("build the test double %s: %w", filepath.Base(library), err)
	}
	return nil
}

// compile runs the compiler over a folder of sources.
func compile(command []string, folder, library string) error {
	src, err := os.MkdirTemp("", "kvbench-double-src")
	if err != nil {
		return err
	}
	defer os.RemoveAll(src)
	if err := os.CopyFS(src, sources); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(src, folder, "*.c"))
	if err != nil {
		return err
	}
	args := append(append(command[1:len(command):len(command)], "-o", library), files...)
	if out, err := exec.Command(command[0], args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// Main runs a package's tests against the double: it builds it and puts the test
// binary, started again with it, in this process's place. Where there is no C
// compiler the tests run without, and Need skips.
func Main(m *testing.M) int {
	if os.Getenv(selector) == "" {
		err := again() // returns only if it fails
		if !errors.Is(err, exec.ErrNotFound) {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		missing = err
	}
	status := m.Run()
	if os.Getenv(owner) == strconv.Itoa(os.Getpid()) {
		os.RemoveAll(os.Getenv(selector))
	}
	return status
}

// missing says why there is no double.
var missing error

// Need skips a test where there is no double, or fails it where KVBENCH_REQUIRE
// names cuda-double.
func Need(t testing.TB) {
	t.Helper()
	if missing != nil {
		testenv.Skip(t, requirement, fmt.Sprintf("the test double of libcuda cannot be built: %v", missing))
	}
}

// Only is Need for a test that looks at what the double alone has, or makes it fail.
func Only(t testing.TB) {
	t.Helper()
	Need(t)
	if Real() {
		t.Skip("looks at the test double of libcuda, and runs against a driver")
	}
}

// AsOnADriver runs the tests of this binary whose names match run as scripts/gpu-check
// does: the double is taken for the machine's driver, and there is no C compiler. They
// fail if they look at what the double alone has, or need more than a driver.
func AsOnADriver(t *testing.T, run string, env ...string) {
	t.Helper()
	Only(t)
	cmd := exec.Command("/proc/self/exe", "-test.run="+run)
	// Of two values of a variable, os/exec takes the last.
	cmd.Env = append(append(os.Environ(), selector+"=none", "PATH=", atOnce()), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("with %q: %v\n%s", env, err, out)
	}
}

// Real reports whether the tests run against the machine's own driver.
func Real() bool { return os.Getenv(selector) == "none" }

// again starts this test binary with the double, in this process's place.
func again() error {
	dir, err := os.MkdirTemp("", "kvbench-double")
	if err != nil {
		return err
	}
	if err = Build(dir, false); err == nil {
		err = syscall.Exec("/proc/self/exe", os.Args, environment(dir))
	}
	os.RemoveAll(dir)
	return err
}

// environment is this process's environment with the library of dir in the
// driver's place, and this process as the one that removes dir.
func environment(dir string) []string {
	path := dir
	if before := os.Getenv(libraryPath); before != "" {
		path += ":" + before
	}
	set := []string{libraryPath + "=" + path, selector + "=" + dir, owner + "=" + strconv.Itoa(os.Getpid())}
	// Of two values of a variable, the first would count.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(set, func(s string) bool { return strings.HasPrefix(s, name+"=") })
	})
	return append(env, set...)
}

// Command is this test binary started again, with the same double and further
// variables, by which the package's TestMain knows what to do.
func Command(more ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(append(os.Environ(), atOnce()), more...)
	return cmd
}

// atOnce is the variable that has a process of a test end when it is done. The race
// detector would have it sleep for a second first, in case goroutines that outlive the
// last one that matters race.
func atOnce() string { return "GORACE=atexit_sleep_ms=0 " + os.Getenv("GORACE") }
