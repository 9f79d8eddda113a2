package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"kvbench/internal/hostinfo"
	"kvbench/internal/units"
	"kvbench/model"
	"kvbench/payload"
	"kvbench/results"
	"kvbench/transport"
)

// Judge sets how cells are judged.
type Judge struct {
	Tolerance float64  // accepted error as a share; 0 leaves every cell unchecked
	Against   []string // predictions that must agree, "spec" or "fit"; absent ones are skipped
}

// Recheck predicts and judges again from the data in a record: its link, its calibration
// samples and its cells' histograms. It returns an error if the record is incomplete or
// contradicts itself.
func Recheck(run *results.Run, j Judge) error {
	if run.Transport.Name == "" || run.Link != nil && !possible(run.Link) {
		return errors.New("check run: the record names no transport, or a link without a rate or with a cost that cannot be; it was changed, or is damaged: run it again")
	}
	if !run.Complete {
		return fmt.Errorf("check run: it ended early (%s), so there is no verdict; run it again", run.Incomplete)
	}
	var fit *model.Fit
	if run.Fit != nil {
		f := *run.Fit
		f.Notes = nil
		fit = refit(&f)
		f.Notes = run.Fit.Notes
		run.Fit = &f // the record must print the fit that judges it
	}
	for i := range run.Cells {
		if err := recheckCell(&run.Cells[i], specOf(run), fit); err != nil {
			return fmt.Errorf("check run: cell of %d tokens: %w", run.Cells[i].ContextTokens, err)
		}
		predictStaged(&run.Cells[i], run.Transport)
	}
	j.judge(run, fit)
	return nil
}

// possible reports whether a link has a positive, finite rate, and finite costs that are
// not negative.
func possible(l *results.Link) bool {
	for _, atLeast0 := range []float64{l.AlphaSeconds, l.GammaSeconds} {
		if !(atLeast0 >= 0) || math.IsInf(atLeast0, 0) {
			return false
		}
	}
	rate := l.BytesPerSecond * l.FramingFactor
	return l.BytesPerSecond > 0 && l.FramingFactor > 0 && rate > 0 && !math.IsInf(rate, 0)
}

func recheckCell(c *results.Cell, spec *model.Cost, fit *model.Fit) error {
	if !c.Complete {
		return errors.New("not all of its requests were measured; run it again")
	}
	service, err := c.Latency.Service.Histogram()
	if err != nil {
		return fmt.Errorf("service times: %w", err)
	}
	exposed, err := c.Latency.Exposed.Histogram()
	if err != nil {
		return fmt.Errorf("exposed times: %w", err)
	}
	for _, wrong := range []struct {
		is   bool
		what string
	}{
		{c.Requests < 1, fmt.Sprintf("%d requests", c.Requests)},
		{service.Count() != c.Requests || exposed.Count() != c.Requests, fmt.Sprintf("%d requests, but service times of %d and exposed times of %d", c.Requests, service.Count(), exposed.Count())},
		{c.Latency.Layer.Count != c.Requests*int64(c.Layers), fmt.Sprintf("%d requests of %d layers, but times of %d layers", c.Requests, c.Layers, c.Latency.Layer.Count)},
		{c.Layers < 1 || c.Layers > mostTransfers || c.Bytes < 1 || c.Descriptors < c.Layers || !addUp(c), fmt.Sprintf("%d bytes in %d layers and %d descriptors", c.Bytes, c.Layers, c.Descriptors)},
		{!agree(c.Goodput*c.BusySeconds, float64(c.Bytes)*float64(c.Requests)), fmt.Sprintf("%d requests of %d bytes, but %.4g bytes/s over %.4g s", c.Requests, c.Bytes, c.Goodput, c.BusySeconds)},
		{c.Verify.Mismatched < 0 || c.Verify.Checked < c.Verify.Mismatched, fmt.Sprintf("%d blocks wrong of %d", c.Verify.Mismatched, c.Verify.Checked)},
		{c.Verify.Mode != payload.VerifyNone && c.Verify.Checked == 0, fmt.Sprintf("verification %q that checked nothing", c.Verify.Mode)},
		{c.Predicted.Fit != nil && fit == nil, "a prediction by a fit that the record does not hold"},
		{c.Predicted.Spec != nil && spec == nil, "a prediction by a link that the record does not name"},
	} {
		if wrong.is {
			return contradiction(wrong.what)
		}
	}
	prefill, then := 0.0, *c
	if c.Overlap != nil {
		prefill = c.Overlap.PrefillSeconds
	}
	predict(c, service, exposed, prefill, spec, fit)
	return lost(&then, c)
}

// lost returns an error if a recheck drops an overlap, or a prediction by the link, that
// the record had. The check would otherwise pass without comparing it.
func lost(then, now *results.Cell) error {
	switch {
	case then.Overlap != nil && now.Overlap == nil:
		return contradiction(fmt.Sprintf("a prefill of %.4g s, and times that it left exposed", then.Overlap.PrefillSeconds))
	case then.Predicted.Spec != nil && now.Predicted.Spec == nil, then.Overlap != nil && then.Overlap.Spec != nil && now.Overlap.Spec == nil:
		return contradiction("a prediction by its link that the link does not make")
	}
	return nil
}

func contradiction(what string) error {
	return fmt.Errorf("the record contradicts itself: %s; it was changed, or is damaged: run it again", what)
}

// agree reports whether two figures are equal apart from rounding.
func agree(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(math.Abs(a), math.Abs(b)) }

// judge sets every cell's verdict.
func (j Judge) judge(run *results.Run, fit *model.Fit) {
	for i := range run.Cells {
		c := &run.Cells[i]
		c.Verdict = results.Verdict{Status: string(model.Unchecked), Tolerance: j.Tolerance}
		if !c.Complete || c.Verify.Mismatched > 0 {
			c.Verdict.Status = string(model.Fail)
			c.Verdict.Reason = "not all requests were measured"
			if c.Verify.Mismatched > 0 {
				c.Verdict.Reason = strings.TrimSuffix("data arrived wrong: "+c.Verify.First, ": ")
			}
			continue
		}
		j.judgeCell(run, c, fit)
	}
}

// fewestRequests is the least number of requests for a verdict: with fewer, the spread is
// unknown.
const fewestRequests = 3

// judgeCell compares a cell with each available prediction and keeps the worst status.
func (j Judge) judgeCell(run *results.Run, c *results.Cell, fit *model.Fit) {
	rank := []string{string(model.Pass), string(model.Unchecked), string(model.Fail)}
	var reasons []string
	measured, spec, fitted := interval(c.Service50), c.Predicted.Spec, c.Predicted.Fit
	if c.Overlap != nil { // prefill would hide errors in the time that it covers
		measured, spec, fitted = interval(c.Overlap.Exposed50), c.Overlap.Spec, c.Overlap.Fit
	}
	for _, p := range []struct {
		name string
		*results.Prediction
	}{{"spec", spec}, {"fit", fitted}} {
		if p.Prediction == nil || !slices.Contains(j.Against, p.name) {
			continue
		}
		got := model.Compare(measured, model.Interval{Value: p.Seconds, Low: p.SecondsLow, High: p.SecondsHigh}, j.Tolerance)
		switch {
		case c.Requests < fewestRequests:
			got.Status, got.Reason = model.Unchecked, fmt.Sprintf("too few for a verdict: %s measured; run at least %d", units.Count(c.Requests, "request"), fewestRequests)
		case p.name == "spec" && run.Transport.SoftwareDevice:
			got.Status, got.Reason = model.Unchecked, "the device is software: what it carries says nothing about a link's hardware"
		case p.Vague:
			got.Status, got.Reason = model.Unchecked, "the prediction is too vague for a verdict: "+p.Note
		}
		reasons = append(reasons, fmt.Sprintf("%s: %s", p.name, got.Reason))
		if slices.Index(rank, string(got.Status)) > slices.Index(rank, c.Verdict.Status) || c.Verdict.Against == "" {
			c.Verdict.Status, c.Verdict.Against = string(got.Status), p.name
		}
		if got.Status == model.Fail && c.Verdict.Limiter == "" {
			e := evidence(run, c, fit)
			e.MeasuredSeconds = measured.Value
			if p.name == "spec" { // a fit already includes descriptors, device, path and streams
				againstLink(&e, run, fit)
				account(&e, c, fit, specOf(run))
			}
			f := e.Limiter(got.Ratio.Value)
			c.Verdict.Limiter, c.Verdict.Evidence = f.Limiter, f.Evidence
		}
	}
	c.Verdict.Reason = strings.Join(reasons, "; ")
	if len(reasons) == 0 {
		c.Verdict.Reason = "nothing to hold it against: no prediction that is asked for is there"
	}
}

func interval(e results.Estimate) model.Interval {
	i := model.Interval{Value: e.Value, Low: e.Value, High: e.Value}
	if e.Low != nil {
		i.Low = *e.Low
	}
	if e.High != nil {
		i.High = *e.High
	}
	return i
}

// evidence collects the observations of both ends that apply to any comparison.
func evidence(run *results.Run, c *results.Cell, fit *model.Fit) model.Evidence {
	e := model.Evidence{
		GoodputBytesPerSecond: c.Goodput,
		SameHost:              run.Producer.Host.Device.Loopback,
		CopyBytesPerSecond:    min(run.Producer.CopyBytesPerSecond, run.Consumer.CopyBytesPerSecond),
		Streams:               run.Transport.Streams,
		Lanes:                 run.Transport.Streams * c.Concurrency,
		InFlight:              inFlight(c),
		ServiceSeconds:        c.Service50.Value,
		Transfers:             c.Layers,
		Descriptors:           c.Descriptors,
		Bytes:                 c.Bytes,
	}
	// Traffic over the loopback interface passes through the kernel's TCP.
	if e.SameHost && run.Transport.Device == run.Producer.Host.Device.Name {
		e.Copies = 2
	}
	counters := run.Transport.Counters
	// On one host nothing is lost, so a retransmission was only late. The receive window
	// closes whenever copying is the slower side, which processor time shows.
	if e.SameHost {
		counters = transport.Counters{}
	}
	e.Segments, e.Retransmits, e.ReceiveWindowLimited = counters.Packets, counters.Retransmits, counters.ReceiveWindowLimited
	if c.BusySeconds > 0 && !busyPolls(run) { // a spinning core shows no load
		e.Producer = model.Processor{Cores: c.CPU.ProducerSeconds / c.BusySeconds, CPUs: run.Producer.Host.CPUs}
		if cpu := c.CPU.ConsumerSeconds; cpu != nil {
			e.Consumer = model.Processor{Cores: *cpu / c.BusySeconds, CPUs: run.Consumer.Host.CPUs}
		}
	}
	if fit != nil {
		e.Cost = fit.Cost()
	}
	return e
}

// busyPolls reports whether the data's threads spun. Older records hold only the flag.
func busyPolls(run *results.Run) bool {
	return run.Transport.BusyPoll || run.Config["busy-poll"] == "true"
}

// againstLink adds the evidence for a comparison with a link: device, path and streams.
func againstLink(e *model.Evidence, run *results.Run, fit *model.Fit) {
	e.DeviceName, e.DeviceBytesPerSecond = slower(carriers(run))
	if run.Link != nil {
		e.LinkName, e.LinkBytesPerSecond = run.Link.Name, run.Link.BytesPerSecond
	}
	if fit != nil {
		e.PathBytesPerSecond = fit.Asymptotic().Value
	}
	if run.Streams != nil {
		for _, r := range run.Streams.Rates {
			e.StreamRates = append(e.StreamRates, model.StreamRate{Streams: r.Streams, BytesPerSecond: r.Goodput, FastestPerSecond: r.Fastest})
		}
	}
}

// inFlight returns the mean number of a cell's requests on the path, over the time with
// any.
func inFlight(c *results.Cell) float64 {
	if c.BusySeconds <= 0 {
		return 0
	}
	return float64(c.Requests) * c.Latency.Service.MeanNs / 1e9 / c.BusySeconds
}

// account sets the seconds that descriptors and the path's bandwidth add to the judged
// time beyond spec.
func account(e *model.Evidence, c *results.Cell, fit *model.Fit, spec *model.Cost) {
	e.DescriptorSeconds, e.WireSeconds = beyondSpec(c, fit, spec)
	if ceiling, tried := e.Ceiling(); tried { // the probe reached more than the fit's bandwidth
		path := *spec
		path.BytesPerSecond = ceiling
		e.WireSeconds = max(0, judgedSeconds(c, path)-judgedSeconds(c, *spec))
	}
}

// beyondSpec returns the seconds that descriptors and the path's bandwidth each add, by
// the fit, to the judged time beyond spec. Both are 0 without a fit. descriptors is 0 if
// the fit does not distinguish gamma from 0.
func beyondSpec(c *results.Cell, fit *model.Fit, spec *model.Cost) (descriptors, wire float64) {
	if fit == nil {
		return 0, 0
	}
	whole := fit.Cost()
	extra := func(cheaper model.Cost) float64 { return max(0, judgedSeconds(c, whole)-judgedSeconds(c, cheaper)) }
	if fit.Gamma.Low > 0 {
		cheaper := whole
		cheaper.GammaSeconds = spec.GammaSeconds
		descriptors = extra(cheaper)
	}
	cheaper := whole
	cheaper.BytesPerSecond, cheaper.KneeBytes = spec.BytesPerSecond, 0
	return descriptors, extra(cheaper)
}

// judgedSeconds returns a cost's prediction of the judged time: the exposed time under a
// prefill, otherwise the service time.
func judgedSeconds(c *results.Cell, cost model.Cost) float64 {
	if c.Overlap != nil {
		transfers, _ := transfersOf(c)
		return cost.ExposedSeconds(transfers, c.Overlap.PrefillSeconds)
	}
	return cost.Seconds(c.Layers, c.Descriptors, c.Bytes)
}

// slower returns the name and rate of the slower device, among those with a real rate.
func slower(a, b hostinfo.Device) (name string, bytesPerSecond float64) {
	ra, rb := a.RealRate(), b.RealRate()
	if ra == 0 || rb > 0 && rb < ra {
		return b.Name, rb
	}
	return a.Name, ra
}

// Outside reports whether any cell failed its comparison.
func Outside(run *results.Run) bool {
	return slices.ContainsFunc(run.Cells, func(c results.Cell) bool { return c.Verdict.Status == string(model.Fail) })
}

// Corrupt returns ErrCorrupt if bytes of a record's run arrived wrong.
func Corrupt(run *results.Run) error {
	for _, c := range run.Cells {
		if c.Verify.Mismatched > 0 {
			return fmt.Errorf("%w: %d of %d blocks at %d tokens", ErrCorrupt, c.Verify.Mismatched, c.Verify.Checked, c.ContextTokens)
		}
	}
	return nil
}

// ErrNothingToCheck is returned when a check is requested and no cell has a prediction to
// compare with.
var ErrNothingToCheck = errors.New("nothing to check against")

// Checkable returns ErrNothingToCheck, with advice, if no cell of the record has a
// prediction named in j.Against.
func (j Judge) Checkable(run *results.Run) error {
	for _, c := range run.Cells {
		if c.Predicted.Spec != nil && slices.Contains(j.Against, "spec") || c.Predicted.Fit != nil && slices.Contains(j.Against, "fit") {
			return nil
		}
	}
	why := "judge by a prediction that the record has (--against), or make the run again with the path's link named (--link) or calibrated (--calibrate auto)"
	if run.Fit != nil && len(run.Fit.Notes) > 0 {
		why = strings.Join(run.Fit.Notes, "; ")
	}
	return fmt.Errorf("%w: %s", ErrNothingToCheck, why)
}
