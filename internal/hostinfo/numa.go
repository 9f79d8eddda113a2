package hostinfo

import (
	"strconv"
	"strings"
)

// NUMANode is a set of processors and the memory that is near them.
type NUMANode struct {
	Number      int
	CPUs        string // as the kernel lists them: 0-15,32-47
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
