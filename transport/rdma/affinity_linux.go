package rdma

import (
	"golang.org/x/sys/unix"

	"kvbench/internal/hostinfo"
)

// stayNear keeps the calling thread on the processors of the NUMA node that a device
// is on, and returns them; none where it may run anywhere. A thread that posts to a
// device of another node crosses the link between the nodes with every doorbell and
// completion.
func stayNear(f family, device string) []int {
	node := nodeOf(f, device)
	if node < 0 {
		return nil
	}
	cpus := hostinfo.ProcessorsOf(node)
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, n := range cpus {
		set.Set(n)
	}
	if unix.SchedSetaffinity(0, &set) != nil {
		return nil // outside of what this process was given: it runs where it may
	}
	return cpus
}
