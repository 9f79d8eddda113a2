package nvml

import (
	"testing"
	"unsafe"
)

// TestPCIInfoLayout holds the struct to nvmlPciInfo_t: 16 characters, five unsigned
// ints, 32 characters.
func TestPCIInfoLayout(t *testing.T) {
	var p pciInfo
	for name, c := range map[string]struct{ got, want uintptr }{
		"domain": {unsafe.Offsetof(p.domain), 16}, "bus": {unsafe.Offsetof(p.bus), 20}, "device": {unsafe.Offsetof(p.device), 24},
		"busId": {unsafe.Offsetof(p.busID), 36}, "the whole": {unsafe.Sizeof(p), 68},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", name, c.got, c.want)
		}
	}
}

// TestGeneration: the same link has two numbers, that of nvml.h and that of the
// driver's interface, and the GPU's architecture decides where one number means two.
func TestGeneration(t *testing.T) {
	const pascal, volta, turing, ampere, hopper, blackwell, rubin = 4, 5, 6, 7, 9, 10, 13
	for _, c := range []struct {
		name                  string
		version, architecture uint32
		want                  int
	}{
		{"P100", 1, pascal, 1},
		{"V100", 2, volta, 2},
		{"Turing by nvml.h", 3, turing, 2},
		{"Turing by the driver", 4, turing, 2},
		{"A100 by nvml.h", 4, ampere, 3},
		{"A100 by the driver", 5, ampere, 3},
		{"RTX 3090 by nvml.h", 5, ampere, 3},
		{"RTX 3090 by the driver", 6, ampere, 3},
		{"H100 by nvml.h", 6, hopper, 4},
		{"H100 by the driver", 7, hopper, 4},
		{"B200 by nvml.h", 7, blackwell, 5},
		{"B200 by the driver", 8, blackwell, 5},
		{"no architecture, one meaning", 5, 0, 3},
		{"no architecture, two meanings", 7, 0, 0},
		{"an architecture not known", 8, rubin, 0},
		{"a version not known", 9, blackwell, 0},
		{"invalid", 0, hopper, 0},
	} {
		if got := generation(c.version, c.architecture); got != c.want {
			t.Errorf("%s: version %d, architecture %d: generation %d, want %d", c.name, c.version, c.architecture, got, c.want)
		}
	}
}
