package transporttest

import (
	"io"
	"sync"

	"kvbench/transport"
)

// Buffer is memory that a case moves bytes between. Its reads and writes have
// ended when they return.
type Buffer interface {
	io.ReaderAt
	io.WriterAt
	// Memory is what a transport registers.
	Memory() transport.Memory
	// Free gives the memory back. It fails where somebody still uses it, if that
	// can be known.
	Free() error
}

// Allocator makes memory of size bytes for one side of a connection.
type Allocator func(size int) (Buffer, error)

// HostMemory is the Allocator of a Subject that names none.
func HostMemory(size int) (Buffer, error) { return hostBuffer(make([]byte, size)), nil }

// hostBuffer is Go's memory.
type hostBuffer []byte

func (b hostBuffer) ReadAt(p []byte, off int64) (int, error)  { return copy(p, b[off:]), nil }
func (b hostBuffer) WriteAt(p []byte, off int64) (int, error) { return copy(b[off:], p), nil }
func (b hostBuffer) Memory() transport.Memory                 { return transport.HostBytes(b) }
func (hostBuffer) Free() error                                { return nil }

// buffer is a Buffer whose failures end the case.
type buffer struct {
	Buffer
	k    *check
	size int
	once sync.Once
}

// alloc makes a side's memory with content. It is freed after the case's
// connections have been closed, or by free.
func (k *check) alloc(from Allocator, content []byte) *buffer {
	b, err := from(len(content))
	k.must(err, "allocate memory for the case")
	m := &buffer{Buffer: b, k: k, size: len(content)}
	k.frees = append(k.frees, m.free)
	m.write(content, 0)
	return m
}

// free gives the memory back once.
func (m *buffer) free() {
	m.once.Do(func() {
		if err := m.Free(); err != nil {
			m.k.errorf("free memory that nobody should use any more: %v", err)
		}
	})
}

// bytes returns a copy of the content.
func (m *buffer) bytes() []byte {
	b := make([]byte, m.size)
	_, err := m.ReadAt(b, 0)
	m.k.must(err, "read memory of the case")
	return b
}

func (m *buffer) write(b []byte, off int64) {
	_, err := m.WriteAt(b, off)
	m.k.must(err, "write memory of the case")
}
