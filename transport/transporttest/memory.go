package transporttest

import (
	"io"
	"sync"

	"kvbench/transport"
)

// Buffer is memory for a case to move bytes between. Its reads and writes are complete
// when they return.
type Buffer interface {
	io.ReaderAt
	io.WriterAt
	// Memory returns the memory for a transport to register.
	Memory() transport.Memory
	// Free releases the memory. It returns an error if the memory is still in use and the
	// Buffer can detect that.
	Free() error
}

// Allocator makes memory of size bytes for one side of a connection.
type Allocator func(size int) (Buffer, error)

// HostMemory is the default Allocator of a Subject.
func HostMemory(size int) (Buffer, error) { return hostBuffer(make([]byte, size)), nil }

// hostBuffer is memory of the Go heap.
type hostBuffer []byte

func (b hostBuffer) ReadAt(p []byte, off int64) (int, error)  { return copy(p, b[off:]), nil }
func (b hostBuffer) WriteAt(p []byte, off int64) (int, error) { return copy(b[off:], p), nil }
func (b hostBuffer) Memory() transport.Memory                 { return transport.HostBytes(b) }
func (hostBuffer) Free() error                                { return nil }

// buffer is a Buffer that ends the case on an error.
type buffer struct {
	Buffer
	k    *check
	size int
	once sync.Once
}

// alloc allocates a side's memory and fills it with content. The memory is freed after
// the case's connections are closed, or by free.
func (k *check) alloc(from Allocator, content []byte) *buffer {
	b, err := from(len(content))
	k.must(err, "allocate memory for the case")
	m := &buffer{Buffer: b, k: k, size: len(content)}
	k.frees = append(k.frees, m.free)
	m.write(content, 0)
	return m
}

// free releases the memory once.
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
