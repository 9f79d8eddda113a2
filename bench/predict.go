package bench

import (
	"math"

	"kvbench/model"
	"kvbench/results"
)

// predict fills in what was expected of a cell, beside what the histograms of its
// service and exposed times say. prefill is the emulated one in seconds, 0 without.
func predict(cell *results.Cell, service, exposed *results.Histogram, prefill float64, spec *model.Cost, fit *model.Fit) {
	measured := median(service)
	cell.Service50, cell.Overlap, cell.Predicted = estimate(measured), nil, results.Predictions{}
	if prefill > 0 {
		cell.Overlap = &results.Overlap{PrefillSeconds: prefill, Exposed50: estimate(median(exposed))}
	}
	// expect holds the service time against a cost, and under a prefill the exposed time too.
	expect := func(whole model.Interval, cost model.Cost) (service, exposed *results.Prediction) {
		if cell.Overlap == nil {
			return prediction(measured, whole), nil
		}
		e := cost.ExposedSeconds(cell.Layers, cell.Descriptors, cell.Bytes, prefill)
		// What the whole transfer leaves open, its exposed part does too.
		spread := func(bound float64) float64 { return e * bound / whole.Value }
		exposedTime := model.Interval{Value: e, Low: spread(whole.Low), High: spread(whole.High)}
		serviceTime := model.Interval{Value: prefill + e, Low: prefill + exposedTime.Low, High: prefill + exposedTime.High}
		return prediction(measured, serviceTime), prediction(interval(cell.Overlap.Exposed50), exposedTime)
	}
	if spec != nil {
		whole, hidden := expect(model.Exactly(spec.Seconds(cell.Layers, cell.Descriptors, cell.Bytes)), *spec)
		cell.Predicted.Spec = whole
		if cell.Overlap != nil {
			cell.Overlap.Spec = hidden
		}
	}
	if fit != nil {
		whole, hidden := expect(fit.Predict(cell.Layers, cell.Descriptors, cell.Bytes), fit.Cost())
		cell.Predicted.Fit = whole
		if cell.Overlap != nil {
			cell.Overlap.Fit = hidden
		}
		for _, p := range []*results.Prediction{whole, hidden} {
			if p == nil {
				continue
			}
			p.Note = fit.Outside(cell.Layers, cell.Descriptors, cell.Bytes)
			if err := fit.TrustworthyFor(cell.Layers, cell.Descriptors, cell.Bytes); err != nil {
				p.Note, p.Vague = err.Error(), true
			}
		}
	}
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
