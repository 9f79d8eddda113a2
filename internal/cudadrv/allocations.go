package cudadrv

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// ErrNotAllocated is returned for memory that is not of these allocations, or no more.
var ErrNotAllocated = errors.New("device memory that was not allocated here")

// Allocations are buffers that have one owner and end with it. The zero value is
// ready for use. Its methods are safe for concurrent use.
type Allocations struct {
	mu    sync.RWMutex // held for reading by copies, so that none outlives its memory
	at    map[DevicePointer]*Buffer
	ended bool
}

// Alloc makes memory. Its errors are those of Context.Alloc, and ErrNotAllocated
// after FreeAll.
func (a *Allocations) Alloc(c *Context, size int64) (*Buffer, error) {
	b, err := c.Alloc(size)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return nil, errors.Join(ErrNotAllocated, b.Free())
	}
	if a.at == nil {
		a.at = make(map[DevicePointer]*Buffer)
	}
	a.at[b.Pointer] = b
	return b, nil
}

// CopyIn copies from to the buffer at an address, off bytes into it.
func (a *Allocations) CopyIn(at DevicePointer, off int64, from []byte) error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	b, err := a.buffer(at)
	if err == nil {
		_, err = b.WriteAt(from, off)
	}
	return err
}

// CopyOut copies the buffer at an address, from off bytes into it on, to to.
func (a *Allocations) CopyOut(at DevicePointer, off int64, to []byte) error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	b, err := a.buffer(at)
	if err == nil {
		_, err = b.ReadAt(to, off)
	}
	return err
}

func (a *Allocations) buffer(at DevicePointer) (*Buffer, error) {
	b := a.at[at]
	if b == nil {
		return nil, fmt.Errorf("%w: %#x", ErrNotAllocated, uint64(at))
	}
	return b, nil
}

// Free gives one buffer back.
func (a *Allocations) Free(at DevicePointer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	b, err := a.buffer(at)
	if err != nil {
		return err
	}
	delete(a.at, at)
	return b.Free()
}

// FreeAll gives every buffer back. There are none after it.
func (a *Allocations) FreeAll() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	var errs []error
	for _, b := range slices.Collect(maps.Values(a.at)) {
		errs = append(errs, b.Free())
	}
	a.at = nil
	return errors.Join(errs...)
}
