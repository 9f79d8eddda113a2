package nvml

import (
	"fmt"
	"unsafe"
)

// device is a GPU. NVML ignores CUDA_VISIBLE_DEVICES, so it may be hidden from CUDA.
type device struct {
	library *Library
	handle  uintptr // an nvmlDevice_t
}

// device finds a GPU by its UUID in the form of nvidia-smi -L.
func (l *Library) device(uuid string) (device, error) {
	var handle uintptr
	text := append([]byte(uuid), 0)
	if err := l.call(symGetHandleByUUID, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&handle))); err != nil {
		return device{}, fmt.Errorf("find %s: %w", uuid, err)
	}
	return device{l, handle}, nil
}

// number makes a call that returns an unsigned int.
func (d device) number(s symbol) (uint32, error) {
	var out uint32
	err := d.library.call(s, d.handle, uintptr(unsafe.Pointer(&out)))
	return out, err
}

// numberOf is number for a call with one more argument: a link, or a device.
func (d device) numberOf(s symbol, what uintptr) (uint32, error) {
	var out uint32
	err := d.library.call(s, d.handle, what, uintptr(unsafe.Pointer(&out)))
	return out, err
}

// pciInfo is an nvmlPciInfo_t.
type pciInfo struct {
	busIDLegacy           [16]byte
	domain, bus, device   uint32
	deviceID, subsystemID uint32
	busID                 [32]byte
}

// pciAddress is a place on the PCI bus. The function of a GPU is always 0.
type pciAddress struct{ domain, bus, device uint32 }

func (p *pciInfo) address() pciAddress { return pciAddress{p.domain, p.bus, p.device} }

// address is the GPU's place on the PCI bus.
func (d device) address() (pciAddress, error) {
	var out pciInfo
	err := d.library.call(symGetPCIInfo, d.handle, uintptr(unsafe.Pointer(&out)))
	return out.address(), err
}
