// Package gpumem manages the GPU memory that endpoints allocate for their callers. The
// transports of GPU memory share it and call it.
package gpumem

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

// ErrUnderWay is wrapped by the error of a failed wait for copies. The copies' memory
// is then not freed.
var ErrUnderWay = errors.New("a copy may be under way still, so the memory that it touches is kept until this process ends")

// Owned holds the memory that an endpoint has allocated. An endpoint that embeds it
// implements transport.Allocator and transport.Copier. Its methods are safe for
// concurrent use.
type Owned struct {
	device int
	// registered reports whether a region of the endpoint overlaps a range of memory.
	registered func(at cudadrv.DevicePointer, size int64) bool
	alloc      func(c *cudadrv.Context, size int64) (*cudadrv.Buffer, error)

	mu    sync.RWMutex // read-locked by copies, so that memory is not freed during a copy
	at    map[uintptr]*cudadrv.Buffer
	ended bool
}

var (
	_ transport.Allocator = (*Owned)(nil)
	_ transport.Copier    = (*Owned)(nil)
)

// On returns the empty Owned of an endpoint on a device.
func On(device int, registered func(at cudadrv.DevicePointer, size int64) bool) *Owned {
	return &Owned{device: device, registered: registered, alloc: (*cudadrv.Context).Alloc, at: make(map[uintptr]*cudadrv.Buffer)}
}

// MadeBy replaces cudadrv.Context.Alloc as the allocation function. It must be called
// before Allocate.
func (o *Owned) MadeBy(alloc func(c *cudadrv.Context, size int64) (*cudadrv.Buffer, error)) *Owned {
	o.alloc = alloc
	return o
}

// Check returns an error if GPU memory cannot be registered with an endpoint on the
// context's device. The error wraps transport.ErrBounds, transport.ErrUnsupported or
// the driver's error.
func Check(c *cudadrv.Context, m transport.Memory) error {
	switch {
	case m.Length < 1:
		return fmt.Errorf("register %d bytes of GPU memory: %w", m.Length, transport.ErrBounds)
	case m.Device != c.Device.Ordinal:
		return fmt.Errorf("register memory of CUDA device %d where the connection moves that of device %d (--gpu-device): %w",
			m.Device, c.Device.Ordinal, transport.ErrUnsupported)
	}
	return CheckRange(c, m)
}

// CheckRange returns an error if GPU memory does not lie in one allocation of the
// context's device.
func CheckRange(c *cudadrv.Context, m transport.Memory) error {
	at := cudadrv.DevicePointer(m.Pointer)
	base, size, err := c.AddressRange(at)
	if err != nil {
		return fmt.Errorf("register %#x: %w", m.Pointer, err)
	}
	if off := int64(at - base); m.Length > size-off {
		return fmt.Errorf("register %d bytes at offset %d of an allocation of %d: %w", m.Length, off, size, transport.ErrBounds)
	}
	return nil
}

// Allocate implements transport.Allocator.
func (o *Owned) Allocate(size int64) (transport.Memory, error) {
	if size < 1 {
		return transport.Memory{}, fmt.Errorf("allocate %d bytes of GPU memory: %w", size, transport.ErrBounds)
	}
	d, err := cudadrv.Open()
	if err != nil {
		return transport.Memory{}, err
	}
	c, err := d.Context(o.device)
	if err != nil {
		return transport.Memory{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return transport.Memory{}, transport.ErrClosed
	}
	b, err := o.alloc(c, size)
	if err != nil {
		return transport.Memory{}, err
	}
	o.at[uintptr(b.Pointer)] = b
	return transport.Memory{Kind: transport.CUDAMemory, Device: o.device, Pointer: uintptr(b.Pointer), Length: size}, nil
}

// buffer returns the allocation that starts at m. Its error wraps transport.ErrRegion.
func (o *Owned) buffer(m transport.Memory) (*cudadrv.Buffer, error) {
	b := o.at[m.Pointer]
	if b == nil {
		return nil, fmt.Errorf("GPU memory at %#x, which was not allocated here: %w", m.Pointer, transport.ErrRegion)
	}
	return b, nil
}

// Free implements transport.Allocator.
func (o *Owned) Free(m transport.Memory) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return nil // freed with the connection
	}
	b, err := o.buffer(m)
	if err != nil {
		return fmt.Errorf("free: %w", err)
	}
	if o.registered(b.Pointer, b.Size) {
		return fmt.Errorf("free GPU memory that is registered: %w", transport.ErrBusy)
	}
	delete(o.at, m.Pointer)
	return b.Free()
}

// CopyIn implements transport.Copier.
func (o *Owned) CopyIn(m transport.Memory, off int64, from []byte) error {
	return o.with(m, func(b *cudadrv.Buffer) error {
		_, err := b.WriteAt(from, off)
		return err
	})
}

// CopyOut implements transport.Copier.
func (o *Owned) CopyOut(m transport.Memory, off int64, to []byte) error {
	return o.with(m, func(b *cudadrv.Buffer) error {
		_, err := b.ReadAt(to, off)
		return err
	})
}

func (o *Owned) with(m transport.Memory, f func(*cudadrv.Buffer) error) error {
	o.mu.RLock()
	defer o.mu.RUnlock()
	b, err := o.buffer(m)
	if err == nil {
		err = f(b)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrShortWrite) {
		return fmt.Errorf("%w: %w", transport.ErrBounds, err)
	}
	return err
}

// Leave makes Allocate fail from now on, and keeps the allocated memory until the
// process ends, because a peer may still access it.
func (o *Owned) Leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	clear(o.at)
}

// FreeAll frees all memory, registered or not, and makes Allocate fail from now on.
func (o *Owned) FreeAll() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	var errs []error
	for _, b := range o.at {
		errs = append(errs, b.Free())
	}
	clear(o.at)
	return errors.Join(errs...)
}
