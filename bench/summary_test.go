package bench

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"kvbench/model"
	"kvbench/payload"
	"kvbench/results"
	"kvbench/transport"
)

func TestUnion(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		spans []span
		want  time.Duration
	}{
		"none":           {nil, 0},
		"one":            {[]span{{2 * s, 5 * s}}, 3 * s},
		"apart":          {[]span{{0, 1 * s}, {4 * s, 6 * s}}, 3 * s},
		"touching":       {[]span{{0, 1 * s}, {1 * s, 2 * s}}, 2 * s},
		"overlapping":    {[]span{{0, 3 * s}, {2 * s, 5 * s}}, 5 * s},
		"inside another": {[]span{{0, 9 * s}, {2 * s, 3 * s}, {4 * s, 5 * s}}, 9 * s},
		"out of order":   {[]span{{8 * s, 9 * s}, {0, 2 * s}, {1 * s, 3 * s}}, 4 * s},
		"the same twice": {[]span{{1 * s, 2 * s}, {1 * s, 2 * s}}, 1 * s},
		"empty":          {[]span{{3 * s, 3 * s}}, 0},
		"from the epoch": {[]span{{0, 0}, {0, 1 * s}}, 1 * s},
	} {
		if got := union(c.spans); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// recordOf is a worker's record of requests of bytes each, given as spans; the
// first layer of each arrives after a quarter.
func recordOf(bytes int64, spans ...span) *Record {
	r := newRecord()
	for _, s := range spans {
		m := moved{span: s, first: s.start + (s.end-s.start)/4, prefill: s.start}
		r.request(s.start, m, bytes)
	}
	return r
}

func TestMerge(t *testing.T) {
	const ms = time.Millisecond
	a := recordOf(100, span{0, 10 * ms}, span{10 * ms, 30 * ms})
	b := recordOf(100, span{5 * ms, 25 * ms}, span{50 * ms, 60 * ms})
	a.layer(time.Microsecond, 2*ms, ms, true)
	b.layer(time.Microsecond, 4*ms, 0, false)
	got := merge([]*Record{a, b})
	for _, n := range []struct {
		what      string
		got, want int64
	}{
		{"requests", got.Requests, 4}, {"bytes", got.Bytes, 400}, {"busy", int64(got.Busy), int64(40 * ms)},
		{"services", got.Service.Count(), 4}, {"layers", got.Layer.Count(), 2}, {"posts", got.Post.Count(), 2}, {"acks", got.AckRTT.Count(), 1},
	} {
		if n.got != n.want {
			t.Errorf("%s %d, want %d", n.what, n.got, n.want)
		}
	}
	if empty := merge(nil); empty.Requests != 0 || empty.Busy != 0 || empty.Service == nil {
		t.Errorf("merged nothing: %+v", empty)
	}
}

// measuredAs is the record of a worker that moved requests of 41,943,040 bytes in 80
// layers one after the other, in the given times.
func measuredAs(lengths ...time.Duration) *Record {
	r := recordOf(41943040, spansOf(lengths...)...)
	for _, d := range lengths {
		for range 80 {
			r.layer(time.Microsecond, d/80, time.Millisecond, true)
		}
	}
	return merge([]*Record{r})
}

// outcomeOf is the outcome of one cell: llama-2-70b at 128 tokens, 41,943,040 bytes in 80
// layers of two ranges.
func outcomeOf(t *testing.T, record *Record) *Outcome {
	t.Helper()
	g, err := payload.Load("llama-2-70b")
	if err != nil {
		t.Fatal(err)
	}
	plan := planOf(Push, payload.Spec{Geometry: g, Tokens: 128})
	cells, err := plan.cells()
	if err != nil {
		t.Fatal(err)
	}
	return &Outcome{Plan: plan, Started: time.Unix(1700000000, 0), Cells: []CellOutcome{{cell: &cells[0], Record: record, Complete: true, Verify: payload.Verdict{Checked: 160}, Warmup: 3, ProducerCPU: 0.5, ConsumerCPU: new(0.25)}}}
}

// gigabit is 1 Gbit/s less TCP's headers at MTU 1500: 125e6·1448/1538 = 117.685e6 B/s.
// 41,943,040 bytes take 356.40 ms.
func gigabit(t *testing.T) Assumptions {
	t.Helper()
	link, err := model.ParseLink("1Gbit/s")
	if err != nil {
		t.Fatal(err)
	}
	return Assumptions{Link: &link, MTU: 1500, Source: "flag", Judge: Judge{Tolerance: 0.1, Against: []string{"spec", "fit"}}}
}

func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if !(math.Abs(got-want) <= share*math.Abs(want)) {
		t.Errorf("%s %.6g, want %.6g", what, got, want)
	}
}

// spansOf lays requests of the given lengths end to end.
func spansOf(lengths ...time.Duration) (spans []span) {
	var at time.Duration
	for _, d := range lengths {
		spans = append(spans, span{at, at + d})
		at += d
	}
	return spans
}

// TestSummaryByHand: three requests of 350, 360 and 370 ms are 1.08 s for
// 125,829,120 bytes, 116.51e6 B/s; the median of 360 is 1.0101 of 356.40 ms.
func TestSummaryByHand(t *testing.T) {
	const ms = time.Millisecond
	record := measuredAs(350*ms, 360*ms, 370*ms)
	run, err := Summarize(outcomeOf(t, record), gigabit(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := run.Cells[0]
	near(t, "bytes", float64(c.Bytes), 41943040, 0)
	near(t, "descriptors", float64(c.Descriptors), 160, 0)
	near(t, "layers", float64(c.Layers), 80, 0)
	near(t, "busy seconds", c.BusySeconds, 1.08, 1e-9)
	near(t, "goodput", c.Goodput, 125829120/1.08, 1e-9)
	near(t, "p50", c.Service50.Value, 0.360, 1e-3)
	near(t, "p50, low", *c.Service50.Low, 0.350, 1e-3)
	near(t, "p50, high", *c.Service50.High, 0.370, 1e-3)
	near(t, "first layer", float64(*c.Latency.FirstLayer.P50Ns), 90e6, 1e-3)
	near(t, "predicted", c.Predicted.Spec.Seconds, 0.35640, 1e-4)
	near(t, "ratio", c.Predicted.Spec.Ratio, 0.360/0.35640, 1e-3)
	near(t, "ratio, low", c.Predicted.Spec.Low, 0.350/0.35640, 1e-3)
	near(t, "ratio, high", *c.Predicted.Spec.High, 0.370/0.35640, 1e-3)
	near(t, "framing", run.Link.FramingFactor, 1448.0/1538, 1e-9)
	near(t, "producer's processor time", *run.Producer.CPUSeconds, 0.5, 0)
	near(t, "consumer's processor time", *run.Consumer.CPUSeconds, 0.25, 0)
	if c.Verdict.Status != "pass" || c.Verdict.Against != "spec" || c.Predicted.Fit != nil || run.Fit != nil || !run.Complete {
		t.Errorf("verdict %+v, fit %v", c.Verdict, run.Fit)
	}
	if Outside(run) {
		t.Error("outside its tolerance")
	}
	if err := (Judge{Against: []string{"fit"}}).Checkable(run); !errors.Is(err, ErrNothingToCheck) {
		t.Errorf("checkable against a fit that is not there: %v", err)
	}
}

// TestAccounted: ports may count headers and other traffic beside the data, and
// their last packets may still be on their way, but they cannot have missed a tenth.
func TestAccounted(t *testing.T) {
	for _, c := range []struct {
		name          string
		port, payload int64
		counted       bool
		want          error
	}{
		{"no counters", 0, 1 << 30, false, nil},
		{"headers", 1_020_000, 1_000_000, true, nil},
		{"other traffic", 9_000_000, 1_000_000, true, nil},
		{"at the limit", 900_000, 1_000_000, true, nil},
		{"missed", 899_999, 1_000_000, true, ErrUnaccounted},
		{"idle", 1, 1_000_000, true, ErrUnaccounted},
		{"did not move", 0, 1_000_000, true, ErrUnaccounted},
		{"one of several ports counts", 1, 1_000_000, false, nil},
	} {
		p := transport.Path{Lane: "rc_mlx5/mlx5_0:1", Counters: transport.Counters{PortBytes: c.port, PayloadBytes: c.payload, PortCounted: c.counted}}
		if err := accounted("producer", p); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// counting is a target whose path has counted.
type counting struct {
	transport.Target
	counters transport.Counters
}

func (c counting) Path() transport.Path {
	return transport.Path{Lane: "rc_mlx5/mlx5_0:1", Counters: c.counters}
}

// TestPathOfWorkers: all workers' payload went through the same ports. A worker that moved
// nothing does not know which way the ports should have counted.
func TestPathOfWorkers(t *testing.T) {
	idle := transport.Counters{PortBytes: 500, PortCounted: true}
	missed := transport.Counters{PortBytes: 0, PayloadBytes: 100, PortCounted: true}
	early := transport.Counters{PortBytes: 210, PayloadBytes: 100, PortCounted: true}
	uncounted := transport.Counters{PayloadBytes: 100}
	for _, c := range []struct {
		name    string
		workers []transport.Counters
		want    transport.Counters
	}{
		{"one", []transport.Counters{missed}, missed},
		{"idle first", []transport.Counters{idle, missed}, missed},
		{"idle last", []transport.Counters{missed, {}, idle}, missed},
		{"two", []transport.Counters{missed, early}, transport.Counters{PortBytes: 210, PayloadBytes: 200, PortCounted: true}},
		{"on a port that does not count", []transport.Counters{missed, uncounted}, transport.Counters{PayloadBytes: 200}},
	} {
		var s side
		for _, w := range c.workers {
			s.targets = append(s.targets, &target{Target: counting{counters: w}})
		}
		if got := s.path().Counters; got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestAlphaAndGamma add startup and descriptors to the spec's prediction.
func TestAlphaAndGamma(t *testing.T) {
	a := gigabit(t)
	a.Alpha, a.Gamma = 0.01, 1e-4
	a.Framing = model.Framing{Mode: model.FramingOff}
	run, err := Summarize(outcomeOf(t, measuredAs(time.Second)), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "predicted", run.Cells[0].Predicted.Spec.Seconds, 0.01+160e-4+41943040/125e6, 1e-9)
}

// TestVerdicts has the cases in which a cell passes, fails, or cannot be told.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	steady := func(d time.Duration) []time.Duration { return []time.Duration{d, d, d, d, d, d, d, d, d, d} }
	for _, c := range []struct {
		name   string
		times  []time.Duration
		change func(*Outcome, *Assumptions)
		want   string
		says   string
	}{
		{"agrees", steady(356 * ms), nil, "pass", ""},
		{"within", steady(385 * ms), nil, "pass", ""},
		{"too slow", steady(500 * ms), nil, "fail", "outside"},
		{"too fast", steady(200 * ms), nil, "fail", "outside"},
		{"could be either", []time.Duration{356 * ms, 356 * ms, 500 * ms, 500 * ms, 500 * ms}, nil, "unchecked", "run more requests"},
		{"nothing to hold it against", steady(356 * ms), func(_ *Outcome, a *Assumptions) { a.Link = nil }, "unchecked", "nothing to hold it against"},
		{"not asked about this", steady(900 * ms), func(_ *Outcome, a *Assumptions) { a.Judge.Against = []string{"fit"} }, "unchecked", "nothing to hold it against"},
		{"software device", steady(900 * ms), func(o *Outcome, _ *Assumptions) { o.Path.SoftwareDevice = true }, "unchecked", "the device is software"},
		{"two requests", []time.Duration{900 * ms, 900 * ms}, nil, "unchecked", "too few for a verdict: 2 requests measured; run at least 3"},
		// The worst of both counts. The fit's path of 117.7e6 B/s moves the bytes in 356.5 ms,
		// that of 131.07e6 in 320.2: there the median, 356, is 1.11 of it, and its interval
		// of the second to the ninth request, 340 to 356, reaches the tolerated 1.1.
		{"unchecked by the spec, and agrees with the fit", steady(356 * ms), func(o *Outcome, _ *Assumptions) {
			o.Path.SoftwareDevice, o.Samples = true, pathSamples(20e-6, 1e-6, 117.7e6)
		}, "unchecked", "the device is software: what it carries says nothing about a link's hardware; fit: measured is 0.99"},
		{"agrees with the spec, and unchecked by the fit", append([]time.Duration{340 * ms, 340 * ms, 340 * ms}, steady(356 * ms)[3:]...), func(o *Outcome, _ *Assumptions) {
			o.Samples = pathSamples(20e-6, 1e-6, 131.07e6)
		}, "unchecked", "within 10 %; fit: measured is 1.11"},
		{"unchecked by the spec, and fails against the fit", steady(900 * ms), func(o *Outcome, _ *Assumptions) {
			o.Path.SoftwareDevice, o.Samples = true, pathSamples(20e-6, 1e-6, 117.7e6)
		}, "fail", "fit: measured is 2.52"},
		{"no tolerance", steady(900 * ms), func(_ *Outcome, a *Assumptions) { a.Judge.Tolerance = 0 }, "unchecked", "no tolerance"},
		{"not whole", steady(356 * ms), func(o *Outcome, _ *Assumptions) { o.Cells[0].Complete = false }, "fail", "not all requests"},
		{"damaged", steady(356 * ms), func(o *Outcome, _ *Assumptions) {
			o.Cells[0].Verify = payload.Verdict{Checked: 2, Mismatched: 1, First: "block 7"}
		}, "fail", "arrived wrong: block 7"},
		{"damaged, however fast", steady(1 * ms), func(o *Outcome, _ *Assumptions) {
			o.Cells[0].Complete = false
			o.Cells[0].Verify.Mismatched = 1
		}, "fail", "arrived wrong"},
	} {
		o, a := outcomeOf(t, measuredAs(c.times...)), gigabit(t)
		if c.change != nil {
			c.change(o, &a)
		}
		run, err := Summarize(o, a, nil)
		if err != nil {
			t.Fatal(err)
		}
		v := run.Cells[0].Verdict
		if v.Status != c.want || !strings.Contains(v.Reason, c.says) {
			t.Errorf("%s: %s (%s), want %s that says %q", c.name, v.Status, v.Reason, c.want, c.says)
		}
		if Outside(run) != (c.want == "fail") {
			t.Errorf("%s: outside is %v", c.name, Outside(run))
		}
		if v.Status == "fail" && v.Against == "spec" && (v.Limiter == "" || v.Evidence == "") {
			t.Errorf("%s: fails without a limiter", c.name)
		}
	}
}

// pathSamples are a calibration of a path with known coefficients, each batch
// timed often, with a little spread.
func pathSamples(alpha, gamma, bandwidth float64) (samples []model.Sample) {
	for _, bytes := range []int64{16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20} {
		for _, n := range [][2]int{{1, 1}, {1, 32}, {1, 1024}, {8, 8}, {8, 32}, {64, 64}, {64, 1024}} {
			for i := range 11 {
				seconds := alpha + gamma*float64(n[1]) + float64(bytes)/bandwidth
				samples = append(samples, model.Sample{Transfers: n[0], Descriptors: n[1], Bytes: bytes, Seconds: seconds * (1 + 0.002*float64(i-5)/5)})
			}
		}
	}
	return samples
}

// TestFitAndSpec: the worse of two comparisons is the verdict, and says which it is.
func TestFitAndSpec(t *testing.T) {
	const ms = time.Millisecond
	// The path is half as fast as its data sheet: 60e6 B/s are 699 ms.
	o := outcomeOf(t, measuredAs(700*ms, 700*ms, 701*ms, 699*ms, 700*ms, 700*ms))
	o.Samples = pathSamples(20e-6, 1e-6, 60e6)
	o.CalibrationSeconds = 1.5
	run, err := Summarize(o, gigabit(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := run.Cells[0]
	if run.Fit == nil || run.Fit.Points != 49 || run.Fit.Seconds != 1.5 {
		t.Fatalf("fit %+v", run.Fit)
	}
	near(t, "bandwidth", run.Fit.Bandwidth.Value, 60e6, 0.02)
	near(t, "ratio to the fit", c.Predicted.Fit.Ratio, 1, 0.03)
	near(t, "ratio to the spec", c.Predicted.Spec.Ratio, 0.700/0.3564, 0.01)
	if c.Verdict.Status != "fail" || c.Verdict.Against != "spec" || !strings.Contains(c.Verdict.Reason, "fit: measured is") {
		t.Errorf("verdict %+v", c.Verdict)
	}
	// Judged again against the fit alone, it passes, and with a wide tolerance too.
	for _, j := range []Judge{{0.1, []string{"fit"}}, {1.5, []string{"spec", "fit"}}} {
		if err := Recheck(run, j); err != nil {
			t.Fatal(err)
		}
		if got := run.Cells[0].Verdict; got.Status != "pass" || got.Limiter != "" {
			t.Errorf("with %+v: %+v", j, got)
		}
	}
}

// TestUntrustedFit leaves a note, and no prediction.
func TestUntrustedFit(t *testing.T) {
	o := outcomeOf(t, measuredAs(time.Second))
	o.Samples = pathSamples(20e-6, 1e-6, 60e6)[:22] // two batches
	run, err := Summarize(o, Assumptions{Judge: Judge{Tolerance: 0.1, Against: []string{"fit"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if run.Fit == nil || len(run.Fit.Notes) == 0 || run.Cells[0].Predicted.Fit != nil || run.Cells[0].Verdict.Status != "unchecked" {
		t.Errorf("fit %+v, verdict %+v", run.Fit, run.Cells[0].Verdict)
	}
	if err := (Judge{Against: []string{"fit"}}).Checkable(run); !errors.Is(err, ErrNothingToCheck) || !strings.Contains(err.Error(), run.Fit.Notes[0]) {
		t.Errorf("Checkable: %v", err)
	}
}

// TestRecheck judges a stored record by its histogram, not by what else stands in it.
func TestRecheck(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	fresh := func() *results.Run {
		run, err := Summarize(outcomeOf(t, measuredAs(400*ms, 400*ms, 400*ms, 400*ms, 400*ms, 400*ms)), gigabit(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	for tolerance, want := range map[float64]string{0.05: "fail", 0.2: "pass"} {
		run := fresh()
		run.Cells[0].Service50 = results.Estimate{} // an older or edited record
		run.Cells[0].Predicted.Spec.Ratio = 77
		if err := Recheck(run, Judge{tolerance, []string{"spec"}}); err != nil {
			t.Fatal(err)
		}
		c := run.Cells[0]
		near(t, "ratio", c.Predicted.Spec.Ratio, 0.400/0.3564, 1e-3)
		near(t, "p50", c.Service50.Value, 0.4, 1e-3)
		if c.Verdict.Status != want || Outside(run) != (want == "fail") {
			t.Errorf("tolerance %g: %+v, want %s", tolerance, c.Verdict, want)
		}
	}
	run := fresh()
	run.Complete, run.Incomplete = false, "interrupted"
	if err := Recheck(run, Judge{0.1, []string{"spec"}}); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("an incomplete record: %v", err)
	}
	run = fresh()
	run.Cells[0].Latency.Service.HDR = "garbage"
	if err := Recheck(run, Judge{0.1, []string{"spec"}}); err == nil || !strings.Contains(err.Error(), "128 tokens") {
		t.Errorf("a damaged histogram: %v", err)
	}
}

// TestEndedEarly: what ended a run is in its record.
func TestEndedEarly(t *testing.T) {
	o := outcomeOf(t, nil) // nothing was measured
	o.Cells[0].Complete = false
	run, err := Summarize(o, gigabit(t), errors.New("the cable was pulled"))
	if err != nil {
		t.Fatal(err)
	}
	if run.Complete || run.Incomplete != "the cable was pulled" || run.Cells[0].Verdict.Status != "fail" || run.Cells[0].Requests != 0 {
		t.Errorf("record: %v (%q), %+v", run.Complete, run.Incomplete, run.Cells[0].Verdict)
	}
	if run.Cells[0].Goodput != 0 || run.Cells[0].Latency.Service.P50Ns != nil {
		t.Errorf("goodput %g of nothing", run.Cells[0].Goodput)
	}
}

// TestNothingMeasured: a cell that ended before a request did has its predictions, and
// no median or ratio, in which a reader would take 0 for a measurement.
func TestNothingMeasured(t *testing.T) {
	for _, pace := range []time.Duration{0, time.Millisecond} {
		o := outcomeOf(t, nil)
		o.Cells[0].Complete, o.Cells[0].Pace = false, pace
		run, err := Summarize(o, gigabit(t), errors.New("interrupted"))
		if err != nil {
			t.Fatal(err)
		}
		c := run.Cells[0]
		if c.Predicted.Spec == nil || c.Overlap != nil && c.Overlap.Spec == nil || (c.Overlap != nil) != (pace > 0) {
			t.Fatalf("pace %v: predicted %+v, overlap %+v", pace, c.Predicted, c.Overlap)
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{`"service_p50_seconds"`, `"exposed_p50_seconds"`, `"ratio"`, `"low"`} {
			if strings.Contains(string(text), key) {
				t.Errorf("pace %v: %s in %s", pace, key, text)
			}
		}
	}
}
