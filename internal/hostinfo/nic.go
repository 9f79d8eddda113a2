package hostinfo

import (
	"cmp"
	"fmt"
	"net"
	"slices"

	"kvbench/internal/units"
)

// Class is the kind of device behind a network interface; empty if sysfs does not show the
// interface.
type Class string

// The classes.
const (
	Physical Class = "physical" // a device of the machine, or presented as such by a hypervisor
	Virtual  Class = "virtual"  // made by the kernel: veth, bridge, bond, VLAN, tunnel
	Loopback Class = "loopback"
)

// NIC is a network interface with its device. Fields that the system does not report are
// zero.
type NIC struct {
	Device
	Class    Class
	Type     string // the kernel's kind of a virtual interface: veth, bridge, bond, vlan, ...
	State    string // operational state of RFC 2863: up, down, unknown, ...
	Driver   string
	PCI      PCI
	NUMANode int      // UnknownNode if there is none
	RDMA     []string // RDMA devices that it belongs to
	Fault    Fault    // the reason if it is slower than its rate
	// address is the link address. An IPoIB address has 20 bytes and ends in the port's
	// GUID.
	address net.HardwareAddr
}

// describe fills in an interface's facts from sysfs.
func (t tree) describe(n *NIC) {
	switch {
	case n.Loopback:
		n.Class = Loopback
	case t.exists(netClass, n.Name, "device"):
		n.Class = Physical
	case t.exists(netClass, n.Name), n.Type != "":
		n.Class = Virtual
	}
	n.BytesPerSecond = t.lineRate(n.Name)
	n.Driver = t.linkBase(netClass, n.Name, "device", "driver")
	n.PCI, n.NUMANode = t.pci(netClass, n.Name, "device")
	if n.NUMANode == UnknownNode {
		n.NUMANode = tree(t.path(netClass, n.Name, "device")).numaNode()
	}
	if bus := n.PCI.BytesPerSecond(); bus > 0 && bus < n.BytesPerSecond {
		n.Fault = narrowSlot(*n)
	}
}

func narrowSlot(n NIC) Fault {
	f := Fault{
		fmt.Sprintf("its PCIe link, %g GT/s x%d, carries %s at most, less than its %s", n.PCI.GTPerSecond, n.PCI.Width, units.BitRate(n.PCI.BytesPerSecond()), units.BitRate(n.BytesPerSecond)),
		"a slot with more lanes or a newer generation",
	}
	if n.PCI.Width < n.PCI.MaxWidth || n.PCI.GTPerSecond < n.PCI.MaxGTPerSecond {
		f.Mend = fmt.Sprintf("the card could do %g GT/s x%d: seat it in a slot that can, or look at the firmware's settings for this one", n.PCI.MaxGTPerSecond, n.PCI.MaxWidth)
	}
	return f
}

// lineRate returns the rate of a physical interface in bytes a second; 0 for an interface
// without a device (veth, bridge, lo).
func (t tree) lineRate(name string) float64 {
	if !t.exists(netClass, name, "device") {
		return 0
	}
	mbit, ok := t.number(netClass, name, "speed")
	if !ok || mbit <= 0 {
		return 0
	}
	return float64(mbit) * 1e6 / 8
}

// joinRDMA adds to each interface its RDMA devices, and to each InfiniBand port its
// interfaces. mapped returns rdmamap's answer for an interface: one device. The GID tables
// of the ports name further devices if there are several (a software device beside the
// NIC's, a bond). An IPoIB address ends in the port's GUID, which is also the end of the
// port's first GID.
func joinRDMA(nics []NIC, devices []RDMADevice, mapped func(netdev string) string) {
	for i := range nics {
		n := &nics[i]
		if d := mapped(n.Name); d != "" {
			n.RDMA = append(n.RDMA, d)
		}
		for j := range devices {
			for k := range devices[j].Ports {
				p := &devices[j].Ports[k]
				if p.overIPoIB(n.address) && !slices.Contains(p.Netdevs, n.Name) {
					p.Netdevs = append(p.Netdevs, n.Name)
				}
				if slices.Contains(p.Netdevs, n.Name) && !slices.Contains(n.RDMA, devices[j].Name) {
					n.RDMA = append(n.RDMA, devices[j].Name)
				}
			}
		}
		slices.SortFunc(n.RDMA, compareNames)
	}
}

// overIPoIB reports whether an interface with that address runs on this port.
func (p RDMAPort) overIPoIB(address net.HardwareAddr) bool {
	if len(address) != 20 || p.LinkLayer != "InfiniBand" || len(p.GIDs) == 0 {
		return false
	}
	guid := p.GIDs[0].Address.As16()
	return [8]byte(guid[8:]) == [8]byte(address[12:])
}

// sortNICs puts the interfaces that lead out of the host first.
func sortNICs(nics []NIC) {
	rank := map[Class]int{Physical: 0, "": 1, Virtual: 2, Loopback: 3}
	slices.SortFunc(nics, func(a, b NIC) int {
		return cmp.Or(rank[a.Class]-rank[b.Class], compareNames(a.Name, b.Name))
	})
}
