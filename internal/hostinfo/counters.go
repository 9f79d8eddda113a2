package hostinfo

import (
	"fmt"
	"strconv"
)

// PortCounters are what a port of an RDMA device has counted, by the kernel's names. A counter
// that the device does not have, or that cannot be read, is not in the map. The
// kernel's documentation (sysfs-class-infiniband) and the driver's say what each means.
type PortCounters struct {
	// Port has what counters/ holds, by the names of the InfiniBand specification.
	// port_xmit_data and port_rcv_data, which count units of 4 bytes, are here as
	// port_xmit_bytes and port_rcv_bytes, in bytes: payload and headers. Software
	// devices have none of these.
	Port map[string]uint64 `json:"port,omitempty"`
	// Hardware has what hw_counters/ holds, by the driver's names. The kernel may
	// answer with values as old as hw_counters/lifespan says, around 10 ms.
	Hardware map[string]uint64 `json:"hardware,omitempty"`
}

// dataWord is the unit of the data counters in bytes (InfiniBand Architecture
// Specification 1, PortCounters: "data octets, divided by 4").
const dataWord = 4

// ReadPortCounters reads the counters of a port; ports count from 1. It returns an
// error where there is no such port, and what could be read otherwise.
func ReadPortCounters(device string, port int) (PortCounters, error) {
	return host.portCounters(device, port)
}

func (t tree) portCounters(device string, port int) (PortCounters, error) {
	dir := tree(t.path(rdmaClass, device, "ports", strconv.Itoa(port)))
	if err := dir.missing(); err != nil {
		return PortCounters{}, fmt.Errorf("read counters of port %d of RDMA device %q: %w", port, device, err)
	}
	c := PortCounters{Port: dir.counters("counters"), Hardware: dir.counters("hw_counters")}
	for words, bytes := range map[string]string{"port_xmit_data": "port_xmit_bytes", "port_rcv_data": "port_rcv_bytes"} {
		if n, ok := c.Port[words]; ok {
			delete(c.Port, words)
			c.Port[bytes] = n * dataWord
		}
	}
	return c, nil
}

// counters reads every file of a directory that holds a count.
func (t tree) counters(dir string) map[string]uint64 {
	counts := make(map[string]uint64)
	for _, name := range t.names(dir) {
		if name == "lifespan" { // a setting that lies among the counters
			continue
		}
		if n, err := strconv.ParseUint(t.word(dir, name), 10, 64); err == nil {
			counts[name] = n
		}
	}
	return counts
}

// Sub returns what was counted since before. A counter that either side lacks, or
// that was reset in between and so went backwards, is left out.
func (c PortCounters) Sub(before PortCounters) PortCounters {
	return PortCounters{Port: since(c.Port, before.Port), Hardware: since(c.Hardware, before.Hardware)}
}

func since(after, before map[string]uint64) map[string]uint64 {
	d := make(map[string]uint64)
	for name, a := range after {
		if b, ok := before[name]; ok && a >= b {
			d[name] = a - b
		}
	}
	return d
}
