package hostinfo

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func (h *Host) system() {
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	h.CPU = field("/proc/cpuinfo", "model name")
	h.MemoryBytes = kibibytes(field("/proc/meminfo", "MemTotal"))
	h.AvailableBytes = AvailableMemory()
}

// AvailableMemory returns the bytes that can be allocated without swapping, 0 where unknown.
// A cgroup's limit counts where it is lower.
func AvailableMemory() int64 {
	free := kibibytes(field("/proc/meminfo", "MemAvailable"))
	limit, errLimit := readInt("/sys/fs/cgroup/memory.max")
	used, errUsed := readInt("/sys/fs/cgroup/memory.current")
	if errLimit == nil && errUsed == nil {
		return min(free, max(0, limit-used))
	}
	return free
}

func readInt(path string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// field returns the value of the first "name : value" line.
func field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func kibibytes(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(s, " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// lineRate returns the rate of a physical interface in bytes a second. One
// without a device behind it (veth, bridge, lo) has none.
func lineRate(name string) float64 {
	dir := filepath.Join("/sys/class/net", name)
	if _, err := os.Stat(filepath.Join(dir, "device")); err != nil {
		return 0
	}
	mbit, err := readInt(filepath.Join(dir, "speed"))
	if err != nil || mbit <= 0 {
		return 0
	}
	return float64(mbit) * 1e6 / 8
}

// shapedRate returns the rate of a token bucket at the interface's root, bytes a second.
func shapedRate(index int) float64 {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return 0
	}
	disciplines, err := netlink.QdiscList(link)
	if err != nil {
		return 0
	}
	for _, q := range disciplines {
		if tbf, ok := q.(*netlink.Tbf); ok && q.Attrs().Parent == netlink.HANDLE_ROOT {
			return float64(tbf.Rate)
		}
	}
	return 0
}
