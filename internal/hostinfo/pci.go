package hostinfo

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// UnknownNode is the NUMA node of what the system ties to none.
const UnknownNode = -1

// PCI is where a device sits on the PCI bus. The zero value is a device that does
// not, or of which the system does not tell.
type PCI struct {
	Address string // domain:bus:device.function
	// The link as it was trained and as it could be: transfers a second and lane in
	// units of 1e9, and lanes. 0 where unknown: virtual functions do not tell.
	GTPerSecond, MaxGTPerSecond float64
	Width, MaxWidth             int
}

// BytesPerSecond is the rate of the link one way after line coding, before packet
// headers; 0 where it is unknown. Up to 5 GT/s a byte takes 10 bits, from 8 to 32
// GT/s 130 bits carry 128, and of a flit of 256 bytes at 64 GT/s packets get 236
// (PCI Express Base Specifications 2.0, 3.0 and 6.0).
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

// pci describes the PCI device at or above a directory of sysfs, and the NUMA node it
// is tied to. Above, because what a driver makes of a function (virtio, auxiliary
// devices of a NIC) lies below it.
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

// numaNode reads the numa_node of the device whose directory t is. The kernel writes -1 for none.
func (t tree) numaNode() int {
	if n, ok := t.number("numa_node"); ok && n >= 0 {
		return int(n)
	}
	return UnknownNode
}

// width reads a number of lanes. 255 is what the kernel writes where the function does not tell.
func (t tree) width(name string) int {
	if n, ok := t.number(name); ok && n > 0 && n <= 64 {
		return int(n)
	}
	return 0
}

// parseGT reads "16.0 GT/s PCIe", or "8 GT/s" as older kernels write it; 0 where it is "Unknown".
func parseGT(s string) float64 {
	number, _, ok := strings.Cut(s, " GT/s")
	if !ok {
		return 0
	}
	return positive(number)
}

// positive reads a number above 0; anything else is 0.
func positive(s string) float64 {
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || !(v > 0 && v < 1e9) {
		return 0
	}
	return v
}
