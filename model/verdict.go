package model

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Status is the outcome of a comparison.
type Status string

// The outcomes. The zero value means Unchecked too: nothing was compared, or the
// measurement is inconclusive.
const (
	Pass      Status = "pass"
	Fail      Status = "fail"
	Unchecked Status = "unchecked"
)

// Comparison is a measurement against a prediction.
type Comparison struct {
	Measured, Predicted Interval // seconds
	Ratio               Interval // measured over predicted: above 1 is slower than predicted
	Tolerance           float64  // as a share: 0.15 accepts 0.85 to 1.15
	Status              Status
	Reason              string // one sentence for people
}

// Compare judges measured against predicted, both in seconds. It combines their intervals
// as independent errors of the logarithm. A ratio within 1±tolerance passes. A ratio
// outside fails if its whole interval is outside. Undecided ratios stay unchecked: a ratio
// outside with an interval that reaches the tolerated band, or inside with an interval
// beyond both edges.
func Compare(measured, predicted Interval, tolerance float64) Comparison {
	c := Comparison{Measured: measured, Predicted: predicted, Tolerance: tolerance, Status: Unchecked}
	switch {
	case !positive(measured.Value):
		c.Reason = "nothing was measured"
		return c
	case !positive(predicted.Value):
		c.Reason = "nothing was predicted: name a link or calibrate"
		return c
	}
	c.Ratio = ratioInterval(measured, predicted)
	if !(tolerance > 0) {
		c.Reason = "no tolerance was asked for"
		return c
	}
	low, high := 1-tolerance, 1+tolerance
	r := c.Ratio
	inside := r.Value >= low && r.Value <= high
	switch {
	case inside && (r.Low >= low || r.High <= high):
		c.Status = Pass
		c.Reason = fmt.Sprintf("measured is %.3g of predicted, within %.3g %%", r.Value, 100*tolerance)
	case inside:
		c.Reason = fmt.Sprintf("measured is %.3g of predicted but could be %.3g to %.3g: too uncertain for a tolerance of %.3g %%; run more requests", r.Value, r.Low, r.High, 100*tolerance)
	case r.Low > high || r.High < low:
		c.Status = Fail
		c.Reason = fmt.Sprintf("measured is %.3g of predicted (%.3g to %.3g), outside %.3g %%", r.Value, r.Low, r.High, 100*tolerance)
	default:
		c.Reason = fmt.Sprintf("measured is %.3g of predicted but its interval %.3g to %.3g reaches the tolerated %.3g %%; run more requests", r.Value, r.Low, r.High, 100*tolerance)
	}
	return c
}

func positive(v float64) bool { return v > 0 && !math.IsInf(v, 0) }

// ratioInterval is a/b with the errors of both. A bound of 0 or less is taken as
// open on that side.
func ratioInterval(a, b Interval) Interval {
	r := a.Value / b.Value
	down := math.Hypot(logRatio(a.Value, a.Low), logRatio(b.High, b.Value))
	up := math.Hypot(logRatio(a.High, a.Value), logRatio(b.Value, b.Low))
	return Interval{Value: r, Low: r * math.Exp(-down), High: min(r*math.Exp(up), math.MaxFloat64)}
}

func logRatio(over, under float64) float64 {
	if under <= 0 {
		return math.Inf(1)
	}
	return math.Log(max(1, over/under))
}

// MedianRanks is the pair of quantiles of n sorted samples that bracket the true median
// with at least 95 % confidence for any distribution (the binomial order-statistic
// interval). Below six samples no pair reaches 95 %, and it is the smallest and the
// largest: 0 and 1.
func MedianRanks(n int) (low, high float64) {
	if n < 6 {
		return 0, 1
	}
	b := distuv.Binomial{N: float64(n), P: 0.5}
	// Start just under the normal approximation: the tail below cannot matter.
	l := max(0, int(float64(n)/2-0.98*math.Sqrt(float64(n)))-2)
	for b.CDF(float64(l)) <= 0.025 {
		l++
	}
	// P(X <= l-1) <= 0.025, so the l-th smallest (rank l-1 from 0) is below the median.
	low = float64(l-1) / float64(n-1)
	return low, 1 - low
}

// MedianInterval is the median of sorted samples with its 95 % interval from [MedianRanks].
func MedianInterval(sorted []float64) Interval {
	low, high := MedianRanks(len(sorted))
	return Interval{Value: quantile(sorted, 0.5), Low: quantile(sorted, low), High: quantile(sorted, high)}
}
