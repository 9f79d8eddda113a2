package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"kvbench/internal/units"
	"kvbench/results"
)

// Run returns the table of a run, a row for each cell. Programs get every column. Of the
// predictions, people get those that the verdict judges: the service time or, under an
// emulated prefill, the exposed time.
func Run(r *results.Run) Table {
	t := Table{Columns: []Column{
		{"context_tokens", "context"},
		{"bytes", "bytes"},
		{"layers", "layers"},
		{"descriptors", ""},
		{"requests", "requests"},
		{"service_p50_ns", "p50"},
		{"service_p99_ns", "p99"},
		{"layer_p50_ns", "layer p50"},
		{"layer_p99_ns", "layer p99"},
		{"goodput_bytes_per_second", "GB/s"},
		{"predicted_spec_seconds", ""},
		{"ratio_spec", ""},
		{"predicted_fit_seconds", ""},
		{"ratio_fit", ""},
	}}
	seen := judgedOf(r)
	t.Columns = append(t.Columns, seen.columns()...)
	t.Columns = append(t.Columns, []Column{
		{"verdict", "verdict"},
		{"limiter", ""},
		{"checked", ""},
		{"mismatched", ""},
		{"predicted_staged_seconds", ""},
		{"ratio_staged", ""},
		{"complete", ""},
		{"exposed_p50_seconds", ""},
		{"predicted_exposed_spec_seconds", ""},
		{"ratio_exposed_spec", ""},
		{"predicted_exposed_fit_seconds", ""},
		{"ratio_exposed_fit", ""},
	}...)
	for _, c := range r.Cells {
		t.Rows = append(t.Rows, runRow(c, seen))
	}
	t.Notes = runNotes(r)
	return t
}

func runRow(c results.Cell, seen judgedColumns) []Cell {
	overlap := c.Overlap
	if overlap == nil {
		overlap = &results.Overlap{}
	}
	specSeconds, specRatio := predictionCells(c.Predicted.Spec)
	fitSeconds, fitRatio := predictionCells(c.Predicted.Fit)
	stagedSeconds, stagedRatio := predictionCells(c.Predicted.Staged)
	exposedSpecSeconds, exposedSpecRatio := predictionCells(overlap.Spec)
	exposedFitSeconds, exposedFitRatio := predictionCells(overlap.Fit)
	verdict := c.Verdict.Status
	if c.Verify.Mismatched > 0 {
		verdict = "CORRUPT"
	} else if !c.Complete {
		verdict = "incomplete"
	}
	row := []Cell{
		{c.ContextTokens, units.Tokens(c.ContextTokens)},
		{c.Bytes, units.Bytes(c.Bytes)},
		{c.Layers, strconv.Itoa(c.Layers)},
		{c.Descriptors, ""},
		{c.Requests, strconv.FormatInt(c.Requests, 10)},
		quantileCell(c.Latency.Service.P50Ns),
		quantileCell(c.Latency.Service.P99Ns),
		quantileCell(c.Latency.Layer.P50Ns),
		quantileCell(c.Latency.Layer.P99Ns),
		goodputCell(c),
		specSeconds, specRatio, fitSeconds, fitRatio,
	}
	row = append(row, seen.cells(c)...)
	return append(row,
		Cell{c.Verdict.Status, verdict},
		Cell{c.Verdict.Limiter, ""},
		Cell{c.Verify.Checked, ""},
		Cell{c.Verify.Mismatched, ""},
		stagedSeconds, stagedRatio,
		Cell{c.Complete, ""},
		exposedCell(c.Overlap),
		exposedSpecSeconds, exposedSpecRatio, exposedFitSeconds, exposedFitRatio,
	)
}

func goodputCell(c results.Cell) Cell {
	if c.Requests == 0 {
		return Cell{nil, "-"}
	}
	return Cell{c.Goodput, fmt.Sprintf("%.4g", c.Goodput/1e9)}
}

func quantileCell(ns *int64) Cell {
	if ns == nil {
		return Cell{nil, "-"}
	}
	return Cell{*ns, units.Seconds(time.Duration(*ns).Seconds())}
}

func predictionCells(p *results.Prediction) (seconds, ratio Cell) {
	if p == nil {
		return Cell{nil, "-"}, Cell{nil, "-"}
	}
	seconds = Cell{p.Seconds, units.Seconds(p.Seconds)}
	if p.Ratio == 0 { // the run ended before it measured anything
		return seconds, Cell{nil, "-"}
	}
	return seconds, Cell{p.Ratio, fmt.Sprintf("%.3f", p.Ratio)}
}

// runNotes are the lines under a run's table.
func runNotes(r *results.Run) []string {
	notes := []string{fmt.Sprintf("path: %s, %s to %s", pathText(r.Transport), r.Producer.Host.Hostname, r.Consumer.Host.Hostname)}
	notes = append(notes, stagingNotes(r.Transport)...)
	if r.Link != nil {
		notes = append(notes, fmt.Sprintf("spec: %s at %s, %.4f of it payload (%s)", r.Link.Name, units.BitRate(r.Link.BytesPerSecond), r.Link.FramingFactor, r.Link.FramingBasis))
	}
	if r.Fit != nil {
		notes = append(notes, fitNotes(r.Fit)...)
	}
	if e := r.Config["prefill-estimate"]; e != "" {
		notes = append(notes, e)
	}
	few := false
	for _, c := range r.Cells {
		notes = append(notes, cellNotes(c)...)
		few = few || c.Latency.Service.P99Ns == nil
	}
	notes = append(notes, fitCaveats(r.Cells)...)
	if few {
		notes = append(notes, "-: too few samples behind it (p99 needs 100)")
	}
	if !r.Complete {
		notes = append(notes, "INCOMPLETE: "+r.Incomplete)
	}
	return notes
}

func fitNotes(f *results.Fit) (notes []string) {
	if f.Bandwidth.Value > 0 {
		notes = append(notes, fmt.Sprintf("fit: %s; held-out error from %s up %.1f %% mean, %.1f %% worst", FitText(f), units.Bytes(f.ErrorFromBytes), 100*f.MAPE, 100*f.Worst))
	}
	for _, n := range f.Notes {
		notes = append(notes, "fit: "+n)
	}
	return notes
}

// fitCaveats are the reasons not to trust the fit's predictions, each with its contexts.
func fitCaveats(cells []results.Cell) (notes []string) {
	var caveats []string
	contexts := make(map[string][]string)
	for _, c := range cells {
		p := c.Predicted.Fit
		if p == nil || p.Note == "" {
			continue
		}
		caveat := "extrapolated, so the interval is too narrow: " + p.Note
		if p.Vague {
			caveat = "too vague to rely on: " + p.Note
		}
		if len(contexts[caveat]) == 0 {
			caveats = append(caveats, caveat)
		}
		contexts[caveat] = append(contexts[caveat], units.Tokens(c.ContextTokens))
	}
	for _, caveat := range caveats {
		notes = append(notes, strings.Join(contexts[caveat], ", ")+": fit: "+caveat)
	}
	return notes
}

// cellNotes are the lines about one row.
func cellNotes(c results.Cell) (notes []string) {
	add := func(format string, args ...any) {
		notes = append(notes, units.Tokens(c.ContextTokens)+": "+fmt.Sprintf(format, args...))
	}
	measured := c.Latency.Service.Count > 0
	if o := c.Overlap; o != nil && measured {
		add("under a prefill of %s, exposed %s%s", units.Seconds(o.PrefillSeconds), estimateText(o.Exposed50, units.Seconds), exposedText(o))
	}
	if p := c.Predicted.Staged; p != nil && measured {
		add("the pipeline of stages takes %s by what each did alone (ratio %.3f)", units.Seconds(p.Seconds), p.Ratio)
	}
	if c.Load != nil {
		add("%s", loadText(c.Load))
	}
	if c.Verdict.Status != "pass" && c.Verdict.Reason != "" {
		add("%s: %s", c.Verdict.Status, c.Verdict.Reason)
	}
	if c.Verdict.Limiter != "" {
		add("limited by %s: %s", c.Verdict.Limiter, c.Verdict.Evidence)
	}
	if c.WorkingSetBytes < c.Bytes {
		add("%s of memory reused for the %s of a request", units.BinaryBytes(c.WorkingSetBytes), units.BinaryBytes(c.Bytes))
	}
	return notes
}

// FitText is the coefficients of a fit with their 95 % intervals, for people.
func FitText(f *results.Fit) string {
	return fmt.Sprintf("startup %s, each further layer %s, each descriptor %s, %s",
		estimateText(f.Alpha, units.Seconds), estimateText(f.Beta, units.Seconds), estimateText(f.Gamma, units.Seconds), estimateText(f.Bandwidth, units.Rate))
}

// estimateText is a value with its 95 % interval. Either bound may be open.
func estimateText(e results.Estimate, format func(float64) string) string {
	switch {
	case e.Low != nil && e.High != nil:
		return fmt.Sprintf("%s (%s to %s)", format(e.Value), format(*e.Low), format(*e.High))
	case e.Low != nil:
		return fmt.Sprintf("%s (from %s on)", format(e.Value), format(*e.Low))
	case e.High != nil:
		return fmt.Sprintf("%s (up to %s)", format(e.Value), format(*e.High))
	}
	return format(e.Value)
}

func exposedText(o *results.Overlap) string {
	s := ""
	if o.Spec != nil {
		s += fmt.Sprintf(", spec %s (ratio %.3f)", units.Seconds(o.Spec.Seconds), o.Spec.Ratio)
	}
	if o.Fit != nil {
		s += fmt.Sprintf(", fit %s (ratio %.3f)", units.Seconds(o.Fit.Seconds), o.Fit.Ratio)
	}
	return s
}

func loadText(l *results.Load) string {
	theory := "no steady state"
	if l.Stable {
		theory = "no theory"
	}
	if l.ResponseFCFSSeconds != nil && l.ResponsePSSeconds != nil {
		theory = fmt.Sprintf("theory %s (FCFS) and %s (fair sharing)", units.Seconds(*l.ResponseFCFSSeconds), units.Seconds(*l.ResponsePSSeconds))
	}
	if l.Growth > 0 { // 0: too few requests for a ratio
		theory += fmt.Sprintf("; last third over first %.2f", l.Growth)
	}
	return fmt.Sprintf("%.4g arrivals/s (%s), utilization %.3f: mean response %s, %s; %s",
		l.ArrivalsPerSecond, l.Arrivals, l.Utilization, units.Seconds(l.ResponseMeanSeconds), theory, l.Note)
}

// pathText names the carrier of the data and, if it is emulated or staged, the substitute.
func pathText(t results.Transport) string {
	text := t.Lane
	if t.Protocol != "" {
		text += " by " + t.Protocol
	}
	if t.SoftwareDevice {
		text += " (software RDMA: it says nothing about hardware)"
	}
	switch t.GPUPath {
	case results.Staged:
		text += ", GPU memory staged through host memory"
		if t.Staging != nil && t.Staging.Reason != "" {
			text += " (" + t.Staging.Reason + ")"
		}
	case results.Direct:
		text += ", GPU memory directly"
	}
	return text
}
