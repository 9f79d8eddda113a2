package hostinfo

import (
	"strconv"
	"strings"
)

// NUMANode is a set of processors and the memory near them.
type NUMANode struct {
	Number      int
	CPUs        string // in the kernel's list form: 0-15,32-47
	MemoryBytes int64
	FreeBytes   int64
}

func (t tree) numaNodes() []NUMANode {
	const dir = "sys/devices/system/node"
	var nodes []NUMANode
	for _, name := range t.names(dir) {
		digits, ok := strings.CutPrefix(name, "node")
		number, err := strconv.Atoi(digits)
		if !ok || err != nil {
			continue
		}
		nodes = append(nodes, NUMANode{
			Number: number, CPUs: t.word(dir, name, "cpulist"),
			MemoryBytes: t.nodeMemory(dir, name, "MemTotal"), FreeBytes: t.nodeMemory(dir, name, "MemFree"),
		})
	}
	return nodes
}

// nodeMemory reads "Node 0 MemTotal:  24684092 kB".
func (t tree) nodeMemory(dir, node, field string) int64 {
	return kibibytes(t.value("Node "+strings.TrimPrefix(node, "node")+" "+field, dir, node, "meminfo"))
}

// ProcessorsOf returns the processors of a NUMA node. It is empty if the host has only one
// node, since all processors are then equally near, and if the node is unknown.
func ProcessorsOf(node int) []int { return host.processorsOf(node) }

func (t tree) processorsOf(node int) []int {
	nodes := t.numaNodes()
	if len(nodes) < 2 {
		return nil
	}
	for _, n := range nodes {
		if n.Number == node {
			return parseCPUList(n.CPUs)
		}
	}
	return nil
}

// parseCPUList reads the kernel's list form of a set, 0-15,32-47; nil if s has another
// form.
func parseCPUList(s string) []int {
	var cpus []int
	for part := range strings.SplitSeq(s, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		from, errFrom := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if errFrom != nil || errTo != nil || from < 0 || to < from || to > maxCPU {
			return nil
		}
		for n := from; n <= to; n++ {
			cpus = append(cpus, n)
		}
	}
	return cpus
}

// maxCPU is the highest processor number that a kernel can be built for.
const maxCPU = 8191
