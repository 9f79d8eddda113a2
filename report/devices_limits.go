package report

import (
	"fmt"
	"slices"
	"strings"

	"kvbench/internal/hostinfo"
	"kvbench/internal/units"
)

// limit is one line of the limits: its name for programs and for people, its description,
// and its numbers.
type limit struct {
	key, name, text string
	numbers         map[string]any // by key; nil is no limit
	judged          bool           // it can be too low
	why             hostinfo.Fault // the reason, if it is
}

func (l limit) fault() (string, hostinfo.Fault) { return l.name, l.why }

// number is a value that only some limits have.
func (l limit) number(key string) Cell {
	v, ok := l.numbers[key]
	if !ok {
		v = Absent
	}
	return Cell{Value: v}
}

var limitColumns = []column[limit]{
	{"name", "limit", func(l limit) Cell { return Cell{l.key, l.name} }},
	{"value", "value", func(l limit) Cell { return word(l.text) }},
	{"usable", "", func(l limit) Cell {
		if !l.judged {
			return Cell{Value: Absent}
		}
		return yes(l.why.Reason == "")
	}},
	{"limit_bytes", "", func(l limit) Cell { return l.number("limit_bytes") }},
	{"hard_limit_bytes", "", func(l limit) Cell { return l.number("hard_limit_bytes") }},
	{"free_bytes", "", func(l limit) Cell { return l.number("free_bytes") }},
	{"page_bytes", "", func(l limit) Cell { return l.number("page_bytes") }},
	{"pages", "", func(l limit) Cell { return l.number("pages") }},
	{"free_pages", "", func(l limit) Cell { return l.number("free_pages") }},
	{"reason", "", func(l limit) Cell { return word(l.why.Reason) }},
	{"mend", "", func(l limit) Cell { return word(l.why.Mend) }},
}

// limitsOf makes a line of each available limit. missing may hold the reason for the
// absence of peer memory.
func limitsOf(l hostinfo.Limits, missing []hostinfo.Missing) (lines []limit) {
	if m := l.Memlock; m != nil {
		lines = append(lines, memlockLimit(*m))
	}
	if n := l.Cgroup.MemoryBytes; n != 0 {
		lines = append(lines, limit{key: "cgroup_memory", name: "cgroup memory", text: limited(n), numbers: map[string]any{"limit_bytes": limitValue(n)}})
	}
	if r := l.Cgroup.RDMA; r != "" {
		lines = append(lines, limit{key: "cgroup_rdma", name: "cgroup rdma", text: strings.ReplaceAll(r, "\n", "; ")})
	}
	if s := l.SharedMemory; s != nil {
		lines = append(lines, limit{
			key: "dev_shm", name: "/dev/shm", text: fmt.Sprintf("%s, %s free", units.BinaryBytes(s.Total), units.BinaryBytes(s.Free)),
			numbers: map[string]any{"limit_bytes": s.Total, "free_bytes": s.Free}, judged: true, why: s.Fault,
		})
	}
	for _, h := range l.HugePages {
		lines = append(lines, limit{
			key: "huge_pages", name: "huge pages of " + units.BinaryBytes(h.PageBytes), text: fmt.Sprintf("%d, %d free", h.Total, h.Free),
			numbers: map[string]any{"page_bytes": h.PageBytes, "pages": h.Total, "free_pages": h.Free},
		})
	}
	if l.TransparentPages != "" {
		lines = append(lines, limit{key: "transparent_huge_pages", name: "transparent huge pages", text: l.TransparentPages})
	}
	return append(lines, peerMemoryLimit(l.PeerMemory, missing)...)
}

func memlockLimit(m hostinfo.Memlock) limit {
	text := limited(m.Soft)
	switch {
	case m.Exempt:
		text += ", but not for this process (CAP_IPC_LOCK)"
	case m.Soft != m.Hard:
		text += ", may be raised to " + limited(m.Hard)
	}
	numbers := map[string]any{"limit_bytes": limitValue(m.Soft), "hard_limit_bytes": limitValue(m.Hard)}
	return limit{key: "memlock", name: "locked memory", text: text, numbers: numbers, judged: true, why: m.Fault}
}

// peerMemoryLimit is the line on RDMA devices' access to GPU memory; there is none without
// GPUs.
func peerMemoryLimit(p hostinfo.PeerMemory, missing []hostinfo.Missing) []limit {
	l := limit{key: "peer_memory", name: "RDMA to GPU memory", judged: true, text: strings.Join(ways(p), ", ")}
	for _, m := range missing {
		if m.Name == "peer memory" {
			l.text, l.why = "no way", m.Fault
		}
	}
	if l.text == "" {
		return nil
	}
	return []limit{l}
}

func ways(p hostinfo.PeerMemory) []string {
	if p.OpenDriver {
		return append(slices.Clone(p.Modules), "dma-buf (open kernel modules)")
	}
	return p.Modules
}

func limited(n int64) string {
	if n == hostinfo.Unlimited {
		return "unlimited"
	}
	return units.BinaryBytes(n)
}

func limitValue(n int64) any {
	if n == hostinfo.Unlimited {
		return nil
	}
	return n
}
