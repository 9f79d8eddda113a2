package rdma

import (
	"errors"
	"testing"

	"kvbench/internal/hostinfo"
	"kvbench/transport"
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
		mtu      int
		received bool
		want     int64
		has      bool
	}{
		{"bytes sent", hardware, 4096, false, 1000, true},
		{"bytes received", hardware, 4096, true, 70, true},
		// Soft-RoCE counts packets: at most an MTU of 4096 bytes each.
		{"packets sent", software, 4096, false, 409600, true},
		{"packets received", software, 4096, true, 12288, true},
		{"packets of no known size", software, 0, true, 0, false},
		{"no counters", hostinfo.PortCounters{}, 4096, true, 0, false},
		{"one direction only", hostinfo.PortCounters{Port: map[string]uint64{"port_xmit_bytes": 5}}, 4096, true, 0, false},
		{"nothing", hostinfo.PortCounters{Port: map[string]uint64{"port_xmit_bytes": 0}}, 4096, false, 0, true},
	} {
		if got, has := portBytes(c.counters, c.mtu, c.received); got != c.want || has != c.has {
			t.Errorf("%s: %d, a counter: %v; want %d, %v", c.name, got, has, c.want, c.has)
		}
	}
}

// bytesOf are the counters of a NIC's port.
func bytesOf(sent, received uint64) hostinfo.PortCounters {
	return hostinfo.PortCounters{Port: map[string]uint64{"port_xmit_bytes": sent, "port_rcv_bytes": received}}
}

// packetsOf are the counters of a port of Soft-RoCE.
func packetsOf(sent, received uint64) hostinfo.PortCounters {
	return hostinfo.PortCounters{Hardware: map[string]uint64{"sent_pkts": sent, "rcvd_pkts": received}}
}

// metered is a port that reads as each of the counters in turn, and then as the last.
func metered(name string, before hostinfo.PortCounters, reads ...hostinfo.PortCounters) meteredPort {
	return meteredPort{name: name, mtu: 1000, before: before, read: func() (hostinfo.PortCounters, error) {
		now := reads[0]
		if len(reads) > 1 {
			reads = reads[1:]
		}
		return now, nil
	}}
}

// TestPortMeter: 1000 bytes were received. A counter that did not move says that they
// went another way, unless it never counted anything.
func TestPortMeter(t *testing.T) {
	gone := metered("mlx5_1:1", bytesOf(0, 5))
	gone.read = func() (hostinfo.PortCounters, error) { return hostinfo.PortCounters{}, errors.New("no such port") }
	for _, c := range []struct {
		name          string
		ports         []meteredPort
		bytes         int64
		counted, idle bool
		accounted     bool
	}{
		{"no RDMA port", nil, 0, false, false, true},
		{"no counters", []meteredPort{metered("mlx5_0:1", hostinfo.PortCounters{}, hostinfo.PortCounters{})}, 0, false, false, true},
		{"all of it", []meteredPort{metered("mlx5_0:1", bytesOf(7, 50), bytesOf(9, 1090))}, 1040, true, false, true},
		{"did not move", []meteredPort{metered("mlx5_0:1", bytesOf(7, 50), bytesOf(7, 50))}, 0, true, false, false},
		{"moved the other way", []meteredPort{metered("mlx5_0:1", bytesOf(0, 0), bytesOf(1040, 0))}, 0, true, false, false},
		{"never counted", []meteredPort{metered("mlx5_0:1", bytesOf(0, 0), bytesOf(0, 0))}, 0, false, true, true},
		// A virtual function that counts nothing may have carried what another port did not see.
		{"one of two never counted", []meteredPort{metered("mlx5_0:1", bytesOf(0, 5), bytesOf(0, 6)), metered("mlx5_1:1", bytesOf(0, 0), bytesOf(0, 0))}, 1, false, true, true},
		// UCX names a second NIC that it does not use.
		{"one of two stood by", []meteredPort{metered("mlx5_0:1", bytesOf(0, 0), bytesOf(0, 0)), metered("mlx5_1:1", bytesOf(0, 5), bytesOf(0, 1045))}, 1040, true, false, true},
		{"neither ever counted", []meteredPort{metered("mlx5_0:1", bytesOf(0, 0), bytesOf(0, 0)), metered("mlx5_1:1", bytesOf(0, 0), bytesOf(0, 0))}, 0, false, true, true},
		{"one never counted, one without counters", []meteredPort{metered("mlx5_0:1", bytesOf(0, 0), bytesOf(0, 0)), metered("mlx5_1:1", hostinfo.PortCounters{}, hostinfo.PortCounters{})}, 0, false, false, true},
		{"one of two without counters", []meteredPort{metered("mlx5_0:1", bytesOf(0, 5), bytesOf(0, 6)), metered("mlx5_1:1", hostinfo.PortCounters{}, hostinfo.PortCounters{})}, 1, false, false, true},
		{"half each", []meteredPort{metered("mlx5_0:1", bytesOf(0, 5), bytesOf(0, 525)), metered("mlx5_1:1", bytesOf(0, 9), bytesOf(0, 529))}, 1040, true, false, true},
		{"one of two went away", []meteredPort{metered("mlx5_0:1", bytesOf(0, 5), bytesOf(0, 6)), gone}, 0, false, false, true},
		{"reset meanwhile", []meteredPort{metered("mlx5_0:1", bytesOf(0, 5000), bytesOf(0, 40))}, 0, false, false, true},
		{"packets", []meteredPort{metered("rxe0:1", packetsOf(0, 4), packetsOf(0, 6))}, 2000, true, false, true},
		{"packets did not move", []meteredPort{metered("rxe0:1", packetsOf(0, 4), packetsOf(0, 4))}, 0, true, false, false},
		// The kernel's answer may be that of a moment ago.
		{"late", []meteredPort{metered("rxe0:1", packetsOf(0, 4), packetsOf(0, 4), packetsOf(0, 6))}, 2000, true, false, true},
		{"late for the first time", []meteredPort{metered("rxe0:1", packetsOf(0, 0), packetsOf(0, 0), packetsOf(0, 2))}, 2000, true, false, true},
	} {
		m := portMeter{ports: c.ports}
		m.moved(400, true)
		m.moved(600, true)
		got := m.read(m.payload.Load())
		if got.bytes != c.bytes || got.counted != c.counted || got.idle != c.idle {
			t.Errorf("%s: %d bytes, counted %v, idle %v; want %d, %v, %v", c.name, got.bytes, got.counted, got.idle, c.bytes, c.counted, c.idle)
		}
		counters := transport.Counters{PortBytes: got.bytes, PayloadBytes: m.payload.Load(), PortCounted: got.counted}
		if counters.Accounted() != c.accounted {
			t.Errorf("%s: accounted %v, want %v", c.name, counters.Accounted(), c.accounted)
		}
	}
}

// TestPortMeterOfABond: the counters of one link of a bond are told, and held against nothing.
func TestPortMeterOfABond(t *testing.T) {
	bond := metered("mlx5_bond_0:1", bytesOf(0, 5), bytesOf(0, 505))
	bond.bonded = true
	m := portMeter{ports: []meteredPort{bond, metered("mlx5_2:1", bytesOf(0, 7), bytesOf(0, 7))}}
	m.moved(1000, true)
	got := m.read(1000)
	if got.bytes != 500 || got.counted || got.idle || !got.bonded || got.all["mlx5_bond_0:1"].Port["port_rcv_bytes"] != 500 {
		t.Errorf("ports counted %+v, want 500 bytes of a bond, not counted", got)
	}
}

// TestPortMeterElsewhere: lanes without an RDMA port count nothing, and claim nothing.
func TestPortMeterElsewhere(t *testing.T) {
	var m portMeter
	m.start([]string{"tcp/lo", "sysv/memory", "rc_verbs/no-such-device:1"})
	m.moved(10, false)
	m.moved(5, false)
	if got := m.read(m.payload.Load()); got.bytes != 0 || got.counted || got.idle || len(got.all) != 0 {
		t.Errorf("ports counted %+v; want nothing", got)
	}
}
