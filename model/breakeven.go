package model

import (
	"fmt"
	"math"

	"kvbench/internal/units"
)

// Scenario is one request on a disaggregated pair: its transfers, its path, and the
// time that disaggregation saves it.
type Scenario struct {
	ContextTokens int64
	Transfers     Transfers // of the request
	Path          Cost
	// PrefillSeconds is prefill on a separate node, undisturbed.
	PrefillSeconds float64
	// LeastPrefillSeconds is the prefill time at the peak arithmetic rate of its
	// accelerators, a lower bound on PrefillSeconds; 0 if unknown.
	LeastPrefillSeconds float64
	// SavedSeconds is prefill time before minus after: the interference and queueing
	// that disaggregation removes. The caller measures it or sets it as a share of
	// prefill; this package cannot derive it. Used only when SavedKnown.
	SavedSeconds float64
	SavedShare   float64 // of PrefillSeconds, added to SavedSeconds: the part that grows with prefill
	SavedKnown   bool
	Overlap      bool // ship each layer as it is ready
	// ArrivalsPerSecond counts equal requests on the same link; 0 leaves queueing out.
	ArrivalsPerSecond float64
}

// Outcome holds the times, ratios and verdict computed for a scenario.
type Outcome struct {
	TransferSeconds float64 // alone on the link, without overlap
	// ExposedSeconds is the part of TTFT that the transfer adds: the time that prefill
	// does not hide, and with arrivals the mean wait for the link. The wait is added
	// whole, so with overlap the sum is an upper bound: prefill may hide some of the
	// wait.
	ExposedSeconds       float64
	NetGainSeconds       float64 // SavedSeconds - ExposedSeconds; without SavedKnown, minus the exposed time
	TransferOverPrefill  float64 // +Inf without prefill
	ExposedShare         float64 // of TTFT = prefill + exposed
	HidingBytesPerSecond float64 // least bandwidth that exposes only the last transfer; +Inf if there is none
	Queueing             Queueing
	Verdict              Payoff
}

// Payoff is the verdict on whether disaggregation pays.
type Payoff string

// The payoffs.
const (
	Pays     Payoff = "pays"
	Costs    Payoff = "does not pay"
	Depends  Payoff = "depends" // the saved time is unknown
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

// exposed returns the transfer alone on the link, the part of it that TTFT includes,
// and its queue.
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

// HidingBandwidth is the least bandwidth, in bytes a second, that lets layer-wise
// shipping keep up with prefill: only the last transfer is exposed. For equal
// transfers, if their posting and wire times add up, it is S/(prefill - L·beta -
// gamma·N), and without overheads κ·(prefill tokens/s). It assumes a path with one
// regime. It is +Inf if posting alone is slower than prefill, and +Inf for a single
// transfer, because prefill hides none of it.
func (s Scenario) HidingBandwidth() float64 {
	if s.Transfers.Count() < 2 {
		return math.Inf(1)
	}
	return 1 / s.Path.hidingSecondsPerByte(s.Transfers, s.PrefillSeconds)
}

// BreakEvenContext returns the start, in tokens, of the range of contexts up to high
// that satisfy holds; ok is false if holds fails at high. The search goes from high
// down on a grid of four steps an octave and refines to a token, so it can miss a
// failure that is narrower than a step. For a condition such as "exposed under 5 % of
// TTFT" disaggregation is cheap from the result on.
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
