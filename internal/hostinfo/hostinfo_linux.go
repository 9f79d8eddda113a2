package hostinfo

import (
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func (h *Host) system() {
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	h.CPU = host.value("model name", "proc/cpuinfo")
	h.MemoryBytes = kibibytes(host.value("MemTotal", "proc/meminfo"))
	h.AvailableBytes = AvailableMemory()
}

// AvailableMemory returns the bytes that can be allocated without swapping, 0 if unknown. A
// cgroup's limit counts if it is lower.
func AvailableMemory() int64 {
	free := kibibytes(host.value("MemAvailable", "proc/meminfo"))
	limit, limited := host.number("sys/fs/cgroup/memory.max")
	used, known := host.number("sys/fs/cgroup/memory.current")
	if limited && known {
		return min(free, max(0, limit-used))
	}
	return free
}

func lineRate(name string) float64 { return host.lineRate(name) }

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
