package rdma

import (
	"testing"

	"kvbench/internal/hostinfo"
	"kvbench/transport"
)

// TestPortBehind: a lane's port is told by UCX's own name for it. The interface of a RoCE
// port carries TCP where UCX's TCP uses it.
func TestPortBehind(t *testing.T) {
	devices := twoPorts()
	devices[0].Ports[0].MTU, devices[0].Ports[0].BytesPerSecond = 4096, 50e9
	devices[1].Ports[0].BytesPerSecond = 25e9
	devices = append(devices,
		hostinfo.RDMADevice{Name: "rxe0", Software: true, Ports: []hostinfo.RDMAPort{{Number: 1, LinkLayer: "Ethernet", MTU: 1024, Netdevs: []string{"eth0"}}}},
		hostinfo.RDMADevice{Name: "siw0", NodeType: "RNIC", Software: true, Ports: []hostinfo.RDMAPort{{Number: 1, LinkLayer: "Ethernet"}}})
	for name, want := range map[string]*transport.Port{
		"mlx5_0:1": {Link: transport.RoCE, MTU: 4096, BytesPerSecond: 50e9},
		"mlx5_1:1": {Link: transport.InfiniBand, BytesPerSecond: 25e9},
		"rxe0:1":   {Link: transport.RoCE, MTU: 1024},
		"siw0:1":   {Link: transport.IWARP},
		"ens1np0":  nil,
		"eth0":     nil,
		"mlx5_0:2": nil,
		"memory":   nil,
		"":         nil,
	} {
		got, software := portBehind(devices, name)
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%q: %+v, want %+v", name, got, want)
		}
		if want := name == "rxe0:1" || name == "siw0:1"; software != want {
			t.Errorf("%q: software %v", name, software)
		}
	}
}

func TestPortBytes(t *testing.T) {
	hardware := hostinfo.PortCounters{
		Port:     map[string]uint64{"port_xmit_bytes": 1000, "port_rcv_bytes": 70, "port_xmit_packets": 9},
		Hardware: map[string]uint64{"sent_pkts": 1 << 40, "rcvd_pkts": 1 << 40},
	}
	software := hostinfo.PortCounters{Hardware: map[string]uint64{"sent_pkts": 100, "rcvd_pkts": 3}}
	for _, c := range []struct {
		name     string
		counters hostinfo.PortCounters
		received bool
		want     int64
	}{
		{"bytes sent", hardware, false, 1000},
		{"bytes received", hardware, true, 70},
		// Soft-RoCE counts packets: at most an MTU of 4096 bytes each.
		{"packets sent", software, false, 409600},
		{"packets received", software, true, 12288},
		{"no counters", hostinfo.PortCounters{}, true, 0},
		{"one direction only", hostinfo.PortCounters{Port: map[string]uint64{"port_xmit_bytes": 5}}, true, 0},
	} {
		if got := portBytes(c.counters, 4096, c.received); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestPortMeter: lanes without an RDMA port count nothing, and claim nothing.
func TestPortMeter(t *testing.T) {
	var m portMeter
	m.start([]string{"tcp/lo", "sysv/memory", "rc_verbs/no-such-device:1"})
	m.moved(10, false)
	m.moved(5, false)
	port, payload, all := m.read()
	if port != 0 || payload != 15 || len(all) != 0 {
		t.Errorf("ports counted %d of %d bytes: %v; want 0 of 15", port, payload, all)
	}
}
