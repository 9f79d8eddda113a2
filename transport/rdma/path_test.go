package rdma

import (
	"testing"

	"kvbench/internal/hostinfo"
)

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
