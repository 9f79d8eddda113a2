package bench

import (
	"testing"

	"kvbench/model"
	"kvbench/results"
)

// TestBeyondSpec: 16 MB in 4096 descriptors of 1 µs over 2 GB/s take 4.096 and 8 ms,
// the latter 6.4 ms more than over the link's 10 GB/s.
func TestBeyondSpec(t *testing.T) {
	near := func(name string, got, want float64) {
		t.Helper()
		if got < want*(1-1e-9) || got > want*(1+1e-9) {
			t.Errorf("%s: %g s, want %g", name, got, want)
		}
	}
	c := &results.Cell{Layers: 4, Descriptors: 4096, Bytes: 16e6}
	gamma := model.Interval{Value: 1e-6, Low: 0.9e-6, High: 1.1e-6}
	fit := model.Fit{Alpha: model.Exactly(1e-4), Gamma: gamma, Bandwidth: model.Exactly(2e9)}
	spec := &model.Cost{BytesPerSecond: 10e9}
	descriptors, wire := beyondSpec(c, &fit, spec)
	near("descriptors", descriptors, 4.096e-3)
	near("wire", wire, 6.4e-3)

	// The prediction charges half of each descriptor, and a link as slow as the path.
	descriptors, wire = beyondSpec(c, &fit, &model.Cost{GammaSeconds: 0.5e-6, BytesPerSecond: 2e9})
	near("what is charged for", descriptors, 2.048e-3)
	near("a link as slow", wire, 0)

	// Under a prefill of 400 ms the last of the four layers alone is exposed.
	c.Overlap = &results.Overlap{PrefillSeconds: 0.4}
	descriptors, wire = beyondSpec(c, &fit, spec)
	near("exposed descriptors", descriptors, 1.024e-3)
	near("exposed wire", wire, 1.6e-3)

	// A second regime: of 20 MiB over 1 GB/s up to 4 MiB and 5 GB/s beyond, 3.774874 ms are
	// the first's beyond the link's rate and 1.677722 ms the second's; of 80 MiB over the
	// link's rate up to 64 MiB and 1 GB/s beyond, 15.099494 ms are the second's.
	for _, r := range []struct {
		first, second float64
		from, bytes   int64
		want          float64
	}{{1e9, 5e9, 4 << 20, 20 << 20, 3.7748736e-3 + 1.6777216e-3}, {10e9, 1e9, 64 << 20, 80 << 20, 15.0994944e-3}} {
		two := model.Fit{Alpha: model.Exactly(1e-4), Bandwidth: model.Exactly(r.first), Second: &model.Regime{FromBytes: r.from, Bandwidth: model.Exactly(r.second)}}
		_, wire = beyondSpec(&results.Cell{Layers: 4, Descriptors: 4, Bytes: r.bytes}, &two, spec)
		near("two regimes", wire, r.want)
	}

	fit.Gamma.Low = 0
	if descriptors, _ = beyondSpec(c, &fit, spec); descriptors != 0 {
		t.Errorf("descriptors that the fit does not tell from nothing account for %g s", descriptors)
	}
	if descriptors, wire = beyondSpec(c, nil, spec); descriptors != 0 || wire != 0 {
		t.Errorf("without a fit: %g and %g s", descriptors, wire)
	}
}
