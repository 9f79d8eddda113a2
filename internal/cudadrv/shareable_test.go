package cudadrv_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"kvbench/internal/cudadrv"
	"kvbench/internal/cudadrv/testdouble"
	"kvbench/internal/testenv"
)

const (
	granule     = 2 << 20 // the double's
	sharedSize  = 3 << 20
	sharedWhole = 2 * granule
)

// shareableHere returns the context of device 0, whose memory descriptors share, or skips.
func shareableHere(t *testing.T) *cudadrv.Context {
	t.Helper()
	c := context(t)
	if err := c.Driver().CheckShareable(c.Device); err != nil {
		testenv.Skip(t, "cuda-vmm", err.Error())
	}
	return c
}

// shareable is filled, with memory of AllocShareable.
func shareable(c *cudadrv.Context, content []byte) (*cudadrv.Buffer, error) {
	b, err := c.AllocShareable(int64(len(content)))
	if err != nil {
		return nil, err
	}
	_, err = b.WriteAt(content, 0)
	return b, err
}

// importDescriptor is a child: it maps the memory of descriptor 3 twice, closes that,
// copies a piece to the front, says so, waits for a line, and copies back into memory of
// its own what is then at the front.
func importDescriptor() error {
	_, c, err := firstDevice()
	if err != nil {
		return err
	}
	f := os.NewFile(3, "memory")
	first, err := c.ImportDescriptor(f, sharedWhole)
	if err != nil {
		return err
	}
	second, err := c.ImportDescriptor(f, sharedWhole)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if first.Pointer == second.Pointer {
		return errors.New("two mappings at one address")
	}
	if !testdouble.Real() {
		// The double knows its memory by two addresses.
		if err := copyOnce(c, first.Pointer, second.Pointer+512, ipcPiece); !errors.Is(err, cudadrv.InvalidValue) {
			return fmt.Errorf("overlapping copy between two mappings: %w", err)
		}
	}
	if err := errors.Join(copyOnce(c, first.Pointer, second.Pointer+ipcOffset, ipcPiece), second.Close()); err != nil {
		return err
	}
	fmt.Println("copied")
	fmt.Scanln()
	own, err := c.Alloc(ipcPiece)
	if err != nil {
		return err
	}
	if err := errors.Join(copyOnce(c, own.Pointer, first.Pointer, ipcPiece), first.Close()); err != nil {
		return err
	}
	return expect(own, noise(sharedSize, 3)[ipcOffset:ipcOffset+ipcPiece])
}

// copyOnce copies within device memory and waits.
func copyOnce(c *cudadrv.Context, to, from cudadrv.DevicePointer, n int64) error {
	return copyAll(c, func(copies *cudadrv.Copies) { copies.Add(to, from, n) })
}

// copyAll does the copies that add collects, within device memory, and waits.
func copyAll(c *cudadrv.Context, add func(*cudadrv.Copies)) error {
	return c.Do(func() error {
		s, err := c.NewStream()
		if err != nil {
			return err
		}
		var copies cudadrv.Copies
		add(&copies)
		return errors.Join(s.Copy(&copies), s.Synchronize(), s.Close())
	})
}

// TestImportDescriptor opens memory in a second process by its descriptor. It lives there
// when its owner has freed it, as the driver has it.
func TestImportDescriptor(t *testing.T) {
	c := shareableHere(t)
	content := noise(sharedSize, 3)
	b, err := shareable(c, content)
	if err != nil {
		t.Fatal(err)
	}
	x, err := c.Export(b.Pointer + ipcOffset)
	if err != nil || !x.Shareable || x.Offset != ipcOffset {
		t.Errorf("exported %+v, %v; want shareable memory at %d", x, err, ipcOffset)
	}
	if !testdouble.Real() && x.Size != sharedWhole {
		t.Errorf("an allocation of %d bytes, want the %d of two granules", x.Size, sharedWhole)
	}
	f, err := c.ExportDescriptor(b.Pointer + ipcOffset)
	if err != nil {
		t.Fatal(err)
	}
	cmd := testdouble.Command(childVar + "=import descriptor")
	cmd.ExtraFiles = []*os.File{f}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cmd.Start(), f.Close()); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, len("copied\n"))
	if _, err := io.ReadFull(out, said); err != nil || string(said) != "copied\n" {
		rest, _ := io.ReadAll(out)
		t.Fatalf("second process said %q, %v", append(said, rest...), err)
	}
	copy(content, content[ipcOffset:ipcOffset+ipcPiece])
	if err := errors.Join(expect(b, content), b.Free()); err != nil {
		t.Error(err)
	}
	fmt.Fprintln(in)
	rest, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil {
		t.Errorf("second process: %v: %s", err, rest)
	}
}

// openFiles counts this process's file descriptors.
func openFiles() (int, error) {
	// The runtime opens files of its own with the first that may block.
	r, w, err := os.Pipe()
	if err := errors.Join(err, r.Close(), w.Close()); err != nil {
		return 0, err
	}
	all, err := os.ReadDir("/proc/self/fd")
	return len(all), err
}

// TestShareableIsGivenBack has as many file descriptors open after many cycles as before,
// which take more memory in all than the double's device has, and refuses the use of
// memory that was freed.
func TestShareableIsGivenBack(t *testing.T) {
	c := shareableHere(t)
	if err := cycle(c); err != nil { // what stays from the first is the driver's
		t.Fatal(err)
	}
	before, err := openFiles()
	if err != nil {
		t.Fatal(err)
	}
	for range 1100 { // of 2 MiB, where the double has 2 GiB
		if err := cycle(c); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := openFiles(); err != nil || after > before {
		t.Errorf("%d file descriptors are open where %d were, %v", after, before, err)
	}
	b, err := shareable(c, []byte("kv"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Free(); err != nil {
		t.Fatal(err)
	}
	if err := b.Free(); !errors.Is(err, cudadrv.InvalidValue) {
		t.Errorf("second Free: %v", err)
	}
	if testdouble.Real() {
		return // a driver may end the context for what follows
	}
	if _, err := b.WriteAt([]byte("kv"), 0); !errors.Is(err, cudadrv.InvalidValue) {
		t.Errorf("write of freed memory: %v", err)
	}
}

// TestNoAllocation imports what is none.
func TestNoAllocation(t *testing.T) {
	c := shareableHere(t)
	if testdouble.Real() {
		t.Skip("what a driver says of it is not documented")
	}
	for _, name := range []string{os.DevNull, "/proc/self/exe"} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ImportDescriptor(f, granule); !errors.Is(err, cudadrv.InvalidValue) {
			t.Errorf("import of %s: %v", name, err)
		}
		f.Close()
	}
	if _, err := c.ExportDescriptor(alloc(t, c, noise(64, 1)).Pointer); err == nil || !strings.Contains(err.Error(), "no shareable memory is there") {
		t.Errorf("descriptor of memory of cuMemAlloc: %v", err)
	}
}

// shareOnce is a child: it makes memory, exports and imports it, twice. The first time may
// fail; the second must leave nothing of it behind.
func shareOnce() error {
	d, c, err := firstDevice()
	if err != nil {
		return err
	}
	if err := d.CheckShareable(c.Device); err != nil {
		return err
	}
	before, err := openFiles()
	if err != nil {
		return err
	}
	first := cycle(c)
	if again := cycle(c); again != nil {
		return fmt.Errorf("the second time: %w, after %w", again, first)
	}
	after, err := openFiles()
	if err != nil {
		return err
	}
	if after > before {
		return fmt.Errorf("%d file descriptors are open where %d were", after, before)
	}
	// All memory is there again.
	b, err := c.AllocShareable(8 << 20)
	if err != nil {
		return fmt.Errorf("what was left: %w, after %w", err, first)
	}
	return errors.Join(first, b.Free())
}

func cycle(c *cudadrv.Context) (err error) {
	b, err := c.AllocShareable(100)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Free()) }()
	f, err := c.ExportDescriptor(b.Pointer)
	if err != nil {
		return err
	}
	defer f.Close()
	i, err := c.ImportDescriptor(f, granule)
	if err != nil {
		return err
	}
	return i.Close()
}

// TestShareableFails has each call fail once, on a device of 8 MiB.
func TestShareableFails(t *testing.T) {
	testdouble.Only(t)
	old := t.TempDir()
	if err := testdouble.Build(old, true); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, env string
		want      []string
	}{
		{"no virtual memory", "CUDA_DOUBLE_VMM=0", []string{"CUDA device 0 (Test double 0) has no virtual memory management"}},
		{"no descriptors", "CUDA_DOUBLE_FDS=0", []string{"CUDA device 0 (Test double 0) does not export memory as file descriptors"}},
		{"attribute", "CUDA_DOUBLE_FAIL=cuDeviceGetAttribute:2:1", []string{"cuDeviceGetAttribute: CUDA_ERROR_INVALID_VALUE (1)"}},
		{"granularity", "CUDA_DOUBLE_FAIL=cuMemGetAllocationGranularity:1:801", []string{"allocate shareable memory on CUDA device 0: cuMemGetAllocationGranularity: CUDA_ERROR_NOT_SUPPORTED (801)"}},
		{"create", "CUDA_DOUBLE_FAIL=cuMemCreate:1:2", []string{"2097152 bytes, where 8388608 of 8388608 are free: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2)"}},
		{"reserve", "CUDA_DOUBLE_FAIL=cuMemAddressReserve:1:2", []string{"cuMemAddressReserve: CUDA_ERROR_OUT_OF_MEMORY (2)"}},
		{"map", "CUDA_DOUBLE_FAIL=cuMemMap:1:1", []string{"cuMemMap: CUDA_ERROR_INVALID_VALUE (1)"}},
		{"access", "CUDA_DOUBLE_FAIL=cuMemSetAccess:1:101", []string{"cuMemSetAccess: CUDA_ERROR_INVALID_DEVICE (101)"}},
		{"export", "CUDA_DOUBLE_FAIL=cuMemExportToShareableHandle:1:2", []string{"export memory of CUDA device 0 as a file descriptor: cuMemExportToShareableHandle: CUDA_ERROR_OUT_OF_MEMORY (2)"}},
		{"import", "CUDA_DOUBLE_FAIL=cuMemImportFromShareableHandle:1:801", []string{"cuMemImportFromShareableHandle: CUDA_ERROR_NOT_SUPPORTED (801)"}},
		{"reserve for an import", "CUDA_DOUBLE_FAIL=cuMemAddressReserve:2:2", []string{"cuMemAddressReserve"}},
		{"map of an import", "CUDA_DOUBLE_FAIL=cuMemMap:2:1", []string{"cuMemMap"}},
		{"access of an import", "CUDA_DOUBLE_FAIL=cuMemSetAccess:2:101", []string{"cuMemSetAccess"}},
		{"old driver", "LD_LIBRARY_PATH=" + old, []string{"CUDA driver too old for cuMemCreate: it is of CUDA 10.1, and a driver of CUDA 10.2 or newer is needed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, ok := child(t, "share", "CUDA_DOUBLE_MEMORY=8388608", "CUDA_DOUBLE_DRIVER=10010", c.env)
			if ok {
				t.Error("succeeded")
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("got %q, want it to contain %q", out, want)
				}
			}
			for _, left := range []string{"the second time", "what was left", "are open"} {
				if strings.Contains(out, left) {
					t.Errorf("something stayed behind: %q", out)
				}
			}
		})
	}
	if out, ok := child(t, "share", "CUDA_DOUBLE_MEMORY=8388608"); !ok {
		t.Errorf("without a failure: %s", out)
	}
}
