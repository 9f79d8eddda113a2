package model

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrFraming is returned, wrapped, for a framing or an MTU that cannot be used.
var ErrFraming = errors.New("bad framing")

// FramingMode selects how to find the share of the line rate left to payload.
type FramingMode string

// The framing modes. Auto is the zero value.
const (
	FramingAuto   FramingMode = ""       // every byte that takes time on the wire, by kind and MTU
	FramingOff    FramingMode = "off"    // none: the bare line rate, a floor on time
	FramingShaped FramingMode = "shaped" // headers as a traffic shaper counts them: no preamble, gap or checksum
	FramingFixed  FramingMode = "fixed"  // a factor given by the user
)

// Framing is the ratio of payload bytes to line bytes, or the rule that finds it.
type Framing struct {
	Mode   FramingMode
	Factor float64 // for FramingFixed, in (0, 1]
}

// ParseFraming reads auto, off, shaped or a factor such as 0.94. It returns
// ErrFraming for anything else.
func ParseFraming(s string) (Framing, error) {
	switch t := strings.ToLower(strings.TrimSpace(s)); t {
	case "auto", "":
		return Framing{}, nil
	case "off":
		return Framing{Mode: FramingOff}, nil
	case "shaped":
		return Framing{Mode: FramingShaped}, nil
	default:
		f, err := strconv.ParseFloat(t, 64)
		if err != nil || !(f > 0 && f <= 1) {
			return Framing{}, fmt.Errorf("%w %q: use auto, off, shaped, or a factor above 0 and at most 1, such as 0.94", ErrFraming, s)
		}
		return Framing{Mode: FramingFixed, Factor: f}, nil
	}
}

// String prints the framing as ParseFraming reads it.
func (f Framing) String() string {
	switch f.Mode {
	case FramingAuto:
		return "auto"
	case FramingFixed:
		return strconv.FormatFloat(f.Factor, 'g', -1, 64)
	}
	return string(f.Mode)
}

// DefaultMTU is the MTU in bytes that Goodput uses for a kind when none is given: the IP
// MTU for Ethernet, the path MTU for RoCE and InfiniBand, the payload of a transaction
// packet for PCIe. It is 0 for kinds without headers.
func DefaultMTU(k LinkKind) int {
	switch k {
	case Ethernet:
		return 1500
	case RoCE, InfiniBand:
		return 4096
	case PCIe:
		return 256
	}
	return 0
}

// Header bytes a packet, in the order of the basis text.
const (
	tcpHeaders      = 20 + 20 + 12             // IPv4, TCP, timestamp option: inside the MTU
	ethernetHeader  = 14                       // counted by a shaper too
	ethernetUnseen  = 8 + 4 + 12               // preamble, checksum, gap: time on the wire only
	roceHeaders     = 20 + 8 + 12 + 4          // IPv4, UDP, BTH, ICRC
	infinibandHeads = 8 + 12 + 4 + 2           // LRH, BTH, ICRC, VCRC
	pcieHeaders     = 24                       // a transaction packet's header, sequence number, checksum and framing
	roceReserve     = 40 + 8 + 12 + 4 + 28 + 4 // room that a host keeps free in the Ethernet MTU for RoCE headers
	minIPv4MTU      = 68                       // RFC 791
	maxMTU          = 65536                    // Linux loopback
)

// Check returns ErrFraming, wrapped with the fix, if mtu or f is invalid for this link. An
// mtu of 0 is the kind's default.
func (l Link) Check(mtu int, f Framing) error {
	if mtu < 0 || mtu > maxMTU {
		return fmt.Errorf("%w: an MTU of %d bytes is outside 0..%d", ErrFraming, mtu, maxMTU)
	}
	if f.Mode == FramingFixed && !(f.Factor > 0 && f.Factor <= 1) {
		return fmt.Errorf("%w: a factor of %g is outside 0..1; use the share of the line rate left to payload, such as 0.94", ErrFraming, f.Factor)
	}
	if f.Mode == FramingShaped && l.Kind != Ethernet && l.Kind != RoCE {
		return fmt.Errorf("%w: shaped counts what a Linux traffic shaper counts on Ethernet, and %s is %s; use auto, off or a factor", ErrFraming, l.Name, l.Kind)
	}
	if mtu == 0 {
		return nil
	}
	switch l.Kind {
	case Ethernet:
		if mtu < minIPv4MTU {
			return fmt.Errorf("%w: IPv4 needs an MTU of at least %d bytes, not %d; Ethernet's are 1500 or 9000", ErrFraming, minIPv4MTU, mtu)
		}
	case RoCE:
		if rocePathMTU(mtu) == 0 {
			return fmt.Errorf("%w: an MTU of %d bytes leaves no RoCE packet; use a RoCE MTU (256 to 4096) or an Ethernet MTU of at least %d", ErrFraming, mtu, 256+roceReserve)
		}
	case InfiniBand, PCIe:
		if mtu < 128 || mtu > 4096 || mtu&(mtu-1) != 0 {
			return fmt.Errorf("%w: %s packets carry a power of two of bytes up to 4096, not %d", ErrFraming, l.Kind, mtu)
		}
	}
	return nil
}

// Goodput returns the payload rate in bytes a second by the link's data sheet, its share φ
// of the line rate, and in words the headers that φ counts. An mtu of 0 is [DefaultMTU].
// With m the payload of a packet:
//
//	TCP, Ethernet   (MTU-52)/(MTU+38)   IPv4 + TCP + timestamps inside the MTU; frame, checksum, preamble, gap outside
//	TCP, shaped     (MTU-52)/(MTU+14)   a Linux tbf or htb counts the frame without checksum, preamble and gap
//	RoCEv2          m/(m+82)            shaped: m/(m+58)
//	InfiniBand      m/(m+26)            LRH, BTH, ICRC, VCRC; no GRH inside a subnet
//	PCIe            m/(m+24)            24 bytes a transaction packet; the link rate already has 128b/130b
//	NVLink, raw     1                   no published header size: expect 85 % of NVLink in practice
//
// It holds for transfers of many full packets, and leaves out acknowledgements, credits and
// retransmissions. For RoCE an mtu that is no power of two is the Ethernet MTU, and the
// RoCE MTU is the largest that fits. If [Link.Check] fails, the goodput and factor are 0
// and the basis is the error's text.
func (l Link) Goodput(mtu int, f Framing) (bytesPerSecond, factor float64, basis string) {
	if err := l.Check(mtu, f); err != nil {
		return 0, 0, err.Error()
	}
	factor, basis = l.framing(mtu, f)
	return l.BytesPerSecond * factor, factor, basis
}

func (l Link) framing(mtu int, f Framing) (factor float64, basis string) {
	switch f.Mode {
	case FramingOff:
		return 1, "line rate, no headers counted"
	case FramingFixed:
		return f.Factor, fmt.Sprintf("factor %g as given", f.Factor)
	}
	if mtu == 0 {
		mtu = DefaultMTU(l.Kind)
	}
	unseen, seenBy := ethernetUnseen, "frame, checksum, preamble and gap"
	if f.Mode == FramingShaped {
		unseen, seenBy = 0, "frame as a traffic shaper counts it (no checksum, preamble or gap)"
	}
	switch l.Kind {
	case Ethernet:
		payload, line := mtu-tcpHeaders, mtu+ethernetHeader+unseen
		return ratio(payload, line), fmt.Sprintf("TCP with timestamps at MTU %d: %d of %d bytes; IPv4, TCP, %s", mtu, payload, line, seenBy)
	case RoCE:
		m := rocePathMTU(mtu)
		line := m + roceHeaders + ethernetHeader + unseen
		return ratio(m, line), fmt.Sprintf("RoCEv2 at RoCE MTU %d: %d of %d bytes; IPv4, UDP, BTH, ICRC, %s", m, m, line, seenBy)
	case InfiniBand:
		return ratio(mtu, mtu+infinibandHeads), fmt.Sprintf("InfiniBand at MTU %d: %d of %d bytes; LRH, BTH, ICRC, VCRC", mtu, mtu, mtu+infinibandHeads)
	case PCIe:
		return ratio(mtu, mtu+pcieHeaders), fmt.Sprintf("PCIe packets of %d bytes: %d of %d; 128b/130b is in the link rate", mtu, mtu, mtu+pcieHeaders)
	}
	return 1, "line rate: no header size is published for this kind"
}

func ratio(payload, line int) float64 { return float64(payload) / float64(line) }

// rocePathMTU is the RoCE MTU for mtu: mtu if it is a valid RoCE MTU, else the largest RoCE
// MTU that fits an Ethernet MTU of that size; 0 when none fits.
func rocePathMTU(mtu int) int {
	for m := 4096; m >= 256; m /= 2 {
		if mtu == m {
			return m
		}
	}
	for m := 4096; m >= 256; m /= 2 {
		if mtu >= m+roceReserve {
			return m
		}
	}
	return 0
}
