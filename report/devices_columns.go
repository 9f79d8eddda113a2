package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kvbench/internal/hostinfo"
	"kvbench/internal/units"
	"kvbench/transport"
)

var nicColumns = []column[hostinfo.NIC]{
	{"name", "interface", func(n hostinfo.NIC) Cell { return word(n.Name) }},
	{"class", "class", func(n hostinfo.NIC) Cell { return word(string(n.Class)) }},
	{"type", "type", func(n hostinfo.NIC) Cell { return word(n.Type) }},
	{"state", "state", func(n hostinfo.NIC) Cell { return word(n.State) }},
	{"rate_bytes_per_second", "rate", func(n hostinfo.NIC) Cell { return bitRate(n.BytesPerSecond) }},
	{"shaped_bytes_per_second", "shaped to", func(n hostinfo.NIC) Cell { return bitRate(n.ShapedBytesPerSecond) }},
	{"mtu_bytes", "MTU", func(n hostinfo.NIC) Cell { return count(n.MTU) }},
	{"numa_node", "NUMA", func(n hostinfo.NIC) Cell { return numaNode(n.NUMANode) }},
	{"pci_address", "PCI", func(n hostinfo.NIC) Cell { return word(n.PCI.Address) }},
	{"pcie_gt_per_second", "", func(n hostinfo.NIC) Cell { return known(n.PCI.GTPerSecond) }},
	{"pcie_lanes", "", func(n hostinfo.NIC) Cell { return count(n.PCI.Width) }},
	{"pcie_max_gt_per_second", "", func(n hostinfo.NIC) Cell { return known(n.PCI.MaxGTPerSecond) }},
	{"pcie_max_lanes", "", func(n hostinfo.NIC) Cell { return count(n.PCI.MaxWidth) }},
	{"pcie_bytes_per_second", "PCIe", func(n hostinfo.NIC) Cell {
		return Cell{known(n.PCI.BytesPerSecond()).Value, pcieLink(n.PCI)}
	}},
	{"driver", "driver", func(n hostinfo.NIC) Cell { return word(n.Driver) }},
	{"rdma_devices", "RDMA", func(n hostinfo.NIC) Cell { return words(n.RDMA) }},
	{"reason", "", func(n hostinfo.NIC) Cell { return word(n.Fault.Reason) }},
	{"mend", "", func(n hostinfo.NIC) Cell { return word(n.Fault.Mend) }},
}

// port is a port of an RDMA device with the device. A device without ports has a
// row with port 0.
type port struct {
	device hostinfo.RDMADevice
	hostinfo.RDMAPort
}

func portsOf(devices []hostinfo.RDMADevice) (ports []port) {
	for _, d := range devices {
		for _, p := range d.Ports {
			ports = append(ports, port{d, p})
		}
		if len(d.Ports) == 0 {
			fault := hostinfo.Fault{Reason: "it shows no ports", Mend: "let this user read /sys/class/infiniband"}
			ports = append(ports, port{d, hostinfo.RDMAPort{Fault: fault}})
		}
	}
	return ports
}

// name is the port as UCX and --device write it.
func (p port) name() string {
	if p.Number == 0 {
		return p.device.Name
	}
	return fmt.Sprintf("%s:%d", p.device.Name, p.Number)
}

// fault is the device's, or else the port's.
func (p port) fault() (string, hostinfo.Fault) {
	if p.device.Fault.Reason != "" {
		return p.name(), p.device.Fault
	}
	return p.name(), p.Fault
}

var rdmaColumns = []column[port]{
	{"name", "device", func(p port) Cell { return word(p.device.Name) }},
	{"port", "port", func(p port) Cell { return count(p.Number) }},
	{"usable", "usable", func(p port) Cell { _, f := p.fault(); return yes(f.Reason == "") }},
	{"state", "state", func(p port) Cell { return word(p.State) }},
	{"physical_state", "link", func(p port) Cell { return word(p.PhysicalState) }},
	{"link_layer", "layer", func(p port) Cell { return word(p.LinkLayer) }},
	{"rate_bytes_per_second", "rate", func(p port) Cell { return bitRate(p.BytesPerSecond) }},
	{"link_speed", "speed", func(p port) Cell { return word(p.Lanes) }},
	{"mtu_bytes", "MTU", func(p port) Cell { return count(p.MTU) }},
	{"lid", "LID", func(p port) Cell { return count(p.LID) }},
	{"numa_node", "NUMA", func(p port) Cell { return numaNode(p.device.NUMANode) }},
	{"driver", "driver", func(p port) Cell { return word(p.device.Driver) }},
	{"software", "hardware", func(p port) Cell { return Cell{p.device.Software, ifElse(p.device.Software, "software", "yes")} }},
	{"firmware", "firmware", func(p port) Cell { return word(p.device.Firmware) }},
	{"interfaces", "interface", func(p port) Cell { return words(p.Netdevs) }},
	{"device_node", "opened as", func(p port) Cell { return word(p.device.Node) }},
	{"model", "", func(p port) Cell { return word(p.device.Model) }},
	{"node_type", "", func(p port) Cell { return word(p.device.NodeType) }},
	{"node_guid", "", func(p port) Cell { return word(p.device.NodeGUID) }},
	{"pci_address", "", func(p port) Cell { return word(p.device.PCI.Address) }},
	{"pcie_bytes_per_second", "", func(p port) Cell { return known(p.device.PCI.BytesPerSecond()) }},
	{"gids", "", func(p port) Cell { return Cell{Value: gidRows(p.GIDs)} }},
	{"counters", "", func(p port) Cell { return Cell{Value: p.Counters} }},
	{"reason", "", func(p port) Cell { _, f := p.fault(); return word(f.Reason) }},
	{"mend", "", func(p port) Cell { _, f := p.fault(); return word(f.Mend) }},
}

type gidRow struct {
	Index  int    `json:"index"`
	GID    string `json:"gid"`
	Type   string `json:"type"`
	Netdev string `json:"interface"`
}

func gidRows(gids []hostinfo.GID) []gidRow {
	rows := make([]gidRow, len(gids))
	for i, g := range gids {
		rows[i] = gidRow{g.Index, g.Address.String(), g.Type, g.Netdev}
	}
	return rows
}

type portGID struct {
	port port
	hostinfo.GID
}

func gidsOf(ports []port) (gids []portGID) {
	for _, p := range ports {
		for _, g := range p.GIDs {
			gids = append(gids, portGID{p, g})
		}
	}
	return gids
}

var gidColumns = []column[portGID]{
	{"", "port", func(g portGID) Cell { return word(g.port.name()) }},
	{"", "index", func(g portGID) Cell { return Cell{Text: strconv.Itoa(g.Index)} }},
	{"", "GID", func(g portGID) Cell { return word(g.Address.String()) }},
	{"", "type", func(g portGID) Cell { return word(g.Type) }},
	{"", "interface", func(g portGID) Cell { return word(g.Netdev) }},
}

// countersOf lists the ports that count anything.
func countersOf(ports []port) []port {
	return slices.DeleteFunc(slices.Clone(ports), func(p port) bool { return len(p.Counters.Port)+len(p.Counters.Hardware) == 0 })
}

var counterColumns = []column[port]{
	{"", "port", func(p port) Cell { return word(p.name()) }},
	{"", "sent", func(p port) Cell { return counted(p.Counters.Port, "port_xmit_bytes", units.Bytes) }},
	{"", "received", func(p port) Cell { return counted(p.Counters.Port, "port_rcv_bytes", units.Bytes) }},
	{"", "packets sent", func(p port) Cell { return packets(p.Counters, "port_xmit_packets", "sent_pkts") }},
	{"", "packets received", func(p port) Cell { return packets(p.Counters, "port_rcv_packets", "rcvd_pkts") }},
	{"", "signs of trouble", func(p port) Cell { return word(trouble(p.Counters)) }},
}

func counted(counts map[string]uint64, name string, format func(int64) string) Cell {
	n, ok := counts[name]
	if !ok {
		return word("")
	}
	return word(format(int64(n)))
}

// packets takes the port's own count, or the one of the software device.
func packets(c hostinfo.PortCounters, name, software string) Cell {
	if n, ok := c.Port[name]; ok {
		return word(strconv.FormatUint(n, 10))
	}
	return counted(c.Hardware, software, func(n int64) string { return strconv.FormatInt(n, 10) })
}

// troubling are the counters that stay 0 on a path without loss or errors: of the port
// (InfiniBand specification), of mlx5, and of rxe.
var troubling = []string{
	"symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_xmit_discards", "local_link_integrity_errors", "excessive_buffer_overrun_errors",
	"packet_seq_err", "out_of_sequence", "duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "out_of_buffer", "roce_adp_retrans", "roce_adp_retrans_to",
	"out_of_seq_request", "rcvd_seq_err", "retry_exceeded_err", "retry_rnr_exceeded_err", "completer_retry_err", "send_err",
}

func trouble(c hostinfo.PortCounters) string {
	var found []string
	for _, name := range troubling {
		if n := c.Port[name] + c.Hardware[name]; n > 0 {
			found = append(found, fmt.Sprintf("%s %d", name, n))
		}
	}
	return strings.Join(found, ", ")
}

var gpuColumns = []column[hostinfo.GPU]{
	{"name", "GPU", func(g hostinfo.GPU) Cell { return word(g.Model) }},
	{"minor", "number", func(g hostinfo.GPU) Cell { return word(g.Minor) }},
	{"pci_address", "PCI", func(g hostinfo.GPU) Cell { return word(g.PCI.Address) }},
	{"pcie_bytes_per_second", "PCIe", func(g hostinfo.GPU) Cell {
		return Cell{known(g.PCI.BytesPerSecond()).Value, pcieLink(g.PCI)}
	}},
	{"numa_node", "NUMA", func(g hostinfo.GPU) Cell { return numaNode(g.NUMANode) }},
	{"driver", "driver", func(g hostinfo.GPU) Cell { return word(g.Driver) }},
	{"uuid", "", func(g hostinfo.GPU) Cell { return word(g.UUID) }},
}

var numaColumns = []column[hostinfo.NUMANode]{
	{"numa_node", "node", func(n hostinfo.NUMANode) Cell { return numaNode(n.Number) }},
	{"cpus", "CPUs", func(n hostinfo.NUMANode) Cell { return word(n.CPUs) }},
	{"memory_bytes", "memory", func(n hostinfo.NUMANode) Cell { return size(n.MemoryBytes) }},
	{"free_bytes", "free", func(n hostinfo.NUMANode) Cell { return size(n.FreeBytes) }},
}

var transportColumns = []column[TransportState]{
	{"name", "transport", func(t TransportState) Cell { return word(t.Name) }},
	{"usable", "usable", func(t TransportState) Cell { return yes(t.Err == nil) }},
	{"write", "push", func(t TransportState) Cell { return yes(t.Capabilities.Write) }},
	{"read", "pull", func(t TransportState) Cell { return yes(t.Capabilities.Read) }},
	{"memory", "memory", func(t TransportState) Cell {
		var kinds []string
		for _, k := range t.Capabilities.Memory {
			kinds = append(kinds, string(k))
		}
		return words(kinds)
	}},
	{"same_host_only", "hosts", func(t TransportState) Cell {
		return Cell{t.Capabilities.SameHostOnly, ifElse(t.Capabilities.SameHostOnly, "one", "any")}
	}},
	{"reason", "", func(t TransportState) Cell { _, f := transportFault(t); return word(f.Reason) }},
}

// transportFault has the reason and the mend in one, as Probe gives them.
func transportFault(t TransportState) (string, hostinfo.Fault) {
	if t.Err == nil {
		return t.Name, hostinfo.Fault{}
	}
	return t.Name, hostinfo.Fault{Reason: t.Err.Error()}
}

type lane struct {
	transport string
	transport.Lane
}

func lanesOf(states []TransportState) (lanes []lane) {
	for _, s := range states {
		for _, l := range s.Lanes {
			lanes = append(lanes, lane{s.Name, l})
		}
	}
	return lanes
}

func (l lane) fault() (string, hostinfo.Fault) {
	name := strings.TrimSuffix(l.Name+"/"+l.Device, "/")
	if l.Usable {
		return name, hostinfo.Fault{}
	}
	return name, hostinfo.Fault{Reason: l.Reason}
}

var laneColumns = []column[lane]{
	{"transport", "transport", func(l lane) Cell { return word(l.transport) }},
	{"name", "lane", func(l lane) Cell { return word(l.Name) }},
	{"device", "device", func(l lane) Cell { return word(l.Device) }},
	{"usable", "usable", func(l lane) Cell { return yes(l.Usable) }},
	{"rdma", "RDMA", func(l lane) Cell { return yes(l.RDMA) }},
	{"software", "hardware", func(l lane) Cell { return Cell{l.Software, ifElse(l.Software, "software", "yes")} }},
	{"same_host_only", "hosts", func(l lane) Cell { return Cell{l.SameHostOnly, ifElse(l.SameHostOnly, "one", "any")} }},
	{"reason", "", func(l lane) Cell { return word(l.Reason) }},
}

var missingColumns = []column[hostinfo.Missing]{
	{"name", "", func(m hostinfo.Missing) Cell { return word(m.Name) }},
	{"reason", "", func(m hostinfo.Missing) Cell { return word(m.Reason) }},
	{"mend", "", func(m hostinfo.Missing) Cell { return word(m.Mend) }},
}

// The cells of facts that may be unknown: null for programs, - for people.

func word(s string) Cell {
	if s == "" {
		return Cell{nil, "-"}
	}
	return Cell{s, s}
}

// words is a list, which is empty rather than null.
func words(s []string) Cell {
	return Cell{append([]string{}, s...), word(strings.Join(s, " ")).Text}
}

func count(n int) Cell {
	if n == 0 {
		return Cell{nil, "-"}
	}
	return Cell{n, strconv.Itoa(n)}
}

func known(v float64) Cell {
	if v == 0 {
		return Cell{nil, "-"}
	}
	return Cell{WholeNumber(v), number(v)}
}

func bitRate(bytesPerSecond float64) Cell {
	c := known(bytesPerSecond)
	if bytesPerSecond != 0 {
		c.Text = units.BitRate(bytesPerSecond)
	}
	return c
}

func size(n int64) Cell {
	if n == 0 {
		return Cell{nil, "-"}
	}
	return Cell{n, units.BinaryBytes(n)}
}

func numaNode(n int) Cell {
	if n == hostinfo.UnknownNode {
		return Cell{nil, "-"}
	}
	return Cell{n, strconv.Itoa(n)}
}

func pcieLink(p hostinfo.PCI) string {
	if p.BytesPerSecond() == 0 {
		return "-"
	}
	return fmt.Sprintf("%g GT/s x%d", p.GTPerSecond, p.Width)
}

func yes(b bool) Cell { return Cell{b, ifElse(b, "yes", "no")} }

func ifElse(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}
