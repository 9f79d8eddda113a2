package main

import (
	"fmt"
	"math"
	"strings"

	"kvbench/internal/units"
	"kvbench/model"
	"kvbench/report"
)

// column is a column of a prediction: when text output shows it, and its cell in a row.
// Output for programs omits a cell without a value.
type column struct {
	report.Column
	shown func(*forecast) bool
	cell  func(entry) report.Cell
}

// entry is the content of one row.
type entry struct {
	*forecast
	route
	model.Scenario
	model.Outcome
	flips []model.Flip
	// transfer is a fit's interval for the transfer. vague and note are its caveats.
	transfer model.Interval
	vague    bool
	note     string
}

var (
	always      = func(*forecast) bool { return true }
	never       = func(*forecast) bool { return false }
	fitted      = func(p *forecast) bool { return p.fit != "" }
	withPrefill = func(p *forecast) bool { return p.prefill != nil }
	withSaved   = func(p *forecast) bool { return p.saved != "" }
	loaded      = func(p *forecast) bool { return p.rates[0] > 0 || p.sweep == "rate" }
)

// none is a cell that does not apply.
var none = report.Cell{Value: report.Absent}

// only shows a cell in rows that it applies to.
func only(applies func(entry) bool, cell func(entry) report.Cell) func(entry) report.Cell {
	return func(e entry) report.Cell {
		if !applies(e) {
			return none
		}
		return cell(e)
	}
}

// ofFit shows a cell in rows with a fit. Text output shows a dash in the others.
func ofFit(cell func(entry) report.Cell) func(entry) report.Cell {
	return func(e entry) report.Cell {
		if e.route.fit == nil {
			return report.Cell{Value: report.Absent, Text: "-"}
		}
		return cell(e)
	}
}

func hasPrefill(e entry) bool { return e.prefill != nil }
func hasLoad(e entry) bool    { return e.ArrivalsPerSecond > 0 }
func ofLink(e entry) bool     { return e.route.fit == nil }
func estimated(e entry) bool  { return hasPrefill(e) && e.prefill.estimate != nil }

var predictColumns = []column{
	{report.Column{Key: "context_tokens", Head: "context"}, always, func(e entry) report.Cell {
		return report.Cell{Value: e.ContextTokens, Text: units.Tokens(e.ContextTokens)}
	}},
	{report.Column{Key: "link", Head: "link"}, always, func(e entry) report.Cell { return textCell(e.name) }},
	{report.Column{Key: "bytes", Head: "bytes"}, always, func(e entry) report.Cell {
		return report.Cell{Value: e.Transfers.Bytes(), Text: units.Bytes(e.Transfers.Bytes())}
	}},
	{report.Column{Key: "transfers"}, never, func(e entry) report.Cell { return report.Cell{Value: e.Transfers.Count()} }},
	{report.Column{Key: "descriptors"}, never, func(e entry) report.Cell { return report.Cell{Value: e.Transfers.Descriptors()} }},
	{report.Column{Key: "transfer_seconds", Head: "transfer"}, always, func(e entry) report.Cell { return secondsCell(e.TransferSeconds) }},
	{report.Column{Key: "transfer_seconds_low"}, never, ofFit(func(e entry) report.Cell { return secondsCell(e.transfer.Low) })},
	{report.Column{Key: "transfer_seconds_high"}, never, ofFit(func(e entry) report.Cell { return secondsCell(e.transfer.High) })},
	{report.Column{Head: "95 % interval"}, fitted, ofFit(intervalCell)},
	{report.Column{Key: "vague"}, never, ofFit(func(e entry) report.Cell { return report.Cell{Value: e.vague} })},
	{report.Column{Key: "note"}, never, only(func(e entry) bool { return e.note != "" }, func(e entry) report.Cell { return textCell(e.note) })},
	{report.Column{Key: "overhead_fraction", Head: "overhead"}, always, overheadCell},
	{report.Column{Key: "prefill_seconds", Head: "prefill"}, withPrefill, only(hasPrefill, func(e entry) report.Cell { return secondsCell(e.PrefillSeconds) })},
	{report.Column{Key: "transfer_over_prefill", Head: "transfer/prefill"}, withPrefill, only(hasPrefill, func(e entry) report.Cell {
		return report.Cell{Value: e.TransferOverPrefill, Text: fmt.Sprintf("%.3g", e.TransferOverPrefill)}
	})},
	{report.Column{Key: "exposed_seconds", Head: "exposed"}, withPrefill, only(hasPrefill, func(e entry) report.Cell { return secondsCell(e.ExposedSeconds) })},
	{report.Column{Key: "exposed_fraction", Head: "of TTFT"}, withPrefill, only(hasPrefill, func(e entry) report.Cell { return shareCell(e.ExposedShare) })},
	{report.Column{Key: "hiding_bytes_per_second", Head: "hides from goodput"}, withPrefill, only(hasPrefill, func(e entry) report.Cell { return rateCell(e.HidingBytesPerSecond) })},
	{report.Column{Key: "net_gain_seconds", Head: "net gain"}, withSaved, only(func(e entry) bool { return e.SavedKnown }, gainCell)},
	{report.Column{Key: "arrivals_per_second", Head: "arrivals"}, loaded, only(hasLoad, func(e entry) report.Cell {
		return report.Cell{Value: e.ArrivalsPerSecond, Text: fmt.Sprintf("%.4g/s", e.ArrivalsPerSecond)}
	})},
	{report.Column{Key: "offered_bytes_per_second", Head: "offered"}, loaded, only(hasLoad, func(e entry) report.Cell {
		return rateCell(model.OfferedBytesPerSecond(e.ArrivalsPerSecond, e.Transfers.Bytes()))
	})},
	{report.Column{Key: "utilization", Head: "utilization"}, loaded, only(hasLoad, func(e entry) report.Cell {
		return report.Cell{Value: e.Queueing.Utilization, Text: fmt.Sprintf("%.3f", e.Queueing.Utilization)}
	})},
	{report.Column{Key: "wait_fcfs_seconds", Head: "wait FCFS"}, loaded, only(hasLoad, func(e entry) report.Cell { return secondsCell(e.Queueing.WaitFCFS) })},
	{report.Column{Key: "wait_ps_seconds", Head: "wait PS"}, loaded, only(hasLoad, func(e entry) report.Cell { return secondsCell(e.Queueing.WaitPS) })},
	{report.Column{Key: "verdict", Head: "verdict"}, func(p *forecast) bool { return loaded(p) || withPrefill(p) }, verdictCell},
	{report.Column{Key: "flips"}, never, only(func(e entry) bool { return e.SavedKnown }, func(e entry) report.Cell { return report.Cell{Value: flipRows(e.flips)} })},

	// The inputs of the figures; text output has them below the table.
	{report.Column{Key: "link_bytes_per_second"}, never, only(ofLink, func(e entry) report.Cell { return report.Cell{Value: e.lineRate} })},
	{report.Column{Key: "framing_factor"}, never, only(ofLink, func(e entry) report.Cell { return report.Cell{Value: e.framingFactor} })},
	{report.Column{Key: "framing_basis"}, never, only(ofLink, func(e entry) report.Cell { return textCell(e.framingBasis) })},
	{report.Column{Key: "gpu"}, never, only(estimated, func(e entry) report.Cell { return textCell(e.prefill.estimate.gpu) })},
	{report.Column{Key: "gpus"}, never, only(estimated, func(e entry) report.Cell { return report.Cell{Value: e.prefill.estimate.GPUs} })},
	{report.Column{Key: "gpu_flops_per_second"}, never, only(estimated, func(e entry) report.Cell { return report.Cell{Value: e.prefill.estimate.PeakFLOPs} })},
	{report.Column{Key: "mfu"}, never, only(estimated, func(e entry) report.Cell { return report.Cell{Value: e.prefill.estimate.MFU} })},
	{report.Column{Key: "cheap_from_tokens"}, never, only(func(e entry) bool { return e.cheap != nil }, cheapCell)},
}

// headings returns the columns. In text output, hidden columns have no heading.
func (p *forecast) headings() (columns []report.Column) {
	for _, c := range predictColumns {
		if !c.shown(p) {
			c.Head = ""
		}
		columns = append(columns, c.Column)
	}
	return columns
}

// row adds a row and its notes.
func (p *forecast) row(r route, s model.Scenario) {
	e := entry{forecast: p, route: r, Scenario: s, Outcome: s.Outcome(), flips: s.Sensitivity()}
	if r.fit != nil {
		e.transfer = r.fit.Predict(s.Transfers.Totals())
		e.vague, e.note = caveat(r.fit, s)
	}
	var row []report.Cell
	for _, c := range predictColumns {
		row = append(row, c.cell(e))
	}
	p.table.Rows = append(p.table.Rows, row)
	where := fmt.Sprintf("%s over %s", units.Tokens(s.ContextTokens), r.name)
	if e.note != "" {
		p.table.Notes = append(p.table.Notes, where+": "+e.note)
	}
	if line := flipLine(e.flips); line != "" {
		p.table.Notes = append(p.table.Notes, where+", "+line)
	}
}

// caveat returns the reasons not to rely on a fit's prediction of a request. vague
// reports that the prediction is too uncertain for use.
func caveat(fit *model.Fit, s model.Scenario) (vague bool, note string) {
	var notes []string
	err := fit.TrustworthyFor(s.Transfers.Totals())
	if err == nil && s.Overlap {
		err = fit.TrustworthyExposed(s.Transfers, s.PrefillSeconds)
	}
	if err != nil {
		vague, notes = true, append(notes, "too vague to rely on: "+err.Error())
	}
	if outside := fit.Outside(s.Transfers.Totals()); outside != "" {
		notes = append(notes, "extrapolated, so the interval is too narrow: "+outside)
	}
	return vague, strings.Join(notes, "; ")
}

// mostFlips is the most flips that a line lists.
const mostFlips = 3

// flipLine lists the inputs that flip the verdict and their values, nearest first, and
// the inputs that cannot flip it. It is empty if there is no verdict to flip.
func flipLine(flips []model.Flip) string {
	var at, never, barred []string
	for _, f := range flips {
		switch {
		case f.Barred:
			barred = append(barred, f.Input)
		case f.Never:
			never = append(never, f.Input)
		case len(at) < mostFlips:
			at = append(at, f.String())
		}
	}
	var parts []string
	if len(at) > 0 {
		parts = append(parts, "bandwidth as goodput: the verdict flips with "+strings.Join(at, "; "))
	}
	if len(never) > 0 {
		parts = append(parts, "no value of "+strings.Join(never, " or ")+" within a factor of 1000 flips it")
	}
	if len(barred) > 0 {
		parts = append(parts, "no value that "+strings.Join(barred, " or ")+" can have flips it")
	}
	line := strings.Join(parts, "; ")
	if len(at) == 0 && line != "" {
		return "the verdict stands: " + line
	}
	return line
}

// flipRow is a flip for programs. At is null if no possible value of the input within a
// factor of 1000 flips the verdict.
type flipRow struct {
	Input string   `json:"input"`
	Unit  string   `json:"unit"`
	Now   float64  `json:"now"`
	At    *float64 `json:"at"`
}

func flipRows(flips []model.Flip) []flipRow {
	rows := make([]flipRow, len(flips))
	for i, f := range flips {
		rows[i] = flipRow{Input: f.Input, Unit: f.Unit, Now: f.Now}
		if !f.Never {
			rows[i].At = &f.At
		}
	}
	return rows
}

func textCell(s string) report.Cell { return report.Cell{Value: s, Text: s} }

func shareCell(v float64) report.Cell {
	return report.Cell{Value: v, Text: fmt.Sprintf("%.1f %%", 100*v)}
}

// secondsCell is null for an unbounded time.
func secondsCell(seconds float64) report.Cell {
	if math.IsInf(seconds, 0) || math.IsNaN(seconds) {
		return report.Cell{Value: nil, Text: "unbounded"}
	}
	return report.Cell{Value: seconds, Text: units.Seconds(seconds)}
}

// gainCell is the net gain. A queue that grows without end makes it an unbounded loss.
func gainCell(e entry) report.Cell {
	c := secondsCell(e.NetGainSeconds)
	if math.IsInf(e.NetGainSeconds, -1) {
		c.Text = "unbounded loss"
	}
	return c
}

// rateCell is null for an infinite rate.
func rateCell(bytesPerSecond float64) report.Cell {
	if math.IsInf(bytesPerSecond, 0) {
		return report.Cell{Value: nil, Text: "-"}
	}
	return report.Cell{Value: bytesPerSecond, Text: units.BitRate(bytesPerSecond)}
}

// cheapCell is null if no examined context is cheap.
func cheapCell(e entry) report.Cell {
	if tokens := e.cheap[e.name]; tokens > 0 {
		return report.Cell{Value: tokens}
	}
	return report.Cell{Value: nil}
}

func intervalCell(e entry) report.Cell {
	return report.Cell{Text: units.Seconds(e.transfer.Low) + " to " + units.Seconds(e.transfer.High)}
}

// overheadCell is the share of the time that the line rate alone does not explain.
func overheadCell(e entry) report.Cell {
	line := e.Path.WireSeconds(e.Transfers.Bytes())
	if e.lineRate > 0 {
		line = float64(e.Transfers.Bytes()) / e.lineRate
	}
	if e.TransferSeconds <= 0 {
		return shareCell(0)
	}
	return shareCell(1 - line/e.TransferSeconds)
}

func verdictCell(e entry) report.Cell {
	switch {
	case hasPrefill(e):
		return textCell(e.Explain(e.Outcome))
	case hasLoad(e) && e.Queueing.Stable:
		return textCell("stable")
	case hasLoad(e):
		return textCell("unstable: requests arrive faster than the link moves them")
	}
	return none
}
