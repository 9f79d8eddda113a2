package rdma

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"kvbench/internal/hostinfo"
	"kvbench/internal/ucx"
	"kvbench/transport"
)

// Lanes implements transport.LaneLister. It returns the lanes that UCX has on this
// host, and the RDMA ports without a lane.
func (t Transport) Lanes(ctx context.Context) ([]transport.Lane, error) {
	if err := t.Probe(ctx); err != nil {
		return nil, err
	}
	text, err := ucx.Survey()
	if err != nil {
		return nil, fmt.Errorf("rdma: %w: %w", transport.ErrUnavailable, err)
	}
	devices, fault := rdmaDevices()
	return survey(text, devices, fault, os.Getenv("UCX_IB_GID_INDEX")), nil
}

// resourceLine matches a lane in the output of ucp_context_print_info:
//
//	resource 1  :  md 1  dev 1  flags -- tcp/lo
var resourceLine = regexp.MustCompile(`resource\s+\d+\s+:.*\s([^/\s]+)/(\S+)`)

// survey combines the lanes of UCX's output with the devices of the kernel.
func survey(text string, devices []hostinfo.RDMADevice, fault hostinfo.Fault, index string) []transport.Lane {
	var found []transport.Lane
	covered := make(map[string]bool) // RDMA ports with a lane
	for line := range strings.Lines(text) {
		m := resourceLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		f, ok := carrier(m[1])
		if !ok {
			continue // self, and transports that only help to connect
		}
		l := transport.Lane{Name: m[1], Device: m[2], RDMA: f.rdma, SameHostOnly: f.oneHost, Usable: true}
		if f.rdma {
			covered[l.Device] = true
			ports := portsOf(devices, l.Device)
			l.Software = len(ports) > 0 && ports[0].device.Software
			l.Reason = obstacle(l.Device, devices, fault, index)
			l.Usable = l.Reason == ""
		}
		found = append(found, l)
	}
	return append(found, uncovered(covered, devices, fault, index)...)
}

// uncovered lists the RDMA ports without a lane. If there are no RDMA devices, it lists
// one entry with the reason.
func uncovered(covered map[string]bool, devices []hostinfo.RDMADevice, fault hostinfo.Fault, index string) []transport.Lane {
	if len(devices) == 0 {
		return []transport.Lane{{Name: "RDMA", RDMA: true, Reason: obstacle("", nil, fault, index)}}
	}
	var found []transport.Lane
	for _, p := range portsOf(devices, "") {
		if covered[p.name()] {
			continue
		}
		why := cmp.Or(obstacle(p.name(), devices, fault, index),
			"UCX has no lane on it; its InfiniBand part may be missing: install it (ucx-ib on RHEL; libucx0 has it on Debian)")
		found = append(found, transport.Lane{Name: "RDMA", Device: p.name(), RDMA: true, Software: p.device.Software, Reason: why})
	}
	return found
}

// carrier returns the named family of a UCX transport, and false if there is none.
func carrier(name string) (family, bool) {
	i := slices.IndexFunc(families, func(f family) bool { return f.name != "" && slices.Contains(f.carry, name) })
	if i < 0 {
		return family{}, false
	}
	return families[i], true
}
