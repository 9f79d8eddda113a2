package rdma

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kvbench/internal/hostinfo"
)

// portMeter compares the counters of RDMA ports with the payload moved since the
// connection began. It ignores ports of other devices.
type portMeter struct {
	payload  atomic.Int64
	received atomic.Bool // true if the data comes to this side
	mu       sync.Mutex
	ports    []meteredPort
}

type meteredPort struct {
	name   string // such as mlx5_0:1
	mtu    int    // MTU of a software device, which counts packets
	bonded bool   // see hostinfo.RDMAPort
	read   func() (hostinfo.PortCounters, error)
	before hostinfo.PortCounters
}

// portCounts holds the counts of a meter's ports in the direction of the data.
type portCounts struct {
	bytes   int64
	counted bool // every port has the counter, and at least one is not 0
	idle    bool // every port has the counter, and all have always been 0
	aside   bool // at least one port has always counted 0: it was unused, or its counter does not work
	bonded  bool // a port belongs to a bond and may have counted only a part, so counted is false
	all     map[string]hostinfo.PortCounters
}

// start starts to count at the ports of lanes such as rc_mlx5/mlx5_0:1.
func (m *portMeter) start(lanes []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	devices, _ := rdmaDevices()
	for _, name := range lanes {
		_, name, _ = strings.Cut(name, "/")
		for _, p := range portsOf(devices, name) {
			if slices.ContainsFunc(m.ports, func(o meteredPort) bool { return o.name == p.name() }) {
				continue
			}
			read := func() (hostinfo.PortCounters, error) { return hostinfo.ReadPortCounters(p.device.Name, p.Number) }
			before, _ := read() // a port without counters counts nothing
			m.ports = append(m.ports, meteredPort{p.name(), p.MTU, p.Bonded, read, before})
		}
	}
}

// moved adds delivered payload and sets its direction.
func (m *portMeter) moved(bytes int64, received bool) {
	m.payload.Add(bytes)
	m.received.Store(received)
}

// counterLifespan is the longest time that the kernel caches a counter
// (hw_counters/lifespan).
const counterLifespan = 20 * time.Millisecond

// read returns the counts of the ports while payload bytes were delivered.
func (m *portMeter) read(payload int64) portCounts {
	c := m.look()
	if (c.counted || c.idle) && c.bytes < payload {
		time.Sleep(counterLifespan)
		c = m.look()
	}
	if c.counted && c.aside && c.bytes < payload-payload/10 {
		// The working counters missed the data. It may have used a port that does not
		// count.
		c.counted, c.idle = false, true
	}
	return c
}

func (m *portMeter) look() portCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := portCounts{all: make(map[string]hostinfo.PortCounters)}
	with, idle := 0, 0
	for _, p := range m.ports {
		now, err := p.read()
		if err != nil {
			return portCounts{all: c.all} // a port went away, so nothing is reported
		}
		d := now.Sub(p.before)
		c.all[p.name] = d
		bytes, has := portBytes(d, p.mtu, m.received.Load())
		c.bytes += bytes
		c.bonded = c.bonded || p.bonded
		if has {
			with++
		}
		if has && neverCounted(now, p.mtu) {
			idle++
		}
	}
	// An unused port, such as the second NIC of a connection, does not invalidate the
	// counts of the others.
	all := len(m.ports) > 0 && with == len(m.ports)
	c.idle, c.aside = all && idle == len(m.ports), idle > 0
	c.counted = all && !c.idle && !c.bonded
	return c
}

// portBytes returns the bytes that a port counted in one direction, or the most bytes
// that its packets can have held. has is false if the port has neither counter.
func portBytes(c hostinfo.PortCounters, mtu int, received bool) (n int64, has bool) {
	bytes, packets := "port_xmit_bytes", "sent_pkts"
	if received {
		bytes, packets = "port_rcv_bytes", "rcvd_pkts"
	}
	if n, ok := c.Port[bytes]; ok {
		return int64(n), true
	}
	count, ok := c.Hardware[packets]
	return int64(count) * int64(mtu), ok && mtu > 0
}

// neverCounted reports whether a port's counters are 0 in both directions. Some drivers
// of virtual functions never fill them. A working counter is above 0 after any data.
func neverCounted(now hostinfo.PortCounters, mtu int) bool {
	sent, _ := portBytes(now, mtu, false)
	received, _ := portBytes(now, mtu, true)
	return sent == 0 && received == 0
}
