package nvml

import (
	"fmt"
	"strings"
)

// Link is the connection of two GPUs: NVLink, or PCI Express.
type Link struct {
	NVLink    *NVLink // nil if it is PCI Express
	Topology  Topology
	Own, Peer PCIe // the two ends of a path over PCI Express
}

// NVLink is one or more links between two GPUs, or from each to the switches between them.
type NVLink struct {
	Generation int  // such as 4 on an H100; 0 if NVML leaves it ambiguous
	Links      int  // links that are up; through switches, of the GPU with fewer
	Switch     bool // through NVSwitch
}

// PCIe is a GPU's link to PCI Express. An idle GPU lowers its generation.
type PCIe struct {
	Generation    int `json:"generation"`     // now
	MaxGeneration int `json:"max_generation"` // the highest that both GPU and system support
	Width         int `json:"width"`          // lanes, now
	MaxWidth      int `json:"max_width"`      // lanes that both GPU and system have
}

// Topology is the nearest common ancestor of two GPUs on PCI Express.
type Topology struct {
	Name string // the name in nvml.h: internal, single, multiple, hostbridge, node, system
	text string
}

// Between opens NVML and finds the link between two GPUs: see Library.Link.
func Between(own, peer string) (Link, error) {
	library, err := Open()
	if err != nil {
		return Link{}, err
	}
	return library.Link(own, peer)
}

// Link finds the link between two different GPUs, given by their UUIDs. If a call fails or
// the driver lacks it, Link returns the error instead of a guess. For one GPU the error
// wraps ErrOneGPU: its NVLinks lead elsewhere. For a MIG instance it wraps ErrUnclear: NVML
// reports links of whole GPUs only.
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

// String has the generation that the link reaches under load, and its current lanes: a slot
// with fewer lanes, or a bad contact, really costs them.
func (p PCIe) String() string { return fmt.Sprintf("PCIe %d x%d", p.MaxGeneration, p.Width) }

// slower is the link that carries less; of equals the older one. The rate of a lane about
// doubles from one generation to the next.
func (p PCIe) slower(q PCIe) PCIe {
	a, b := p.Width<<p.MaxGeneration, q.Width<<q.MaxGeneration
	if b < a || b == a && q.MaxGeneration < p.MaxGeneration {
		return q
	}
	return p
}
