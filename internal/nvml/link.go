package nvml

import (
	"fmt"
	"strings"
)

// Link is what joins two GPUs: NVLink, or PCI Express.
type Link struct {
	NVLink    *NVLink // nil where it is PCI Express
	Topology  Topology
	Own, Peer PCIe // the two ends of a way over PCI Express
}

// NVLink is one or more links between two GPUs, or of each to switches that join them.
type NVLink struct {
	Generation int  // such as 4 on an H100; 0 where NVML leaves it open
	Links      int  // that are up; through switches, of the GPU that has fewer
	Switch     bool // through NVSwitch
}

// PCIe is a GPU's link to PCI Express. A GPU that has nothing to do lowers its
// generation.
type PCIe struct {
	Generation    int `json:"generation"`     // now
	MaxGeneration int `json:"max_generation"` // that GPU and system can both do
	Width         int `json:"width"`          // lanes, now
	MaxWidth      int `json:"max_width"`      // lanes that GPU and system both have
}

// Topology is the nearest thing above two GPUs on PCI Express.
type Topology struct {
	Name string // as nvml.h has it: internal, single, multiple, hostbridge, node, system
	text string
}

// Between opens NVML and finds what joins two GPUs: see Library.Link.
func Between(own, peer string) (Link, error) {
	library, err := Open()
	if err != nil {
		return Link{}, err
	}
	return library.Link(own, peer)
}

// Link finds what joins two different GPUs, given by their UUIDs. A failed call, or
// one that the driver lacks, is an error: nothing is guessed. For one GPU the error
// wraps ErrOneGPU: its NVLinks lead elsewhere. For a MIG instance it wraps ErrUnclear: what
// NVML says of links is of whole GPUs.
func (l *Library) Link(own, peer string) (Link, error) {
	if own == peer {
		return Link{}, fmt.Errorf("%w: %s", ErrOneGPU, own)
	}
	if strings.HasPrefix(own, "MIG-") || strings.HasPrefix(peer, "MIG-") {
		return Link{}, fmt.Errorf("%w what joins a MIG instance to others", ErrUnclear)
	}
	a, err := l.device(own)
	if err != nil {
		return Link{}, err
	}
	b, err := l.device(peer)
	if err != nil {
		return Link{}, err
	}
	n, err := a.nvlink(b)
	if err != nil || n != nil {
		return Link{NVLink: n}, err
	}
	var link Link
	if link.Topology, err = a.topology(b); err != nil {
		return link, err
	}
	if link.Own, err = a.pcie(); err != nil {
		return link, err
	}
	link.Peer, err = b.pcie()
	return link, err
}

// String names the link, such as "NVLink 4 x18 through NVSwitch" or "PCIe 5 x16 through
// one host bridge".
func (l Link) String() string {
	if l.NVLink != nil {
		return l.NVLink.String()
	}
	return fmt.Sprintf("%v %s", l.Own.slower(l.Peer), l.Topology.text)
}

func (n NVLink) String() string {
	text := fmt.Sprintf("NVLink %d x%d", n.Generation, n.Links)
	if n.Generation == 0 {
		text = fmt.Sprintf("NVLink of unknown generation x%d", n.Links)
	}
	if n.Switch {
		text += " through NVSwitch"
	}
	return text
}

// String has the generation that the link rises to under load, and the lanes that it
// has now: a slot with fewer, or a bad contact, costs as many.
func (p PCIe) String() string { return fmt.Sprintf("PCIe %d x%d", p.MaxGeneration, p.Width) }

// slower is the link of the two that carries less; of equals the older one. From one
// generation to the next the rate of a lane about doubles.
func (p PCIe) slower(q PCIe) PCIe {
	a, b := p.Width<<p.MaxGeneration, q.Width<<q.MaxGeneration
	if b < a || b == a && q.MaxGeneration < p.MaxGeneration {
		return q
	}
	return p
}
