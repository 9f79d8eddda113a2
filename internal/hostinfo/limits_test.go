package hostinfo

import (
	"os"
	"slices"
	"testing"
)

// write puts a file under a tree, over what may be there.
func write(t *testing.T, root tree, path, content string) {
	t.Helper()
	if err := os.WriteFile(root.path(path), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestMemlock(t *testing.T) {
	root := plant(t, "mlx5-ethernet")
	m := root.memlock()
	if m == nil || m.Soft != 8<<20 || m.Hard != Unlimited || m.Exempt {
		t.Fatalf("%+v", m)
	}
	contains(t, "soft limit", m.Fault, "8 MiB", "ulimit -l unlimited", "LimitMEMLOCK=infinity", "--ulimit memlock=-1", "Kubernetes")

	write(t, root, "proc/self/limits", "Max locked memory         8388608              8388608              bytes     \n")
	contains(t, "hard limit", root.memlock().Fault, "/etc/security/limits.conf")

	write(t, root, "proc/self/limits", "Max locked memory         540672000000         540672000000         bytes     \n")
	if m := root.memlock(); m.Fault != (Fault{}) { // MemTotal is 528,000,000 KiB, 540,672,000,000 bytes
		t.Errorf("a limit of all of the memory: %+v", m)
	}
	write(t, root, "proc/self/limits", "Max locked memory         540671999999         540672000000         bytes     \n")
	if m := root.memlock(); m.Fault == (Fault{}) {
		t.Error("a limit below the memory passes")
	}
}

// TestMemlockExempt: CAP_IPC_LOCK is bit 14, and counts in the initial user namespace only.
func TestMemlockExempt(t *testing.T) {
	for _, c := range []struct {
		capabilities, ids string
		exempt            bool
	}{
		{"0000000000004000", "         0          0 4294967295\n", true},
		{"000001ffffffffff", "         0          0 4294967295\n", true},
		{"000001ffffffbfff", "         0          0 4294967295\n", false},
		{"000001ffffffffff", "         0     100000      65536\n", false},
		{"lots", "         0          0 4294967295\n", false},
	} {
		root := plant(t, "mlx5-ethernet")
		write(t, root, "proc/self/status", "CapInh:\t0000000000000000\nCapEff:\t"+c.capabilities+"\n")
		write(t, root, "proc/self/uid_map", c.ids)
		m := root.memlock()
		if m.Exempt != c.exempt || (m.Fault == Fault{}) != c.exempt {
			t.Errorf("capabilities %s, IDs %q: %+v", c.capabilities, c.ids, m)
		}
	}
}

func TestCgroup(t *testing.T) {
	// Of box (max), pod1 (64 GiB) and kubepods.slice (128 GiB) the second binds.
	c := plant(t, "mlx5-ethernet").cgroup()
	if c.MemoryBytes != 64<<30 || c.RDMA != "mlx5_0 hca_handle=2 hca_object=2000" {
		t.Errorf("version 2: %+v", c)
	}
	// Version 1, and a path that this container cannot see: its root says no limit.
	root := plant(t, "infiniband")
	if c := root.cgroup(); c.MemoryBytes != Unlimited || c.RDMA != "" {
		t.Errorf("version 1: %+v", c)
	}
	write(t, root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n")
	if c := root.cgroup(); c.MemoryBytes != 1<<30 {
		t.Errorf("version 1 with a limit: %+v", c)
	}
}

func TestPages(t *testing.T) {
	root := plant(t, "mlx5-ethernet")
	l := root.limits()
	if want := []HugePages{{PageBytes: 2 << 20, Total: 512, Free: 500}}; !slices.Equal(l.HugePages, want) || l.TransparentPages != "madvise" {
		t.Errorf("huge pages %+v, transparent %q", l.HugePages, l.TransparentPages)
	}
	write(t, root, "sys/kernel/mm/transparent_hugepage/enabled", "always madvise never\n")
	if got := root.transparentPages(); got != "" {
		t.Errorf("no mode is chosen, and it says %q", got)
	}
}

func TestSharedMemory(t *testing.T) {
	contains(t, "docker's default", sharedMemory(64<<20, 1<<20).Fault, "small", "--shm-size", "emptyDir")
	if s := sharedMemory(8<<30, 0); s.Fault != (Fault{}) || s.Total != 8<<30 || s.Free != 0 {
		t.Errorf("%+v", s)
	}
}

func TestNUMA(t *testing.T) {
	want := []NUMANode{
		{Number: 0, CPUs: "0-31", MemoryBytes: 264000000 << 10, FreeBytes: 200000000 << 10},
		{Number: 1, CPUs: "32-63", MemoryBytes: 264000000 << 10, FreeBytes: 100 << 10},
	}
	if got := plant(t, "mlx5-ethernet").numaNodes(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestGPUs(t *testing.T) {
	gpus, f := plant(t, "mlx5-ethernet").gpus()
	if len(gpus) != 1 || f != (Fault{}) {
		t.Fatalf("%+v, %+v", gpus, f)
	}
	g := gpus[0]
	if g.Minor != "3" || g.Model != "NVIDIA H100 80GB HBM3" || g.UUID != "GPU-11111111-2222-3333-4444-555555555555" || g.Driver != "550.54.15" || g.NUMANode != 1 || g.PCI.Address != "0000:84:00.0" {
		t.Errorf("%+v", g)
	}
	if want := 63.015e9; abs(g.PCI.BytesPerSecond()/want-1) > 1e-4 { // PCIe 5.0 x16
		t.Errorf("PCIe %g B/s, want %g", g.PCI.BytesPerSecond(), want)
	}
	_, f = plant(t, "rxe").gpus() // a GPU, and its sound device, without a driver
	contains(t, "no driver", f, "a GPU at 0000:00:05.0", "modprobe nvidia")
	_, f = plant(t, "infiniband").gpus()
	contains(t, "no GPU", f, "/proc/driver/nvidia is absent", "--gpus all")
}

func TestPeerMemory(t *testing.T) {
	if p := plant(t, "mlx5-ethernet").peerMemory(); !p.OpenDriver || len(p.Modules) != 0 || !p.Possible() {
		t.Errorf("open driver: %+v", p)
	}
	if p := plant(t, "infiniband").peerMemory(); !slices.Equal(p.Modules, []string{"nvidia_peermem"}) || !p.Possible() {
		t.Errorf("module: %+v", p)
	}
	if p := plant(t, "rxe").peerMemory(); p.Possible() {
		t.Errorf("nothing: %+v", p)
	}
	// A closed driver and no module, beside an RDMA device: that is missing.
	root := plant(t, "mlx5-ethernet")
	write(t, root, "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n")
	i := root.inventory(nil, nil)
	if len(i.Missing) != 1 || i.Missing[0].Name != "peer memory" || i.GPUs[0].Driver != "535.104.05" {
		t.Fatalf("%+v", i.Missing)
	}
	contains(t, "peer memory", i.Missing[0].Fault, "modprobe nvidia-peermem")
}

// TestProcessorsOf reads the node of a host with two, and none of a host with one,
// where every processor is as near.
func TestProcessorsOf(t *testing.T) {
	two := plant(t, "mlx5-ethernet")
	if got := two.processorsOf(1); len(got) != 32 || got[0] != 32 || got[31] != 63 {
		t.Errorf("node 1: %v, want 32 to 63", got)
	}
	if got := two.processorsOf(7); got != nil {
		t.Errorf("node 7, which is not there: %v", got)
	}
	for _, c := range []struct {
		list string
		want []int
	}{{"0-2,5", []int{0, 1, 2, 5}}, {"3", []int{3}}, {"", nil}, {"2-1", nil}, {"0-", nil}, {"-1", nil}, {"0-99999999", nil}} {
		if got := parseCPUList(c.list); !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, want %v", c.list, got, c.want)
		}
	}
}
