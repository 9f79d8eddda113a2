package hostinfo

import (
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// contains fails where a fault does not name what it should, or gives no mend.
func contains(t *testing.T, what string, f Fault, says ...string) {
	t.Helper()
	for _, s := range says {
		if !strings.Contains(f.Reason+"\n"+f.Mend, s) {
			t.Errorf("%s: %+v does not say %q", what, f, s)
		}
	}
	if f.Mend == "" {
		t.Errorf("%s: no mend in %+v", what, f)
	}
}

func TestEthernetDevice(t *testing.T) {
	devices, f := plant(t, "mlx5-ethernet").rdmaDevices()
	if len(devices) != 2 || f != (Fault{}) {
		t.Fatalf("devices %+v, fault %+v", devices, f)
	}
	d := devices[0]
	if d.Name != "mlx5_0" || d.NodeType != "CA" || d.NodeGUID != "b83f:d203:0012:3456" || d.Firmware != "22.39.1002" || d.Model != "MT4125" ||
		d.Driver != "mlx5_core" || d.Software || d.NUMANode != 1 || d.Node != "/dev/infiniband/uverbs0" || d.Fault != (Fault{}) {
		t.Errorf("device %+v", d)
	}
	// 16 GT/s over 4 lanes, 128 of 130 bits: a quarter of the 31.508e9 B/s of PCIe 4.0 x16.
	if want := 31.508e9 / 4; d.PCI.Address != "0000:81:00.0" || d.PCI.MaxWidth != 16 || abs(d.PCI.BytesPerSecond()/want-1) > 1e-4 {
		t.Errorf("PCI %+v, %g B/s", d.PCI, d.PCI.BytesPerSecond())
	}
	p := d.Ports[0]
	if p.Number != 1 || p.State != "ACTIVE" || p.PhysicalState != "LinkUp" || p.LinkLayer != "Ethernet" || p.BytesPerSecond != 12.5e9 ||
		p.Lanes != "4X EDR" || p.LID != 0 || p.MTU != 4096 || p.Fault != (Fault{}) {
		t.Errorf("port %+v", p)
	}
	if !slices.Equal(p.Netdevs, []string{"ens1np0"}) {
		t.Errorf("interfaces %q", p.Netdevs)
	}
	// The entry of zeros is left out, and 10 comes after 3.
	var gids []string
	for _, g := range p.GIDs {
		gids = append(gids, strings.Join([]string{string(rune('0' + g.Index%10)), g.Address.String(), g.Type, g.Netdev}, " "))
	}
	want := []string{
		"0 fe80::ba3f:d2ff:fe12:3456 IB/RoCE v1 ens1np0", "1 fe80::ba3f:d2ff:fe12:3456 RoCE v2 ens1np0",
		"2 ::ffff:192.0.2.2 IB/RoCE v1 ens1np0", "3 ::ffff:192.0.2.2 RoCE v2 ens1np0", "0 fd00::2 RoCE v2 ens1np0",
	}
	if !slices.Equal(gids, want) {
		t.Errorf("GIDs %q, want %q", gids, want)
	}

	r := devices[1]
	if !r.Software || r.Driver != "rdma_rxe" || r.NUMANode != UnknownNode || r.PCI != (PCI{}) {
		t.Errorf("software device %+v", r)
	}
	contains(t, "no device file", r.Fault, "/dev/infiniband/uverbs1 is absent", "--device=/dev/infiniband")
	contains(t, "no GIDs", r.Ports[0].Fault, "GID table is empty", "ip addr add ADDRESS/LENGTH dev ens1np0")
}

func TestInfiniBandDevice(t *testing.T) {
	devices, _ := plant(t, "infiniband").rdmaDevices()
	if len(devices) != 1 || len(devices[0].Ports) != 2 {
		t.Fatalf("devices %+v", devices)
	}
	d := devices[0]
	contains(t, "device file", d.Fault, "/dev/infiniband/uverbs0 is absent", "--device=/dev/infiniband")
	if d.NUMANode != UnknownNode || d.Software {
		t.Errorf("device %+v", d)
	}
	p := d.Ports[0]
	if p.BytesPerSecond != 50e9 || p.Lanes != "4X NDR" || p.LID != 31 || p.MTU != 0 || p.Fault != (Fault{}) || len(p.GIDs) != 1 {
		t.Errorf("port 1 %+v", p)
	}
	contains(t, "port 2", d.Ports[1].Fault, "subnet manager", "opensm")
}

func TestSoftwareDevices(t *testing.T) {
	devices, _ := plant(t, "rxe").rdmaDevices()
	if len(devices) != 2 {
		t.Fatalf("devices %+v", devices)
	}
	rxe, siw := devices[0], devices[1]
	if !rxe.Software || rxe.Driver != "rdma_rxe" || rxe.Fault != (Fault{}) || !siw.Software || siw.Driver != "siw" {
		t.Errorf("devices %+v", devices)
	}
	contains(t, "siw0", siw.Fault, "no uverbs device", "modprobe ib_uverbs")
	p := rxe.Ports[0]
	// The 2.5 Gbit/s that it claims are no rate; an interface with 4200 bytes carries 4096 and 96 of headers.
	if p.BytesPerSecond != 0 || p.Lanes != "" || p.MTU != 4096 || !slices.Equal(p.Netdevs, []string{"d0"}) || len(p.GIDs) != 2 {
		t.Errorf("port %+v", p)
	}
	for _, g := range p.GIDs {
		if g.Type != "RoCE v2" || g.Netdev != "d0" {
			t.Errorf("GID %+v", g)
		}
	}
	contains(t, "port", p.Fault, "DOWN", "Disabled", "ip link set d0 up")
}

func TestNoDevices(t *testing.T) {
	root := tree(t.TempDir())
	if err := os.MkdirAll(root.path("sys/class/net"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, f := root.rdmaDevices()
	contains(t, "no class", f, "no RDMA support loaded", "modprobe rdma_rxe")
	if err := os.MkdirAll(root.path(rdmaClass), 0o755); err != nil {
		t.Fatal(err)
	}
	_, f = root.rdmaDevices()
	contains(t, "empty class", f, "no device here", "rdma dev set")
	contains(t, "forbidden", noDevices(&fs.PathError{Op: "open", Path: rdmaClass, Err: syscall.EACCES}), "permission denied", "let this user read")
}

func TestNodeFault(t *testing.T) {
	const node = "/dev/infiniband/uverbs0"
	if f := nodeFault(node, nil); f != (Fault{}) {
		t.Errorf("a node that opens: %+v", f)
	}
	for err, says := range map[error]string{
		syscall.ENOENT: "is absent",
		syscall.EACCES: "permission denied",
		syscall.EPERM:  "device rules of this container",
		syscall.ENXIO:  "no such device or address",
	} {
		contains(t, err.Error(), nodeFault(node, &fs.PathError{Op: "open", Path: node, Err: err}), node, says)
	}
	if err := tryOpen(t.TempDir()); !errors.Is(err, syscall.EISDIR) { // opened for writing, as UCX does
		t.Errorf("a directory opened: %v", err)
	}
}

// TestROCEMTU: the kernel takes 96 bytes of headers off the interface's MTU and the
// largest MTU of InfiniBand that is left.
func TestROCEMTU(t *testing.T) {
	root := tree(t.TempDir())
	for mtu, want := range map[string]int{"1500": 1024, "4200": 4096, "4192": 4096, "4191": 2048, "9000": 4096, "1119": 512, "351": 0, "0": 0, "many": 0} {
		if err := os.MkdirAll(root.path("sys/class/net/e"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root.path("sys/class/net/e/mtu"), []byte(mtu+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := root.roceMTU("mlx5_0", RDMAPort{LinkLayer: "Ethernet", Netdevs: []string{"e"}}); got != want {
			t.Errorf("interface MTU %s: RoCE MTU %d, want %d", mtu, got, want)
		}
	}
	if got := root.roceMTU("mlx5_0", RDMAPort{LinkLayer: "InfiniBand", Netdevs: []string{"e"}}); got != 0 {
		t.Errorf("InfiniBand: MTU %d from that of an interface", got)
	}
}

// TestOwnMTU: a port follows the interface of its own device, of 9000 bytes, and not the
// VLAN upon that, nor a bond that some other port has. A software device follows the
// interface that it is on.
func TestOwnMTU(t *testing.T) {
	root := plant(t, "roce-vlan")
	devices, _ := root.rdmaDevices()
	got := make(map[string]int)
	bonded := make(map[string]bool)
	for _, d := range devices {
		got[d.Name], bonded[d.Name] = d.Ports[0].MTU, d.Ports[0].Bonded
	}
	// 9000 less 96 bytes of headers hold 4096; 2200 hold 2048, the least of what has no
	// device of its own; 1500 hold 1024.
	if want := map[string]int{"mlx5_0": 4096, "mlx5_bond_0": 2048, "rxe0": 1024, "rxe1": 4096}; !maps.Equal(got, want) {
		t.Errorf("MTUs %v, want %v", got, want)
	}
	// Also the one whose table names only the VLAN upon the bond; not software.
	if want := map[string]bool{"mlx5_0": false, "mlx5_bond_0": true, "rxe0": false, "rxe1": false}; !maps.Equal(bonded, want) {
		t.Errorf("bonds %v, want %v", bonded, want)
	}
}

func TestParse(t *testing.T) {
	for s, want := range map[string]float64{
		"100 Gb/sec (4X EDR)": 12.5e9, "2.5 Gb/sec (1X SDR)": 312.5e6, "400 Gb/sec (4X NDR)": 50e9, "": 0, "unknown": 0, "-1 Gb/sec (1X SDR)": 0, "NaN Gb/sec": 0, "Inf Gb/sec": 0,
	} {
		if got, _ := parseRate(s); got != want {
			t.Errorf("rate %q: %g B/s, want %g", s, got, want)
		}
	}
	for s, want := range map[string]float64{"16.0 GT/s PCIe": 16, "8 GT/s": 8, "2.5 GT/s PCIe": 2.5, "Unknown": 0, "": 0, "x GT/s": 0} {
		if got := parseGT(s); got != want {
			t.Errorf("link speed %q: %g, want %g", s, got, want)
		}
	}
	for s, want := range map[string]int{"0x1f": 31, "0x0": 0, "": 0, "0xfffff": 0, "lid": 0} {
		if got := parseLID(s); got != want {
			t.Errorf("LID %q: %d, want %d", s, got, want)
		}
	}
}

// FuzzParse: what a driver may write never breaks a reader, and no size is negative.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"100 Gb/sec (4X EDR)", "16.0 GT/s PCIe", "4: ACTIVE", "0x1f", "24684092 kB", "unlimited", "9223372036854771712", "a b c", "1e308 Gb/sec"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		rate, _ := parseRate(s)
		if gt := parseGT(s); !(rate >= 0 && rate < 1e18) || !(gt >= 0 && gt < 1e9) {
			t.Errorf("%q: rate %g, link speed %g", s, rate, gt)
		}
		if n := kibibytes(s); n < 0 {
			t.Errorf("%q: %d bytes", s, n)
		}
		if n, err := parseLimit(s); err == nil && n < Unlimited {
			t.Errorf("%q: limit %d", s, n)
		}
		if lid := parseLID(s); lid < 0 || lid > 0xffff {
			t.Errorf("%q: LID %d", s, lid)
		}
		if c := compareNames(s, s); c != 0 {
			t.Errorf("%q: differs from itself by %d", s, c)
		}
		afterColon(s)
		if groups := upwards(s); groups[len(groups)-1] != "/" {
			t.Errorf("%q: groups %q", s, groups)
		}
	})
}

func TestPortCounters(t *testing.T) {
	root := plant(t, "mlx5-ethernet")
	got, err := root.portCounters("mlx5_0", 1)
	if err != nil {
		t.Fatal(err)
	}
	want := PortCounters{ // 1000 and 25 units of 4 bytes; what is not a number, and the lifespan, are absent
		Port:     map[string]uint64{"port_xmit_bytes": 4000, "port_rcv_bytes": 100, "port_xmit_packets": 7, "port_rcv_packets": 3},
		Hardware: map[string]uint64{"out_of_sequence": 0, "local_ack_timeout_err": 2, "np_cnp_sent": 40},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("counters %v, want %v", got, want)
	}
	if got, err := plant(t, "rxe").portCounters("rxe0", 1); err != nil || len(got.Port) != 0 || len(got.Hardware) != 4 || got.Hardware["sent_pkts"] != 100 {
		t.Errorf("a software device: %v, %v", got, err)
	}
	for _, c := range []struct {
		device string
		port   int
	}{{"mlx5_0", 2}, {"mlx5_0", 0}, {"mlx5_9", 1}} {
		if _, err := root.portCounters(c.device, c.port); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), c.device) {
			t.Errorf("port %d of %s: %v", c.port, c.device, err)
		}
	}
}

func TestPortCountersSub(t *testing.T) {
	before := PortCounters{Port: map[string]uint64{"a": 5, "reset": 9, "gone": 1}, Hardware: map[string]uint64{"h": 1}}
	after := PortCounters{Port: map[string]uint64{"a": 7, "reset": 3, "new": 4}, Hardware: map[string]uint64{"h": 1}}
	want := PortCounters{Port: map[string]uint64{"a": 2}, Hardware: map[string]uint64{"h": 0}}
	if got := after.Sub(before); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if after.Port["a"] != 7 || before.Port["a"] != 5 {
		t.Error("Sub changed what it was given")
	}
}

// TestJoin: an interface belongs to the device that rdmamap names and to those whose
// tables name it; IPoIB is told by its address.
func TestJoin(t *testing.T) {
	i := plant(t, "mlx5-ethernet").inventory([]NIC{{Device: Device{Name: "lo", Loopback: true}}, {Device: Device{Name: "ens1np0"}}}, func(netdev string) string {
		return map[string]string{"ens1np0": "mlx5_0"}[netdev]
	})
	if n := i.NICs[0]; n.Name != "ens1np0" || !slices.Equal(n.RDMA, []string{"mlx5_0", "rxe0"}) || n.Class != Physical || n.NUMANode != 1 || n.Driver != "mlx5_core" || n.BytesPerSecond != 12.5e9 {
		t.Errorf("interface %+v", n)
	}
	// 7.877 GB/s, 63 Gbit/s, of the 100 Gbit/s.
	contains(t, "slot", i.NICs[0].Fault, "16 GT/s x4", "63.02 Gbit/s", "100 Gbit/s", "16 GT/s x16")
	if n := i.NICs[1]; n.Class != Loopback || n.RDMA != nil || n.Fault != (Fault{}) {
		t.Errorf("loopback %+v", n)
	}

	address, err := net.ParseMAC("00:00:10:49:fe:80:00:00:00:00:00:00:a0:88:c2:03:00:aa:bb:cc")
	if err != nil {
		t.Fatal(err)
	}
	i = plant(t, "infiniband").inventory([]NIC{{Device: Device{Name: "ib0"}, address: address}, {Device: Device{Name: "eth0"}, address: address[:6]}}, func(string) string { return "" })
	if got := i.RDMA[0].Ports; !slices.Equal(got[0].Netdevs, []string{"ib0"}) || len(got[1].Netdevs) != 0 {
		t.Errorf("IPoIB is on %q and %q", got[0].Netdevs, got[1].Netdevs)
	}
	for _, n := range i.NICs {
		if want := map[string][]string{"ib0": {"mlx5_0"}}[n.Name]; !slices.Equal(n.RDMA, want) {
			t.Errorf("%s: devices %q, want %q", n.Name, n.RDMA, want)
		}
	}
}

func abs(x float64) float64 { return max(x, -x) }
