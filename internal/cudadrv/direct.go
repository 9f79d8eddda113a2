package cudadrv

import (
	"errors"
	"fmt"
	"unsafe"
)

// syncMemops is CU_POINTER_ATTRIBUTE_SYNC_MEMOPS.
const syncMemops = 6

// AllocForRDMA is Alloc for memory that a NIC may read and write. Synchronous copies from
// and to it have always ended when they return (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS); the
// driver otherwise omits that if only the GPU would notice. GPUDirect RDMA requires it.
func (c *Context) AllocForRDMA(size int64) (*Buffer, error) {
	b, err := c.Alloc(size)
	if err != nil {
		return nil, err
	}
	err = c.Do(func() error {
		on := uint32(1)
		return c.driver.call(symPointerSetAttribute, uintptr(unsafe.Pointer(&on)), syncMemops, uintptr(b.Pointer))
	})
	if err != nil {
		err = fmt.Errorf("prepare memory of CUDA device %d for RDMA: %w", c.Device.Ordinal, err)
		return nil, errors.Join(err, b.Free())
	}
	return b, nil
}

// Binding returns the call that binds a C thread to the context: function is
// cuCtxSetCurrent, which takes context and returns 0.
func (c *Context) Binding() (function, context uintptr) {
	return c.driver.functions[symCtxSetCurrent], c.handle
}
