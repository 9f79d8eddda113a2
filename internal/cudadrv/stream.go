package cudadrv

import (
	"fmt"
	"unsafe"
)

// nonBlocking makes a stream independent of the default stream, which synchronizes with
// every other (CU_STREAM_NON_BLOCKING).
const nonBlocking = 1

// Stream is a queue of work for a device, done in order. Only one goroutine at a time may
// use it, inside Context.Do.
type Stream struct {
	caller
	handle uintptr
	failed *uintptr // the driver's output: index of the rejected copy in a batch
}

// NewStream makes a stream.
func (c *Context) NewStream() (*Stream, error) {
	s := &Stream{caller: caller{driver: c.driver}, failed: new(uintptr)}
	if err := c.driver.call(symStreamCreate, uintptr(unsafe.Pointer(&s.handle)), nonBlocking); err != nil {
		return nil, fmt.Errorf("make a stream on CUDA device %d: %w", c.Device.Ordinal, err)
	}
	return s, nil
}

// Synchronize waits for all work added so far.
func (s *Stream) Synchronize() error { return s.call(symStreamSynchronize, s.handle) }

// Close destroys the stream. Its work must have ended.
func (s *Stream) Close() error { return s.call(symStreamDestroy, s.handle) }
