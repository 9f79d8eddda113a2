package hostinfo

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// UnknownNode is the NUMA node of a device that the system ties to none.
const UnknownNode = -1

// PCI is a device's place on the PCI bus. The zero value is a device that is not on the
// bus, or not described by the system.
type PCI struct {
	Address string // domain:bus:device.function
	// The link as trained and at its maximum: 1e9 transfers a second and lane, and lanes. 0
	// if unknown: virtual functions do not report them.
	GTPerSecond, MaxGTPerSecond float64
	Width, MaxWidth             int
}

// BytesPerSecond is the rate of the link one way after line coding, before packet headers;
// 0 if unknown. Up to 5 GT/s a byte takes 10 bits. From 8 to 32 GT/s 130 bits carry 128. At
// 64 GT/s packets get 236 bytes of a flit of 256 (PCI Express Base Specifications 2.0, 3.0
// and 6.0).
func (p PCI) BytesPerSecond() float64 {
	coded := p.GTPerSecond * 1e9 / 8 * float64(p.Width)
	switch {
	case p.GTPerSecond <= 5:
		return coded * 8 / 10
	case p.GTPerSecond <= 32:
		return coded * 128 / 130
	}
	return coded * 236 / 256
}

var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// pci describes the PCI device at or above a directory of sysfs, and its NUMA node. It
// looks above because the devices that a driver makes of a PCI function (virtio, auxiliary
// devices of a NIC) are below the function's directory.
func (t tree) pci(elem ...string) (PCI, int) {
	dir := t.resolve(elem...)
	for dir != "" && dir != filepath.Dir(dir) && !pciAddress.MatchString(filepath.Base(dir)) {
		dir = filepath.Dir(dir)
	}
	if !pciAddress.MatchString(filepath.Base(dir)) {
		return PCI{}, UnknownNode
	}
	at := tree(dir)
	p := PCI{Address: filepath.Base(dir)}
	p.GTPerSecond, p.MaxGTPerSecond = parseGT(at.word("current_link_speed")), parseGT(at.word("max_link_speed"))
	p.Width, p.MaxWidth = at.width("current_link_width"), at.width("max_link_width")
	return p, at.numaNode()
}

// numaNode reads the numa_node of the device at directory t. The kernel writes -1 for none.
func (t tree) numaNode() int {
	if n, ok := t.number("numa_node"); ok && n >= 0 {
		return int(n)
	}
	return UnknownNode
}

// width reads a number of lanes. The kernel writes 255 if the function does not report it.
func (t tree) width(name string) int {
	if n, ok := t.number(name); ok && n > 0 && n <= 64 {
		return int(n)
	}
	return 0
}

// parseGT reads "16.0 GT/s PCIe", or "8 GT/s" from older kernels; 0 for "Unknown".
func parseGT(s string) float64 {
	number, _, ok := strings.Cut(s, " GT/s")
	if !ok {
		return 0
	}
	return positive(number)
}

// positive reads a number above 0; any other text is 0.
func positive(s string) float64 {
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || !(v > 0 && v < 1e9) {
		return 0
	}
	return v
}
