package rdma

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kvbench/internal/hostinfo"
)

// portMeter holds what RDMA ports have counted since the connection began beside
// what was moved. Ports of other devices are not in it.
type portMeter struct {
	payload  atomic.Int64
	received atomic.Bool // the data comes to this side
	mu       sync.Mutex
	ports    []meteredPort
}

type meteredPort struct {
	name   string // such as mlx5_0:1
	mtu    int    // of a software device, which counts packets
	bonded bool   // see hostinfo.RDMAPort
	read   func() (hostinfo.PortCounters, error)
	before hostinfo.PortCounters
}

// portCounts is what the ports of a meter have counted in the direction of the data.
type portCounts struct {
	bytes   int64
	counted bool // every port has the counter, and one has counted something before or now
	idle    bool // every port has the counter, and none ever counted anything
	aside   bool // a port has never counted anything, and may have stood by or count nothing
	bonded  bool // a port is of a bond, so that it may have counted a part: counted is false
	all     map[string]hostinfo.PortCounters
}

// start begins to count at the ports behind lanes, such as rc_mlx5/mlx5_0:1.
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
			before, _ := read() // without counters, the port counts nothing
			m.ports = append(m.ports, meteredPort{p.name(), p.MTU, p.Bonded, read, before})
		}
	}
}

// moved counts delivered payload and says which way it went.
func (m *portMeter) moved(bytes int64, received bool) {
	m.payload.Add(bytes)
	m.received.Store(received)
}

// counterLifespan is how old the kernel's answer may be (hw_counters/lifespan).
const counterLifespan = 20 * time.Millisecond

// read returns what the ports counted while a payload was delivered.
func (m *portMeter) read(payload int64) portCounts {
	c := m.look()
	if (c.counted || c.idle) && c.bytes < payload {
		time.Sleep(counterLifespan)
		c = m.look()
	}
	if c.counted && c.aside && c.bytes < payload-payload/10 {
		// The ports that count did not see it, and one that may not count may have.
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
			return portCounts{all: c.all} // a port went away: nothing is claimed
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
	// A port that stood by, as the second NIC of a connection may, takes nothing from
	// what the others say.
	all := len(m.ports) > 0 && with == len(m.ports)
	c.idle, c.aside = all && idle == len(m.ports), idle > 0
	c.counted = all && !c.idle && !c.bonded
	return c
}

// portBytes is what a port counted in one direction: its bytes, or the most that
// its packets can have held. It reports whether the port has a counter of either.
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

// neverCounted reports whether a port's counters stand at 0 in both directions, as those
// of virtual functions do whose driver does not fill them: where data has gone through a
// port that counts, they do not.
func neverCounted(now hostinfo.PortCounters, mtu int) bool {
	sent, _ := portBytes(now, mtu, false)
	received, _ := portBytes(now, mtu, true)
	return sent == 0 && received == 0
}
