package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"kvbench/internal/hostinfo"
	"kvbench/model"
	"kvbench/results"
	"kvbench/transport"
)

// Assumptions are what a measurement is held against.
type Assumptions struct {
	Link    *model.Link // nil: no spec prediction
	MTU     int         // 0: the kind's default
	Framing model.Framing
	Alpha   float64 // seconds, for the spec
	Gamma   float64 // seconds a descriptor, for the spec
	Source  string  // of Link: flag or device
	Judge   Judge
	// Calibration is an earlier run's, to be used in place of this one's; nil: none.
	Calibration *results.Fit
}

// Judge is how a verdict is reached.
type Judge struct {
	Tolerance float64  // share; 0 leaves every cell unchecked
	Against   []string // of "spec" and "fit": what must agree; what is absent is passed over
}

// Summarize turns an outcome into a record. why is what ended the run early, or nil.
func Summarize(o *Outcome, a Assumptions, why error) (*results.Run, error) {
	run := &results.Run{
		Schema:    results.Schema,
		ID:        fmt.Sprintf("%016x", o.Plan.RunID),
		Started:   o.Started.UTC().Format(time.RFC3339),
		Complete:  why == nil,
		Producer:  o.Producer,
		Consumer:  o.Consumer,
		Transport: results.Transport{Name: o.Plan.Transport, Streams: max(1, o.Plan.Config.Streams), Path: o.Path, Consumer: o.PeerPath},
		Cells:     []results.Cell{},
	}
	if why != nil {
		run.Incomplete = why.Error()
	}
	spec := a.spec(run)
	var fit *model.Fit
	if a.Calibration != nil {
		earlier := *a.Calibration
		earlier.Notes = nil
		run.Fit = &earlier
	} else if len(o.Samples) > 0 {
		run.Fit = &results.Fit{Seconds: o.CalibrationSeconds}
		for _, s := range o.Samples {
			run.Fit.Samples = append(run.Fit.Samples, results.Sample(s))
		}
	}
	if run.Fit != nil {
		run.Fit.ErrorFromBytes = o.smallestLayer()
		fit = refit(run.Fit)
	}
	for i := range o.Cells {
		c, err := o.summarizeCell(&o.Cells[i], spec, fit)
		if err != nil {
			return nil, err
		}
		run.Producer.CPUSeconds += c.CPU.ProducerSeconds
		run.Consumer.CPUSeconds += c.CPU.ConsumerSeconds
		run.Cells = append(run.Cells, c)
	}
	a.Judge.judge(run, fit)
	return run, nil
}

// spec fills in the record's link and returns its cost; nil without a link.
func (a Assumptions) spec(run *results.Run) *model.Cost {
	if a.Link == nil {
		return nil
	}
	_, factor, basis := a.Link.Goodput(a.MTU, a.Framing)
	mtu := a.MTU
	if mtu == 0 {
		mtu = model.DefaultMTU(a.Link.Kind)
	}
	run.Link = &results.Link{Name: a.Link.Name, BytesPerSecond: a.Link.BytesPerSecond, MTU: mtu, FramingFactor: factor, FramingBasis: basis, Source: a.Source}
	cost := model.SpecCost(*a.Link, a.MTU, a.Framing, a.Alpha, a.Gamma)
	return &cost
}

// refit fits the record's calibration samples and fills in its coefficients. It
// returns nil, and leaves a note, where they cannot be fitted.
func refit(f *results.Fit) *model.Fit {
	samples := make([]model.Sample, len(f.Samples))
	points := make(map[trial]bool)
	for i, s := range f.Samples {
		samples[i] = model.Sample(s)
		points[trial{s.Transfers, s.Descriptors, s.Bytes}] = true
	}
	f.Points = len(points)
	fit, err := model.FitCost(samples, model.FitOptions{})
	if err != nil {
		f.Notes = append(f.Notes, err.Error())
		return nil
	}
	f.Alpha, f.Beta, f.Gamma, f.Bandwidth = estimate(fit.Alpha), estimate(fit.Beta), estimate(fit.Gamma), estimate(fit.Asymptotic())
	f.MAPEAll, f.WorstAll, f.Notes = fit.MAPE, fit.Worst, append(fit.Notes, fit.Vague()...)
	f.MAPE, f.Worst = heldOut(fit.Residuals, f.ErrorFromBytes)
	if err := fit.Trustworthy(); err != nil {
		f.Notes = append(f.Notes, err.Error())
		return nil
	}
	return &fit
}

// heldOut is the mean and the greatest error of points that a fit did not see, as
// shares, over batches of at least from bytes; over all where there are none.
func heldOut(residuals []model.Residual, from int64) (mean, worst float64) {
	n := 0
	for _, r := range residuals {
		if r.Bytes < from {
			continue
		}
		e := math.Abs(r.HeldOut/r.Seconds - 1)
		mean, worst, n = mean+e, max(worst, e), n+1
	}
	if n == 0 && from > 0 {
		return heldOut(residuals, 0)
	}
	return mean / float64(max(n, 1)), worst
}

// smallestLayer is the mean layer of the smallest request, in bytes.
func (o *Outcome) smallestLayer() int64 {
	var least int64
	for _, c := range o.Cells {
		if n := c.cell.plan.Bytes / int64(len(c.cell.plan.Transfers)); least == 0 || n < least {
			least = n
		}
	}
	return least
}

// FitOf fits the record's calibration again. It returns an error where there is none, or none to be trusted.
func FitOf(run *results.Run) (*model.Fit, error) {
	if run.Fit == nil {
		return nil, errors.New("read fit: the run was not calibrated; run it without --calibrate off")
	}
	f := *run.Fit
	f.Notes = nil
	if fit := refit(&f); fit != nil {
		return fit, nil
	}
	return nil, fmt.Errorf("read fit: %s", strings.Join(f.Notes, "; "))
}

// estimate writes an interval for JSON, which has no infinity.
func estimate(i model.Interval) results.Estimate {
	return results.Estimate{Value: i.Value, Low: bound(i.Low), High: bound(i.High)}
}

func bound(v float64) *float64 {
	if math.IsInf(v, 0) || math.IsNaN(v) || v == math.MaxFloat64 {
		return nil
	}
	return &v
}

func (o *Outcome) summarizeCell(c *CellOutcome, spec *model.Cost, fit *model.Fit) (results.Cell, error) {
	record := c.Record
	if record == nil {
		record = newRecord()
	}
	cell := results.Cell{
		ContextTokens:   c.cell.spec.Tokens,
		Bytes:           c.cell.plan.Bytes,
		KVBytes:         c.cell.shape.Bytes,
		Layers:          len(c.cell.plan.Transfers),
		Descriptors:     c.cell.plan.Descriptors,
		Requests:        record.Requests,
		Warmup:          c.Warmup,
		Concurrency:     o.Plan.Workers,
		WorkingSetBytes: c.cell.workingSet,
		Complete:        c.Complete,
		BusySeconds:     record.Busy.Seconds(),
		Verify:          results.Verification{Mode: o.Plan.Verify, Verdict: c.Verify},
		CPU:             results.CellCPU{ProducerSeconds: c.ProducerCPU, ConsumerSeconds: c.ConsumerCPU},
		Verdict:         results.Verdict{Status: string(model.Unchecked)},
	}
	if record.Busy > 0 {
		cell.Goodput = float64(record.Bytes) / record.Busy.Seconds()
	}
	for _, h := range []struct {
		to   *results.Latency
		from *results.Histogram
	}{
		{&cell.Latency.Response, record.Response}, {&cell.Latency.Service, record.Service}, {&cell.Latency.Layer, record.Layer},
		{&cell.Latency.FirstLayer, record.FirstLayer}, {&cell.Latency.Exposed, record.Exposed},
		{&cell.Latency.Post, record.Post}, {&cell.Latency.AckRTT, record.AckRTT},
	} {
		var err error
		if *h.to, err = h.from.Latency(); err != nil {
			return cell, err
		}
	}
	o.predict(&cell, c, record, spec, fit)
	if o.Load.Rate > 0 && record.Requests > 0 {
		cell.Load = o.load(record)
	}
	return cell, nil
}

// predict fills in what was expected of the cell.
func (o *Outcome) predict(cell *results.Cell, c *CellOutcome, record *Record, spec *model.Cost, fit *model.Fit) {
	measured := median(record.Service)
	cell.Service50 = estimate(measured)
	prefill := c.Pace.Seconds() * float64(cell.Layers)
	var overlap *results.Overlap
	if c.Pace > 0 {
		overlap = &results.Overlap{PrefillSeconds: prefill, Exposed50: estimate(median(record.Exposed))}
		cell.Overlap = overlap
	}
	// expect holds both the service and the exposed time against one cost.
	expect := func(whole model.Interval, cost model.Cost) (service, exposed *results.Prediction) {
		if overlap == nil {
			return prediction(measured, whole), nil
		}
		e := cost.ExposedSeconds(cell.Layers, cell.Descriptors, cell.Bytes, prefill)
		// What the whole transfer leaves open, its exposed part does too.
		spread := func(bound float64) float64 { return e * bound / whole.Value }
		exposedTime := model.Interval{Value: e, Low: spread(whole.Low), High: spread(whole.High)}
		serviceTime := model.Interval{Value: prefill + e, Low: prefill + exposedTime.Low, High: prefill + exposedTime.High}
		return prediction(measured, serviceTime), prediction(interval(overlap.Exposed50), exposedTime)
	}
	var exposed *results.Prediction
	if spec != nil {
		cell.Predicted.Spec, exposed = expect(model.Exactly(spec.Seconds(cell.Layers, cell.Descriptors, cell.Bytes)), *spec)
		if overlap != nil {
			overlap.Spec = exposed
		}
	}
	if fit != nil {
		cell.Predicted.Fit, exposed = expect(fit.Predict(cell.Layers, cell.Descriptors, cell.Bytes), fit.Cost())
		if overlap != nil {
			overlap.Fit = exposed
		}
		if p := cell.Predicted.Fit; p != nil {
			p.Note = fit.Outside(cell.Layers, cell.Descriptors, cell.Bytes)
			if err := fit.TrustworthyFor(cell.Layers, cell.Descriptors, cell.Bytes); err != nil {
				p.Note = err.Error()
			}
		}
	}
}

// load holds an open loop's response times against queueing theory.
func (o *Outcome) load(record *Record) *results.Load {
	mean, square := record.Service.Moments()
	q := model.Load{ArrivalsPerSecond: o.Load.Rate, ServiceSeconds: mean, ServiceSquared: square}.Queue()
	response, _ := record.Response.Moments()
	l := &results.Load{
		Arrivals: string(o.Load.Arrivals), ArrivalsPerSecond: o.Load.Rate,
		Utilization: q.Utilization, Stable: q.Stable, ResponseMeanSeconds: response,
		ResponseFCFSSeconds: bound(q.ResponseFCFS), ResponsePSSeconds: bound(q.ResponsePS), Growth: record.Growth,
	}
	low, high := min(q.ResponseFCFS, q.ResponsePS), max(q.ResponseFCFS, q.ResponsePS)
	switch {
	case !q.Stable:
		l.Note = "unstable: requests arrive faster than they are served, and responses grow for as long as that lasts"
	case response < low:
		l.Note = fmt.Sprintf("below the band of theory: %d arrivals are few, and by chance came apart", record.Requests)
		if o.Load.Arrivals == Uniform {
			l.Note = "below the band of theory, which is for random arrivals: these are evenly spaced"
		}
	case response > high && record.Growth > 1.5:
		l.Note = "above the band of theory, and still growing: the run is too short for a steady state, or the service times drift"
	case response > high:
		l.Note = fmt.Sprintf("above the band of theory: %d arrivals are few, and by chance came together, or a request also waits for the consumer's check of the one before", record.Requests)
	default:
		l.Note = "within the band of theory, from first come first served to fair sharing"
	}
	return l
}

// median is the median time in seconds with its 95 % interval.
func median(h *results.Histogram) model.Interval {
	low, high := model.MedianRanks(int(h.Count()))
	// MedianRanks counts the smallest sample as 0 and the largest as 1.
	at := func(q float64) float64 { return h.Smallest(1 + int64(math.Round(q*float64(h.Count()-1)))).Seconds() }
	return model.Interval{Value: h.Quantile(0.5).Seconds(), Low: at(low), High: at(high)}
}

// prediction holds a measurement against a prediction; nil where there is no
// finite one.
func prediction(measured, predicted model.Interval) *results.Prediction {
	if !(predicted.Value > 0) || math.IsInf(predicted.High, 0) {
		return nil
	}
	c := model.Compare(measured, predicted, 0)
	return &results.Prediction{
		Seconds: predicted.Value, SecondsLow: predicted.Low, SecondsHigh: predicted.High,
		Ratio: c.Ratio.Value, Low: c.Ratio.Low, High: bound(c.Ratio.High),
	}
}

// Recheck judges a record again. It returns an error where the record cannot be judged.
func Recheck(run *results.Run, j Judge) error {
	if !run.Complete {
		return fmt.Errorf("check run: it ended early (%s), so there is no verdict; run it again", run.Incomplete)
	}
	var fit *model.Fit
	if run.Fit != nil {
		f := *run.Fit
		fit = refit(&f)
	}
	for i := range run.Cells {
		c := &run.Cells[i]
		h, err := c.Latency.Service.Histogram()
		if err != nil {
			return fmt.Errorf("check run: service times at %d tokens: %w", c.ContextTokens, err)
		}
		measured := median(h)
		c.Service50 = estimate(measured)
		for _, p := range []*results.Prediction{c.Predicted.Spec, c.Predicted.Fit} {
			if p != nil {
				again := model.Compare(measured, model.Interval{Value: p.Seconds, Low: p.SecondsLow, High: p.SecondsHigh}, 0)
				p.Ratio, p.Low, p.High = again.Ratio.Value, again.Ratio.Low, bound(again.Ratio.High)
			}
		}
	}
	j.judge(run, fit)
	return nil
}

// judge fills in every cell's verdict.
func (j Judge) judge(run *results.Run, fit *model.Fit) {
	for i := range run.Cells {
		c := &run.Cells[i]
		c.Verdict = results.Verdict{Status: string(model.Unchecked), Tolerance: j.Tolerance}
		if !c.Complete || c.Verify.Mismatched > 0 {
			c.Verdict.Status = string(model.Fail)
			c.Verdict.Reason = "not all requests were measured"
			if c.Verify.Mismatched > 0 {
				c.Verdict.Reason = "data arrived wrong: " + c.Verify.First
			}
			continue
		}
		j.judgeCell(run, c, fit)
	}
}

// judgeCell compares a cell with each prediction that there is; the worst status counts.
func (j Judge) judgeCell(run *results.Run, c *results.Cell, fit *model.Fit) {
	rank := []string{string(model.Pass), string(model.Unchecked), string(model.Fail)}
	var reasons []string
	measured, spec, fitted := interval(c.Service50), c.Predicted.Spec, c.Predicted.Fit
	if c.Overlap != nil { // prefill would hide an error in what it hides
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
		reasons = append(reasons, fmt.Sprintf("%s: %s", p.name, got.Reason))
		if slices.Index(rank, string(got.Status)) > slices.Index(rank, c.Verdict.Status) || c.Verdict.Against == "" {
			c.Verdict.Status, c.Verdict.Against = string(got.Status), p.name
		}
		if got.Status == model.Fail && c.Verdict.Limiter == "" {
			f := evidence(run, c, fit).Limiter(got.Ratio.Value)
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

// evidence collects what both ends saw.
func evidence(run *results.Run, c *results.Cell, fit *model.Fit) model.Evidence {
	e := model.Evidence{
		GoodputBytesPerSecond: c.Goodput,
		SameHost:              run.Producer.Host.Device.Loopback,
		Concurrency:           c.Concurrency,
		ServiceSeconds:        c.Service50.Value,
		Transfers:             c.Layers,
		Descriptors:           c.Descriptors,
		Bytes:                 c.Bytes,
	}
	e.DeviceName, e.DeviceBytesPerSecond = slower(run.Producer.Host.Device, run.Consumer.Host.Device)
	counters := run.Transport.Counters
	if e.SameHost { // nothing is lost on a loopback: what counts as sent again there was late
		counters = transport.Counters{}
	}
	e.Segments, e.Retransmits, e.ReceiveWindowLimited = counters.Packets, counters.Retransmits, counters.ReceiveWindowLimited
	e.CopyBytesPerSecond = min(run.Producer.CopyBytesPerSecond, run.Consumer.CopyBytesPerSecond)
	e.Streams = run.Transport.Streams * c.Concurrency
	if run.Link != nil {
		e.LinkName, e.LinkBytesPerSecond = run.Link.Name, run.Link.BytesPerSecond
	}
	if c.Latency.Response.P50Ns != nil {
		e.ResponseSeconds = float64(*c.Latency.Response.P50Ns) / 1e9
	}
	if c.BusySeconds > 0 && !e.SameHost {
		lanes := c.BusySeconds * float64(max(e.Streams, 1))
		e.ProducerCPU, e.ConsumerCPU = c.CPU.ProducerSeconds/lanes, c.CPU.ConsumerSeconds/lanes
	}
	if fit != nil {
		e.Cost = fit.Cost()
		e.StreamBytesPerSecond, e.PathBytesPerSecond = fit.Asymptotic().Value, fit.Asymptotic().Value
	}
	return e
}

// slower names the slower of two devices, of those whose rate is known, and its rate.
func slower(a, b hostinfo.Device) (name string, bytesPerSecond float64) {
	ra, rb := a.RealRate(), b.RealRate()
	if ra == 0 || rb > 0 && rb < ra {
		return b.Name, rb
	}
	return a.Name, ra
}

// Outside reports whether a cell failed its comparison.
func Outside(run *results.Run) bool {
	return slices.ContainsFunc(run.Cells, func(c results.Cell) bool { return c.Verdict.Status == string(model.Fail) })
}

// ErrNothingToCheck is returned when a check was asked for and no cell has a
// prediction to be held against.
var ErrNothingToCheck = errors.New("nothing to check against")

// Checkable returns ErrNothingToCheck, with what to do, where no cell of the
// record has one of the predictions that the judge asks for.
func (j Judge) Checkable(run *results.Run) error {
	for _, c := range run.Cells {
		if c.Predicted.Spec != nil && slices.Contains(j.Against, "spec") || c.Predicted.Fit != nil && slices.Contains(j.Against, "fit") {
			return nil
		}
	}
	why := "name the path's link with --link, or leave --calibrate on"
	if run.Fit != nil && len(run.Fit.Notes) > 0 {
		why = strings.Join(run.Fit.Notes, "; ")
	}
	return fmt.Errorf("%w: %s", ErrNothingToCheck, why)
}
