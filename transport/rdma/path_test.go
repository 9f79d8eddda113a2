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
