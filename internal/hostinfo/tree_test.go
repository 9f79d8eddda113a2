package hostinfo

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// plant makes the file system that testdata/name.tree describes: a line is
// "path = content", with \n and \t for what they stand for, or "path -> target of the link".
func plant(t *testing.T, name string) tree {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".tree"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		path, rest, ok := strings.Cut(line, " ")
		kind, content, _ := strings.Cut(rest, " ")
		if !ok || kind != "=" && kind != "->" {
			t.Fatalf("%s.tree: %q is neither a file nor a link", name, line)
		}
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if kind == "->" {
			err = os.Symlink(content, path)
		} else {
			content = strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(content)
			err = os.WriteFile(path, []byte(content+"\n"), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return tree(root)
}

func TestCompareNames(t *testing.T) {
	names := []string{"eth10", "lo", "eth2", "10", "2", "eth", "0000:81:00.0", "99999999999999999999"}
	slices.SortFunc(names, compareNames)
	want := []string{"2", "10", "0000:81:00.0", "99999999999999999999", "eth", "eth2", "eth10", "lo"}
	if !slices.Equal(names, want) {
		t.Errorf("sorted %q, want %q", names, want)
	}
}

// TestNothingThere: a host that tells nothing has an empty inventory with reasons, not a panic.
func TestNothingThere(t *testing.T) {
	for _, root := range []tree{tree(t.TempDir()), "/nonexistent"} {
		i := root.inventory([]NIC{{Device: Device{Name: "eth0"}}}, func(string) string { return "" })
		if len(i.RDMA)+len(i.GPUs)+len(i.NUMA)+len(i.Limits.HugePages) != 0 || i.Limits.Memlock != nil || i.Limits.Cgroup.MemoryBytes != 0 {
			t.Errorf("%s: found %+v", root, i)
		}
		var missing []string
		for _, m := range i.Missing {
			missing = append(missing, m.Name)
			contains(t, m.Name, m.Fault, map[string]string{"rdma": "/sys is not there", "gpu": "/proc is not there"}[m.Name])
		}
		if !slices.Equal(missing, []string{"rdma", "gpu"}) {
			t.Errorf("%s: missing %q", root, missing)
		}
		if n := i.NICs[0]; n.Class != "" || n.NUMANode != UnknownNode || n.BytesPerSecond != 0 {
			t.Errorf("%s: an interface of which sysfs says nothing: %+v", root, n)
		}
	}
}

// TestUnreadable puts directories where files are expected, which cannot be read even by root.
func TestUnreadable(t *testing.T) {
	root := tree(t.TempDir())
	for _, dir := range []string{
		"sys/class/infiniband/mlx5_0/ports/1/state", "sys/class/infiniband/mlx5_0/ports/1/gids/0", "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data",
		"sys/class/infiniband/mlx5_0/ports/one", "sys/class/infiniband/mlx5_0/node_guid", "proc/self/limits", "proc/self/cgroup", "proc/meminfo",
		"sys/devices/system/node/node0/cpulist", "sys/devices/system/node/nodes", "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "proc/driver/nvidia/gpus/0000:84:00.0",
	} {
		if err := os.MkdirAll(root.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	i := root.inventory(nil, nil)
	if len(i.RDMA) != 1 || len(i.RDMA[0].Ports) != 1 {
		t.Fatalf("devices %+v", i.RDMA)
	}
	p := i.RDMA[0].Ports[0]
	if p.Fault.Reason != "its state cannot be read" || len(p.Counters.Port) != 0 || len(p.GIDs) != 0 {
		t.Errorf("port %+v", p)
	}
	if len(i.NUMA) != 1 || i.NUMA[0] != (NUMANode{}) {
		t.Errorf("nodes %+v", i.NUMA)
	}
	if len(i.GPUs) != 1 || i.GPUs[0].PCI.Address != "0000:84:00.0" || i.GPUs[0].Model != "" {
		t.Errorf("GPUs %+v", i.GPUs)
	}
	if i.Limits.Memlock != nil || len(i.Limits.HugePages) != 0 {
		t.Errorf("limits %+v", i.Limits)
	}
}
