// Package testdouble builds libraries that replace libcuda.so.1 and libnvidia-ml.so.1 in
// tests, and restarts a test binary with them in the driver's place. Their devices are
// defined in libcuda/double.h and libnvml/nvml.c. The libraries have the names, signatures
// and error codes of the driver's calls over plain memory. Their speed means nothing.
//
// Packages that use internal/cudadrv or internal/nvml call Main from their TestMain. No
// package of the product imports this one.
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
	// libraryPath is the variable with the first directories that the dynamic linker
	// searches.
	libraryPath = "LD_LIBRARY_PATH"
	// selector selects the library under the tests: empty for the double, "none" for the
	// machine's driver. In the process that Main starts it holds the double's folder.
	selector = "CUDA_DOUBLE"
	// owner is the ID of the process that removes the double's folder.
	owner = "CUDA_DOUBLE_OWNER"
	// requirement is the word for the double in KVBENCH_REQUIRE.
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

// Main runs a package's tests against the double: it builds the double and replaces this
// process by the test binary, restarted with it. Without a C compiler the tests run without
// the double, and Need skips.
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

// missing is the reason if there is no double.
var missing error

// Need skips a test if there is no double, or fails it if KVBENCH_REQUIRE contains
// cuda-double.
func Need(t testing.TB) {
	t.Helper()
	if missing != nil {
		testenv.Skip(t, requirement, fmt.Sprintf("the test double of libcuda cannot be built: %v", missing))
	}
}

// Only is Need for a test that uses features of the double alone, or makes it fail.
func Only(t testing.TB) {
	t.Helper()
	Need(t)
	if Real() {
		t.Skip("looks at the test double of libcuda, and runs against a driver")
	}
}

// AsOnADriver runs the matching tests of this binary as scripts/gpu-check does: the double
// takes the place of the machine's driver, and there is no C compiler. The tests fail if
// they use features of the double alone, or need more than a driver.
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

// Real reports whether the tests run against the machine's driver.
func Real() bool { return os.Getenv(selector) == "none" }

// again replaces this process by the test binary with the double.
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

// environment is this process's environment with the library of dir in the driver's place,
// and this process as the owner that removes dir.
func environment(dir string) []string {
	path := dir
	if before := os.Getenv(libraryPath); before != "" {
		path += ":" + before
	}
	set := []string{libraryPath + "=" + path, selector + "=" + dir, owner + "=" + strconv.Itoa(os.Getpid())}
	// If a variable had two values, the first would count.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(set, func(s string) bool { return strings.HasPrefix(s, name+"=") })
	})
	return append(env, set...)
}

// Command runs this test binary again with the same double. The package's TestMain selects
// the task by the further variables.
func Command(more ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(append(os.Environ(), atOnce()), more...)
	return cmd
}

// atOnce is testenv.EndAtOnce as an entry of an environment.
func atOnce() string {
	name, value := testenv.EndAtOnce()
	return name + "=" + value
}
