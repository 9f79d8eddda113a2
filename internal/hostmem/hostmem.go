// Package hostmem makes the buffers that a run moves: page aligned, outside the
// garbage collector's heap, and on request in huge pages or locked in memory.
package hostmem

import "errors"

// ErrNoMemory is returned when the system does not give the memory.
var ErrNoMemory = errors.New("not enough memory")

// Options says what kind of memory is wanted. The zero value is plain memory.
type Options struct {
	HugePages bool // ask the kernel for transparent huge pages
	Lock      bool // keep the memory from being swapped out
}

// Buffer is a piece of memory. Bytes is valid until Close.
type Buffer struct {
	Bytes []byte
	free  func() error
}

// Close gives the memory back.
func (b *Buffer) Close() error {
	free := b.free
	b.Bytes, b.free = nil, nil
	if free == nil {
		return nil
	}
	return free()
}
