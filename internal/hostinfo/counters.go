package hostinfo

import (
	"fmt"
	"strconv"
)

// PortCounters are the counters of a port of an RDMA device, by the kernel's names. A
// counter that the device lacks, or that cannot be read, is not in the map. The
// documentation of the kernel (sysfs-class-infiniband) and of the driver defines each
// counter.
type PortCounters struct {
	// Port is the content of counters/, by the names of the InfiniBand specification.
	// port_xmit_data and port_rcv_data, which count units of 4 bytes, are here as
	// port_xmit_bytes and port_rcv_bytes, in bytes: payload and headers. Software devices
	// have none of these.
	Port map[string]uint64 `json:"port,omitempty"`
	// Hardware is the content of hw_counters/, by the driver's names. The kernel may return
	// values as old as hw_counters/lifespan, around 10 ms.
	Hardware map[string]uint64 `json:"hardware,omitempty"`
}

// dataWord is the unit of the data counters in bytes (InfiniBand Architecture
// Specification 1, PortCounters: "data octets, divided by 4").
const dataWord = 4

// ReadPortCounters reads the counters of a port; ports count from 1. It returns an error if
// there is no such port, otherwise all readable counters.
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

// counters reads every file of a directory that holds a number.
func (t tree) counters(dir string) map[string]uint64 {
	counts := make(map[string]uint64)
	for _, name := range t.names(dir) {
		if name == "lifespan" { // a setting, not a counter
			continue
		}
		if n, err := strconv.ParseUint(t.word(dir, name), 10, 64); err == nil {
			counts[name] = n
		}
	}
	return counts
}

// Sub returns the counts since before. It omits a counter that either side lacks, or that
// went backwards because it was reset in between.
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
