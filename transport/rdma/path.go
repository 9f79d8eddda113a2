package rdma

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"kvbench/internal/hostinfo"
	"kvbench/internal/ucx"
	"kvbench/transport"
)

// laneUse is what was read back from UCX of a connection.
type laneUse struct {
	used
	all      []string // every lane that carries data
	software bool     // the device is software
}

// checkLane reads back which lanes the connection has and fails where one carries
// data and does not belong. It runs on the engine's thread.
func (c *connection) checkLane(op ucx.Op, native bool) error {
	ls, err := parseLanes(c.engine.worker.Describe())
	if err != nil {
		return err
	}
	if out := ls.outside(c.family); len(out) > 0 {
		return wrongLane(c.family, out)
	}
	u, err := ls.carrying(op, native)
	if err != nil {
		return err
	}
	c.lane.Store(&laneUse{used: u, all: ls.names(), software: softwareDevice(u.device)})
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

// softwareDevice reports whether an RDMA port has no hardware behind it.
func softwareDevice(name string) bool {
	devices, _ := hostinfo.RDMADevices()
	ports := portsOf(devices, name)
	return len(ports) > 0 && ports[0].device.Software
}

// Path implements transport.Endpoint.
func (c *connection) Path() transport.Path {
	p := transport.Path{Details: map[string]any{"ucx_environment": environment()}}
	if version, err := ucx.Version(); err == nil {
		p.Details["ucx"] = version
	}
	u := c.lane.Load()
	if u == nil {
		return p
	}
	p.Lane, p.Device, p.Emulated = u.String(), u.device, u.emulated || u.software
	p.Details["protocol"] = u.protocol
	p.Details["lanes"] = u.all
	p.Details["software_rdma"] = u.software
	if port := c.counts.read(); port != nil {
		p.Details["port_counters"] = port
		p.Details["payload_bytes"] = c.counts.payload.Load()
	}
	return p
}

// portMeter holds what the port has counted since the connection began beside what
// was moved.
type portMeter struct {
	payload atomic.Int64

	mu     sync.Mutex
	device string
	number int
	before hostinfo.PortCounters
}

// start begins to count at an RDMA port, such as mlx5_0:1; other devices have none.
func (m *portMeter) start(name string) {
	device, number, ok := strings.Cut(name, ":")
	n, err := strconv.Atoi(number)
	if !ok || err != nil {
		return
	}
	before, err := hostinfo.ReadPortCounters(device, n)
	if err != nil {
		return // Path then has no counters, and says so by their absence
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.device, m.number, m.before = device, n, before
}

func (m *portMeter) add(bytes int64) { m.payload.Add(bytes) }

// read returns what was counted, or nil.
func (m *portMeter) read() *hostinfo.PortCounters {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.device == "" {
		return nil
	}
	now, err := hostinfo.ReadPortCounters(m.device, m.number)
	if err != nil {
		return nil
	}
	d := now.Sub(m.before)
	return &d
}
