package hostinfo

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// rdmaClass lists the RDMA devices: ABI/stable/sysfs-class-infiniband in the kernel's
// documentation.
const rdmaClass = "sys/class/infiniband"

// RDMADevice is one RDMA device. Fields that the system does not report are zero.
type RDMADevice struct {
	Name     string
	NodeType string // CA: InfiniBand and RoCE; RNIC: iWARP
	NodeGUID string
	Firmware string
	Model    string // the driver's name for the hardware, such as MT4125
	Driver   string
	// Software devices (rxe, siw) run on the host's CPU over any network interface.
	Software bool
	PCI      PCI
	NUMANode int    // UnknownNode if there is none
	Node     string // the device file that user space opens, as /dev/infiniband/uverbs0; empty if there is none
	Fault    Fault  // the reason if this process can use none of the ports
	Ports    []RDMAPort
}

// RDMAPort is a port of an RDMA device.
type RDMAPort struct {
	Number         int
	State          string  // ACTIVE, DOWN, INIT, ARMED
	PhysicalState  string  // LinkUp, Polling, Disabled, ...
	LinkLayer      string  // InfiniBand or Ethernet
	BytesPerSecond float64 // of the link, one way; 0 for software, which reports meaningless rates
	Lanes          string  // composition of the rate, such as 4X EDR
	// MTU is the largest payload of a packet in bytes; 0 if unknown. On Ethernet it follows
	// from the network interface's. InfiniBand's is not in sysfs.
	MTU     int
	LID     int // address given by the subnet manager; 0 on Ethernet
	GIDs    []GID
	Netdevs []string // network interfaces on this port
	// Bonded reports that an interface of the port joins the links of several ports
	// (bonding), or is on top of a bond. Rate and counters may then cover only one of the
	// links.
	Bonded   bool
	Counters PortCounters
	Fault    Fault // the reason if this port cannot be used
}

// GID is an entry of a port's table of addresses.
type GID struct {
	Index   int
	Address netip.Addr
	Type    string // RoCE v2, or IB/RoCE v1
	Netdev  string
}

// rdmaDevices lists the RDMA devices. If there are none, the fault is the reason.
func (t tree) rdmaDevices() ([]RDMADevice, Fault) {
	var devices []RDMADevice
	for _, name := range t.names(rdmaClass) {
		devices = append(devices, t.rdmaDevice(name))
	}
	switch {
	case len(devices) > 0:
		return devices, Fault{}
	case !t.exists("sys/class"):
		return nil, Fault{"RDMA devices cannot be listed: /sys is not there", "mount sysfs at /sys; in a container, do not mask it"}
	}
	return nil, noDevices(t.missing(rdmaClass))
}

func (t tree) rdmaDevice(name string) RDMADevice {
	at := tree(t.path(rdmaClass, name))
	d := RDMADevice{
		Name: name, NodeType: afterColon(at.word("node_type")), NodeGUID: at.word("node_guid"),
		Firmware: at.word("fw_ver"), Model: at.word("hca_type"), Driver: at.linkBase("device", "driver"),
	}
	if d.Software = t.software(name); d.Software {
		d.Driver = softwareDriver(d.NodeType)
	}
	d.PCI, d.NUMANode = t.pci(rdmaClass, name, "device")
	if d.NUMANode == UnknownNode {
		d.NUMANode = tree(at.path("device")).numaNode()
	}
	d.Node, d.Fault = t.verbsNode(name)
	for _, number := range at.names("ports") {
		if n, err := strconv.Atoi(number); err == nil {
			p := t.rdmaPort(name, n)
			if d.Software { // it counts its own traffic only, also on top of a bond
				p.BytesPerSecond, p.Lanes, p.Bonded = 0, "", false
			}
			d.Ports = append(d.Ports, p)
		}
	}
	return d
}

// software reports whether a device has no hardware behind it. The kernel keeps such
// devices under devices/virtual.
func (t tree) software(name string) bool {
	return strings.Contains(t.resolve(rdmaClass, name), "/devices/virtual/")
}

// softwareDriver names the driver of a device without hardware. The kernel has two: rxe for
// RoCE and siw for iWARP.
func softwareDriver(nodeType string) string {
	if nodeType == "RNIC" {
		return "siw"
	}
	return "rdma_rxe"
}

func (t tree) rdmaPort(device string, number int) RDMAPort {
	at := tree(t.path(rdmaClass, device, "ports", strconv.Itoa(number)))
	p := RDMAPort{
		Number: number, State: afterColon(at.word("state")), PhysicalState: afterColon(at.word("phys_state")), LinkLayer: at.word("link_layer"),
		GIDs: at.gids(), LID: parseLID(at.word("lid")),
	}
	p.BytesPerSecond, p.Lanes = parseRate(at.word("rate"))
	p.Counters, _ = t.portCounters(device, number) // the port exists: it was listed
	for _, g := range p.GIDs {
		if g.Netdev != "" && !slices.Contains(p.Netdevs, g.Netdev) {
			p.Netdevs = append(p.Netdevs, g.Netdev)
		}
	}
	// A software device names its interface even while the table is empty.
	if parent := t.word(rdmaClass, device, "parent"); parent != "" && len(p.Netdevs) == 0 {
		p.Netdevs = []string{parent}
	}
	p.Bonded = slices.ContainsFunc(p.Netdevs, t.bonded)
	p.MTU = t.roceMTU(device, p)
	p.Fault = p.fault()
	return p
}

// gids reads the table of the port at directory t, without its empty entries.
func (t tree) gids() []GID {
	var table []GID
	for _, name := range t.names("gids") {
		index, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		address, err := netip.ParseAddr(t.word("gids", name))
		if err != nil || address.IsUnspecified() {
			continue
		}
		table = append(table, GID{Index: index, Address: address, Type: t.word("gid_attrs", "types", name), Netdev: t.word("gid_attrs", "ndevs", name)})
	}
	return table
}

// netClass lists the network interfaces: ABI/testing/sysfs-class-net in the kernel's
// documentation.
const netClass = "sys/class/net"

// bonded reports whether a network interface is a bond, or is on top of a bond, as a VLAN
// is.
func (t tree) bonded(name string) bool {
	at := tree(t.path(netClass, name))
	return at.exists("bonding") || slices.ContainsFunc(at.names(), func(entry string) bool {
		return strings.HasPrefix(entry, "lower_") && at.exists(entry, "bonding")
	})
}

// ownNetdevs returns the interfaces in a port's table that determine its MTU: the
// interfaces of the same hardware device. VLANs and similar interfaces in the table are on
// top of these and may have a smaller MTU, which does not apply to the port. A software
// device names its interface. If no interface belongs to the same device, as with a bond,
// it returns all.
func (t tree) ownNetdevs(device string, p RDMAPort) []string {
	if parent := t.word(rdmaClass, device, "parent"); parent != "" {
		return []string{parent}
	}
	hardware := t.resolve(rdmaClass, device, "device")
	var own []string
	for _, name := range p.Netdevs {
		if hardware != "" && t.resolve(netClass, name, "device") == hardware {
			own = append(own, name)
		}
	}
	if len(own) == 0 {
		return p.Netdevs
	}
	return own
}

// roceHeaders is the room that the kernel keeps in an Ethernet interface's MTU for the
// headers of RoCE: GRH 40, UDP 8, BTH 12, XRC 4, AtomicETH 28, ICRC 4 bytes (iboe_get_mtu
// in include/rdma/ib_addr.h).
const roceHeaders = 40 + 8 + 12 + 4 + 28 + 4

// roceMTU derives the MTU of an Ethernet port from its interface's; 0 if it cannot.
func (t tree) roceMTU(device string, p RDMAPort) int {
	if p.LinkLayer != "Ethernet" {
		return 0
	}
	least := 0
	for _, name := range t.ownNetdevs(device, p) {
		if mtu, ok := t.number(netClass, name, "mtu"); ok && (least == 0 || int(mtu) < least) {
			least = int(mtu)
		}
	}
	for _, mtu := range []int{4096, 2048, 1024, 512, 256} { // the MTUs of InfiniBand
		if least-roceHeaders >= mtu {
			return mtu
		}
	}
	return 0
}

// afterColon extracts the name from "4: ACTIVE".
func afterColon(s string) string {
	if _, name, ok := strings.Cut(s, ":"); ok {
		return strings.TrimSpace(name)
	}
	return s
}

// parseRate reads "100 Gb/sec (4X EDR)": bytes a second, and the text in brackets.
func parseRate(s string) (bytesPerSecond float64, lanes string) {
	number, rest, ok := strings.Cut(s, " Gb/sec")
	if !ok {
		return 0, ""
	}
	return positive(number) * 1e9 / 8, strings.Trim(rest, " ()")
}

// parseLID reads "0x1f"; 0 if s is no number.
func parseLID(s string) int {
	n, err := strconv.ParseUint(s, 0, 16)
	if err != nil {
		return 0
	}
	return int(n)
}

// RDMADevices lists this host's RDMA devices. If there are none, the fault is the reason.
func RDMADevices() ([]RDMADevice, Fault) { return host.rdmaDevices() }
