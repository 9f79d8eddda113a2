package report

import (
	"strconv"
	"strings"

	"kvbench/internal/hostinfo"
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

// cudaRow is a device with the version of its driver.
type cudaRow struct {
	CUDADevice
	version string
}

var cudaColumns = []column[cudaRow]{
	{"ordinal", "cuda:N", func(d cudaRow) Cell { return Cell{d.Ordinal, strconv.Itoa(d.Ordinal)} }},
	{"name", "device", func(d cudaRow) Cell { return word(d.Name) }},
	{"memory_bytes", "memory", func(d cudaRow) Cell { return size(d.MemoryBytes) }},
	{"pci_address", "PCI", func(d cudaRow) Cell { return word(d.PCIAddress) }},
	{"cuda_version", "driver for CUDA", func(d cudaRow) Cell { return word(d.version) }},
	{"uuid", "", func(d cudaRow) Cell { return word(d.UUID) }},
}

var gpuLinkColumns = []column[GPULink]{
	{"ordinal", "cuda:N", func(l GPULink) Cell { return Cell{l.Ordinal, strconv.Itoa(l.Ordinal)} }},
	{"peer_ordinal", "cuda:N", func(l GPULink) Cell { return Cell{l.Peer, strconv.Itoa(l.Peer)} }},
	{"link", "link", func(l GPULink) Cell {
		return Cell{word(l.Link).Value, ifElse(l.Err == nil, l.Link, "unknown")}
	}},
	{"reason", "", func(l GPULink) Cell {
		if l.Err == nil {
			return word("")
		}
		return word(l.Err.Error())
	}},
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

// transportFault holds the reason and the remedy in one string, as returned by Probe.
func transportFault(t TransportState) (string, hostinfo.Fault) {
	if t.Err == nil {
		return t.Label(), hostinfo.Fault{}
	}
	return t.Label(), hostinfo.Fault{Reason: t.Err.Error()}
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
	{"software", "hardware", func(l lane) Cell { return Cell{l.Software, hardwareOf(l)} }},
	{"same_host_only", "hosts", func(l lane) Cell { return Cell{l.SameHostOnly, ifElse(l.SameHostOnly, "one", "any")} }},
	{"reason", "", func(l lane) Cell { return word(l.Reason) }},
}

var missingColumns = []column[hostinfo.Missing]{
	{"name", "", func(m hostinfo.Missing) Cell { return word(m.Name) }},
	{"reason", "", func(m hostinfo.Missing) Cell { return word(m.Reason) }},
	{"mend", "", func(m hostinfo.Missing) Cell { return word(m.Mend) }},
}

// hardwareOf describes whether an RDMA lane runs in hardware; for other lanes it is a dash.
func hardwareOf(l lane) string {
	switch {
	case !l.RDMA:
		return "-"
	case l.Software:
		return "software"
	}
	return "yes"
}
