package cuda

import (
	"errors"
	"fmt"
	"io"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

// Allocate implements transport.Allocator: memory of the device Config.GPU. It lives
// until Free or Close.
func (c *connection) Allocate(size int64) (transport.Memory, error) {
	if size < 1 {
		return transport.Memory{}, fmt.Errorf("allocate %d bytes of GPU memory: %w", size, transport.ErrBounds)
	}
	on, err := c.driver.Context(c.cfg.GPU)
	if err != nil {
		return transport.Memory{}, err
	}
	b, err := c.memory.Alloc(on, size)
	if err != nil {
		return transport.Memory{}, memoryError(err)
	}
	return transport.Memory{Kind: transport.CUDAMemory, Device: c.cfg.GPU, Pointer: uintptr(b.Pointer), Length: size}, nil
}

// Free implements transport.Allocator.
func (c *connection) Free(m transport.Memory) error {
	if c.regions.covers(cudadrv.DevicePointer(m.Pointer), m.Length) {
		return fmt.Errorf("free GPU memory that is registered: %w", transport.ErrBusy)
	}
	return memoryError(c.memory.Free(cudadrv.DevicePointer(m.Pointer)))
}

// CopyIn implements transport.Copier.
func (c *connection) CopyIn(m transport.Memory, off int64, from []byte) error {
	return memoryError(c.memory.CopyIn(cudadrv.DevicePointer(m.Pointer), off, from))
}

// CopyOut implements transport.Copier.
func (c *connection) CopyOut(m transport.Memory, off int64, to []byte) error {
	return memoryError(c.memory.CopyOut(cudadrv.DevicePointer(m.Pointer), off, to))
}

// memoryError says which of the contract's errors one of memory is.
func memoryError(err error) error {
	switch {
	case errors.Is(err, cudadrv.ErrNotAllocated):
		return fmt.Errorf("%w: %w", transport.ErrRegion, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrShortWrite):
		return fmt.Errorf("%w: %w", transport.ErrBounds, err)
	}
	return err
}
