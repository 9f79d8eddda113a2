package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"kvbench/internal/units"
)

// Flip is the move of one input, with the others held, that changes the verdict.
type Flip struct {
	Input  string
	Now    float64 // in Unit
	At     float64 // value that flips the verdict; meaningless when Never
	Factor float64 // At/Now
	Unit   string  // bytes/s, s, 1/s or of prefill
	Never  bool    // no possible value within a factor of a thousand flips it
	// Barred qualifies Never: a value within that factor would flip the verdict, but the
	// input cannot have it.
	Barred bool
}

// String describes the flip for people.
func (f Flip) String() string {
	if f.Barred {
		return fmt.Sprintf("%s at no value that it can have (now %s)", f.Input, f.show(f.Now))
	}
	if f.Never {
		return fmt.Sprintf("%s at no value within a factor of %d (now %s)", f.Input, reach, f.show(f.Now))
	}
	return fmt.Sprintf("%s at %s (now %s, a factor of %.3g)", f.Input, f.show(f.At), f.show(f.Now), f.Factor)
}

func (f Flip) show(v float64) string {
	switch f.Unit {
	case "bytes/s":
		return units.BitRate(v)
	case "s":
		return units.Seconds(v)
	case "of prefill":
		return fmt.Sprintf("%.3g %% of prefill", 100*v)
	}
	return fmt.Sprintf("%.4g/s", v)
}

// input is an input of a scenario that sensitivity moves. The net gain is monotonic in
// each.
type input struct {
	name, unit string
	field      func(*Scenario) *float64
	// least is the input's lower bound; nil is none.
	least func(Scenario) float64
}

var inputs = []input{
	{name: "bandwidth", unit: "bytes/s", field: func(s *Scenario) *float64 { return &s.Path.BytesPerSecond }},
	{name: "startup (alpha)", unit: "s", field: func(s *Scenario) *float64 { return &s.Path.AlphaSeconds }},
	{name: "each further transfer (beta)", unit: "s", field: func(s *Scenario) *float64 { return &s.Path.BetaSeconds }},
	{name: "each descriptor (gamma)", unit: "s", field: func(s *Scenario) *float64 { return &s.Path.GammaSeconds }},
	{name: "prefill", unit: "s", field: func(s *Scenario) *float64 { return &s.PrefillSeconds },
		least: func(s Scenario) float64 { return s.LeastPrefillSeconds }},
	{name: "saved by disaggregation", unit: "s", field: func(s *Scenario) *float64 { return &s.SavedSeconds }},
	{name: "saved by disaggregation", unit: "of prefill", field: func(s *Scenario) *float64 { return &s.SavedShare }},
	{name: "arrivals", unit: "1/s", field: func(s *Scenario) *float64 { return &s.ArrivalsPerSecond }},
}

// reach is the largest factor, up and down, of an input's move in search of a flip.
const reach = 1000

// Sensitivity lists, for each input that is not zero, the value that changes the verdict
// between paying and not paying, the least movement first. An input moves by a factor of a
// thousand at most and never to an impossible value, such as a prefill faster than its
// accelerators. A saved share may be above 1: it is relative to prefill alone on its node,
// and the queueing and interference removed may be longer than that. Without SavedKnown
// there is no verdict to flip and the list is empty.
func (s Scenario) Sensitivity() []Flip {
	if !s.SavedKnown {
		return nil
	}
	var flips []Flip
	for _, in := range inputs {
		now := *in.field(&s)
		if now <= 0 {
			continue
		}
		flips = append(flips, s.flip(in, now))
	}
	// Inputs that can flip come first, the smallest movement (as a factor) leading.
	slices.SortStableFunc(flips, func(a, b Flip) int {
		return cmp.Compare(a.move(), b.move())
	})
	return flips
}

// flip searches for the value of in, now at now, that flips the verdict.
func (s Scenario) flip(in input, now float64) Flip {
	f := Flip{Input: in.name, Now: now, Unit: in.unit}
	pays := func(factor float64) bool {
		moved := s
		*in.field(&moved) = now * factor
		return moved.netGainSeconds() > 0
	}
	least := 1.0 / reach
	if in.least != nil {
		least = max(least, min(1, in.least(s)/now))
	}
	factor, ok := crossing(least, reach, pays)
	if ok {
		f.Factor, f.At = factor, now*factor
		return f
	}
	f.Never = true
	_, f.Barred = crossing(1.0/reach, reach, pays)
	return f
}

func (f Flip) move() float64 {
	if f.Never {
		return math.Inf(1)
	}
	return math.Abs(math.Log(f.Factor))
}

// crossing is the factor between low and high, which span 1, that changes yes from its
// value at 1. It changes at most once.
func crossing(low, high float64, yes func(factor float64) bool) (factor float64, ok bool) {
	at := yes(1)
	for _, far := range []float64{low, high} {
		if yes(far) != at {
			return bisect(1, far, at, yes), true
		}
	}
	return 0, false
}

func bisect(same, other float64, at bool, yes func(float64) bool) float64 {
	for math.Abs(other/same-1) > 1e-9 {
		mid := math.Sqrt(same * other)
		if yes(mid) == at {
			same = mid
		} else {
			other = mid
		}
	}
	return other
}
