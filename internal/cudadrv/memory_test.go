package cudadrv_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/internal/cudadrv/testdouble"
)

// noise returns n bytes that no other seed gives.
func noise(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func TestBuffer(t *testing.T) {
	c := context(t)
	content := noise(10_000, 1)
	b := alloc(t, c, content)
	patch := noise(100, 2)
	if n, err := b.WriteAt(patch, 777); n != 100 || err != nil {
		t.Fatalf("WriteAt: %d, %v", n, err)
	}
	copy(content[777:], patch)
	if err := expect(b, content); err != nil {
		t.Error(err)
	}
	got := make([]byte, 200)
	if n, err := b.ReadAt(got, 9_900); n != 100 || err != io.EOF || !bytes.Equal(got[:n], content[9_900:]) {
		t.Errorf("ReadAt over the end: %d, %v", n, err)
	}
	if n, err := b.ReadAt(nil, 10_000); n != 0 || err != nil {
		t.Errorf("ReadAt of nothing: %d, %v", n, err)
	}
	for _, off := range []int64{-1, 9_901, 10_001} {
		if n, err := b.WriteAt(patch, off); n != 0 || !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("WriteAt at %d: %d, %v", off, n, err)
		}
	}
	if err := expect(b, content); err != nil {
		t.Errorf("after refused writes: %v", err)
	}
}

// TestExportable takes blocks of 2 MiB and is as large as was asked for.
func TestExportable(t *testing.T) {
	c := context(t)
	for size, whole := range map[int64]int64{1: 2 << 20, 2 << 20: 2 << 20, 2<<20 + 1: 4 << 20} {
		b, err := c.AllocExportable(size)
		if err != nil {
			t.Fatal(err)
		}
		x, err := c.Export(b.Pointer)
		if err != nil || b.Size != size || x.Offset != 0 || x.Size != whole {
			t.Errorf("%d bytes: %d of them, exported %d bytes from %d on, %v; want %d", size, b.Size, x.Size, x.Offset, err, whole)
		}
		if _, err := b.WriteAt(make([]byte, 2), size-1); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("%d bytes: write beyond the end: %v", size, err)
		}
		if err := b.Free(); err != nil {
			t.Error(err)
		}
	}
}

// copyBetween copies pieces of one buffer to another through a stream, with the
// order of the pieces reversed, and returns what the other must hold.
func copyBetween(c *cudadrv.Context, to, from *cudadrv.Buffer, content []byte, pieces int) (want []byte, err error) {
	want = make([]byte, len(content))
	size := len(content) / pieces
	err = c.Do(func() error {
		s, err := c.NewStream()
		if err != nil {
			return err
		}
		var copies cudadrv.Copies
		for i := range pieces {
			at, back := i*size, (pieces-1-i)*size
			copies.Add(to.Pointer+cudadrv.DevicePointer(back), from.Pointer+cudadrv.DevicePointer(at), int64(size))
			copy(want[back:back+size], content[at:])
		}
		copies.Add(to.Pointer, from.Pointer, 0)
		if copies.Len() != pieces {
			return fmt.Errorf("%d copies, want %d", copies.Len(), pieces)
		}
		return errors.Join(s.Copy(&copies), s.Synchronize(), s.Close())
	})
	return want, err
}

// checkCopies is a child: it copies one piece and many, and says how.
func checkCopies() error {
	d, c, err := firstDevice()
	if err != nil {
		return err
	}
	for _, pieces := range []int{1, 2, 1000} {
		content := noise(pieces*100, byte(pieces))
		from, err := filled(c, content)
		if err != nil {
			return err
		}
		to, err := filled(c, make([]byte, len(content)))
		if err != nil {
			return err
		}
		want, err := copyBetween(c, to, from, content, pieces)
		if err != nil {
			return err
		}
		if err := expect(to, want); err != nil {
			return fmt.Errorf("%d pieces: %w", pieces, err)
		}
	}
	fmt.Println("batches:", d.Batches())
	return nil
}

func TestCopies(t *testing.T) {
	if out, ok := child(t, "copies"); !ok || !testdouble.Real() && out != "batches: true" {
		t.Errorf("got %q", out)
	}
}

// withoutBatches lists what makes copies go one by one: a driver that says it does not
// support batches, and one that lacks them.
func withoutBatches(t *testing.T) []string {
	t.Helper()
	testdouble.Only(t)
	old := t.TempDir()
	if err := testdouble.Build(old, true); err != nil {
		t.Fatal(err)
	}
	return []string{"CUDA_DOUBLE_FAIL=cuMemcpyBatchAsync:0:801", "LD_LIBRARY_PATH=" + old}
}

func TestCopiesWithoutBatches(t *testing.T) {
	for _, env := range withoutBatches(t) {
		if out, ok := child(t, "copies", env); !ok || out != "batches: false" {
			t.Errorf("%s: got %q", env, out)
		}
	}
}

// TestRefusedBatch: what was refused once is not tried again, and what fails otherwise
// is no refusal.
func TestRefusedBatch(t *testing.T) {
	testdouble.Only(t)
	// The first batch is that of 2 pieces. Were the second tried, it would fail.
	if out, ok := child(t, "copies", "CUDA_DOUBLE_FAIL=cuMemcpyBatchAsync:1:801,cuMemcpyBatchAsync:2:1"); !ok || out != "batches: false" {
		t.Errorf("batch refused once: got %q", out)
	}
	if out, ok := child(t, "copies", "CUDA_DOUBLE_FAIL=cuMemcpyBatchAsync:2:1"); ok || out != "cuMemcpyBatchAsync: CUDA_ERROR_INVALID_VALUE (1): invalid argument" {
		t.Errorf("batch that fails: got %q", out)
	}
}

// TestOverlappingCopies: the double refuses what a driver may do in any order.
func TestOverlappingCopies(t *testing.T) {
	testdouble.Only(t)
	c := context(t)
	b := alloc(t, c, noise(3000, 1)).Pointer
	for name, do := range map[string]func(*cudadrv.Copies){
		"onto itself":    func(p *cudadrv.Copies) { p.Add(b, b, 1000) },
		"forward":        func(p *cudadrv.Copies) { p.Add(b+999, b, 1000) },
		"backward":       func(p *cudadrv.Copies) { p.Add(b, b+999, 1000) },
		"within a batch": func(p *cudadrv.Copies) { p.Add(b, b+2000, 1000); p.Add(b, b+999, 1000) },
	} {
		if err := copyAll(c, do); !errors.Is(err, cudadrv.InvalidValue) {
			t.Errorf("%s: error %v, want InvalidValue", name, err)
		}
	}
	if err := copyAll(c, func(p *cudadrv.Copies) { p.Add(b, b+1000, 1000) }); err != nil {
		t.Errorf("side by side: %v", err)
	}
}

// holdVar names the file that holds a process's copies back while it exists.
const holdVar = "CUDA_DOUBLE_HOLD"

// checkLate is a child whose copies are held back: whoever does not wait sees old bytes.
func checkLate() error {
	_, c, err := firstDevice()
	if err != nil {
		return err
	}
	content := noise(4096, 1)
	from, err := filled(c, content)
	if err != nil {
		return err
	}
	to, err := filled(c, make([]byte, 4096))
	if err != nil {
		return err
	}
	hold := os.Getenv(holdVar)
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		return err
	}
	return c.Do(func() error {
		s, err := c.NewStream()
		if err != nil {
			return err
		}
		begin, err := c.NewEvent()
		if err != nil {
			return err
		}
		end, err := c.NewEvent()
		if err != nil {
			return err
		}
		var copies cudadrv.Copies
		copies.Add(to.Pointer, from.Pointer, 4096)
		start := time.Now()
		if err := errors.Join(begin.Record(s), s.Copy(&copies), end.Record(s)); err != nil {
			return err
		}
		if done, err := end.Done(); done || err != nil {
			return fmt.Errorf("done at once: %v, %v", done, err)
		}
		if _, err := end.Since(begin); err == nil {
			return errors.New("a duration before its end")
		}
		// While Await sleeps, having asked for a millisecond, or asks: both must do.
		time.AfterFunc(20*time.Millisecond, func() { os.Remove(hold) })
		if err := end.Await(time.Millisecond); err != nil {
			return err
		}
		wall := time.Since(start)
		if done, err := end.Done(); !done || err != nil {
			return fmt.Errorf("not done after Await: %v, %v", done, err)
		}
		took, err := end.Since(begin)
		if err != nil || took < 0 || took > wall {
			return fmt.Errorf("%v by events within %v of wall clock: %v", took, wall, err)
		}
		return errors.Join(expect(to, content), begin.Close(), end.Close(), s.Close())
	})
}

func TestStreamIsLate(t *testing.T) {
	testdouble.Only(t)
	if out, ok := child(t, "late", holdVar+"="+filepath.Join(t.TempDir(), "hold")); !ok {
		t.Error(out)
	}
}
