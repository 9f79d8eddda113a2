package rdma

import (
	"errors"
	"fmt"
	"strings"

	"kvbench/internal/hostinfo"
	"kvbench/internal/ucx"
	"kvbench/transport"
)

// laneUse holds the lanes of a connection as read back from UCX.
type laneUse struct {
	used
	all      []string // every lane that carries data
	software bool     // the device is software
	port     *transport.Port
}

// checkLane reads back the connection's lanes. It returns an error if a lane outside
// the family carries data. The engine must be held.
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
	if behind != nil && len(ls.paths()) > 1 {
		behind.BytesPerSecond = 0 // the rate of several rails or links together is unknown
	}
	c.lane.Store(&laneUse{used: u, all: ls.names(), software: software, port: behind})
	return nil
}

// errWrongLane is returned if UCX chose a lane outside the requested family.
var errWrongLane = errors.New("wrong lane")

func wrongLane(f family, out []string) error {
	why := "UCX found nothing better between the two sides"
	if tls, ok := environment()["UCX_TLS"]; ok {
		why = "UCX_TLS=" + tls + " in the environment"
	}
	return fmt.Errorf("%w: asked for %v, and UCX would carry the data on %s (%s); nothing is measured on a lane that was not asked for; see kvbench devices on both sides, or ask for that lane with --lane", errWrongLane, f, strings.Join(out, ", "), why)
}

// portBehind returns the RDMA port for a UCX device name such as mlx5_0:1, and whether
// the port is software only. It returns nil for other names, such as a network
// interface.
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
	p.Counters.PayloadBytes = c.counts.payload.Load()
	counts := c.counts.read(p.Counters.PayloadBytes)
	p.Counters.PortBytes, p.Counters.PortCounted = counts.bytes, counts.counted
	p.Details["port_counters"] = counts.all
	if counts.idle {
		p.Details["port_counters_idle"] = true
	}
	if counts.bonded {
		p.Details["port_counters_bonded"] = true
	}
	return p
}
