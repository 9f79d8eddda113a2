package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"kvbench/internal/units"
)

// Flip is how far one input may move, the others held, before the verdict changes.
type Flip struct {
	Input  string
	Now    float64 // in Unit
	At     float64 // value at which the verdict flips; meaningless when Never
	Factor float64 // At/Now
	Unit   string  // bytes/s, s, 1/s, bytes or of prefill
	Never  bool    // no value within a factor of a thousand flips it
}

// String is the flip for people.
func (f Flip) String() string {
	show := func(v float64) string {
		switch f.Unit {
		case "bytes/s":
			return units.BitRate(v)
		case "s":
			return units.Seconds(v)
		case "bytes":
			return units.Bytes(int64(v))
		case "of prefill":
			return fmt.Sprintf("%.3g %% of prefill", 100*v)
		}
		return fmt.Sprintf("%.4g/s", v)
	}
	if f.Never {
		return fmt.Sprintf("%s (%s): no value within a factor of 1000 changes the verdict", f.Input, show(f.Now))
	}
	return fmt.Sprintf("%s at %s (now %s, a factor of %.3g)", f.Input, show(f.At), show(f.Now), f.Factor)
}

// input is a lever of a scenario that sensitivity moves.
type input struct {
	name, unit string
	field      func(*Scenario) *float64
}

var inputs = []input{
	{"bandwidth", "bytes/s", func(s *Scenario) *float64 { return &s.Path.BytesPerSecond }},
	{"startup (alpha)", "s", func(s *Scenario) *float64 { return &s.Path.AlphaSeconds }},
	{"each further transfer (beta)", "s", func(s *Scenario) *float64 { return &s.Path.BetaSeconds }},
	{"each descriptor (gamma)", "s", func(s *Scenario) *float64 { return &s.Path.GammaSeconds }},
	{"prefill", "s", func(s *Scenario) *float64 { return &s.PrefillSeconds }},
	{"saved by disaggregation", "s", func(s *Scenario) *float64 { return &s.SavedSeconds }},
	{"saved by disaggregation", "of prefill", func(s *Scenario) *float64 { return &s.SavedShare }},
	{"arrivals", "1/s", func(s *Scenario) *float64 { return &s.ArrivalsPerSecond }},
}

// Sensitivity lists, for each input that is not zero, the nearest value at which
// the verdict between paying and not paying changes, the least movement first.
// Without SavedKnown there is no verdict to flip and it is empty.
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
		f := Flip{Input: in.name, Now: now, Unit: in.unit}
		factor, ok := crossing(func(factor float64) bool {
			moved := s
			*in.field(&moved) = now * factor
			return moved.Outcome().NetGainSeconds > 0
		})
		f.Never = !ok
		if ok {
			f.Factor, f.At = factor, now*factor
		}
		flips = append(flips, f)
	}
	// Those that can flip come first, the smallest movement (as a factor) leading.
	slices.SortStableFunc(flips, func(a, b Flip) int {
		return cmp.Compare(a.move(), b.move())
	})
	return flips
}

func (f Flip) move() float64 {
	if f.Never {
		return math.Inf(1)
	}
	return math.Abs(math.Log(f.Factor))
}

// crossing is the factor nearest to 1, in either direction and within a thousand,
// at which yes changes from what it is at 1.
func crossing(yes func(factor float64) bool) (factor float64, ok bool) {
	const steps, reach = 120, 1000.0
	at := yes(1)
	for i := 1; i <= steps; i++ {
		for _, sign := range []float64{1, -1} {
			near := math.Pow(reach, sign*float64(i-1)/steps)
			far := math.Pow(reach, sign*float64(i)/steps)
			if yes(far) != at {
				return bisect(near, far, at, yes), true
			}
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
