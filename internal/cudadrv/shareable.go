package cudadrv

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// shareable is the allocation of a Buffer shared by file descriptors.
type shareable struct {
	*mapped
	name [HandleSize]byte // random
}

// CheckShareable returns the reason if a device's memory cannot be shared by file
// descriptors, else nil.
func (d *Driver) CheckShareable(dev Device) error {
	if d.functions[symMemCreate] == 0 {
		return d.tooOld(symMemCreate)
	}
	for _, a := range []struct {
		attribute uintptr
		lacks     string
	}{
		{attributeVMM, "has no virtual memory management (cuMemCreate)"},
		{attributeDescriptor, "does not export memory as file descriptors"},
	} {
		var has int32
		if err := d.call(symDeviceGetAttribute, uintptr(unsafe.Pointer(&has)), a.attribute, uintptr(dev.handle)); err != nil {
			return err
		}
		if has == 0 {
			return fmt.Errorf("CUDA device %d (%s) %s", dev.Ordinal, dev.Name, a.lacks)
		}
	}
	return nil
}

// AllocShareable is Alloc for memory shared by file descriptors. It takes whole granules of
// the device, often 2 MiB.
func (c *Context) AllocShareable(size int64) (*Buffer, error) {
	b := &Buffer{Size: size, context: c}
	err := c.Do(func() (err error) {
		b.shared, err = c.newShareable(size)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("allocate shareable memory on CUDA device %d: %w", c.Device.Ordinal, err)
	}
	b.Pointer = b.shared.pointer
	c.sharing.Lock()
	defer c.sharing.Unlock()
	if c.shareable == nil {
		c.shareable = make(map[DevicePointer]*Buffer)
	}
	c.shareable[b.Pointer] = b
	return b, nil
}

// newShareable creates memory of at least size bytes and maps it.
func (c *Context) newShareable(size int64) (*shareable, error) {
	prop := &allocationProp{
		kind: pinnedAllocation, handleTypes: posixDescriptor,
		location: memLocation{onDevice, c.Device.handle},
	}
	var granule uintptr
	if err := c.driver.call(symMemGetAllocationGranularity, uintptr(unsafe.Pointer(&granule)), uintptr(unsafe.Pointer(prop)), minimumGranularity); err != nil {
		return nil, err
	}
	size = (size + int64(granule) - 1) / int64(granule) * int64(granule)
	var handle uint64
	err := c.driver.call(symMemCreate, uintptr(unsafe.Pointer(&handle)), uintptr(size), uintptr(unsafe.Pointer(prop)), 0)
	if errors.Is(err, OutOfMemory) {
		return nil, c.shortOfMemory(size, err)
	}
	if err != nil {
		return nil, err
	}
	m, err := c.mapHandle(handle, size)
	if err != nil {
		return nil, err
	}
	s := &shareable{mapped: m}
	rand.Read(s.name[:])
	return s, nil
}

// shareableAt returns the buffer of AllocShareable that contains an address, or nil.
func (c *Context) shareableAt(at DevicePointer) *Buffer {
	c.sharing.Lock()
	defer c.sharing.Unlock()
	return c.findShareable(at)
}

// findShareable is shareableAt for callers that hold the lock.
func (c *Context) findShareable(at DevicePointer) *Buffer {
	for base, b := range c.shareable {
		if at >= base && at-base < DevicePointer(b.shared.size) {
			return b
		}
	}
	return nil
}

// freeShareable is Free for memory of AllocShareable.
func (b *Buffer) freeShareable() error {
	c := b.context
	c.sharing.Lock()
	defer c.sharing.Unlock() // also while it is closed: its addresses may be reused at once
	if c.shareable[b.Pointer] != b {
		return fmt.Errorf("free shareable memory at %#x, which was freed before: %w", uint64(b.Pointer), InvalidValue)
	}
	if err := b.shared.close(); err != nil {
		return fmt.Errorf("free shareable memory of CUDA device %d: %w", c.Device.Ordinal, err)
	}
	delete(c.shareable, b.Pointer)
	return nil
}

// ExportDescriptor makes a file descriptor for the shareable allocation that contains an
// address. Any process with the file descriptor can open the allocation. The caller must
// close it.
func (c *Context) ExportDescriptor(at DevicePointer) (*os.File, error) {
	c.sharing.Lock()
	defer c.sharing.Unlock()
	if b := c.findShareable(at); b != nil {
		return b.shared.export()
	}
	return nil, fmt.Errorf("export CUDA memory at %#x as a file descriptor: no shareable memory is there: %w", uint64(at), InvalidValue)
}

func (s *shareable) export() (*os.File, error) {
	var fd int32
	c := s.context
	err := c.Do(func() error {
		return c.driver.call(symMemExportToShareableHandle, uintptr(unsafe.Pointer(&fd)), uintptr(s.handle), posixDescriptor, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("export memory of CUDA device %d as a file descriptor: %w", c.Device.Ordinal, err)
	}
	syscall.CloseOnExec(int(fd))
	return os.NewFile(uintptr(fd), "CUDA memory"), nil
}

// Imported is another process's shareable allocation, mapped in this one.
type Imported struct {
	Pointer DevicePointer

	mapped *mapped
}

// ImportDescriptor maps another process's allocation from its file descriptor, which the
// caller keeps and may close at once. size is the allocation's size in bytes. The error is
// InvalidValue if the file descriptor is not for such an allocation.
func (c *Context) ImportDescriptor(f *os.File, size int64) (*Imported, error) {
	i := &Imported{}
	err := c.Do(func() (err error) {
		var handle uint64
		if err := c.driver.call(symMemImportFromShareableHandle, uintptr(unsafe.Pointer(&handle)), f.Fd(), posixDescriptor); err != nil {
			return err
		}
		i.mapped, err = c.mapHandle(handle, size)
		return err
	})
	if err != nil {
		return nil, err
	}
	i.Pointer = i.mapped.pointer
	return i, nil
}

// Close unmaps and releases the allocation.
func (i *Imported) Close() error { return i.mapped.close() }
