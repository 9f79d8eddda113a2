package model

import (
	"fmt"
	"math"

	"kvbench/internal/units"
)

// Scenario is one request on a disaggregated pair: its transfers, its path and the time
// that it saves.
type Scenario struct {
	ContextTokens int64
	Transfers     Transfers // of the request
	Path          Cost
	// PrefillSeconds is prefill on a separate node, undisturbed.
	PrefillSeconds float64
	// LeastPrefillSeconds is the prefill time at the accelerators' peak arithmetic rate, a
	// lower bound; 0 if unknown.
	LeastPrefillSeconds float64
	// SavedSeconds is prefill time before minus after: the interference and queueing that
	// disaggregation removes. It is measured, or set as a share of prefill; it cannot be
	// derived here. It is used only if SavedKnown is set.
	SavedSeconds float64
	SavedShare   float64 // of PrefillSeconds, added to SavedSeconds: the part that grows with prefill
	SavedKnown   bool
	Overlap      bool // ship each layer as it is ready
	// ArrivalsPerSecond counts equal requests on the same link; 0 leaves queueing out.
	ArrivalsPerSecond float64
}

// Outcome is the result of a scenario.
type Outcome struct {
	TransferSeconds float64 // alone on the link, without overlap
	// ExposedSeconds is the time added to TTFT: the part of the transfer that prefill does
	// not hide and, with arrivals, the mean wait for the link. If layers overlap, that wait
	// is an upper bound, since prefill may hide some of it.
	ExposedSeconds       float64
	NetGainSeconds       float64 // SavedSeconds - ExposedSeconds; without SavedKnown, minus the exposed time
	TransferOverPrefill  float64 // +Inf without prefill
	ExposedShare         float64 // of TTFT = prefill + exposed
	HidingBytesPerSecond float64 // least bandwidth at which only the last transfer is exposed; +Inf if none suffices
	Queueing             Queueing
	Verdict              Payoff
}

// Payoff is the verdict on disaggregation.
type Payoff string

// The payoffs.
const (
	Pays     Payoff = "pays"
	Costs    Payoff = "does not pay"
	Depends  Payoff = "depends" // the time that it removes is unknown
	Unstable Payoff = "unstable"
)

// Outcome computes the scenario:
//
//	net gain = (prefill before - prefill after) - exposed transfer
//
// (DistServe, OSDI '24, weighs the same two sides.) With arrivals, the mean FCFS wait of
// the link adds to the exposed time.
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

// exposed returns the transfer time alone on the link, the exposed part, and the queue.
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

// saved is the time that disaggregation removes from a request, in seconds.
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

// Explain is the verdict of outcome o with its figures, for people.
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

// HidingBandwidth is the least bandwidth in bytes a second at which layer-wise transfer
// keeps up with prefill, so that no more is exposed than by the last transfer alone. For
// equal transfers, with posting and wire added up, it is S/(prefill - L·beta - gamma·N),
// and without overheads κ·(prefill tokens/s). It assumes a path with one regime. It is +Inf
// if posting alone is slower than prefill, and for a single transfer, which nothing hides.
func (s Scenario) HidingBandwidth() float64 {
	if s.Transfers.Count() < 2 {
		return math.Inf(1)
	}
	return 1 / s.Path.hidingSecondsPerByte(s.Transfers, s.PrefillSeconds)
}

// BreakEvenContext is the least context in tokens such that holds is true there and stays
// true up to high; ok is false if holds(high) is false. It searches down from high on a
// grid of four steps an octave and refines to a token, so it can miss a failure narrower
// than a step. For a condition such as "exposed under 5 % of TTFT" disaggregation is cheap
// above it.
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
