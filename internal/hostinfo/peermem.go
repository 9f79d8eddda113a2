package hostinfo

import (
	"slices"
	"strings"
)

// PeerMemory lists the ways for RDMA devices to reach GPU memory: a module, or dma-buf,
// which needs Linux 5.12 and NVIDIA's open kernel modules.
type PeerMemory struct {
	Modules    []string // loaded ones
	OpenDriver bool     // NVIDIA's open kernel modules are loaded
}

// Possible reports whether there is a way, as far as is visible from outside the drivers.
func (p PeerMemory) Possible() bool { return len(p.Modules) > 0 || p.OpenDriver }

// ReadPeerMemory returns the ways of this host.
func ReadPeerMemory() PeerMemory { return host.peerMemory() }

func (t tree) peerMemory() PeerMemory {
	var p PeerMemory
	loaded := t.loadedModules()
	for _, m := range []string{"nvidia_peermem", "nv_peer_mem"} {
		if t.exists("sys/module", m) || slices.Contains(loaded, m) {
			p.Modules = append(p.Modules, m)
		}
	}
	p.OpenDriver = strings.Contains(t.word("proc/driver/nvidia/version"), "Open Kernel Module")
	return p
}

// loadedModules reads the names from /proc/modules.
func (t tree) loadedModules() []string {
	content, _ := t.text("proc/modules")
	var names []string
	for line := range strings.Lines(content) {
		if name, _, ok := strings.Cut(line, " "); ok {
			names = append(names, name)
		}
	}
	return names
}
