package hostmem

import (
	"errors"
	"math"
	"os"
	"testing"
	"unsafe"
)

func TestAlloc(t *testing.T) {
	page := int64(os.Getpagesize())
	for _, size := range []int64{0, 1, page - 1, page, page + 1, 5 << 20} {
		b, err := Alloc(size, Options{})
		if err != nil {
			t.Fatalf("Alloc(%d): %v", size, err)
		}
		if int64(len(b.Bytes)) != size {
			t.Errorf("Alloc(%d) gave %d bytes", size, len(b.Bytes))
		}
		if size > 0 {
			if at := uintptr(unsafe.Pointer(&b.Bytes[0])); int64(at)%page != 0 {
				t.Errorf("Alloc(%d) at %#x, which is not page aligned", size, at)
			}
			b.Bytes[0], b.Bytes[size-1] = 1, 2
		}
		if err := b.Close(); err != nil || b.Bytes != nil {
			t.Errorf("Close: %v, bytes left %d", err, len(b.Bytes))
		}
		if err := b.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	}
}

func TestAllocTooMuch(t *testing.T) {
	for _, size := range []int64{-1, 1 << 60, math.MaxInt64} {
		if _, err := Alloc(size, Options{}); !errors.Is(err, ErrNoMemory) {
			t.Errorf("Alloc(%d): error %v, want ErrNoMemory", size, err)
		}
	}
}
