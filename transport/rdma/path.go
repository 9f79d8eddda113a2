package rdma

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kvbench/internal/hostinfo"
	"kvbench/internal/ucx"
	"kvbench/transport"
)

// laneUse is what was read back from UCX of a connection.
type laneUse struct {
	used
	all      []string // every lane that carries data
	software bool     // the device is software
	port     *transport.Port
}

// checkLane reads back which lanes the connection has and fails where one carries
// data and does not belong. It runs with the engine held.
func (c *connection) checkLane(op ucx.Op, native bool) error {
	ls, err := parseLanes(c.engine.worker.Describe())
	if err != nil {
		return err
	}
	if out := ls.outside(c.family); len(out) > 0 {
		return wrongLane(c.family, out)
	}
	u, err := ls.carrying(op, native)
	if err == nil {
		err = c.checkUsedDirectly(u)
	}
	if err != nil {
		return err
	}
	devices, _ := rdmaDevices()
	behind, software := portBehind(devices, u.device)
	c.lane.Store(&laneUse{used: u, all: ls.names(), software: software, port: behind})
	return nil
}

// errWrongLane is returned when UCX chose another lane than was asked for.
var errWrongLane = errors.New("wrong lane")

func wrongLane(f family, out []string) error {
	why := "UCX found nothing better between the two sides"
	if tls, ok := environment()["UCX_TLS"]; ok {
		why = "UCX_TLS=" + tls + " in the environment"
	}
	return fmt.Errorf("%w: asked for %v, and UCX would carry the data on %s (%s); nothing is measured on a lane that was not asked for; see kvbench devices on both sides, or ask for that lane with --lane", errWrongLane, f, strings.Join(out, ", "), why)
}

// portBehind is the RDMA port that UCX names, such as mlx5_0:1, and whether it has no
// hardware behind it; nil for other names, such as an interface that carries UCX's TCP.
func portBehind(devices []hostinfo.RDMADevice, name string) (behind *transport.Port, software bool) {
	for _, p := range portsOf(devices, "") {
		if p.name() == name {
			return &transport.Port{Link: p.link(), MTU: p.MTU, BytesPerSecond: p.BytesPerSecond}, p.device.Software
		}
	}
	return nil, false
}

// Path implements transport.Endpoint.
func (c *connection) Path() transport.Path {
	p := transport.Path{Details: map[string]any{"ucx_environment": environment()}}
	if version, err := ucx.Version(); err == nil {
		p.Details["ucx"] = version
	}
	c.gpu.describe(p.Details)
	if len(c.processors) > 0 {
		p.Details["processors"] = c.processors
	}
	u := c.lane.Load()
	if u == nil {
		return p
	}
	p.Lane, p.Device, p.Protocol = u.String(), u.device, u.protocol
	p.Emulated, p.SoftwareDevice, p.Port = u.emulated || u.software, u.software, u.port
	p.Details["lanes"] = u.all
	p.Counters.PortBytes, p.Counters.PayloadBytes, p.Details["port_counters"] = c.counts.read()
	return p
}

// portMeter holds what RDMA ports have counted since the connection began beside
// what was moved. Ports of other devices are not in it.
type portMeter struct {
	payload  atomic.Int64
	received atomic.Bool // the data comes to this side
	mu       sync.Mutex
	ports    []meteredPort
}

type meteredPort struct {
	device string
	number int
	mtu    int // of a software device, which counts packets
	before hostinfo.PortCounters
}

// start begins to count at the ports behind lanes, such as rc_mlx5/mlx5_0:1.
func (m *portMeter) start(lanes []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	devices, _ := rdmaDevices()
	for _, name := range lanes {
		_, name, _ = strings.Cut(name, "/")
		for _, p := range portsOf(devices, name) {
			known := slices.ContainsFunc(m.ports, func(o meteredPort) bool { return o.device == p.device.Name && o.number == p.Number })
			before, err := hostinfo.ReadPortCounters(p.device.Name, p.Number)
			if known || err != nil {
				continue // without counters nothing is claimed
			}
			m.ports = append(m.ports, meteredPort{p.device.Name, p.Number, p.MTU, before})
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

// read returns the bytes that the ports counted, or 0, the payload, and every counter.
func (m *portMeter) read() (port, payload int64, all map[string]hostinfo.PortCounters) {
	payload = m.payload.Load()
	if port, all = m.look(); port > 0 && port < payload {
		time.Sleep(counterLifespan)
		port, all = m.look()
	}
	return port, payload, all
}

func (m *portMeter) look() (bytes int64, all map[string]hostinfo.PortCounters) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all = make(map[string]hostinfo.PortCounters)
	for _, p := range m.ports {
		now, err := hostinfo.ReadPortCounters(p.device, p.number)
		if err != nil {
			return 0, all // a port went away: nothing is claimed
		}
		d := now.Sub(p.before)
		all[fmt.Sprintf("%s:%d", p.device, p.number)] = d
		bytes += portBytes(d, p.mtu, m.received.Load())
	}
	return bytes, all
}

// portBytes is what a port counted in one direction: its bytes, or the most that
// its packets can have held.
func portBytes(c hostinfo.PortCounters, mtu int, received bool) int64 {
	bytes, packets := "port_xmit_bytes", "sent_pkts"
	if received {
		bytes, packets = "port_rcv_bytes", "rcvd_pkts"
	}
	if n, ok := c.Port[bytes]; ok {
		return int64(n)
	}
	return int64(c.Hardware[packets]) * int64(mtu)
}
