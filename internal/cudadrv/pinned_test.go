package cudadrv_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"kvbench/internal/cudadrv"
	"kvbench/internal/cudadrv/testdouble"
	"kvbench/internal/hostmem"
)

// checkPinned is a child: it copies pieces of pinned host memory to a device, out of
// order, and back to another place in one piece.
func checkPinned() error {
	d, c, err := firstDevice()
	if err != nil {
		return err
	}
	const pieces, size = 100, 123
	host, err := hostmem.Alloc(2*pieces*size, hostmem.Options{})
	if err != nil {
		return err
	}
	pinned, err := c.Pin(host.Bytes)
	if err != nil {
		return err
	}
	copy(host.Bytes, noise(pieces*size, 3))
	device, err := filled(c, make([]byte, pieces*size))
	if err != nil {
		return err
	}
	var in, out cudadrv.Copies
	var want []byte
	for i := range pieces {
		from := int64(pieces-1-i) * size
		in.Add(device.Pointer+cudadrv.DevicePointer(i*size), pinned.At(from), size)
		want = append(want, host.Bytes[from:from+size]...)
	}
	out.Add(pinned.At(pieces*size), device.Pointer, pieces*size)
	err = c.Do(func() error {
		s, err := c.NewStream()
		if err != nil {
			return err
		}
		return errors.Join(s.CopyFromHost(&in), s.CopyToHost(&out), s.Synchronize(), s.Close())
	})
	if err == nil && !bytes.Equal(host.Bytes[pieces*size:], want) {
		err = errors.New("other bytes came back than went in")
	}
	if err := errors.Join(err, expect(device, want), pinned.Unpin(), device.Free(), host.Close()); err != nil {
		return err
	}
	fmt.Println("batches:", d.Batches())
	return nil
}

// TestPinned copies as the driver does by itself: in batches where it takes them.
func TestPinned(t *testing.T) {
	if out, ok := child(t, "pinned"); !ok || out != "batches: true" && (!testdouble.Real() || out != "batches: false") {
		t.Errorf("got %q", out)
	}
}

// TestPinnedWithoutBatches has a driver that refuses them, and one that lacks them.
func TestPinnedWithoutBatches(t *testing.T) {
	for _, env := range withoutBatches(t) {
		if out, ok := child(t, "pinned", env); !ok || out != "batches: false" {
			t.Errorf("%s: got %q", env, out)
		}
	}
}

// TestPinTwice: what is pinned is not pinned again, and can be once it is not.
func TestPinTwice(t *testing.T) {
	c := context(t)
	host, err := hostmem.Alloc(1<<20, hostmem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	first, err := c.Pin(host.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pin(host.Bytes[4096:8192]); err == nil || !bytes.Contains([]byte(err.Error()), []byte("pin 4096 bytes of host memory for CUDA")) {
		t.Errorf("second Pin: %v", err)
	}
	if err := first.Unpin(); err != nil {
		t.Fatal(err)
	}
	again, err := c.Pin(host.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Unpin(); err != nil {
		t.Error(err)
	}
}

// BenchmarkPinnedCopy copies between device 0 and pinned host memory: the ceiling of
// what transport/staged can reach.
func BenchmarkPinnedCopy(b *testing.B) {
	const size = 4 << 20
	c := context(b)
	host, err := hostmem.Alloc(size, hostmem.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer host.Close()
	pinned, err := c.Pin(host.Bytes)
	if err != nil {
		b.Fatal(err)
	}
	defer pinned.Unpin()
	device := alloc(b, c, make([]byte, size))
	var in, out cudadrv.Copies
	in.Add(device.Pointer, pinned.At(0), size)
	out.Add(pinned.At(0), device.Pointer, size)
	err = c.Do(func() error {
		s, err := c.NewStream()
		if err != nil {
			return err
		}
		for name, add := range map[string]func() error{
			"HtoD": func() error { return s.CopyFromHost(&in) }, "DtoH": func() error { return s.CopyToHost(&out) },
		} {
			b.Run(name, func(b *testing.B) {
				b.SetBytes(size)
				b.ReportAllocs()
				for b.Loop() {
					if err := errors.Join(c.Do(add), s.Synchronize()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		return s.Close()
	})
	if err != nil {
		b.Fatal(err)
	}
}
