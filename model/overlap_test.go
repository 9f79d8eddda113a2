package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// finish is when each layer is delivered that is ready at ready[l] and takes move[l]
// seconds: f_l = max(f_{l-1}, ready_l) + move_l.
func finish(ready, move []float64) []float64 {
	f := make([]float64, len(ready))
	before := math.Inf(-1)
	for l := range ready {
		before = max(before, ready[l]) + move[l]
		f[l] = before
	}
	return f
}

// recurrence is the exposed time of layers of these bytes, a byte a second, ready
// every pace seconds.
func recurrence(bytes []int64, pace float64) float64 {
	ready, move := make([]float64, len(bytes)), make([]float64, len(bytes))
	for l, b := range bytes {
		ready[l], move[l] = float64(l+1)*pace, float64(b)
	}
	last := len(bytes) - 1
	return finish(ready, move)[last] - ready[last]
}

// layers are transfers of these bytes with one descriptor each.
func layers(bytes ...int64) Transfers {
	each := make([]Transfer, len(bytes))
	for l, b := range bytes {
		each[l] = Transfer{Descriptors: 1, Bytes: b}
	}
	return NewTransfers(each)
}

func TestRecurrence(t *testing.T) {
	// By hand: the second layer waits for the first, the third for prefill.
	for l, want := range []float64{5, 8, 11} {
		near(t, "finish", finish([]float64{1, 2, 10}, []float64{4, 3, 1})[l], want, 1e-12)
	}
}

// TestExposedUnlike has layers of unlike size, worked out by hand, over a path of a byte
// a second: what the mean layer would say is beside each.
func TestExposedUnlike(t *testing.T) {
	path := Cost{BytesPerSecond: 1}
	for _, c := range []struct {
		name          string
		bytes         []int64
		prefill, want float64
	}{
		// Alternating windowed and full, ready every 5 s: the last full layer of 8 is alone
		// on the path. The mean is 4.5, which hides.
		{"full last", []int64{1, 8, 1, 8, 1, 8}, 30, 8},
		// A windowed layer last is exposed alone only where the full one before it, of 8 s,
		// has left: it became ready 5 s earlier, so 3 s of it are still to come.
		{"windowed last", []int64{8, 1, 8, 1, 8, 1}, 30, 8 + 1 - 5},
		{"slow prefill", []int64{8, 1, 8, 1, 8, 1}, 60, 1},
		// One layer of 20 s in the middle: delivered with what follows at 20+1+1+1 after
		// the second of five layers, of which prefill hides three paces.
		{"one large", []int64{1, 20, 1, 1, 1}, 25, 23 - 15},
		{"nothing to hide behind", []int64{1, 20, 1, 1, 1}, 0, 24},
		{"one transfer", []int64{7}, 100, 7},
	} {
		near(t, c.name, path.ExposedSeconds(layers(c.bytes...), c.prefill), c.want, 1e-12)
		near(t, c.name+", recurrence", recurrence(c.bytes, c.prefill/float64(len(c.bytes))), c.want, 1e-12)
	}
	if got := path.ExposedSeconds(Transfers{}, 1); got != 0 {
		t.Errorf("a request without layers exposes %g s", got)
	}
}

// TestExposedIsTheRecurrence for any layers, on a path without overheads.
func TestExposedIsTheRecurrence(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		bytes := make([]int64, 1+rng.IntN(40))
		for l := range bytes {
			bytes[l] = 1 + rng.Int64N(1000)
			if l > 0 && rng.IntN(2) == 0 { // some alike
				bytes[l] = bytes[l-1]
			}
		}
		pace := 1000 * rng.Float64()
		near(t, "exposed", Cost{BytesPerSecond: 1}.ExposedSeconds(layers(bytes...), pace*float64(len(bytes))), recurrence(bytes, pace), 1e-9)
	}
}

// TestExposedLeavesNothingOut: only batches that can be the one that counts are looked at
// where that is enough; here every batch is.
func TestExposedLeavesNothingOut(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		each := make([]Transfer, 1+rng.IntN(20))
		for l := range each {
			each[l] = Transfer{Descriptors: 1 + rng.IntN(50), Bytes: 1 + rng.Int64N(1e6), Layers: rng.IntN(4)}
			if l > 0 && rng.IntN(3) > 0 {
				each[l] = each[l-1]
			}
		}
		c := Cost{AlphaSeconds: 1e-4, BetaSeconds: 1e-4 * rng.Float64(), GammaSeconds: 1e-5 * rng.Float64(), BytesPerSecond: 1e9, Overlap: float64(rng.IntN(3)) / 2}
		if rng.IntN(2) == 0 {
			c.KneeBytes, c.KneeRate = 1+rng.Int64N(5e6), 0.25+2*rng.Float64()
		}
		n, request := len(each), NewTransfers(each)
		prefill := 2 * rng.Float64() * c.Seconds(request.Totals())
		layers := 0
		for _, tr := range each {
			layers += max(1, tr.Layers)
		}
		want, descriptors, bytes, ahead := 0.0, 0, int64(0), 0
		for k := n - 1; k >= 0; k-- {
			descriptors, bytes = descriptors+each[k].Descriptors, bytes+each[k].Bytes
			want = max(want, c.Seconds(n-k, descriptors, bytes)-prefill*float64(ahead)/float64(layers))
			ahead += max(1, each[k].Layers)
		}
		near(t, "exposed", c.ExposedSeconds(request, prefill), want, 1e-9)
	}
}

// x + (L-1)·max(0, x-c), at prefill 0.5, 1 and 2 times the layer's transfer.
func TestExposedAlike(t *testing.T) {
	for _, c := range []struct{ compute, want float64 }{
		{0.5, 1 + 79*0.5}, {1, 1}, {2, 1}, {0, 80},
	} {
		near(t, "exposed", Cost{BytesPerSecond: 1}.ExposedSeconds(EqualTransfers(80, 80, 80), 80*c.compute), c.want, 1e-9)
	}
}

func TestExposedWithOverheads(t *testing.T) {
	c := Cost{AlphaSeconds: 1e-3, BetaSeconds: 1e-5, GammaSeconds: 1e-6, BytesPerSecond: 1e9}
	request := EqualTransfers(80, 160, 80e6)
	for _, c.Overlap = range []float64{0, 0.5, 1} {
		near(t, "nothing to hide behind", c.ExposedSeconds(request, 0), c.Seconds(80, 160, 80e6), 1e-12)
	}
	c.Overlap = 0
	// Hidden but for one layer: startup, two descriptors, one megabyte.
	near(t, "hidden", c.ExposedSeconds(request, 1), 1e-3+2e-6+1e-3, 1e-12)
	// y = 1.002 ms, y + beta = 1.012 ms, against 0.9 ms of prefill a layer.
	near(t, "in part", c.ExposedSeconds(request, 72e-3), 1e-3+1.002e-3+79*0.112e-3, 1e-12)
	// One transfer is one, whatever the model's layers: no beta.
	near(t, "one transfer", c.ExposedSeconds(EqualTransfers(1, 2, 1e6), 1), 1e-3+2e-6+1e-3, 1e-12)
	// Three of 1, 4 and 1 MB with 100 descriptors each, 3 ms of prefill apart: the second
	// and third are 0.2 ms of posting, a beta, and 5 ms of wire, less 3 ms.
	unlike := NewTransfers([]Transfer{{Descriptors: 100, Bytes: 1e6}, {Descriptors: 100, Bytes: 4e6}, {Descriptors: 100, Bytes: 1e6}})
	near(t, "unlike", c.ExposedSeconds(unlike, 9e-3), 1e-3+0.2e-3+1e-5+5e-3-3e-3, 1e-12)
}

// TestExposedOfTwoRegimes: 4 GB/s for the first 4 MiB of a batch, 2 GB/s past them. 80
// layers of 1 MiB that queue are one batch, of which 76 MiB go at the slower rate; one that
// finds the path idle is a batch of 1 MiB.
func TestExposedOfTwoRegimes(t *testing.T) {
	const mib = 1 << 20
	c := Cost{AlphaSeconds: 25e-6, BytesPerSecond: 2e9, KneeBytes: 4 * mib, KneeRate: 2}
	const whole = 25e-6 + 4*mib/4e9 + 76*mib/2e9
	request := EqualTransfers(80, 160, 80*mib)
	near(t, "whole", c.Seconds(80, 160, 80*mib), whole, 1e-12)
	near(t, "nothing to hide behind", c.ExposedSeconds(request, 0), whole, 1e-12)
	near(t, "hidden in part", c.ExposedSeconds(request, 20e-3), whole-20e-3*79/80, 1e-9)
	near(t, "hidden but for one layer", c.ExposedSeconds(request, 1), 25e-6+mib/4e9, 1e-12)
	near(t, "hidden but for one layer past the knee", c.ExposedSeconds(EqualTransfers(80, 160, 80*8*mib), 10), 25e-6+4*mib/4e9+4*mib/2e9, 1e-12)
}

// TestHidingUnlike: the least bandwidth at which the last of unlike layers is exposed alone.
func TestHidingUnlike(t *testing.T) {
	for _, c := range []struct {
		name    string
		bytes   []int64
		prefill float64
		want    float64 // bytes a second
	}{
		// The layer of 8 bytes before the last has to leave within a pace of 5 s.
		{"windowed last", []int64{1, 8, 1, 8, 1}, 25, 8. / 5},
		// 20 bytes, and the two of 1 that follow, within the three paces before the last.
		{"one large", []int64{1, 20, 1, 1, 1}, 25, 22. / 15},
		// Those before the last may take their time, as long as they are gone by then: the
		// last three before it are 1+8+1 in three paces, the last one 1 in one, the last two
		// 8+1 in two: the two.
		{"full last", []int64{8, 1, 8, 1, 8}, 25, 9. / 10},
		{"alike", []int64{4, 4, 4, 4}, 16, 1},
	} {
		s := Scenario{Transfers: layers(c.bytes...), PrefillSeconds: c.prefill, Path: Cost{BytesPerSecond: 1}}
		b := s.HidingBandwidth()
		near(t, c.name, b, c.want, 1e-12)
		last := float64(c.bytes[len(c.bytes)-1])
		s.Path.BytesPerSecond = b * (1 + 1e-9)
		near(t, c.name+", at it", s.Path.ExposedSeconds(s.Transfers, c.prefill), last/b, 1e-6)
		s.Path.BytesPerSecond = b * 0.99
		if got := s.Path.ExposedSeconds(s.Transfers, c.prefill); got < last/s.Path.BytesPerSecond*1.0001 {
			t.Errorf("%s: below it %g s are exposed, no more than the last layer alone", c.name, got)
		}
	}
	if b := (Scenario{Transfers: layers(7), PrefillSeconds: 100}).HidingBandwidth(); !math.IsInf(b, 1) {
		t.Errorf("a single transfer hides from %g bytes/s on", b)
	}
	// Posting that the wire hides only in part: batch 2 ms + 2w·1 MB, the last 1 ms + w·1 MB
	// of wire; with o = 1 the longer counts. 1 ms of prefill apart they keep up as long as the
	// posting does not outgrow it, and then the wire: at 1 ms a megabyte.
	s := Scenario{Transfers: EqualTransfers(2, 2, 2e6), PrefillSeconds: 2e-3, Path: Cost{GammaSeconds: 1e-3, Overlap: 1, BytesPerSecond: 1}}
	near(t, "posting hides", s.HidingBandwidth(), 1e9, 1e-9)
	s.Path.GammaSeconds = 1.01e-3
	if b := s.HidingBandwidth(); !math.IsInf(b, 1) {
		t.Errorf("posting alone is slower than prefill, yet %g bytes/s hide it", b)
	}
}

// TestPredictExposedKeepsTheError: the exposed time is a difference, and what is not known
// of the whole is not known of it either. 80 MB at 1 GB/s, between 0.95 and 1.05.
func TestPredictExposedKeepsTheError(t *testing.T) {
	draws := slices.Repeat([]coefficients{{colInverseB: 0.95e-9}, {colInverseB: 1.05e-9}}, 50)
	f := Fit{Bandwidth: Exactly(1e9), draws: draws}
	request := EqualTransfers(80, 80, 80e6)
	for _, c := range []struct {
		name    string
		prefill float64
		want    Interval
	}{
		{"all of it", 0, Interval{80e-3, 76e-3, 84e-3}},
		// 80 ms less 79/80 of 76 ms: 4.95 ms. At 76 ms of wire it is one layer of 0.95 ms,
		// and at 84 ms it is 8.95 ms; the share of the whole would be 5 %.
		{"near the crossover", 76e-3, Interval{4.95e-3, 0.95e-3, 8.95e-3}},
		// One layer of 1 ms; at 84 ms of wire 5 ms more than 79 ms are behind.
		{"just hidden", 80e-3, Interval{1e-3, 0.95e-3, 5e-3}},
		{"hidden", 1, Interval{1e-3, 0.95e-3, 1.05e-3}},
	} {
		got := f.PredictExposed(request, c.prefill)
		near(t, c.name, got.Value, c.want.Value, 1e-9)
		near(t, c.name+", low", got.Low, c.want.Low, 1e-9)
		near(t, c.name+", high", got.High, c.want.High, 1e-9)
		vague := c.want.High-c.want.Low > 0.6*c.want.Value
		if err := f.TrustworthyExposed(request, c.prefill); (err != nil) != vague {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// A lack of fit of 5 % / 1.96 alone opens them alike.
	f = Fit{Bandwidth: Exactly(1e9), LackOfFit: 0.05 / z95}
	got := f.PredictExposed(request, 76e-3)
	near(t, "lack of fit, low", got.Low, 0.95e-3, 1e-9)
	near(t, "lack of fit, high", got.High, 8.95e-3, 1e-9)
}

// TestPredictExposedOfDraws: without a prefill it is the whole, with one the interval of
// the bootstrap covers the truth, and is no narrower than the whole's.
func TestPredictExposedOfDraws(t *testing.T) {
	path := truths["25 Gbit/s"]
	request := EqualTransfers(80, 160, 80<<20)
	whole := path.Seconds(request.Totals())
	covered := 0
	for seed := range uint64(20) {
		f, err := FitCost(draw(path, seed, 9), FitOptions{Seed: seed, Resamples: 100})
		if err != nil {
			t.Fatal(err)
		}
		p := f.Predict(request.Totals())
		e := f.PredictExposed(request, 0)
		near(t, "without prefill", e.Value, p.Value, 1e-9)
		near(t, "without prefill, high", e.High, p.High, 1e-3)
		near(t, "without prefill, low", e.Low, p.Low, 1e-3)
		hidden := whole * 0.9
		e = f.PredictExposed(request, hidden)
		near(t, "as the cost has it", e.Value, f.Cost().ExposedSeconds(request, hidden), 1e-9)
		if e.covers(path.ExposedSeconds(request, hidden)) {
			covered++
		}
		if e.High-e.Low < 0.99*(p.High-p.Low) {
			t.Errorf("seed %d: the whole is known to %.3g s, what a prefill leaves of it to %.3g s", seed, p.High-p.Low, e.High-e.Low)
		}
	}
	if covered < 18 {
		t.Errorf("the interval covers the exposed time in %d of 20 seeds", covered)
	}
}

func TestTransfers(t *testing.T) {
	if n, d, b := EqualTransfers(3, 4, 8).Totals(); n != 3 || d != 4 || b != 8 {
		t.Errorf("%d, %d, %d", n, d, b)
	}
	if n, d, b := EqualTransfers(0, 4, 8).Totals(); n != 0 || d != 0 || b != 0 {
		t.Errorf("of none: %d, %d, %d", n, d, b)
	}
	if n, d, b := NewTransfers([]Transfer{{Descriptors: 1, Bytes: 10}, {Descriptors: 2, Bytes: 20}}).Totals(); n != 2 || d != 3 || b != 30 {
		t.Errorf("%d, %d, %d", n, d, b)
	}
}

func BenchmarkExposedSeconds(b *testing.B) {
	c, request := Cost{AlphaSeconds: 1e-4, BetaSeconds: 1e-6, GammaSeconds: 1e-7, BytesPerSecond: 1e10}, EqualTransfers(80, 160, 80<<20)
	b.ReportAllocs()
	for b.Loop() {
		c.ExposedSeconds(request, 0.1)
	}
}

func BenchmarkExposedUnlike(b *testing.B) {
	each := make([]Transfer, 36)
	for l := range each {
		each[l] = Transfer{Descriptors: 2, Bytes: 262144 + int64(l%2)*8<<20}
	}
	c, request := Cost{AlphaSeconds: 1e-4, BetaSeconds: 1e-6, GammaSeconds: 1e-7, BytesPerSecond: 1e10}, NewTransfers(each)
	for b.Loop() {
		c.ExposedSeconds(request, 0.1)
	}
}
