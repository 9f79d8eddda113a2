package cudadrv

import (
	"fmt"
	"unsafe"
)

// nonBlocking keeps a stream apart from the default one, which orders itself
// against every other (CU_STREAM_NON_BLOCKING).
const nonBlocking = 1

// Stream is a queue of work for a device, done in order. One goroutine at a time
// uses it, inside Context.Do.
type Stream struct {
	caller
	handle uintptr
	failed *uintptr // where the driver says which copy of a batch it refused
}

// NewStream makes a stream.
func (c *Context) NewStream() (*Stream, error) {
	s := &Stream{caller: caller{driver: c.driver}, failed: new(uintptr)}
	if err := c.driver.call(symStreamCreate, uintptr(unsafe.Pointer(&s.handle)), nonBlocking); err != nil {
		return nil, fmt.Errorf("make a stream on CUDA device %d: %w", c.Device.Ordinal, err)
	}
	return s, nil
}

// Synchronize waits for the work that was added.
func (s *Stream) Synchronize() error { return s.call(symStreamSynchronize, s.handle) }

// Close ends the stream, whose work must have been waited for.
func (s *Stream) Close() error { return s.call(symStreamDestroy, s.handle) }
