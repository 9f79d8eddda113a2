package hostinfo

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/Mellanox/rdmamap"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kvbench/internal/testenv"
)

// inNamespace runs f on a thread with a network namespace of its own, which ends with
// it. Without the right to make one the test is skipped, or fails if KVBENCH_REQUIRE asks for netns.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread dies with its namespace
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		done <- err
	}()
	err := <-done
	if errors.Is(err, syscall.EPERM) {
		testenv.Skip(t, "netns", fmt.Sprintf("a network namespace needs root: %v", err))
	}
	if err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
}

// TestInterfaces lists real interfaces, a pair of veths, one of which has the name that
// the RDMA device of a planted tree has in its table.
func TestInterfaces(t *testing.T) {
	root := plant(t, "mlx5-ethernet")
	class := rdmamap.RdmaClassDir
	rdmamap.RdmaClassDir = root.path(rdmaClass)
	t.Cleanup(func() { rdmamap.RdmaClassDir = class })
	// rdmamap takes the first device whose table has the interface: only mlx5_0's does.
	inNamespace(t, func() {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "ens1np0", MTU: 4200}, PeerName: "ens2np0"}
		if err := netlink.LinkAdd(pair); err != nil {
			t.Errorf("make a pair of veths: %v", err)
			return
		}
		list, err := nics()
		if err != nil {
			t.Error(err)
			return
		}
		seen := map[string]NIC{}
		for _, n := range list {
			seen[n.Name] = n
		}
		if n := seen["ens1np0"]; n.MTU != 4200 || n.State != "down" || n.Type != "veth" || n.Loopback || len(n.address) != 6 {
			t.Errorf("ens1np0: %+v", n)
		}
		if n := seen["lo"]; !n.Loopback || n.Type != "" {
			t.Errorf("lo: %+v", n)
		}
		for netdev, want := range map[string]string{"ens1np0": "mlx5_0", "ens2np0": "", "lo": "", "absent": ""} {
			if got := rdmaDeviceOf(netdev); got != want {
				t.Errorf("RDMA device of %s: %q, want %q", netdev, got, want)
			}
		}
	})
}

// TestInspect reads this machine: it has a loopback interface, memory and a limit on locked memory.
func TestInspect(t *testing.T) {
	i := Inspect()
	if !slices.ContainsFunc(i.NICs, func(n NIC) bool { return n.Name == "lo" && n.Class == Loopback && n.MTU > 0 }) {
		t.Errorf("no loopback among %+v", i.NICs)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	want := int64(limit.Cur)
	if limit.Cur == unix.RLIM_INFINITY {
		want = Unlimited
	}
	if m := i.Limits.Memlock; m == nil || m.Soft != want {
		t.Errorf("locked memory %+v, the system call says %d", m, want)
	}
	if s := i.Limits.SharedMemory; s != nil && (s.Total < s.Free || s.Total <= 0) {
		t.Errorf("/dev/shm %+v", s)
	}
}
