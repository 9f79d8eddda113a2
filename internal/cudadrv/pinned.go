package cudadrv

import (
	"fmt"
	"runtime"
	"unsafe"
)

// portable pins memory for every context (CU_MEMHOSTREGISTER_PORTABLE).
const portable = 1

// Pinned is host memory that a device reads and writes directly, at the full rate and
// without waiting for the host.
type Pinned struct {
	bytes   []byte
	context *Context
	inPlace runtime.Pinner
}

// Pin pins host memory, which must stay allocated until Unpin.
func (c *Context) Pin(b []byte) (*Pinned, error) {
	p := &Pinned{bytes: b, context: c}
	p.inPlace.Pin(unsafe.SliceData(b))
	err := c.Do(func() error {
		return c.driver.call(symMemHostRegister, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), portable)
	})
	if err != nil {
		p.inPlace.Unpin()
		return nil, fmt.Errorf("pin %d bytes of host memory for CUDA: %w", len(b), err)
	}
	return p, nil
}

// At is the address of offset off in the memory, for Copies. Unified addressing gives host
// and device memory one address space.
func (p *Pinned) At(off int64) DevicePointer {
	return DevicePointer(uintptr(unsafe.Pointer(unsafe.SliceData(p.bytes)))) + DevicePointer(off)
}

// Unpin ends the use of the memory by devices. Their copies must have ended.
func (p *Pinned) Unpin() error {
	defer p.inPlace.Unpin()
	return p.context.Do(func() error {
		return p.context.driver.call(symMemHostUnregister, uintptr(unsafe.Pointer(unsafe.SliceData(p.bytes))))
	})
}
