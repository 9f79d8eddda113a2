package model

import (
	"math"
	"testing"
)

// LLaMA-2-70B in fp16 at line rate, milliseconds: 327,680 bytes a token, K = 1024.
func TestExactLinkTable(t *testing.T) {
	names := []string{"nvlink4", "ib-ndr", "ib-hdr", "100gbe", "25gbe", "pcie5x16", "pcie4x16"}
	for _, line := range []struct {
		tokens int64
		ms     []float64
	}{
		{1024, []float64{0.746, 6.711, 13.42, 26.84, 107.4, 5.325, 10.65}},
		{4096, []float64{2.983, 26.84, 53.69, 107.4, 429.5, 21.30, 42.60}},
		{8192, []float64{5.965, 53.69, 107.4, 214.7, 859.0, 42.60, 85.20}},
		{32768, []float64{23.86, 214.7, 429.5, 859.0, 3436, 170.4, 340.8}},
		{131072, []float64{95.44, 859.0, 1718, 3436, 13744, 681.6, 1363}},
	} {
		for i, name := range names {
			c := SpecCost(mustLink(t, name), 0, Framing{Mode: FramingOff}, 0, 0)
			near(t, name, 1e3*c.Seconds(80, 80, 327680*line.tokens), line.ms[i], 6e-4)
		}
	}
}

func TestSpecCountsFraming(t *testing.T) {
	off := SpecCost(mustLink(t, "100gbe"), 0, Framing{Mode: FramingOff}, 0, 0)
	auto := SpecCost(mustLink(t, "100gbe"), 1500, Framing{}, 0, 0)
	near(t, "longer by framing", auto.Seconds(1, 1, 1<<30)/off.Seconds(1, 1, 1<<30), 1/0.9415, 1e-4)
}

func TestCostSeconds(t *testing.T) {
	c := Cost{AlphaSeconds: 1e-3, BetaSeconds: 1e-4, GammaSeconds: 1e-6, BytesPerSecond: 1e9}
	for _, x := range []struct {
		transfers, descriptors int
		bytes                  int64
		want                   float64
	}{
		{0, 0, 0, 0},
		{1, 0, 0, 1e-3},
		{1, 1, 0, 1.001e-3},
		{80, 160, 1e6, 1e-3 + 79e-4 + 160e-6 + 1e-3},
		{1, 1, -5, 1.001e-3},
	} {
		near(t, "seconds", c.Seconds(x.transfers, x.descriptors, x.bytes), x.want, 1e-12)
	}
	if s := (Cost{}).Seconds(1, 1, 1); !math.IsInf(s, 1) {
		t.Errorf("no bandwidth: %g", s)
	}
}

func TestCostOverlap(t *testing.T) {
	c := Cost{AlphaSeconds: 1, GammaSeconds: 2, BytesPerSecond: 1, Overlap: 1}
	near(t, "wire hides posting", c.Seconds(1, 2, 10), 1+10, 1e-12)
	near(t, "posting hides wire", c.Seconds(1, 8, 10), 1+16, 1e-12)
	c.Overlap = 0.5
	near(t, "half", c.Seconds(1, 2, 10), 1+10+2, 1e-12)
}

// Engines post a descriptor in 2.4 µs: 18,880 of them (16-token blocks, 160
// regions) are 46 ms before a byte moves.
func TestDescriptorsCanCostMoreThanBytes(t *testing.T) {
	c := SpecCost(mustLink(t, "400gbe"), 0, Framing{}, 0, 46e-3/18880)
	near(t, "gamma", c.GammaSeconds, 2.4e-6, 0.02)
	near(t, "posting", c.OverheadSeconds(1, 18880), 46e-3, 1e-9)
}
