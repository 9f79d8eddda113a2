package model

import "math"

// Interval is a value with its 95 % interval, in the unit of the field that holds it.
type Interval struct {
	Value, Low, High float64
}

// Exactly is a value without spread.
func Exactly(v float64) Interval { return Interval{v, v, v} }

// Cost is the time model of a path. A batch of k transfers with N descriptors and S
// bytes, posted together, is delivered after
//
//	T = alpha + P + W - o·min(P, W),  P = (k-1)·beta + gamma·N,  W = S/B
//
// With o = 0 it is Hockney's model (Parallel Computing 20, 1994) with a term for each
// descriptor and one for each transfer that follows the first. Alpha holds the round
// trip of the acknowledgement, so a pipelined batch pays it once; a further transfer
// pays only its own processing, beta. The overlap o is the share of posting that runs
// while earlier bytes are on the wire: 0 if one CPU does both (loopback), 1 if a NIC
// sends the posted bytes, which is LogGP's max of overhead and gap (Alexandrov et al.,
// SPAA '95). The model holds while one regime does: no change of protocol, cache level
// or route between the sizes compared.
type Cost struct {
	AlphaSeconds   float64 // startup of a batch, acknowledgement included
	BetaSeconds    float64 // each transfer after the first
	GammaSeconds   float64 // each descriptor
	BytesPerSecond float64 // payload rate
	Overlap        float64 // o, in 0..1; 0 adds posting and wire up

	// KneeBytes is the size of the first regime of a path with two: the first KneeBytes
	// of a batch go at KneeRate times BytesPerSecond. 0 is a path with one regime.
	KneeBytes int64
	KneeRate  float64
}

// SpecCost is the cost by the data sheet: the link's goodput at mtu (0: the kind's
// default), with alpha and gamma as given, zero when unknown.
func SpecCost(l Link, mtu int, f Framing, alphaSeconds, gammaSeconds float64) Cost {
	goodput, _, _ := l.Goodput(mtu, f)
	return Cost{AlphaSeconds: alphaSeconds, GammaSeconds: gammaSeconds, BytesPerSecond: goodput}
}

// Seconds is the time from posting the first of transfers to delivery of the last. Without
// a transfer it is 0; with bytes and no bandwidth it is +Inf.
func (c Cost) Seconds(transfers, descriptors int, bytes int64) float64 {
	if transfers <= 0 {
		return 0
	}
	return c.AlphaSeconds + overlapped(c.PostSeconds(transfers, descriptors), c.WireSeconds(bytes), c.Overlap)
}

// overlapped is the time of two activities if a share of the shorter is hidden in the
// longer.
func overlapped(post, wire, share float64) float64 {
	return post + wire - share*min(post, wire)
}

// PostSeconds is the time that grows with the counts: (k-1)·beta + gamma·N.
func (c Cost) PostSeconds(transfers, descriptors int) float64 {
	if transfers <= 0 {
		return 0
	}
	return float64(transfers-1)*c.BetaSeconds + float64(descriptors)*c.GammaSeconds
}

// OverheadSeconds is the time of a batch without bytes: alpha + (k-1)·beta + gamma·N.
func (c Cost) OverheadSeconds(transfers, descriptors int) float64 {
	if transfers <= 0 {
		return 0
	}
	return c.AlphaSeconds + c.PostSeconds(transfers, descriptors)
}

// WireSeconds is the part of Seconds that bandwidth sets: bytes/B, and with two regimes
// knee/(rate·B) + (bytes-knee)/B.
func (c Cost) WireSeconds(bytes int64) float64 { return c.wire(float64(bytes)) }

// wire is WireSeconds for a fractional number of bytes.
func (c Cost) wire(bytes float64) float64 {
	if bytes <= 0 {
		return 0
	}
	if c.BytesPerSecond <= 0 {
		return math.Inf(1)
	}
	if c.KneeBytes <= 0 {
		return bytes / c.BytesPerSecond
	}
	knee := min(bytes, float64(c.KneeBytes))
	return (knee/c.KneeRate + bytes - knee) / c.BytesPerSecond
}
