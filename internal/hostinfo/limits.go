package hostinfo

import (
	"strconv"
	"strings"
)

// Unlimited stands for the absence of a limit.
const Unlimited int64 = -1

// Limits bound the memory of a run. Nil parts are unknown.
type Limits struct {
	Memlock          *Memlock
	HugePages        []HugePages
	TransparentPages string // mode of transparent huge pages: always, madvise, never; empty if unknown
	Cgroup           Cgroup
	SharedMemory     *SharedMemory
	PeerMemory       PeerMemory
}

// HugePages is the pool of one size of huge page, all in bytes or pages.
type HugePages struct {
	PageBytes   int64
	Total, Free int64
}

// SharedMemory is /dev/shm, the memory shared by processes of a host, in bytes.
type SharedMemory struct {
	Total, Free int64
	Fault       Fault
}

// enoughShared is the size of /dev/shm that suffices for a run over a shared-memory lane.
// Containers get 64 MiB by default.
const enoughShared = 1 << 30

func sharedMemory(total, free int64) *SharedMemory {
	s := &SharedMemory{Total: total, Free: free}
	if total < enoughShared {
		s.Fault = Fault{"it is small for lanes that share memory between processes",
			"docker --shm-size=8g; in Kubernetes an emptyDir with medium: Memory at /dev/shm; elsewhere mount -o remount,size=8g /dev/shm"}
	}
	return s
}

func (t tree) limits() Limits {
	return Limits{Memlock: t.memlock(), HugePages: t.hugePages(), TransparentPages: t.transparentPages(), Cgroup: t.cgroup(), PeerMemory: t.peerMemory()}
}

func (t tree) hugePages() []HugePages {
	const dir = "sys/kernel/mm/hugepages"
	var pools []HugePages
	for _, name := range t.names(dir) { // hugepages-2048kB
		size, ok := strings.CutPrefix(name, "hugepages-")
		kib, err := strconv.ParseInt(strings.TrimSuffix(size, "kB"), 10, 64)
		if !ok || err != nil || kib <= 0 || kib > 1<<40 {
			continue
		}
		total, knownTotal := t.number(dir, name, "nr_hugepages")
		free, knownFree := t.number(dir, name, "free_hugepages")
		if knownTotal && knownFree {
			pools = append(pools, HugePages{PageBytes: kib << 10, Total: total, Free: free})
		}
	}
	return pools
}

// transparentPages extracts the selected mode from "always [madvise] never".
func (t tree) transparentPages() string {
	_, rest, _ := strings.Cut(t.word("sys/kernel/mm/transparent_hugepage/enabled"), "[")
	mode, _, ok := strings.Cut(rest, "]")
	if !ok {
		return ""
	}
	return mode
}
