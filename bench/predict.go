package bench

import (
	"cmp"
	"math"

	"kvbench/model"
	"kvbench/results"
)

// predict fills in what was expected of a cell, beside what the histograms of its
// service and exposed times say. prefill is the emulated one in seconds, 0 without.
func predict(cell *results.Cell, service, exposed *results.Histogram, prefill float64, spec *model.Cost, fit *model.Fit) {
	measured := median(service)
	cell.Service50, cell.Overlap, cell.Predicted = medianEstimate(service), nil, results.Predictions{}
	if prefill > 0 {
		cell.Overlap = &results.Overlap{PrefillSeconds: prefill, Exposed50: medianEstimate(exposed)}
	}
	transfers, known := transfersOf(cell)
	// expect holds the measurements against a service time of a request whose layers are
	// all ready at once and, under a prefill, against the exposed time.
	expect := func(whole, rest model.Interval) (service, hidden *results.Prediction) {
		if cell.Overlap == nil {
			return prediction(measured, whole), nil
		}
		hidden = prediction(interval(cell.Overlap.Exposed50), rest)
		if hidden != nil && !known {
			hidden.Vague, hidden.Note = true, sizesUnknown
		}
		return prediction(measured, model.Interval{Value: prefill + rest.Value, Low: prefill + rest.Low, High: prefill + rest.High}), hidden
	}
	if spec != nil {
		whole, hidden := expect(model.Exactly(spec.Seconds(transfers.Totals())), model.Exactly(spec.ExposedSeconds(transfers, prefill)))
		cell.Predicted.Spec = whole
		if cell.Overlap != nil {
			cell.Overlap.Spec = hidden
		}
	}
	if fit != nil {
		whole, hidden := expect(fit.Predict(transfers.Totals()), fit.PredictExposed(transfers, prefill))
		cell.Predicted.Fit = whole
		outside, vague := fit.Outside(transfers.Totals()), fit.TrustworthyFor(transfers.Totals())
		caution(whole, outside, vague)
		if cell.Overlap != nil {
			cell.Overlap.Fit = hidden
			caution(hidden, outside, cmp.Or(vague, fit.TrustworthyExposed(transfers, prefill)))
		}
	}
}

// sizesUnknown is why the exposed time of an older record has no verdict.
const sizesUnknown = "the record does not hold the size of each layer's transfer, on which the exposed time depends; run it again"

// caution notes where not to lean on a prediction by a fit: it is of a request outside
// what was calibrated, or for the reason in vague it is none.
func caution(p *results.Prediction, outside string, vague error) {
	switch {
	case p == nil || p.Vague: // for a reason that is of more weight
	case vague != nil:
		p.Note, p.Vague = vague.Error(), true
	default:
		p.Note = outside
	}
}

// median is the median time in seconds with its 95 % interval.
func median(h *results.Histogram) model.Interval {
	low, high := model.MedianRanks(int(h.Count()))
	// MedianRanks counts the smallest sample as 0 and the largest as 1.
	at := func(q float64) float64 { return h.Smallest(1 + int64(math.Round(q*float64(h.Count()-1)))).Seconds() }
	return model.Interval{Value: h.Quantile(0.5).Seconds(), Low: at(low), High: at(high)}
}

// medianEstimate is the median for a record: nothing where nothing was measured.
func medianEstimate(h *results.Histogram) results.Estimate {
	if h.Count() == 0 {
		return results.Estimate{}
	}
	return estimate(median(h))
}

// prediction holds a measurement against a prediction; nil where there is no
// finite one. Where nothing was measured it has no ratio.
func prediction(measured, predicted model.Interval) *results.Prediction {
	if !(predicted.Value > 0) || math.IsInf(predicted.High, 0) {
		return nil
	}
	p := &results.Prediction{Seconds: predicted.Value, SecondsLow: predicted.Low, SecondsHigh: predicted.High}
	if measured.Value > 0 {
		c := model.Compare(measured, predicted, 0)
		p.Ratio, p.Low, p.High = c.Ratio.Value, c.Ratio.Low, bound(c.Ratio.High)
	}
	return p
}
