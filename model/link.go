package model

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"kvbench/internal/spelling"
	"kvbench/internal/units"
)

// ErrUnknownLink is returned, wrapped, for a link that is neither a listed name nor a
// rate.
var ErrUnknownLink = errors.New("unknown link")

// LinkKind selects the headers that travel with the payload.
type LinkKind string

// The kinds of link. Raw has no headers: the payload gets the whole rate.
const (
	Ethernet   LinkKind = "ethernet" // TCP over IPv4 in Ethernet frames
	RoCE       LinkKind = "roce"     // RoCEv2 in Ethernet frames
	InfiniBand LinkKind = "infiniband"
	NVLink     LinkKind = "nvlink"
	PCIe       LinkKind = "pcie"
	Raw        LinkKind = "raw"
)

// Link is a path between two memories, described by its data sheet.
type Link struct {
	Name string
	Kind LinkKind
	// BytesPerSecond is the data rate in one direction, after line coding
	// (8b/10b, 64b/66b, 128b/130b) and before packet headers.
	BytesPerSecond float64
}

// links lists data-sheet rates, one way. Vendors print NVLink's two directions
// together (900 GB/s for H100's NVLink 4 is 450 each way); InfiniBand and
// Ethernet are named by their one-way bit rate; PCIe is 16 lanes of 16 or 32
// GT/s after 128b/130b.
var links = []Link{
	{"25gbe", Ethernet, 3.125e9},
	{"100gbe", Ethernet, 12.5e9},
	{"200gbe", Ethernet, 25e9},
	{"400gbe", Ethernet, 50e9},
	{"ib-hdr", InfiniBand, 25e9},
	{"ib-ndr", InfiniBand, 50e9},
	{"ib-xdr", InfiniBand, 100e9},
	{"nvlink3", NVLink, 300e9},
	{"nvlink4", NVLink, 450e9},
	{"nvlink5", NVLink, 900e9},
	{"pcie4x16", PCIe, 31.508e9},
	{"pcie5x16", PCIe, 63.015e9},
}

// LinkNames lists the named links in the order of the documentation.
func LinkNames() []string {
	names := make([]string, len(links))
	for i, l := range links {
		names[i] = l.Name
	}
	return names
}

// ParseLink reads a link's name (see [LinkNames]) or a one-way rate such as
// 1Gbit/s, which is taken as Ethernet carrying TCP. It returns ErrUnknownLink,
// with the nearest name, for anything else.
func ParseLink(s string) (Link, error) {
	name := strings.ToLower(strings.TrimSpace(s))
	for _, l := range links {
		if l.Name == name {
			return l, nil
		}
	}
	rate, err := units.ParseRate(name)
	if err != nil {
		return Link{}, fmt.Errorf("%w %q: did you mean %s? Names are %s; a rate is written 25Gbit/s or 3.125GB/s",
			ErrUnknownLink, s, nearestLink(name), strings.Join(LinkNames(), ", "))
	}
	if rate <= 0 {
		return Link{}, fmt.Errorf("%w %q: a link's rate must be above zero, such as 25Gbit/s", ErrUnknownLink, s)
	}
	return Link{Name: rateName(rate), Kind: Ethernet, BytesPerSecond: rate}, nil
}

// OverRDMA is the link as used by RDMA: Ethernet carries RoCEv2 instead of TCP. Other kinds
// are unchanged.
func (l Link) OverRDMA() Link {
	if l.Kind == Ethernet {
		l.Kind = RoCE
	}
	return l
}

// rateName prints a rate so that ParseLink reads the same rate back.
func rateName(bytesPerSecond float64) string {
	bits, prefix := bytesPerSecond*8, ""
	for _, next := range []string{"k", "M", "G", "T"} {
		if bits < 1000 {
			break
		}
		bits, prefix = bits/1000, next
	}
	// Twelve digits drop rounding errors of the scaling and keep any rate a person
	// types.
	bits, _ = strconv.ParseFloat(strconv.FormatFloat(bits, 'g', 12, 64), 64)
	return strconv.FormatFloat(bits, 'f', -1, 64) + prefix + "bit/s"
}

// nearestLink is the name with the fewest edits from s; a name that contains s
// (ndr, pcie5) counts as near.
func nearestLink(s string) string {
	best, least := "", math.MaxInt
	for _, l := range links {
		d := spelling.Distance(s, l.Name)
		if len(s) > 1 && strings.Contains(l.Name, s) {
			d = 0
		}
		if d < least {
			best, least = l.Name, d
		}
	}
	return best
}
