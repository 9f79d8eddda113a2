package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kvbench/internal/hostinfo"
	"kvbench/internal/units"
)

// port is a port of an RDMA device, with the device. A device without ports has a row with
// port 0.
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

// name is the port in the notation of UCX and --device.
func (p port) name() string {
	if p.Number == 0 {
		return p.device.Name
	}
	return fmt.Sprintf("%s:%d", p.device.Name, p.Number)
}

// fault is the device's fault, or else the port's.
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

// packets prefers the port's count and falls back to the software device's.
func packets(c hostinfo.PortCounters, name, software string) Cell {
	if n, ok := c.Port[name]; ok {
		return word(strconv.FormatUint(n, 10))
	}
	return counted(c.Hardware, software, func(n int64) string { return strconv.FormatInt(n, 10) })
}

// troubling are the counters that stay 0 on a path without loss or errors, from the port
// (InfiniBand specification), mlx5, and rxe.
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
