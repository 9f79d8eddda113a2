// Package gpu is GPU memory for the conformance suite.
package gpu

import (
	"kvbench/internal/cudadrv"
	"kvbench/transport"
	"kvbench/transport/transporttest"
)

// before is the number of bytes of each allocation that lie before the memory of a
// case, so that a transport that ignores the offset fails.
const before = 4096 + 512

// Memory returns an Allocator on a CUDA device, given by its ordinal. alloc is a method
// of cudadrv.Context and selects the kind of memory.
func Memory(device int, alloc func(*cudadrv.Context, int64) (*cudadrv.Buffer, error)) transporttest.Allocator {
	return func(size int) (transporttest.Buffer, error) {
		d, err := cudadrv.Open()
		if err != nil {
			return nil, err
		}
		c, err := d.Context(device)
		if err != nil {
			return nil, err
		}
		b, err := alloc(c, before+int64(size))
		if err != nil {
			return nil, err
		}
		return buffer{b, device, size}, nil
	}
}

// buffer is device memory, part of an allocation.
type buffer struct {
	*cudadrv.Buffer
	device int
	size   int
}

func (b buffer) Memory() transport.Memory {
	return transport.Memory{
		Kind: transport.CUDAMemory, Device: b.device,
		Pointer: uintptr(b.Pointer) + before, Length: int64(b.size),
	}
}

func (b buffer) ReadAt(p []byte, off int64) (int, error)  { return b.Buffer.ReadAt(p, before+off) }
func (b buffer) WriteAt(p []byte, off int64) (int, error) { return b.Buffer.WriteAt(p, before+off) }
