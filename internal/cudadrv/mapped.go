package cudadrv

import (
	"errors"
	"unsafe"
)

// Constants of virtual memory management, from cuda.h.
const (
	pinnedAllocation    = 1 // CU_MEM_ALLOCATION_TYPE_PINNED
	posixDescriptor     = 1 // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
	onDevice            = 1 // CU_MEM_LOCATION_TYPE_DEVICE
	readWrite           = 3 // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
	minimumGranularity  = 0 // CU_MEM_ALLOC_GRANULARITY_MINIMUM
	attributeVMM        = 102
	attributeDescriptor = 103
)

// memLocation is a CUmemLocation.
type memLocation struct{ kind, id int32 }

// allocationProp is a CUmemAllocationProp. The fields left zero concern Windows,
// compression, and direct access by NICs.
type allocationProp struct {
	kind        int32
	handleTypes int32
	location    memLocation
	windows     uintptr
	flags       [8]byte
}

// accessDesc is a CUmemAccessDesc.
type accessDesc struct {
	location memLocation
	flags    int32
}

// mapped is an allocation handle's memory, mapped for one device.
type mapped struct {
	context *Context
	handle  uint64 // CUmemGenericAllocationHandle
	pointer DevicePointer
	size    int64 // bytes, a multiple of the granularity
}

// mapHandle maps an allocation and lets the context's device read and write it. It takes
// over the handle, and releases it on failure.
func (c *Context) mapHandle(handle uint64, size int64) (m *mapped, err error) {
	m = &mapped{context: c, handle: handle, size: size}
	d := c.driver
	undo := []func() error{m.release}
	defer func() {
		for i := len(undo) - 1; err != nil && i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
	}()
	if err := d.call(symMemAddressReserve, uintptr(unsafe.Pointer(&m.pointer)), uintptr(size), 0, 0, 0); err != nil {
		return nil, err
	}
	undo = append(undo, m.freeAddresses)
	if err := d.call(symMemMap, uintptr(m.pointer), uintptr(size), 0, uintptr(handle), 0); err != nil {
		return nil, err
	}
	undo = append(undo, m.unmap)
	access := &accessDesc{memLocation{onDevice, c.Device.handle}, readWrite}
	if err := d.call(symMemSetAccess, uintptr(m.pointer), uintptr(size), uintptr(unsafe.Pointer(access)), 1); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *mapped) unmap() error {
	return m.context.driver.call(symMemUnmap, uintptr(m.pointer), uintptr(m.size))
}

func (m *mapped) freeAddresses() error {
	return m.context.driver.call(symMemAddressFree, uintptr(m.pointer), uintptr(m.size))
}

func (m *mapped) release() error {
	return m.context.driver.call(symMemRelease, uintptr(m.handle))
}

// close undoes mapHandle in reverse order. If unmapping fails, it frees nothing.
func (m *mapped) close() error {
	return m.context.Do(func() error {
		if err := m.unmap(); err != nil {
			return err
		}
		return errors.Join(m.freeAddresses(), m.release())
	})
}
