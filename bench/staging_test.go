package bench

import (
	"math"
	"testing"

	"kvbench/results"
	"kvbench/transport"
)

// alone is a stage that does so much by itself.
func alone(alpha, bandwidth float64) transport.StageTime {
	return transport.StageTime{AloneAlpha: alpha, AloneBandwidth: bandwidth}
}

// TestPredictStaged: two layers of 6 MiB in chunks of 4 MiB at most are four chunks of
// 3 MiB. A copy to the host takes 1 ms and 3 ms, the wire 0 and 6 ms, a copy to the
// device 2 ms and 1 ms: together 13 ms, and three times the slowest, 6 ms, is 31 ms.
func TestPredictStaged(t *testing.T) {
	const mib = 1 << 20
	out, wire, in := alone(1e-3, mib/1e-3), alone(0, mib/2e-3), alone(2e-3, 3*mib/1e-3)
	none := transport.StageTime{}
	cell := func() results.Cell {
		return results.Cell{Bytes: 12 * mib, Layers: 2, Service50: results.Estimate{Value: 62e-3}}
	}
	staged := func(outHere, wireHere, wireThere, inThere transport.StageTime) results.Transport {
		return results.Transport{
			Path:     transport.Path{Staging: &transport.Staging{ChunkBytes: 4 * mib, ToHost: outHere, Wire: wireHere}},
			Consumer: transport.Path{Staging: &transport.Staging{ChunkBytes: 4 * mib, FromHost: inThere, Wire: wireThere}},
		}
	}
	for name, via := range map[string]results.Transport{"push": staged(out, wire, none, in), "pull": staged(out, none, wire, in)} {
		c := cell()
		predictStaged(&c, via)
		if p := c.Predicted.Staged; p == nil || math.Abs(p.Seconds-31e-3) > 1e-9 || math.Abs(p.Ratio-2) > 1e-6 {
			t.Errorf("%s: %+v, want 31 ms and a ratio of 2", name, p)
		}
	}
	for name, via := range map[string]results.Transport{
		"not staged": {}, "one side": {Path: staged(out, wire, none, in).Path}, "no wire": staged(out, none, none, in), "no copy": staged(none, wire, none, in),
	} {
		c := cell()
		if predictStaged(&c, via); c.Predicted.Staged != nil {
			t.Errorf("%s: %+v", name, c.Predicted.Staged)
		}
	}
	// Of 4 and 8 MiB, in chunks of at most 4: one and two. Three chunks of 4 MiB take 5 ms, 8 ms
	// and 2 + 4/3 ms, and two more 8 ms each.
	c := cell()
	c.Transfers = []results.Transfers{{Count: 1, Bytes: 4 * mib, Descriptors: 1}, {Count: 1, Bytes: 8 * mib, Descriptors: 1}}
	if predictStaged(&c, staged(out, wire, none, in)); c.Predicted.Staged == nil || math.Abs(c.Predicted.Staged.Seconds-(15e-3+4e-3/3+16e-3)) > 1e-9 {
		t.Errorf("unlike transfers: %+v, want 32.33 ms", c.Predicted.Staged)
	}
	c = cell()
	c.Overlap = &results.Overlap{}
	if predictStaged(&c, staged(out, wire, none, in)); c.Predicted.Staged != nil {
		t.Errorf("under a prefill: %+v", c.Predicted.Staged)
	}
}

// TestStagingOfWorkers adds up what two workers' connections did.
func TestStagingOfWorkers(t *testing.T) {
	a := &transport.Staging{ChunkBytes: 4, PinnedBytes: 10, PinSeconds: 1, ToHost: transport.StageTime{Chunks: 1, Bytes: 100, Seconds: 2, BytesPerSecond: 50, AloneAlpha: 3, AloneBandwidth: 4}}
	b := &transport.Staging{ChunkBytes: 4, PinnedBytes: 10, PinSeconds: 2, ToHost: transport.StageTime{Chunks: 2, Bytes: 300, Seconds: 3, BytesPerSecond: 100, AloneAlpha: 9, AloneBandwidth: 9}}
	want := transport.Staging{ChunkBytes: 4, PinnedBytes: 20, PinSeconds: 3, ToHost: transport.StageTime{Chunks: 3, Bytes: 400, Seconds: 5, BytesPerSecond: 80, AloneAlpha: 3, AloneBandwidth: 4}}
	if got := addStaging(a, b); *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
	if addStaging(nil, b) != nil || *addStaging(a, nil) != *a {
		t.Error("connections that do not stage")
	}
}

func TestGPUPath(t *testing.T) {
	staged := transport.Path{Staging: &transport.Staging{}}
	for _, c := range []struct {
		memory transport.MemoryKind
		path   transport.Path
		want   string
	}{{transport.HostMemory, transport.Path{}, ""}, {transport.CUDAMemory, staged, "staged"}, {transport.CUDAMemory, transport.Path{}, "direct"}} {
		if got := gpuPath(c.memory, c.path); got != c.want {
			t.Errorf("%s: %q, want %q", c.memory, got, c.want)
		}
	}
}
