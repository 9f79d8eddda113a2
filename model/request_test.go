package model

import (
	"math"
	"testing"
)

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
