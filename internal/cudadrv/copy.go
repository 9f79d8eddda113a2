package cudadrv

import (
	"errors"
	"runtime"
	"unsafe"
)

// Copies collects copies for one stream, within device memory or between device memory and
// pinned host memory. It reuses its memory, so that Add stops allocating once it has grown.
type Copies struct {
	to, from []DevicePointer
	sizes    []uintptr
}

// Add adds a copy of n bytes. Its two sides must not overlap, nor may the destinations of
// one batch: the driver may do the copies in any order.
func (c *Copies) Add(to, from DevicePointer, n int64) {
	if n == 0 {
		return // the driver rejects it in a batch
	}
	c.to = append(c.to, to)
	c.from = append(c.from, from)
	c.sizes = append(c.sizes, uintptr(n))
}

// Reset empties the collection.
func (c *Copies) Reset() { c.to, c.from, c.sizes = c.to[:0], c.from[:0], c.sizes[:0] }

// Len is the number of copies.
func (c *Copies) Len() int { return len(c.sizes) }

// copyAttributes is a CUmemcpyAttributes: the order of reading sources, hints for managed
// memory, flags.
type copyAttributes struct {
	order            int32
	fromKind, fromID int32
	toKind, toID     int32
	flags            uint32
}

// streamOrder reads sources in the stream's order (CU_MEMCPY_SRC_ACCESS_ORDER_STREAM).
const streamOrder = 1

var (
	batchAttributes = &copyAttributes{order: streamOrder}
	batchFirst      = new(uintptr) // the attributes apply from copy 0 on
)

// Copy adds copies within device memory to the stream, with one call if the driver accepts
// batches, else with one call each. After a rejected batch it does not try another.
func (s *Stream) Copy(c *Copies) error { return s.copy(c, symMemcpyDtoDAsync) }

// CopyToHost is Copy from device memory to pinned host memory.
func (s *Stream) CopyToHost(c *Copies) error { return s.copy(c, symMemcpyDtoHAsync) }

// CopyFromHost is Copy from pinned host memory to device memory.
func (s *Stream) CopyFromHost(c *Copies) error { return s.copy(c, symMemcpyHtoDAsync) }

func (s *Stream) copy(c *Copies, one symbol) error {
	if c.Len() > 1 && s.driver.Batches() {
		if err := s.copyBatch(c); !errors.Is(err, NotSupported) {
			return err
		}
		s.driver.refusesBatches.Store(true)
	}
	for i, n := range c.sizes {
		if err := s.call(one, uintptr(c.to[i]), uintptr(c.from[i]), n, s.handle); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stream) copyBatch(c *Copies) error {
	defer runtime.KeepAlive(c)
	return s.call(symMemcpyBatchAsync,
		uintptr(unsafe.Pointer(&c.to[0])), uintptr(unsafe.Pointer(&c.from[0])), uintptr(unsafe.Pointer(&c.sizes[0])), uintptr(c.Len()),
		uintptr(unsafe.Pointer(batchAttributes)), uintptr(unsafe.Pointer(batchFirst)), 1,
		uintptr(unsafe.Pointer(s.failed)), s.handle)
}
