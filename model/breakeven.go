package model

import (
	"fmt"
	"math"

	"kvbench/internal/units"
)

// Scenario is one request on a disaggregated pair: what it ships, over what, and
// what it wins.
type Scenario struct {
	ContextTokens int64
	Transfers     Transfers // of the request
	Path          Cost
	// PrefillSeconds is prefill on its own node, undisturbed.
	PrefillSeconds float64
	// LeastPrefillSeconds is what its accelerators take at the peak of their
	// arithmetic, below which nothing can bring it; 0 where that is not known.
	LeastPrefillSeconds float64
	// SavedSeconds is prefill time before minus after: the interference and
	// queueing that disaggregation removes. It is measured, or set as a share of
	// prefill; nothing here can derive it. Used only when SavedKnown.
	SavedSeconds float64
	SavedShare   float64 // of PrefillSeconds, added to SavedSeconds: what grows with prefill
	SavedKnown   bool
	Overlap      bool // ship each layer as it is ready
	// ArrivalsPerSecond of like requests on the same link; 0 leaves queueing out.
	ArrivalsPerSecond float64
}

// Outcome is what a scenario comes to.
type Outcome struct {
	TransferSeconds float64 // alone on the link, without overlap
	// ExposedSeconds is what TTFT pays: the transfer that prefill does not hide, and
	// with arrivals the mean wait for the link. Added whole, that wait is an upper
	// bound where layers overlap, since prefill may hide some of it.
	ExposedSeconds       float64
	NetGainSeconds       float64 // SavedSeconds - ExposedSeconds; without SavedKnown, minus the exposed time
	TransferOverPrefill  float64 // +Inf without prefill
	ExposedShare         float64 // of TTFT = prefill + exposed
	HidingBytesPerSecond float64 // bandwidth from which the last transfer alone is exposed; +Inf where none does it
	Queueing             Queueing
	Verdict              Payoff
}

// Payoff says whether disaggregation pays.
type Payoff string

// The payoffs.
const (
	Pays     Payoff = "pays"
	Costs    Payoff = "does not pay"
	Depends  Payoff = "depends" // what it removes is not known
	Unstable Payoff = "unstable"
)

// Outcome computes the scenario:
//
//	net gain = (prefill before - prefill after) - exposed transfer
//
// (DistServe, OSDI '24, weighs the same two sides.) With arrivals, the mean FCFS
// wait of the link adds to the exposed time.
func (s Scenario) Outcome() Outcome {
	o := Outcome{HidingBytesPerSecond: s.HidingBandwidth()}
	o.TransferSeconds, o.ExposedSeconds, o.Queueing = s.exposed()
	o.NetGainSeconds = s.netGainSeconds()
	if o.TransferSeconds > 0 {
		o.TransferOverPrefill = o.TransferSeconds / max(0, s.PrefillSeconds)
	}
	o.ExposedShare = exposedShare(s.PrefillSeconds, o.ExposedSeconds)
	o.Verdict = s.judge(o)
	return o
}

// exposed is the transfer alone on the link, what TTFT pays of it, and its queue.
func (s Scenario) exposed() (transfer, exposed float64, q Queueing) {
	transfer = s.Path.Seconds(s.Transfers.Totals())
	exposed = transfer
	if s.Overlap {
		exposed = s.Path.ExposedSeconds(s.Transfers, s.PrefillSeconds)
	}
	q = Load{ArrivalsPerSecond: s.ArrivalsPerSecond, ServiceSeconds: transfer}.Queue()
	if s.ArrivalsPerSecond > 0 {
		exposed += q.WaitFCFS
	}
	return transfer, exposed, q
}

func (s Scenario) netGainSeconds() float64 {
	_, exposed, _ := s.exposed()
	if s.SavedKnown {
		return s.saved() - exposed
	}
	return -exposed
}

// saved is what disaggregation removes from a request, in seconds.
func (s Scenario) saved() float64 { return s.SavedSeconds + s.SavedShare*s.PrefillSeconds }

func exposedShare(prefill, exposed float64) float64 {
	if math.IsInf(exposed, 1) {
		return 1
	}
	if exposed == 0 {
		return 0
	}
	return exposed / (prefill + exposed)
}

func (s Scenario) judge(o Outcome) Payoff {
	switch {
	case s.ArrivalsPerSecond > 0 && !o.Queueing.Stable:
		return Unstable
	case !s.SavedKnown:
		return Depends
	case o.NetGainSeconds > 0:
		return Pays
	}
	return Costs
}

// Explain is the verdict of the scenario's outcome with its figures, for people.
func (s Scenario) Explain(o Outcome) string {
	switch o.Verdict {
	case Unstable:
		return fmt.Sprintf("%s: %.3g requests/s need %s of link time a second; the queue grows without end",
			o.Verdict, s.ArrivalsPerSecond, units.Seconds(o.Queueing.Utilization))
	case Depends:
		return fmt.Sprintf("pays only if it removes more than %s of interference and queueing a request", units.Seconds(o.ExposedSeconds))
	}
	return fmt.Sprintf("%s: removes %s and exposes %s", o.Verdict, units.Seconds(s.saved()), units.Seconds(o.ExposedSeconds))
}

// HidingBandwidth is the bandwidth in bytes a second from which layer-wise
// shipping keeps up with prefill, so that nothing is exposed beyond what the last
// transfer exposes alone. Of transfers alike whose posting and wire add up it is
// S/(prefill - L·beta - gamma·N), and without overheads κ·(prefill tokens/s). It is
// that of a path of one regime, +Inf where posting alone is slower than prefill, and
// +Inf for a single transfer, which hides behind nothing.
func (s Scenario) HidingBandwidth() float64 {
	if s.Transfers.Count() < 2 {
		return math.Inf(1)
	}
	return 1 / s.Path.hidingSecondsPerByte(s.Transfers, s.PrefillSeconds)
}

// BreakEvenContext is the context in tokens from which holds is true and stays
// true up to high; ok is false where holds fails at high. It is searched from high
// down on a grid of four steps an octave and refined to a token, so a failure that
// is narrower than a step can be missed. For a condition such as "exposed under 5 %
// of TTFT" it is where disaggregation begins to be cheap.
func BreakEvenContext(low, high int64, holds func(tokens int64) bool) (tokens int64, ok bool) {
	if low < 1 {
		low = 1
	}
	if high < low || !holds(high) {
		return 0, false
	}
	good := high
	for good > low {
		next := max(low, min(good-1, int64(float64(good)/math.Exp2(1.0/4))))
		if !holds(next) {
			bad := next
			for good-bad > 1 {
				mid := bad + (good-bad)/2
				if holds(mid) {
					good = mid
				} else {
					bad = mid
				}
			}
			return good, true
		}
		good = next
	}
	return low, true
}
