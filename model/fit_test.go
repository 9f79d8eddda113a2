package model

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The paths that synthetic calibrations are drawn from.
var truths = map[string]Cost{
	"1 Gbit/s, 1 ms away": {AlphaSeconds: 1e-3, BetaSeconds: 20e-6, GammaSeconds: 1e-6, BytesPerSecond: 119.5e6},
	"25 Gbit/s":           {AlphaSeconds: 60e-6, BetaSeconds: 8e-6, GammaSeconds: 2.4e-6, BytesPerSecond: 2.9e9},
	"loopback":            {AlphaSeconds: 25e-6, BetaSeconds: 6e-6, GammaSeconds: 0.4e-6, BytesPerSecond: 4e9},
	"no overheads":        {AlphaSeconds: 5e-6, BytesPerSecond: 1e9},
}

// grid is a calibration's combinations: sizes by decades of 4, with descriptors
// and transfers varied on their own at three of the sizes.
func grid() (points []Sample) {
	for size := int64(4 << 10); size <= 64<<20; size *= 4 {
		points = append(points, Sample{Transfers: 1, Descriptors: 1, Bytes: size}, Sample{Transfers: 1, Descriptors: 16, Bytes: size})
	}
	for _, size := range []int64{256 << 10, 1 << 20, 4 << 20} {
		for _, n := range []int{64, 256, 1024} {
			points = append(points, Sample{Transfers: 1, Descriptors: n, Bytes: size})
		}
		for _, k := range []int{4, 16, 64} {
			points = append(points, Sample{Transfers: k, Descriptors: k, Bytes: size}, Sample{Transfers: k, Descriptors: 16 * k, Bytes: size})
		}
	}
	return points
}

// draw times every point of the grid repeats times on a path, with 3 % noise and
// a tenth of the repetitions 2 to 5 times slow.
func draw(path Cost, seed uint64, repeats int) (samples []Sample) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, p := range grid() {
		for range repeats {
			p.Seconds = path.Seconds(p.Transfers, p.Descriptors, p.Bytes) * math.Exp(0.03*rng.NormFloat64())
			if rng.Float64() < 0.1 {
				p.Seconds *= 2 + 3*rng.Float64()
			}
			samples = append(samples, p)
		}
	}
	return samples
}

func (i Interval) covers(v float64) bool { return i.Low <= v && v <= i.High }

func TestFitRecoversTruth(t *testing.T) {
	const seeds = 30
	for name, path := range truths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			covered := map[string]int{}
			for seed := range uint64(seeds) {
				f, err := FitCost(draw(path, seed, 9), FitOptions{Seed: seed, Resamples: 200})
				if err != nil {
					t.Fatal(err)
				}
				near(t, fmt.Sprintf("seed %d: B", seed), f.Bandwidth.Value, path.BytesPerSecond, 0.02)
				near(t, fmt.Sprintf("seed %d: alpha", seed), f.Alpha.Value, path.AlphaSeconds, 0.10)
				if path.GammaSeconds > 0 {
					near(t, fmt.Sprintf("seed %d: gamma", seed), f.Gamma.Value, path.GammaSeconds, 0.15)
				}
				held := f.Predict(80, 160, 40<<20) // between the calibrated points
				want := path.Seconds(80, 160, 40<<20)
				near(t, fmt.Sprintf("seed %d: prediction", seed), held.Value, want, 0.03)
				for c, ok := range map[string]bool{
					"alpha": f.Alpha.covers(path.AlphaSeconds), "beta": f.Beta.covers(path.BetaSeconds),
					"gamma": f.Gamma.covers(path.GammaSeconds), "B": f.Bandwidth.covers(path.BytesPerSecond),
					"prediction": held.covers(want),
				} {
					if ok {
						covered[c]++
					}
				}
				if err := f.Trustworthy(); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				if f.MAPE > 0.03 {
					t.Errorf("seed %d: held-out MAPE %.3g", seed, f.MAPE)
				}
				// Once in a few thousand points five of nine repetitions are wild
				// and its median with them: then the worst is that point, rightly.
				if f.Worst < 0.15 {
					covered["worst"]++
				}
			}
			for _, c := range []string{"alpha", "beta", "gamma", "B", "prediction", "worst"} {
				if n := covered[c]; float64(n) < 0.9*seeds {
					t.Errorf("the interval of %s covers the truth in %d of %d seeds", c, n, seeds)
				}
			}
			t.Logf("covered of %d: %v", seeds, covered)
		})
	}
}

// TestFoldsLeaveSizesOut: of seven sizes, a byte or two apart from count to count as
// calibration makes them, the five inner ones are each left out as a whole.
func TestFoldsLeaveSizesOut(t *testing.T) {
	var points []point
	for level := range 7 {
		for count := range 7 {
			points = append(points, point{transfers: 1, descriptors: 1 << count, bytes: 4096<<(2*level) - int64(count%3), statistic: float64(level*7 + count)})
		}
	}
	fold, folds := foldsOf(points, 10)
	if folds != 5 {
		t.Fatalf("%d folds, want one for each inner size", folds)
	}
	ends := map[int]int{}
	for i, f := range fold {
		switch level := i / 7; level {
		case 0, 6:
			ends[f]++
		default:
			if f != level-1 {
				t.Errorf("size %d: point %d is left out with fold %d", level, i%7, f)
			}
		}
	}
	for f := range folds { // 14 points over 5 folds
		if ends[f] < 2 || ends[f] > 3 {
			t.Errorf("fold %d has %d points of the smallest and largest size", f, ends[f])
		}
	}
	// Two sizes: by points.
	if fold, folds := foldsOf(points[:14], 10); folds != 10 || fold[0] != 0 || fold[1] != 1 || fold[10] != 0 {
		t.Errorf("%d folds: %v", folds, fold)
	}
}

func TestFitIsDeterministic(t *testing.T) {
	s := draw(truths["loopback"], 3, 5)
	a, err := FitCost(s, FitOptions{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	rand.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	b, err := FitCost(s, FitOptions{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	if a.Alpha != b.Alpha || a.Bandwidth != b.Bandwidth || a.MAPE != b.MAPE || a.Predict(8, 8, 1<<20) != b.Predict(8, 8, 1<<20) {
		t.Errorf("same samples in another order, same seed: %v and %v", a, b)
	}
}

// Without noise the fit is the truth itself, and says so.
func TestFitExact(t *testing.T) {
	path := truths["25 Gbit/s"]
	var samples []Sample
	for _, p := range grid() {
		p.Seconds = path.Seconds(p.Transfers, p.Descriptors, p.Bytes)
		samples = append(samples, p, p, p)
	}
	f, err := FitCost(samples, FitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "alpha", f.Alpha.Value, path.AlphaSeconds, 1e-6)
	near(t, "beta", f.Beta.Value, path.BetaSeconds, 1e-6)
	near(t, "gamma", f.Gamma.Value, path.GammaSeconds, 1e-6)
	near(t, "B", f.Bandwidth.Value, path.BytesPerSecond, 1e-6)
	near(t, "B low", f.Bandwidth.Low, path.BytesPerSecond, 0.01)
	if f.MAPE > 1e-6 || f.LackOfFit > 1e-6 || len(f.Notes) != 0 {
		t.Errorf("MAPE %g, lack of fit %g, notes %q", f.MAPE, f.LackOfFit, f.Notes)
	}
}

// A path that is no straight line must widen the intervals instead of lying.
func TestFitShowsLackOfFit(t *testing.T) {
	var samples []Sample
	rng := rand.New(rand.NewPCG(5, 5))
	for _, p := range grid() {
		bent := truths["loopback"].Seconds(p.Transfers, p.Descriptors, p.Bytes) * math.Exp(0.1*rng.NormFloat64())
		for range 9 {
			p.Seconds = bent * math.Exp(0.01*rng.NormFloat64())
			samples = append(samples, p)
		}
	}
	f, err := FitCost(samples, FitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "lack of fit", f.LackOfFit, 0.1, 0.4)
	i := f.Predict(1, 1, 1<<20)
	if (i.High-i.Low)/i.Value < 0.3 {
		t.Errorf("prediction %v is too sure of itself", i)
	}
}

func TestFitRefuses(t *testing.T) {
	path := truths["25 Gbit/s"]
	time := func(repeats int, points ...Sample) (s []Sample) {
		for _, p := range points {
			p.Seconds = path.Seconds(p.Transfers, p.Descriptors, p.Bytes)
			for i := range repeats {
				q := p
				q.Seconds *= 1 + 0.01*float64(i)
				s = append(s, q)
			}
		}
		return s
	}
	var same, flat []Sample
	for i := 1; i <= 10; i++ {
		same = append(same, Sample{Transfers: i, Descriptors: i * i, Bytes: 1 << 20})
		for j := range 5 {
			flat = append(flat, Sample{Transfers: 1, Descriptors: 1, Bytes: 1 << i, Seconds: 1e-3 * (1 + 0.01*float64((i*j)%5) - 0.0001*float64(i))})
		}
	}
	for _, c := range []struct {
		name    string
		samples []Sample
		opt     FitOptions
		want    error
	}{
		{"nothing", nil, FitOptions{}, ErrTooFewPoints},
		{"five points", time(5, grid()[:5]...), FitOptions{}, ErrTooFewPoints},
		{"two repetitions", time(2, grid()...), FitOptions{}, ErrTooFewRepeats},
		{"p95 of five", time(5, grid()...), FitOptions{Quantile: 0.95}, ErrTooFewRepeats},
		{"one size", time(5, same...), FitOptions{}, ErrSizesDoNotVary},
		{"flat", flat, FitOptions{}, ErrNoBandwidth},
		{"no time", []Sample{{1, 1, 1, 0}}, FitOptions{}, ErrBadSample},
		{"no transfers", []Sample{{0, 1, 1, 1}}, FitOptions{}, ErrBadSample},
		{"endless", []Sample{{1, 1, 1, math.Inf(1)}}, FitOptions{}, ErrBadSample},
		{"NaN", []Sample{{1, 1, 1, math.NaN()}}, FitOptions{}, ErrBadSample},
	} {
		if _, err := FitCost(c.samples, c.opt); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestFitSaysWhatItCannotTell(t *testing.T) {
	path := Cost{AlphaSeconds: 60e-6, BytesPerSecond: 2.9e9}
	for _, c := range []struct {
		name  string
		point func(i int) Sample
		notes string
	}{
		{"one transfer of one descriptor", func(i int) Sample { return Sample{Transfers: 1, Descriptors: 1, Bytes: 4096 << i} }, "beta gamma"},
		{"as many descriptors as transfers", func(i int) Sample { return Sample{Transfers: 1 + i%4, Descriptors: 1 + i%4, Bytes: 4096 << i} }, "gamma"},
		{"descriptors of one size", func(i int) Sample { return Sample{Transfers: 1, Descriptors: 1 << i, Bytes: 4096 << i} }, "beta gamma"},
	} {
		var samples []Sample
		for i := range 12 {
			p := c.point(i)
			for range 3 {
				p.Seconds = path.Seconds(p.Transfers, p.Descriptors, p.Bytes)
				samples = append(samples, p)
			}
		}
		f, err := FitCost(samples, FitOptions{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		near(t, c.name, f.Bandwidth.Value, path.BytesPerSecond, 1e-3)
		for _, n := range strings.Fields(c.notes) {
			if !strings.Contains(strings.Join(f.Notes, "\n"), n) {
				t.Errorf("%s: notes %q do not mention %s", c.name, f.Notes, n)
			}
		}
	}
}

// A shaper's burst of 64 KiB passes in no time, so that the line through batches beyond it
// meets 0 bytes at 60 µs - 65,536/119.5e6 = -488 µs: the startup is held at 0 in every
// draw. It is 60 µs, and can be no more than all of the fastest batch: 128 KiB in one
// descriptor take 60 µs + 65,536/119.5e6 + 1 µs = 609.4 µs.
func TestFitHoldsAnOverheadAtZero(t *testing.T) {
	const burst, goodput = 64 << 10, 119.5e6
	host := Cost{AlphaSeconds: 60e-6, BetaSeconds: 8e-6, GammaSeconds: 1e-6}
	var samples []Sample
	for size := int64(128 << 10); size <= 32<<20; size *= 4 {
		for _, n := range [][2]int{{1, 1}, {1, 16}, {1, 256}, {8, 8}, {8, 64}, {32, 32}} {
			for range 9 {
				samples = append(samples, Sample{Transfers: n[0], Descriptors: n[1], Bytes: size,
					Seconds: host.OverheadSeconds(n[0], n[1]) + float64(size-burst)/goodput})
			}
		}
	}
	f, err := FitCost(samples, FitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Alpha.Value != 0 || f.Alpha.Low != 0 || !f.Alpha.covers(host.AlphaSeconds) {
		t.Errorf("startup %v, want 0 with an interval that has 60 µs in it", f.Alpha)
	}
	near(t, "most of startup", f.Alpha.High, 609.4e-6, 1e-3)
	if notes := strings.Join(f.Vague(), "\n"); strings.Count(notes, "startup (alpha) is not told: it is held at 0") != 1 {
		t.Errorf("notes %q do not say that startup is not told", notes)
	}
}

// What no batch varies has no interval of its own: each descriptor of one transfer of one
// descriptor costs all of the fastest batch at most, 60 µs + 4096/2.9e9, and what a second
// transfer costs nothing bounds. Their notes are those of [TestFitSaysWhatItCannotTell].
func TestFitOfWhatDoesNotVary(t *testing.T) {
	path := Cost{AlphaSeconds: 60e-6, BytesPerSecond: 2.9e9}
	var samples []Sample
	for size := int64(4 << 10); size <= 4<<20; size *= 2 {
		for range 3 {
			samples = append(samples, Sample{Transfers: 1, Descriptors: 1, Bytes: size, Seconds: path.Seconds(1, 1, size)})
		}
	}
	f, err := FitCost(samples, FitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "most of a descriptor", f.Gamma.High, 60e-6+4096/2.9e9, 1e-9)
	if f.Beta.High != math.MaxFloat64 || f.Beta.Low != 0 || f.Beta.Value != 0 {
		t.Errorf("a further transfer that no batch has costs %v", f.Beta)
	}
	if notes := f.Vague(); len(notes) != 0 {
		t.Errorf("said twice: %q beside %q", notes, f.Notes)
	}
	if i := f.Predict(1, 1, 1<<20); !i.covers(path.Seconds(1, 1, 1<<20)) || i.High > 1.1*i.Value {
		t.Errorf("a batch as those calibrated: %v", i)
	}
}

func TestTrustworthyRefusesNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var samples []Sample
	for _, p := range grid() {
		for range 3 {
			p.Seconds = truths["loopback"].Seconds(p.Transfers, p.Descriptors, p.Bytes) * math.Exp(1.2*rng.NormFloat64())
			samples = append(samples, p)
		}
	}
	f, err := FitCost(samples, FitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Trustworthy(); !errors.Is(err, ErrUntrustworthy) || !strings.Contains(err.Error(), "calibrate") {
		t.Errorf("noise of a factor of three: %v", err)
	}
	if err := f.TrustworthyFor(1, 1, 1<<20); !errors.Is(err, ErrUntrustworthy) {
		t.Errorf("noise of a factor of three, for 1 MiB: %v", err)
	}
}

func TestSecondRegime(t *testing.T) {
	// Past 4 MiB the cache is full and the bandwidth halves.
	slow := func(s int64) float64 { return float64(max(0, s-4<<20)) / 4e9 }
	for _, bent := range []bool{false, true} {
		samples := draw(truths["loopback"], 11, 9)
		if bent {
			for i, s := range samples {
				clean := truths["loopback"].Seconds(s.Transfers, s.Descriptors, s.Bytes)
				samples[i].Seconds *= (clean + slow(s.Bytes)) / clean
			}
		}
		f, err := FitCost(samples, FitOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if (f.Second != nil) != bent {
			t.Fatalf("bent %v: second regime %v", bent, f.Second)
		}
		near(t, "B", f.Bandwidth.Value, 4e9, 0.03)
		if bent {
			near(t, "second B", f.Second.Bandwidth.Value, 2e9, 0.03)
			near(t, "asymptotic", f.Asymptotic().Value, 2e9, 0.03)
			near(t, "cost of large batches", f.Cost().Seconds(1, 1, 48<<20), f.Predict(1, 1, 48<<20).Value, 1e-9)
			near(t, "cost of small batches", f.Cost().Seconds(1, 1, 1<<20), f.Predict(1, 1, 1<<20).Value, 1e-9)
			near(t, "at 48 MiB", f.Predict(1, 1, 48<<20).Value, truths["loopback"].Seconds(1, 1, 48<<20)+slow(48<<20), 0.03)
		}
	}
}

// A shaper lets a burst pass at the speed of the host, small batches scatter by
// tens of per cent and large ones by tenths: B must be the shaper's.
func TestFitOnAShapedLink(t *testing.T) {
	const burst = 64 << 10
	host := Cost{AlphaSeconds: 60e-6, BetaSeconds: 8e-6, GammaSeconds: 3e-6, BytesPerSecond: 2e9}
	const goodput = 119.5e6
	truth := func(s Sample) float64 {
		return max(host.Seconds(s.Transfers, s.Descriptors, s.Bytes), host.AlphaSeconds+float64(s.Bytes-burst)/goodput)
	}
	covered := 0
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var samples []Sample
		for _, p := range grid() {
			for range 9 {
				t := truth(p)
				p.Seconds = t * math.Exp((0.003+0.2*math.Exp(-t/1e-3))*rng.NormFloat64())
				samples = append(samples, p)
			}
		}
		f, err := FitCost(samples, FitOptions{Seed: seed, Resamples: 200})
		if err != nil {
			t.Fatal(err)
		}
		near(t, "B", f.Asymptotic().Value, goodput, 0.02)
		if f.Asymptotic().covers(goodput) {
			covered++
		}
		for _, r := range f.Residuals {
			if r.Bytes >= 4<<20 && math.Abs(r.HeldOut/r.Seconds-1) > 0.03 {
				t.Errorf("seed %d: held out %+v", seed, r)
			}
		}
	}
	if covered < 18 {
		t.Errorf("the interval of B covers the goodput in %d of 20 seeds", covered)
	}
}

// A NIC that sends while the CPU posts: T = alpha + max(post, wire).
func TestFitFindsOverlap(t *testing.T) {
	path := truths["25 Gbit/s"]
	path.Overlap = 1
	f, err := FitCost(draw(path, 8, 9), FitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Overlap != 1 {
		t.Errorf("overlap %g, want 1", f.Overlap)
	}
	near(t, "B", f.Bandwidth.Value, path.BytesPerSecond, 0.02)
	near(t, "gamma", f.Gamma.Value, path.GammaSeconds, 0.1)
	near(t, "held-out counts", f.Predict(1, 2048, 4<<20).Value, path.Seconds(1, 2048, 4<<20), 0.1)
	near(t, "central cost", f.Cost().Seconds(16, 256, 4<<20), f.Predict(16, 256, 4<<20).Value, 1e-9)

	plain, err := FitCost(draw(truths["25 Gbit/s"], 8, 9), FitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if plain.Overlap != 0 || plain.Second != nil {
		t.Errorf("a plain path is given overlap %g and %v", plain.Overlap, plain.Second)
	}
}

func TestFitSaysWhereItHolds(t *testing.T) {
	whole, err := FitCost(draw(truths["25 Gbit/s"], 2, 9), FitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	i := whole.Predict(80, 160, 40<<20)
	if i.Low >= i.Value || i.High <= i.Value {
		t.Errorf("no spread: %v", i)
	}
	if err := whole.Trustworthy(); err != nil {
		t.Error(err)
	}
	if err := whole.TrustworthyFor(80, 160, 40<<20); err != nil {
		t.Error(err)
	}
	near(t, "central cost", whole.Cost().Seconds(80, 160, 40<<20), i.Value, 1e-9)
	if whole.Predict(0, 0, 0) != (Interval{}) {
		t.Error("no transfer costs time")
	}
	if s := whole.Outside(1, 1, 1<<40); !strings.Contains(s, "larger than the largest batch") {
		t.Errorf("outside: %q", s)
	}
	for _, s := range []string{whole.Outside(1e4, 1, 1), whole.Outside(1, 1e5, 1)} {
		if s == "" {
			t.Error("far outside is called inside")
		}
	}
	if s := whole.Outside(64, 1024, 64<<20); s != "" {
		t.Errorf("inside: %q", s)
	}
}

func TestFitP95(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	path := truths["25 Gbit/s"]
	var samples []Sample
	for _, p := range grid() {
		for range 100 {
			p.Seconds = path.Seconds(p.Transfers, p.Descriptors, p.Bytes) * math.Exp(0.05*rng.NormFloat64())
			samples = append(samples, p)
		}
	}
	f, err := FitCost(samples, FitOptions{Quantile: 0.95})
	if err != nil {
		t.Fatal(err)
	}
	// The 95 % quantile of this noise is exp(1.645·0.05) = 1.0857.
	near(t, "p95", f.Predict(1, 1, 16<<20).Value, 1.0857*path.Seconds(1, 1, 16<<20), 0.01)
}

func BenchmarkFitCost(b *testing.B) {
	s := draw(truths["25 Gbit/s"], 1, 9)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := FitCost(s, FitOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestHeldOutIsNotSeen: the prediction of a size that is left out must not depend on that
// size's own times. They are doubled here, and only the prediction with them may change.
func TestHeldOutIsNotSeen(t *testing.T) {
	const inner = 8 << 20
	residual := func(factor float64) Residual {
		var samples []Sample
		for _, bytes := range []int64{1 << 20, 2 << 20, 4 << 20, inner, 16 << 20, 32 << 20} {
			seconds := 1e-4 + float64(bytes)/1e9
			if bytes == inner {
				seconds *= factor
			}
			for _, noise := range []float64{0.99, 0.995, 1, 1.005, 1.01} {
				samples = append(samples, Sample{Transfers: 1, Descriptors: 1, Bytes: bytes, Seconds: seconds * noise})
			}
		}
		f, err := FitCost(samples, FitOptions{Plain: true})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(f.Residuals, func(r Residual) bool { return r.Bytes == inner })
		return f.Residuals[i]
	}
	once, twice := residual(1), residual(2)
	if once.Seconds*2 != twice.Seconds || once.Fitted == twice.Fitted {
		t.Fatalf("the fit of all points did not see the change: %+v, %+v", once, twice)
	}
	if once.HeldOut != twice.HeldOut {
		t.Errorf("held out: %.9g s, and %.9g s with doubled times", once.HeldOut, twice.HeldOut)
	}
}
