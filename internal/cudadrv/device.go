package cudadrv

import (
	"encoding/hex"
	"errors"
	"fmt"
	"unsafe"

	"kvbench/internal/dynlib"
)

// Device is a GPU that this process sees.
type Device struct {
	Ordinal  int // in this process's numbering, after CUDA_VISIBLE_DEVICES
	Name     string
	UUID     UUID   // the same in every process
	PCIBusID string // domain:bus:device.function
	Memory   int64  // bytes

	handle int32
}

// Device returns a device's properties. The error wraps ErrNoDevice for an ordinal that
// this process does not see.
func (d *Driver) Device(ordinal int) (Device, error) {
	dev := Device{Ordinal: ordinal}
	err := d.call(symDeviceGet, uintptr(unsafe.Pointer(&dev.handle)), uintptr(ordinal))
	if errors.Is(err, InvalidDevice) {
		return dev, fmt.Errorf("%w %d among the %d that this process sees: %s", ErrNoDevice, ordinal, d.count, hiddenDevices())
	}
	if err != nil {
		return dev, err
	}
	var name [256]byte
	if err := d.call(symDeviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)-1), uintptr(dev.handle)); err != nil {
		return dev, err
	}
	dev.Name = dynlib.String(&name[0])
	if dev.UUID, err = d.uuid(dev.handle); err != nil {
		return dev, err
	}
	var bus [32]byte
	if err := d.call(symDeviceGetPCIBusID, uintptr(unsafe.Pointer(&bus[0])), uintptr(len(bus)-1), uintptr(dev.handle)); err != nil {
		return dev, err
	}
	dev.PCIBusID = dynlib.String(&bus[0])
	var memory uintptr
	if err := d.call(symDeviceTotalMem, uintptr(unsafe.Pointer(&memory)), uintptr(dev.handle)); err != nil {
		return dev, err
	}
	dev.Memory = int64(memory)
	return dev, nil
}

// UUID identifies a GPU, or a MIG instance of a GPU, in the form of a CUuuid.
type UUID struct {
	Bytes [16]byte
	MIG   bool // it identifies a MIG (compute) instance
}

// uuid reads a device's UUID. Drivers before CUDA 11.4 return the GPU's UUID for each of
// its MIG instances, and the older call still does. So the two calls differ for an
// instance.
func (d *Driver) uuid(device int32) (UUID, error) {
	var gpu, own [16]byte
	if err := d.call(symDeviceGetUUID, uintptr(unsafe.Pointer(&gpu[0])), uintptr(device)); err != nil {
		return UUID{}, err
	}
	if d.functions[symDeviceGetUUIDv2] == 0 {
		return UUID{Bytes: gpu}, nil
	}
	err := d.call(symDeviceGetUUIDv2, uintptr(unsafe.Pointer(&own[0])), uintptr(device))
	return UUID{own, own != gpu}, err
}

// String spells the UUID as nvidia-smi -L does: GPU- or MIG- and groups of hexadecimal
// digits.
func (u UUID) String() string {
	h, kind := hex.EncodeToString(u.Bytes[:]), "GPU-"
	if u.MIG {
		kind = "MIG-"
	}
	return kind + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// ByUUID finds another process's device among the devices that this process sees.
func (d *Driver) ByUUID(uuid UUID) (Device, bool, error) {
	for i := range d.count {
		dev, err := d.Device(i)
		if err != nil {
			return dev, false, err
		}
		if dev.UUID == uuid {
			return dev, true, nil
		}
	}
	return Device{}, false, nil
}

// CanAccessPeer reports whether a device can read and write another's memory without going
// through the host.
func (d *Driver) CanAccessPeer(from, to Device) (bool, error) {
	var can int32
	err := d.call(symDeviceCanAccessPeer, uintptr(unsafe.Pointer(&can)), uintptr(from.handle), uintptr(to.handle))
	return can != 0, err
}
