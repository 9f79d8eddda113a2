package bench

import (
	"cmp"
	"math"

	"kvbench/model"
	"kvbench/results"
)

// predict fills in a cell's predictions and compares them with the histograms of its
// service and exposed times. prefill is the emulated prefill in seconds, 0 without.
func predict(cell *results.Cell, service, exposed *results.Histogram, prefill float64, spec *model.Cost, fit *model.Fit) {
	measured := median(service)
	cell.Service50, cell.Overlap, cell.Predicted = medianEstimate(service), nil, results.Predictions{}
	if prefill > 0 {
		cell.Overlap = &results.Overlap{PrefillSeconds: prefill, Exposed50: medianEstimate(exposed)}
	}
	transfers, known := transfersOf(cell)
	// expect compares the measured service time with whole, the prediction if all layers
	// are ready at once. Under a prefill it compares the service time with prefill plus
	// rest, and the exposed time with rest.
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

// sizesUnknown is the reason why an older record's exposed time has no verdict.
const sizesUnknown = "the record does not hold the size of each layer's transfer, on which the exposed time depends; run it again"

// caution marks a prediction by a fit as unreliable. outside notes a request beyond the
// calibrated range; vague is why there can be no verdict.
func caution(p *results.Prediction, outside string, vague error) {
	switch {
	case p == nil || p.Vague: // keep the weightier reason
	case vague != nil:
		p.Note, p.Vague = vague.Error(), true
	default:
		p.Note = outside
	}
}

// median returns the median time in seconds with its 95 % interval.
func median(h *results.Histogram) model.Interval {
	low, high := model.MedianRanks(int(h.Count()))
	// MedianRanks returns 0 for the smallest sample and 1 for the largest.
	at := func(q float64) float64 { return h.Smallest(1 + int64(math.Round(q*float64(h.Count()-1)))).Seconds() }
	return model.Interval{Value: h.Quantile(0.5).Seconds(), Low: at(low), High: at(high)}
}

// medianEstimate returns the median for a record, or the zero Estimate without samples.
func medianEstimate(h *results.Histogram) results.Estimate {
	if h.Count() == 0 {
		return results.Estimate{}
	}
	return estimate(median(h))
}

// prediction compares a measurement with a prediction. It returns nil if the prediction
// is not positive and finite. It leaves out the ratio if nothing was measured.
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
