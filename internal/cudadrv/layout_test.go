package cudadrv

import (
	"testing"
	"unsafe"
)

// TestLayouts holds the structs that the driver reads to cuda.h, by hand: enums and ints
// have 4 bytes, a pointer has 8 and lies on a multiple of 8.
func TestLayouts(t *testing.T) {
	var l memLocation
	var p allocationProp
	var a accessDesc
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"size of CUmemLocation", unsafe.Sizeof(l), 8},
		{"CUmemLocation.id", unsafe.Offsetof(l.id), 4},
		{"size of CUmemAllocationProp", unsafe.Sizeof(p), 32},
		{"CUmemAllocationProp.requestedHandleTypes", unsafe.Offsetof(p.handleTypes), 4},
		{"CUmemAllocationProp.location", unsafe.Offsetof(p.location), 8},
		{"CUmemAllocationProp.win32HandleMetaData", unsafe.Offsetof(p.windows), 16},
		{"CUmemAllocationProp.allocFlags", unsafe.Offsetof(p.flags), 24},
		{"size of CUmemAccessDesc", unsafe.Sizeof(a), 12},
		{"CUmemAccessDesc.flags", unsafe.Offsetof(a.flags), 8},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
	}
}
