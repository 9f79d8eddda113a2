package bench

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"kvbench/model"
	"kvbench/results"
)

// refit fits the record's calibration samples and fills in its coefficients. If the fit
// fails or is not trustworthy, it adds a note and returns nil.
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
	f.MAPEAll, f.WorstAll = fit.MAPE, fit.Worst
	f.Notes = append(append(f.Notes, fit.Notes...), fit.Vague()...)
	f.MAPE, f.Worst = heldOut(fit.Residuals, f.ErrorFromBytes)
	if err := fit.Trustworthy(); err != nil {
		f.Notes = append(f.Notes, err.Error())
		return nil
	}
	return &fit
}

// heldOut returns the mean and the largest relative error of predictions for points that
// the fit did not see. It covers batches of at least from bytes, or all batches if none
// is that large.
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

// FitOf fits the record's calibration again, and returns the fit also in the record's
// form. It returns an error if there is no trustworthy fit.
func FitOf(run *results.Run) (*model.Fit, *results.Fit, error) {
	if run.Fit == nil {
		return nil, nil, errors.New("read fit: the run was not calibrated; run it without --calibrate off")
	}
	f := *run.Fit
	f.Notes = nil
	if fit := refit(&f); fit != nil {
		return fit, &f, nil
	}
	return nil, nil, fmt.Errorf("read fit: %s", strings.Join(f.Notes, "; "))
}

// estimate converts an interval for JSON, which has no infinity.
func estimate(i model.Interval) results.Estimate {
	return results.Estimate{Value: i.Value, Low: bound(i.Low), High: bound(i.High)}
}

func bound(v float64) *float64 {
	if math.IsInf(v, 0) || math.IsNaN(v) || v == math.MaxFloat64 {
		return nil
	}
	return &v
}
