package report

import (
	"cmp"

	"kvbench/internal/units"
	"kvbench/results"
)

// judgedColumns selects the columns of the predictions that the cells of a run are judged
// against.
type judgedColumns struct {
	overlap bool // the exposed time is judged
	both    bool // against spec and fit, side by side
}

func judgedOf(r *results.Run) (j judgedColumns) {
	for _, c := range r.Cells {
		spec, fit := judged(c)
		j.overlap = j.overlap || c.Overlap != nil
		j.both = j.both || spec != nil && fit != nil
	}
	return j
}

// judged returns the predictions that a cell's verdict uses.
func judged(c results.Cell) (spec, fit *results.Prediction) {
	if c.Overlap != nil {
		return c.Overlap.Spec, c.Overlap.Fit
	}
	return c.Predicted.Spec, c.Predicted.Fit
}

func (j judgedColumns) columns() (columns []Column) {
	if j.overlap {
		columns = append(columns, Column{"", "exposed"})
	}
	if j.both {
		return append(columns, Column{"", "spec"}, Column{"", "ratio"}, Column{"", "fit"}, Column{"", "ratio"})
	}
	return append(columns, Column{"", "predicted"}, Column{"", "ratio"})
}

func (j judgedColumns) cells(c results.Cell) (cells []Cell) {
	if j.overlap {
		cells = append(cells, exposedCell(c.Overlap))
	}
	spec, fit := judged(c)
	shown := []*results.Prediction{spec, fit}
	if !j.both {
		shown = []*results.Prediction{cmp.Or(fit, spec)}
	}
	for _, p := range shown {
		seconds, ratio := predictionCells(p)
		cells = append(cells, seconds, ratio)
	}
	return cells
}

// exposedCell is the median of the exposed times; a dash if nothing was measured.
func exposedCell(o *results.Overlap) Cell {
	if o == nil || o.Exposed50.Value == 0 {
		return Cell{nil, "-"}
	}
	return Cell{o.Exposed50.Value, units.Seconds(o.Exposed50.Value)}
}
