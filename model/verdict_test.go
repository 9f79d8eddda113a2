package model

import (
	"math"
	"testing"
)

func TestCompare(t *testing.T) {
	one := Exactly(1)
	for _, c := range []struct {
		name                string
		measured, predicted Interval
		tolerance           float64
		want                Status
	}{
		{"equal", one, one, 0.15, Pass},
		{"at the edge", Exactly(1.149), one, 0.15, Pass},
		{"slow", Exactly(1.2), one, 0.15, Fail},
		{"fast", Exactly(0.8), one, 0.15, Fail},
		{"a hundred times slow", Interval{100, 90, 110}, one, 0.15, Fail},
		{"slow but unsure", Interval{1.2, 1.1, 1.3}, one, 0.15, Unchecked},
		{"prediction unsure", Exactly(1.2), Interval{1, 0.9, 1.1}, 0.15, Unchecked},
		{"inside, reaching one edge", Interval{1.1, 1, 1.3}, one, 0.15, Pass},
		{"inside, anything goes", Interval{1, 0.5, 2}, one, 0.15, Unchecked},
		{"not measured", Interval{}, one, 0.15, Unchecked},
		{"not predicted", one, Interval{}, 0.15, Unchecked},
		{"predicted never", one, Exactly(math.Inf(1)), 0.15, Unchecked},
		{"no tolerance", one, one, 0, Unchecked},
		{"predicted bound of zero", Exactly(1.2), Interval{1, 0, 1.1}, 0.15, Unchecked},
		{"NaN", Exactly(math.NaN()), one, 0.15, Unchecked},
	} {
		got := Compare(c.measured, c.predicted, c.tolerance)
		if got.Status != c.want || got.Reason == "" {
			t.Errorf("%s: %s (%s), want %s", c.name, got.Status, got.Reason, c.want)
		}
	}
}

func TestCompareRatioInterval(t *testing.T) {
	// 10 % up in the measurement alone, 20 % down in the prediction alone.
	c := Compare(Interval{2, 2, 2.2}, Interval{1, 1, 1}, 0.1)
	near(t, "ratio", c.Ratio.Value, 2, 1e-12)
	near(t, "high", c.Ratio.High, 2.2, 1e-12)
	near(t, "low", c.Ratio.Low, 2, 1e-12)
	c = Compare(Exactly(2), Interval{1, 0.8, 1}, 0.1)
	near(t, "high", c.Ratio.High, 2.5, 1e-12)
}

// Ranks from the binomial tables: of 10 samples the 2nd and 9th bracket the
// median at 97.9 %, of 20 the 6th and 15th at 95.9 %, of 100 the 40th and 61st at 96.5 %.
func TestMedianRanks(t *testing.T) {
	for n, rank := range map[int]float64{6: 1, 10: 2, 20: 6, 100: 40} {
		low, high := MedianRanks(n)
		near(t, "low", low*float64(n-1)+1, rank, 1e-9)
		near(t, "high", high*float64(n-1)+1, float64(n+1)-rank, 1e-9)
	}
	for _, n := range []int{0, 1, 5} {
		if low, high := MedianRanks(n); low != 0 || high != 1 {
			t.Errorf("%d samples: %g, %g", n, low, high)
		}
	}
	if low, _ := MedianRanks(1e7); math.Abs(low-0.5+0.98/math.Sqrt(1e7)) > 1e-6 {
		t.Errorf("10 million samples: %g", low)
	}
	if i := MedianInterval([]float64{1, 2, 3}); i != (Interval{2, 1, 3}) {
		t.Errorf("three samples: %v", i)
	}
}
