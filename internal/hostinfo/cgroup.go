package hostinfo

import (
	"path"
	"strings"
)

// Cgroup is the limits from the control groups of this process.
type Cgroup struct {
	// MemoryBytes is the lowest limit on memory from this group to the top; Unlimited, or 0
	// if unknown.
	MemoryBytes int64
	// RDMA is the limit on RDMA handles and objects in the form of rdma.max, a line a
	// device; empty if there is none.
	RDMA string
}

// cgroup reads version 2, and version 1's memory controller if that is mounted instead.
func (t tree) cgroup() Cgroup {
	var c Cgroup
	membership, _ := t.text("proc/self/cgroup")
	for line := range strings.Lines(membership) {
		// hierarchy:controllers:path; version 2 has hierarchy 0 and no controllers
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[0] == "0" && parts[1] == "":
			c.MemoryBytes = lower(c.MemoryBytes, t.memoryLimit("sys/fs/cgroup", parts[2], "memory.max"))
			c.RDMA = t.nearest("sys/fs/cgroup", parts[2], "rdma.max")
		case parts[1] == "memory":
			c.MemoryBytes = lower(c.MemoryBytes, t.memoryLimit("sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes"))
		}
	}
	return c
}

// memoryLimit returns the lowest limit from a group up to the root of its hierarchy.
func (t tree) memoryLimit(mount, group, file string) int64 {
	// Version 1 writes "no limit" as the largest multiple of a page.
	const none = 1 << 62
	var limit int64
	for _, g := range upwards(group) {
		switch n, ok := t.number(mount, g, file); {
		case ok && n < none:
			limit = lower(limit, n)
		case ok, t.word(mount, g, file) == "max":
			limit = lower(limit, Unlimited)
		}
	}
	return limit
}

// nearest returns the content of a file from the group, or from its closest ancestor with a
// limit in the file.
func (t tree) nearest(mount, group, file string) string {
	for _, g := range upwards(group) {
		for line := range strings.Lines(t.word(mount, g, file)) {
			if _, limits, _ := strings.Cut(line, " "); strings.ContainsAny(limits, "0123456789") {
				return t.word(mount, g, file)
			}
		}
	}
	return ""
}

// upwards lists a group and its ancestors. A container sees its group as the root of the
// mount, so the root comes last for any path.
func upwards(group string) []string {
	groups := []string{}
	for g := path.Clean("/" + group); g != "/"; g = path.Dir(g) {
		groups = append(groups, g)
	}
	return append(groups, "/")
}

// lower returns the stricter of two limits; 0 is unknown.
func lower(a, b int64) int64 {
	switch {
	case a == 0 || a == Unlimited && b != 0:
		return b
	case b == 0 || b == Unlimited:
		return a
	}
	return min(a, b)
}
