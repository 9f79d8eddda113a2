package bench

import (
	"fmt"
	"slices"
	"time"

	"kvbench/model"
	"kvbench/results"
)

// Assumptions are the link, costs and calibration that a measurement is compared with.
type Assumptions struct {
	Link    *model.Link // nil: the rate of the device that carried the data, if it has one
	MTU     int         // 0: the device's, or the kind's default
	Framing model.Framing
	Alpha   float64 // seconds, for the spec
	Gamma   float64 // seconds per descriptor, for the spec
	Source  string  // of Link: flag or device
	Judge   Judge
	// Calibration comes from an earlier run and replaces this run's; nil: none.
	Calibration *results.Fit
}

// Summarize turns an outcome into a record. why is the error that ended the run early, or
// nil.
func Summarize(o *Outcome, a Assumptions, why error) (*results.Run, error) {
	a = a.along(o)
	run := &results.Run{
		Schema:   results.Schema,
		ID:       fmt.Sprintf("%016x", o.Plan.RunID),
		Started:  o.Started.UTC().Format(time.RFC3339),
		Complete: why == nil,
		Producer: o.Producer,
		Consumer: o.Consumer,
		Transport: results.Transport{
			Name: o.Plan.Transport, Streams: max(1, o.Plan.Config.Streams), BusyPoll: o.Plan.Config.BusyPoll,
			Memory: o.Plan.Memory, GPUPath: gpuPath(o.Plan.Memory, o.Path),
			Path: o.Path, Consumer: o.PeerPath,
		},
		Cells:   []results.Cell{},
		Streams: o.Streams,
	}
	if why != nil {
		run.Incomplete = why.Error()
	}
	spec := a.spec(run)
	var fit *model.Fit
	if a.Calibration != nil {
		earlier := *a.Calibration
		earlier.Notes = doubts(earlier.Taken, o.conditions())
		run.Fit = &earlier
	} else if len(o.Samples) > 0 {
		taken := o.conditions()
		run.Fit = &results.Fit{Seconds: o.CalibrationSeconds, Taken: &taken}
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
		predictStaged(&c, run.Transport)
		run.Cells = append(run.Cells, c)
	}
	run.Producer.CPUSeconds = processorTime(run.Cells, func(c results.CellCPU) *float64 { return &c.ProducerSeconds })
	run.Consumer.CPUSeconds = processorTime(run.Cells, func(c results.CellCPU) *float64 { return c.ConsumerSeconds })
	a.Judge.judge(run, fit)
	return run, nil
}

// SlowerThanLink reports whether a cell fails against the link by being slower, and no
// slower device explains it.
func (a Assumptions) SlowerThanLink(o *Outcome) bool {
	measured := *o
	measured.Samples = nil // compare with the link, not with a fit
	a.Calibration, a.Judge.Against = nil, []string{"spec"}
	run, err := Summarize(&measured, a, nil)
	return err == nil && slices.ContainsFunc(run.Cells, func(c results.Cell) bool {
		e := evidence(run, &c, nil)
		againstLink(&e, run, nil)
		return c.Verdict.Status == string(model.Fail) && c.Predicted.Spec != nil && c.Predicted.Spec.Ratio > 1 && !e.DeviceAccounts()
	})
}

// spec fills in the record's link and returns its cost, or nil without a link.
func (a Assumptions) spec(run *results.Run) *model.Cost {
	if a.Link == nil {
		return nil
	}
	_, factor, basis := a.Link.Goodput(a.MTU, a.Framing)
	mtu := a.MTU
	if mtu == 0 {
		mtu = model.DefaultMTU(a.Link.Kind)
	}
	run.Link = &results.Link{
		Name: a.Link.Name, BytesPerSecond: a.Link.BytesPerSecond, MTU: mtu, FramingFactor: factor, FramingBasis: basis,
		AlphaSeconds: a.Alpha, GammaSeconds: a.Gamma, Source: a.Source,
	}
	return specOf(run)
}

// specOf returns the cost of the record's link, or nil without one.
func specOf(run *results.Run) *model.Cost {
	if run.Link == nil {
		return nil
	}
	l := run.Link
	return &model.Cost{AlphaSeconds: l.AlphaSeconds, GammaSeconds: l.GammaSeconds, BytesPerSecond: l.BytesPerSecond * l.FramingFactor}
}

// processorTime sums one side's processor time over all cells, or returns nil if any cell
// lacks it.
func processorTime(cells []results.Cell, of func(results.CellCPU) *float64) *float64 {
	var sum float64
	for _, c := range cells {
		one := of(c.CPU)
		if one == nil {
			return nil
		}
		sum += *one
	}
	return &sum
}

// smallestLayer returns the least mean size of a transfer over the cells, in bytes.
func (o *Outcome) smallestLayer() int64 {
	var least int64
	for _, c := range o.Cells {
		if n := c.cell.plan.Bytes / int64(len(c.cell.plan.Transfers)); least == 0 || n < least {
			least = n
		}
	}
	return least
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
		Transfers:       recorded(c.cell.plan),
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
		{&cell.Latency.Late, record.Late},
	} {
		var err error
		if *h.to, err = h.from.Latency(); err != nil {
			return cell, err
		}
	}
	predict(&cell, record.Service, record.Exposed, c.Pace.Seconds()*float64(c.cell.layers()), spec, fit)
	if o.Load.Rate > 0 && record.Requests > 0 {
		cell.Load = o.load(record, c.Pace)
	}
	return cell, nil
}
