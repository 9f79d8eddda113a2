package cudadrv_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"kvbench/internal/cudadrv"
	"kvbench/internal/cudadrv/testdouble"
)

// childVar names the function of children that a process started by a test runs.
const childVar = "CUDADRV_TEST_CHILD"

// children are run in processes of their own: the driver is started once a
// process, and memory is opened in another process than its owner's.
var children = map[string]func() error{
	"open":   openDriver,
	"device": openDevice,
	"name":   nameDevice,
	"fill":   fillDevice,
	"copies": checkCopies,
	"late":   checkLate,
	"import": importMemory,
	"pinned": checkPinned,
	"share":  shareOnce,
	"rdma":   allocForRDMA,

	"import descriptor": importDescriptor,
	"neighbour":         readNeighbour,
}

func TestMain(m *testing.M) {
	if f := children[os.Getenv(childVar)]; f != nil {
		if err := f(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(testdouble.Main(m))
}

// child runs a function of children and returns what it printed.
func child(t *testing.T, name string, env ...string) (output string, ok bool) {
	t.Helper()
	testdouble.Need(t)
	cmd := testdouble.Command(append(env, childVar+"="+name)...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out)), err == nil
}

// context returns the context of device 0.
func context(t testing.TB) *cudadrv.Context {
	t.Helper()
	testdouble.Need(t)
	_, c, err := firstDevice()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// firstDevice opens the driver and the context of device 0.
func firstDevice() (*cudadrv.Driver, *cudadrv.Context, error) {
	d, err := cudadrv.Open()
	if err != nil {
		return nil, nil, err
	}
	c, err := d.Context(0)
	return d, c, err
}

// alloc makes a buffer with the given content, freed with the test.
func alloc(t testing.TB, c *cudadrv.Context, content []byte) *cudadrv.Buffer {
	t.Helper()
	b, err := filled(c, content)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Free(); err != nil {
			t.Errorf("Free: %v", err)
		}
	})
	return b
}

func filled(c *cudadrv.Context, content []byte) (*cudadrv.Buffer, error) {
	b, err := c.Alloc(int64(len(content)))
	if err != nil {
		return nil, err
	}
	_, err = b.WriteAt(content, 0)
	return b, err
}

// expect compares a buffer with what it should hold.
func expect(b *cudadrv.Buffer, want []byte) error {
	got := make([]byte, len(want))
	if _, err := b.ReadAt(got, 0); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("device memory holds %.64q, want %.64q", got, want)
	}
	return nil
}
