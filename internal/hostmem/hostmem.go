// Package hostmem allocates the buffers that a run moves: page aligned, outside the garbage
// collector's heap, and optionally in huge pages or locked in memory.
package hostmem

import "errors"

// ErrNoMemory is returned when the system refuses the memory.
var ErrNoMemory = errors.New("not enough memory")

// Options selects the kind of memory. The zero value is plain memory.
type Options struct {
	HugePages bool // request transparent huge pages from the kernel
	Lock      bool // keep the memory from being swapped out
}

// Buffer is a piece of memory. Bytes is valid until Close.
type Buffer struct {
	Bytes []byte
	free  func() error
}

// Close frees the memory.
func (b *Buffer) Close() error {
	free := b.free
	b.Bytes, b.free = nil, nil
	if free == nil {
		return nil
	}
	return free()
}
