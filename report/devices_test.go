package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"kvbench/internal/hostinfo"
	"kvbench/transport"
)

// twoNICs is a host with a NIC that works and one that does not, with made-up figures.
func twoNICs() DevicesView {
	slot := hostinfo.PCI{Address: "0000:81:00.0", GTPerSecond: 16, MaxGTPerSecond: 16, Width: 16, MaxWidth: 16}
	memlock := hostinfo.Fault{Reason: "an RDMA device can register 8 MiB of this process's memory at most", Mend: "ulimit -l unlimited"}
	return DevicesView{
		Inventory: hostinfo.Inventory{
			NICs: []hostinfo.NIC{
				{Device: hostinfo.Device{Name: "ens1np0", MTU: 9000, BytesPerSecond: 12.5e9}, Class: hostinfo.Physical, State: "up", Driver: "mlx5_core", PCI: slot, NUMANode: 1, RDMA: []string{"mlx5_0", "rxe0"}},
				{Device: hostinfo.Device{Name: "veth0", MTU: 1500, ShapedBytesPerSecond: 125e6}, Class: hostinfo.Virtual, Type: "veth", State: "up", NUMANode: hostinfo.UnknownNode},
				{Device: hostinfo.Device{Name: "lo", MTU: 65536, Loopback: true}, Class: hostinfo.Loopback, State: "unknown", NUMANode: hostinfo.UnknownNode},
			},
			RDMA: []hostinfo.RDMADevice{
				{
					Name: "mlx5_0", NodeType: "CA", NodeGUID: "b83f:d203:0012:3456", Firmware: "22.39.1002", Model: "MT4125", Driver: "mlx5_core", PCI: slot, NUMANode: 1, Node: "/dev/infiniband/uverbs0",
					Ports: []hostinfo.RDMAPort{{
						Number: 1, State: "ACTIVE", PhysicalState: "LinkUp", LinkLayer: "Ethernet", BytesPerSecond: 12.5e9, Lanes: "4X EDR", MTU: 4096, Netdevs: []string{"ens1np0"},
						GIDs:     []hostinfo.GID{{Index: 3, Address: netip.MustParseAddr("::ffff:192.0.2.2"), Type: "RoCE v2", Netdev: "ens1np0"}},
						Counters: hostinfo.PortCounters{Port: map[string]uint64{"port_xmit_bytes": 4000, "port_xmit_packets": 7}, Hardware: map[string]uint64{"local_ack_timeout_err": 2, "out_of_sequence": 0}},
					}},
				},
				{
					Name: "rxe0", Driver: "rdma_rxe", Software: true, NUMANode: hostinfo.UnknownNode, Node: "/dev/infiniband/uverbs1",
					Fault: hostinfo.Fault{Reason: "/dev/infiniband/uverbs1 is absent", Mend: "--device=/dev/infiniband"},
					Ports: []hostinfo.RDMAPort{{
						Number: 1, State: "DOWN", LinkLayer: "Ethernet", Counters: hostinfo.PortCounters{Hardware: map[string]uint64{"sent_pkts": 9}},
						Fault: hostinfo.Fault{Reason: "the port is DOWN", Mend: "not said: no port of the device can be opened"},
					}},
				},
				{Name: "mlx5_9", NUMANode: hostinfo.UnknownNode},
			},
			GPUs: []hostinfo.GPU{{Minor: "0", Model: "NVIDIA H100", UUID: "GPU-1", PCI: hostinfo.PCI{Address: "0000:84:00.0", GTPerSecond: 32, Width: 16}, NUMANode: 1, Driver: "535.104.05"}},
			NUMA: []hostinfo.NUMANode{{Number: 0, CPUs: "0-31", MemoryBytes: 256 << 30, FreeBytes: 1 << 30}, {Number: 1, CPUs: "32-63", MemoryBytes: 256 << 30, FreeBytes: 2 << 30}},
			Limits: hostinfo.Limits{
				Memlock:          &hostinfo.Memlock{Soft: 8 << 20, Hard: hostinfo.Unlimited, Fault: memlock},
				HugePages:        []hostinfo.HugePages{{PageBytes: 2 << 20, Total: 512, Free: 500}},
				TransparentPages: "madvise",
				Cgroup:           hostinfo.Cgroup{MemoryBytes: 64 << 30, RDMA: "mlx5_0 hca_handle=2 hca_object=2000\nrxe0 hca_handle=1 hca_object=1"},
				SharedMemory:     &hostinfo.SharedMemory{Total: 64 << 20, Free: 64 << 20},
			},
			Missing: []hostinfo.Missing{{Name: "peer memory", Fault: hostinfo.Fault{Reason: "nothing lets RDMA devices reach GPU memory", Mend: "modprobe nvidia-peermem"}}},
		},
		CUDA: CUDAState{
			Version: "12.8",
			Devices: []CUDADevice{
				{Ordinal: 0, Name: "NVIDIA H100", MemoryBytes: 80 << 30, PCIAddress: "0000:84:00.0", UUID: "GPU-1"},
				{Ordinal: 1, Name: "NVIDIA H100", MemoryBytes: 80 << 30, PCIAddress: "0000:85:00.0", UUID: "GPU-2"},
				{Ordinal: 2, Name: "NVIDIA H100", MemoryBytes: 80 << 30, PCIAddress: "0000:86:00.0", UUID: "GPU-3"},
			},
			Links: []GPULink{
				{Ordinal: 0, Peer: 1, Link: "NVLink 4 x18 through NVSwitch"},
				{Ordinal: 0, Peer: 2, Err: errors.New("the GPU is lost")},
				{Ordinal: 1, Peer: 2, Err: errors.New("the GPU is lost")}, // said once
			},
		},
		Transports: []TransportState{
			{Name: "tcp", Capabilities: transport.Capabilities{Write: true, Read: true, Memory: []transport.MemoryKind{transport.HostMemory}}},
			{Name: "rdma", Capabilities: transport.Capabilities{Write: true, Read: true, Memory: []transport.MemoryKind{transport.HostMemory, transport.CUDAMemory}}, Lanes: []transport.Lane{
				{Name: "rc_mlx5", Device: "mlx5_0:1", RDMA: true, Usable: true},
				{Name: "rc_verbs", Device: "rxe0:1", RDMA: true, Software: true, Reason: "no permission: see above"},
				{Name: "posix", SameHostOnly: true, Software: true, Usable: true},
			}},
			{Name: "cuda", Capabilities: transport.Capabilities{SameHostOnly: true}, Err: fmt.Errorf("%w: no CUDA driver: install it", transport.ErrUnavailable)},
		},
	}
}

// bare is a host that has nothing and tells little.
func bare() DevicesView {
	return DevicesView{Inventory: hostinfo.Inventory{Missing: []hostinfo.Missing{
		{Name: "nic", Fault: hostinfo.Fault{Reason: "list network interfaces: operation not permitted", Mend: "allow netlink sockets"}},
		{Name: "rdma", Fault: hostinfo.Fault{Reason: "the kernel has no RDMA support loaded", Mend: "load the driver"}},
		{Name: "gpu", Fault: hostinfo.Fault{Reason: "no NVIDIA driver", Mend: "install it"}},
	}}}
}

func TestDevices(t *testing.T) {
	for name, view := range map[string]DevicesView{"devices": twoNICs(), "devices-bare": bare()} {
		var text bytes.Buffer
		if err := view.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".text", text.Bytes())
		golden(t, name+".json", write(t, view.Table(), JSON))
		golden(t, name+".csv", write(t, view.Table(), CSV))
	}
}

// TestDevicesRows holds the rows to what programs may rely on.
func TestDevicesRows(t *testing.T) {
	var got struct{ Rows []map[string]any }
	if err := json.Unmarshal(write(t, twoNICs().Table(), JSON), &got); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, r := range got.Rows {
		kinds[r["kind"].(string)]++
	}
	if want := map[string]int{"nic": 3, "rdma": 3, "gpu": 1, "cuda": 3, "gpu_link": 3, "numa": 2, "limit": 7, "transport": 3, "lane": 3, "missing": 1}; !maps.Equal(kinds, want) {
		t.Errorf("rows %v, want %v", kinds, want)
	}
	find := func(kind, name string) map[string]any {
		i := slices.IndexFunc(got.Rows, func(r map[string]any) bool { return r["kind"] == kind && r["name"] == name })
		if i < 0 {
			t.Fatalf("no %s %s", kind, name)
		}
		return got.Rows[i]
	}
	for _, c := range []struct {
		kind, name, key string
		want            any
	}{
		{"nic", "ens1np0", "rate_bytes_per_second", 12.5e9},
		{"nic", "lo", "numa_node", nil},
		{"rdma", "mlx5_0", "usable", true},
		{"rdma", "mlx5_0", "numa_node", 1.0},
		{"rdma", "rxe0", "usable", false},
		{"rdma", "rxe0", "reason", "/dev/infiniband/uverbs1 is absent"}, // the device's, which comes before its port's
		{"rdma", "rxe0", "software", true},
		{"rdma", "mlx5_9", "reason", "it shows no ports"},
		{"limit", "memlock", "usable", false},
		{"limit", "memlock", "limit_bytes", 8388608.0},
		{"limit", "memlock", "hard_limit_bytes", nil}, // unlimited
		{"limit", "peer_memory", "usable", false},
		{"transport", "tcp", "usable", true},
		{"transport", "cuda", "usable", false},
		{"transport", "cuda", "reason", "transport not available: no CUDA driver: install it"},
		{"lane", "rc_verbs", "usable", false},
		{"lane", "posix", "same_host_only", true},
	} {
		if v, ok := find(c.kind, c.name)[c.key]; !ok || v != c.want {
			t.Errorf("%s %s: %s is %v (there: %v), want %v", c.kind, c.name, c.key, v, ok, c.want)
		}
	}
	if _, ok := find("transport", "tcp")["mtu_bytes"]; ok {
		t.Error("a transport has a key of another kind")
	}
	if _, ok := find("limit", "huge_pages")["usable"]; ok {
		t.Error("a fact that nothing judges is called usable")
	}
}

// TestDevicesNamesNoOthers: only what this build has is shown.
func TestDevicesNamesNoOthers(t *testing.T) {
	view := DevicesView{Transports: []TransportState{{Name: "tcp", Err: errors.New("broken\x1b[31m")}}}
	var b bytes.Buffer
	if err := view.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"rdma:", "cuda", "\x1b"} {
		if bytes.Contains(b.Bytes(), []byte(word)) {
			t.Errorf("%q is in\n%s", word, b.String())
		}
	}
}
