package model

import (
	"math"
	"testing"
)

func TestLayerFinish(t *testing.T) {
	// By hand: the second layer waits for the first, the third for prefill.
	got := LayerFinish([]float64{1, 2, 10}, []float64{4, 3, 1})
	for l, want := range []float64{5, 8, 11} {
		near(t, "finish", got[l], want, 1e-12)
	}
	near(t, "exposed", Exposed([]float64{1, 2, 10}, []float64{4, 3, 1}), 1, 1e-12)
	if Exposed(nil, nil) != 0 || ExposedUniform(0, 1, 1) != 0 {
		t.Error("a request without layers is exposed")
	}
}

// x + (L-1)·max(0, x-c), at prefill 0.5, 1 and 2 times the layer's transfer.
func TestExposedUniform(t *testing.T) {
	for _, c := range []struct{ compute, want float64 }{
		{0.5, 1 + 79*0.5}, {1, 1}, {2, 1}, {0, 80},
	} {
		near(t, "closed form", ExposedUniform(80, c.compute, 1), c.want, 1e-12)
		ready, move := make([]float64, 80), make([]float64, 80)
		for l := range ready {
			ready[l], move[l] = float64(l+1)*c.compute, 1
		}
		near(t, "recurrence", Exposed(ready, move), c.want, 1e-9)
		path := Cost{BytesPerSecond: 1}
		near(t, "path", path.ExposedSeconds(80, 80, 80, 80*c.compute), c.want, 1e-9)
	}
}

func TestExposedSecondsWithOverheads(t *testing.T) {
	c := Cost{AlphaSeconds: 1e-3, BetaSeconds: 1e-5, GammaSeconds: 1e-6, BytesPerSecond: 1e9}
	near(t, "nothing to hide behind", c.ExposedSeconds(80, 160, 80e6, 0), c.Seconds(80, 160, 80e6), 1e-12)
	// Hidden but for one layer: startup, two descriptors, one megabyte.
	near(t, "hidden", c.ExposedSeconds(80, 160, 80e6, 1), 1e-3+2e-6+1e-3, 1e-12)
}

// TestExposedOfTwoRegimes: 4 GB/s for the first 4 MiB of a batch, 2 GB/s past them. 80
// layers of 1 MiB that queue are one batch, of which 76 MiB go at the slower rate; one that
// finds the path idle is a batch of 1 MiB.
func TestExposedOfTwoRegimes(t *testing.T) {
	const mib = 1 << 20
	c := Cost{AlphaSeconds: 25e-6, BytesPerSecond: 2e9, KneeBytes: 4 * mib, KneeRate: 2}
	const whole = 25e-6 + 4*mib/4e9 + 76*mib/2e9
	near(t, "whole", c.Seconds(80, 160, 80*mib), whole, 1e-12)
	near(t, "nothing to hide behind", c.ExposedSeconds(80, 160, 80*mib, 0), whole, 1e-12)
	near(t, "hidden in part", c.ExposedSeconds(80, 160, 80*mib, 20e-3), whole-20e-3*79/80, 1e-9)
	near(t, "hidden but for one layer", c.ExposedSeconds(80, 160, 80*mib, 1), 25e-6+mib/4e9, 1e-12)
	near(t, "hidden but for one layer past the knee", c.ExposedSeconds(80, 160, 80*8*mib, 10), 25e-6+4*mib/4e9+4*mib/2e9, 1e-12)
}

func TestStaged(t *testing.T) {
	stage := Cost{AlphaSeconds: 1e-4, BytesPerSecond: 1e9}
	two := []Cost{stage, stage}
	near(t, "one chunk", StagedSeconds(two, 1, 100e6), 2*(1e-4+0.1), 1e-12)
	// Ten chunks of 10 MB: 10.1 ms each, two stages, nine more of the slowest.
	near(t, "ten chunks", StagedSeconds(two, 10, 100e6), 11*10.1e-3, 1e-12)
	// √(S/(αB)) = √(0.1/1e-4) = 31.6.
	near(t, "equal stages", BestChunksEqual(2, 1e-4, 1e9, 100e6), math.Sqrt(1000), 1e-12)
	// Three stages (GPU to host, wire, host to GPU) want √2 more: 44.7.
	for _, c := range []struct {
		stages []Cost
		best   int
	}{{two, 32}, {[]Cost{stage, stage, stage}, 45}} {
		near(t, "best of equal stages", BestChunksEqual(len(c.stages), 1e-4, 1e9, 100e6), float64(c.best), 0.02)
		least := StagedSeconds(c.stages, c.best, 100e6)
		for _, k := range []int{1, c.best / 2, c.best - 5, c.best + 5, 2 * c.best} {
			if s := StagedSeconds(c.stages, k, 100e6); s <= least {
				t.Errorf("%d stages in %d chunks take %g s, and in %d no more than %g", len(c.stages), c.best, least, k, s)
			}
		}
	}
	if BestChunksEqual(1, 1e-4, 1e9, 1) != 1 {
		t.Error("one stage wants more than one chunk")
	}
}

func TestStreams(t *testing.T) {
	near(t, "two of 4.5 GB/s", StreamsBandwidth(2, 12.5e9, 4.5e9), 9e9, 1e-12)
	near(t, "four of 4.5 GB/s", StreamsBandwidth(4, 12.5e9, 4.5e9), 12.5e9, 1e-12)
	// Mooncake moved 40 GiB at 87 GB/s over four 200 Gbit/s NICs and at 190 over
	// eight of 400: the floor must be faster, and by 13 % and by half.
	near(t, "4x200G", 87e9/StreamsBandwidth(4, math.Inf(1), 25e9), 0.87, 1e-9)
	near(t, "8x400G", 190e9/StreamsBandwidth(8, math.Inf(1), 50e9), 0.475, 1e-9)
	// Four producers of 1 GB into 12.5 GB/s.
	near(t, "incast", IncastSeconds(4, 1e9, 12.5e9), 0.32, 1e-12)
}
