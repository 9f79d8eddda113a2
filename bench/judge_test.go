package bench

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

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

// TestCeilingIsWhatIsAccounted: 33,554,432 bytes in 16 layers were to take 2.851 ms at
// 100 Gbit/s less framing, 12.5e9·1448/1538 = 11.7685e9 B/s, and took 23.82 ms: 20.97 ms
// more. The fit makes 1.639e9 B/s of the path, 20.472 ms; the trial of more streams saw
// 16.072 Gbit/s with the run's one stream, 16.702 ms, 13.851 more than the link. At 40
// Gbit/s the bytes take 6.711 ms, 3.860 more: a fifth of what is beyond, and no reason.
func TestCeilingIsWhatIsAccounted(t *testing.T) {
	const spec, measured = 11.7685e9, 23.82e-3
	judged := func(fit *model.Fit, own float64) results.Verdict {
		exactly := func(seconds float64) *results.Prediction {
			return &results.Prediction{Seconds: seconds, SecondsLow: seconds, SecondsHigh: seconds}
		}
		low, high := measured, measured
		run := &results.Run{
			Transport: results.Transport{Name: "tcp", Streams: 1},
			Link:      &results.Link{Name: "100gbe", BytesPerSecond: 12.5e9, FramingFactor: spec / 12.5e9},
			Streams: &results.StreamProbe{Rates: []results.StreamRate{
				{Streams: 1, Goodput: own, Fastest: own}, {Streams: 2, Goodput: own, Fastest: own}, {Streams: 4, Goodput: 1.0975 * own, Fastest: 1.1 * own}}},
			Cells: []results.Cell{{
				Layers: 16, Descriptors: 32, Bytes: 33554432, Requests: 6, Concurrency: 1, Complete: true, Goodput: 33554432 / measured, BusySeconds: 6 * measured,
				Service50: results.Estimate{Value: measured, Low: &low, High: &high}, Predicted: results.Predictions{Spec: exactly(33554432 / spec)},
			}},
		}
		Judge{0.3, []string{"spec"}}.judge(run, fit)
		return run.Cells[0].Verdict
	}
	fit := model.Fit{Bandwidth: model.Exactly(1.639e9)}
	for _, c := range []struct {
		name    string
		fit     *model.Fit
		own     float64
		limiter string
		says    string
	}{
		{"the trial's rate, beside a slower fit", &fit, 2.009e9, model.LimiterPath,
			"over 1 stream the path delivers at most 16.07 Gbit/s however large the transfer; the link 100gbe is 100 Gbit/s; that is 13.85 ms of the 20.97 ms beyond the prediction; more streams do not help: 1 stream carries 16.07 Gbit/s, 4 streams carry 17.64 Gbit/s"},
		{"without a fit", nil, 2.009e9, model.LimiterPath, "that is 13.85 ms of the 20.97 ms"},
		{"the fit's rate, beside a slower trial", &fit, 1.5e9, model.LimiterPath, "at most 13.11 Gbit/s however large the transfer; the link 100gbe is 100 Gbit/s; more streams"},
		{"a trial that was much faster than the requests", &fit, 5e9, model.LimiterUnexplained, "more streams do not help: 1 stream carries 40 Gbit/s"},
	} {
		if v := judged(c.fit, c.own); v.Limiter != c.limiter || !strings.Contains(v.Evidence, c.says) {
			t.Errorf("%s: %s: %q, want %s with %q", c.name, v.Limiter, v.Evidence, c.limiter, c.says)
		}
	}
}

// TestExposedCeiling: 16 MB in 4 layers over a path of 2 GB/s take 8 ms; of a prefill of
// 400 ms the last layer alone is exposed, 2 ms, which is 1.6 more than at 10 GB/s.
func TestExposedCeiling(t *testing.T) {
	c := &results.Cell{Layers: 4, Descriptors: 4, Bytes: 16e6, Overlap: &results.Overlap{PrefillSeconds: 0.4}}
	e := model.Evidence{StreamRates: []model.StreamRate{{Streams: 1, BytesPerSecond: 2e9}, {Streams: 2, BytesPerSecond: 2e9}}}
	account(&e, c, nil, &model.Cost{BytesPerSecond: 10e9})
	if math.Abs(e.WireSeconds/1.6e-3-1) > 1e-9 {
		t.Errorf("the wire accounts for %g s of the exposed time, want 1.6e-3", e.WireSeconds)
	}
}

// TestRunAndCheckNameOneLimiter: a producer that uses 2.1 s of processor time in 2.1 s with
// a request in flight is at its limit, unless its threads spin; then no cores are named.
// The run says the same as a check of its record does later, and so does a check of a
// record of before, which has the flag alone.
func TestRunAndCheckNameOneLimiter(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		busyPoll bool
		limiter  string
		cores    bool
	}{{false, model.LimiterCPU, true}, {true, model.LimiterUnexplained, false}} {
		o := outcomeOf(t, measuredAs(700*ms, 700*ms, 700*ms))
		o.Plan.Config.BusyPoll = c.busyPoll
		o.Producer.Host.Device.Loopback = true
		o.Cells[0].ProducerCPU = 2.1
		run, err := Summarize(o, gigabit(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		said := run.Cells[0].Verdict
		if said.Limiter != c.limiter || strings.Contains(said.Evidence, "cores") != c.cores {
			t.Errorf("busy polling %v: %s: %q, want %s", c.busyPoll, said.Limiter, said.Evidence, c.limiter)
		}
		for _, before := range []bool{false, true} {
			if before {
				run.Transport.BusyPoll = false
				run.Config = map[string]string{"busy-poll": strconv.FormatBool(c.busyPoll)}
			}
			if err := Recheck(run, gigabit(t).Judge); err != nil {
				t.Fatal(err)
			}
			if checked := run.Cells[0].Verdict; checked != said {
				t.Errorf("busy polling %v, of before %v: checked as %+v, the run said %+v", c.busyPoll, before, checked, said)
			}
		}
	}
}

// TestCheckLosesNothing: a record whose link or prefill makes no prediction any more, of
// which it holds one, is refused: 1.4 times what its link predicts must not pass.
func TestCheckLosesNothing(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		change func(*results.Run)
		says   string
	}{
		"unchanged":               {func(*results.Run) {}, ""},
		"a negative startup":      {func(r *results.Run) { r.Link.AlphaSeconds = -1 }, "a cost that cannot be"},
		"a negative descriptor":   {func(r *results.Run) { r.Link.GammaSeconds = -1 }, "a cost that cannot be"},
		"a startup without end":   {func(r *results.Run) { r.Link.AlphaSeconds = math.Inf(1) }, "a cost that cannot be"},
		"a startup beyond number": {func(r *results.Run) { r.Link.AlphaSeconds = math.NaN() }, "a cost that cannot be"},
		"a rate without end":      {func(r *results.Run) { r.Link.BytesPerSecond, r.Link.FramingFactor = 1e308, 1e308 }, "without a rate"},
		"descriptors that add up": {func(r *results.Run) { r.Link.GammaSeconds = 1e307 }, "does not make"}, // 160 of them
		"no prefill":              {func(r *results.Run) { r.Cells[0].Overlap.PrefillSeconds = 0 }, "left exposed"},
		"a negative prefill":      {func(r *results.Run) { r.Cells[0].Overlap.PrefillSeconds = -1 }, "left exposed"},
	} {
		o := outcomeOf(t, measuredAs(500*ms, 500*ms, 500*ms))
		o.Cells[0].Pace = ms / 100
		run, err := Summarize(o, gigabit(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		c.change(run)
		err = Recheck(run, gigabit(t).Judge)
		switch {
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "run it again")):
			t.Errorf("%s: %v, want %q", name, err, c.says)
		case c.says == "" && (err != nil || run.Cells[0].Verdict.Status != "fail"):
			t.Errorf("%s: %v, %+v", name, err, run.Cells[0].Verdict)
		}
	}
}
