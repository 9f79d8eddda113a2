package cudadrv

import (
	"fmt"
	"unsafe"
)

// HandleSize is the length of an IPC handle in bytes (CU_IPC_HANDLE_SIZE).
const HandleSize = 64

// ipcMemHandle is a CUipcMemHandle, which the driver takes by value.
type ipcMemHandle struct{ reserved [HandleSize]byte }

// lazyPeerAccess makes the driver give the opening device access to the memory's device
// (CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS).
const lazyPeerAccess = 1

// Exported describes an allocation for another process to open, and the offset of memory in
// it. A handle always covers a whole allocation.
type Exported struct {
	// Handle opens the allocation. If Shareable is set it only identifies the allocation
	// uniquely, and a file descriptor from Context.ExportDescriptor opens it.
	Handle    [HandleSize]byte
	Shareable bool
	Offset    int64 // from the allocation's base to the memory
	Size      int64 // of the allocation, in bytes
}

// AddressRange returns the base and the size in bytes of the allocation that contains an
// address.
func (c *Context) AddressRange(at DevicePointer) (base DevicePointer, size int64, err error) {
	if b := c.shareableAt(at); b != nil {
		return b.Pointer, b.shared.size, nil // the driver's documentation does not promise a result for such memory
	}
	out := new(struct {
		base DevicePointer
		size uintptr
	})
	err = c.Do(func() error {
		return c.driver.call(symMemGetAddressRange, uintptr(unsafe.Pointer(&out.base)), uintptr(unsafe.Pointer(&out.size)), uintptr(at))
	})
	if err != nil {
		return 0, 0, fmt.Errorf("find the allocation of an address on CUDA device %d: %w", c.Device.Ordinal, err)
	}
	return out.base, int64(out.size), nil
}

// Export makes a handle for memory allocated in the context. Unless the memory is from
// AllocExportable, the handle may open more than it. The error is NotSupported if the
// device's memory has no handles.
func (c *Context) Export(at DevicePointer) (Exported, error) {
	if b := c.shareableAt(at); b != nil {
		return Exported{Handle: b.shared.name, Shareable: true, Offset: int64(at - b.Pointer), Size: b.shared.size}, nil
	}
	base, size, err := c.AddressRange(at)
	if err != nil {
		return Exported{}, err
	}
	x := &Exported{Offset: int64(at - base), Size: size}
	err = c.Do(func() error {
		return c.driver.call(symIpcGetMemHandle, uintptr(unsafe.Pointer(&x.Handle[0])), uintptr(base))
	})
	if err != nil {
		return *x, fmt.Errorf("export memory of CUDA device %d: %w", c.Device.Ordinal, err)
	}
	return *x, nil
}

// OpenHandle maps another process's allocation and returns its base here. The driver counts
// uses: each OpenHandle needs a CloseHandle, and the owner must not free the allocation
// before. The error is InvalidContext in the process that made the handle, InvalidHandle if
// the owner has exited or is in another PID namespace, and PeerAccessUnsupported if the
// devices cannot reach each other.
func (c *Context) OpenHandle(handle [HandleSize]byte) (DevicePointer, error) {
	if c.driver.openHandle == nil {
		return 0, c.driver.tooOld(symIpcOpenMemHandle)
	}
	base := new(DevicePointer)
	err := c.Do(func() error {
		r := c.driver.openHandle(base, ipcMemHandle{handle}, lazyPeerAccess)
		return c.driver.check(symIpcOpenMemHandle, Result(r))
	})
	return *base, err
}

// CloseHandle ends the use of memory that OpenHandle returned.
func (c *Context) CloseHandle(base DevicePointer) error {
	return c.Do(func() error { return c.driver.call(symIpcCloseMemHandle, uintptr(base)) })
}
