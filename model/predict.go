package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"kvbench/internal/units"
)

// Cost is the fit's central values.
func (f Fit) Cost() Cost {
	c := Cost{AlphaSeconds: f.Alpha.Value, BetaSeconds: f.Beta.Value, GammaSeconds: f.Gamma.Value, BytesPerSecond: f.Bandwidth.Value, Overlap: f.Overlap}
	if f.Second != nil {
		c.BytesPerSecond = f.Second.Bandwidth.Value
		c.KneeBytes, c.KneeRate = f.Second.FromBytes, f.Bandwidth.Value/c.BytesPerSecond
	}
	return c
}

// Asymptotic is the bandwidth in bytes a second that large batches approach. Compare this
// one with a link.
func (f Fit) Asymptotic() Interval {
	if f.Second != nil {
		return f.Second.Bandwidth
	}
	return f.Bandwidth
}

// central is the fit's central values in the solver's form.
func (f Fit) central() (shape, coefficients) {
	h := shape{overlap: f.Overlap, knee: noKnee}
	x := coefficients{f.Alpha.Value, f.Beta.Value, f.Gamma.Value, 1 / f.Bandwidth.Value}
	if f.Second != nil {
		h.knee, x[colInverseB2] = f.Second.FromBytes, 1/f.Second.Bandwidth.Value
	}
	return h, x
}

// z95 is the normal quantile of a 95 % interval.
const z95 = 1.959964

// Predict is the time in seconds of a batch (its median, or the fitted quantile) with the
// 95 % interval of that time on this path, from the uncertainty of the coefficients and the
// lack of fit. It does not hold for one repetition, which spreads by [Fit.Spread] around
// it. A Fit not made by [FitCost] has no draws, so its predictions have only its LackOfFit
// as spread.
func (f Fit) Predict(transfers, descriptors int, bytes int64) Interval {
	if transfers <= 0 {
		return Interval{}
	}
	h, x := f.central()
	r := h.row(transfers, descriptors, bytes)
	value := h.seconds(x, r)
	i := f.percentiles(value, func(d coefficients) float64 { return h.seconds(d, r) })
	extra := z95 * f.lackAt(value) * value
	i.Low = max(0, value-math.Hypot(value-i.Low, extra))
	i.High = value + math.Hypot(i.High-value, extra)
	return i
}

// lackAt is the lack of fit, as a share, of batches that take about seconds.
func (f Fit) lackAt(seconds float64) float64 {
	if len(f.lacks) == 0 {
		return f.LackOfFit
	}
	i, _ := slices.BinarySearchFunc(f.lacks, seconds, func(l lack, s float64) int { return cmp.Compare(l.seconds, s) })
	return f.lacks[min(i, len(f.lacks)-1)].share
}

// Limits beyond which a fit is worth less than a data sheet: the width of bandwidth's
// interval, as a share of bandwidth; the mean held-out error; and half the width of one
// prediction's interval. The limits of overheads are for the width of the interval as a
// share of a calibration point's time, at the point that the overhead weighs most in.
// Startup has more room: it matters to the smallest transfers alone.
const (
	openBandwidth  = 0.4
	openStartup    = 2.0
	openOverhead   = 1.0
	openMAPE       = 0.5
	openPrediction = 0.3

	calibrateMore = "calibrate for longer and on a quieter host"
)

// Trustworthy is nil, or ErrUntrustworthy wrapped with the interval that is too wide and a
// remedy. A fit that passes can still be vague about one batch: see [Fit.TrustworthyFor].
func (f Fit) Trustworthy() error {
	b := f.Asymptotic()
	if open := (b.High - b.Low) / b.Value; open > openBandwidth {
		return fmt.Errorf("%w: bandwidth is %s but could be %s to %s; %s, with larger sizes",
			ErrUntrustworthy, units.Rate(b.Value), units.Rate(b.Low), rateOrAny(b.High), calibrateMore)
	}
	if f.MAPE > openMAPE {
		return fmt.Errorf("%w: points that the fit did not see are %.0f %% off on average, so bytes and counts do not explain the time; %s, or pin it to CPUs",
			ErrUntrustworthy, 100*f.MAPE, calibrateMore)
	}
	return nil
}

// Vague lists, for people, the overheads that the calibration left open: those held at 0,
// and those with an interval as wide as a large share of some batch's time. A prediction's
// interval includes their uncertainty: see [Fit.TrustworthyFor]. An overhead held at 0
// enters it as lack of fit alone.
func (f Fit) Vague() (notes []string) {
	for _, c := range []struct {
		name   string
		column int
		i      Interval
		most   float64
	}{
		{"startup (alpha)", colAlpha, f.Alpha, openStartup},
		{"each further transfer (beta)", colBeta, f.Beta, openOverhead},
		{"each descriptor (gamma)", colGamma, f.Gamma, openOverhead},
	} {
		switch open := (c.i.High - c.i.Low) * f.heaviest(c.column); {
		case f.held&(1<<c.column) != 0:
			notes = append(notes, fmt.Sprintf("%s is not told: it is held at 0, since the batches where it weighs most are faster than the other costs explain, as through a shaper's burst; at %s it would be all that the fastest of them took",
				c.name, units.Seconds(c.i.High)))
		case f.active&(1<<c.column) != 0 && open > c.most:
			notes = append(notes, fmt.Sprintf("%s is not told apart from the rest: anything from %s to %s fits; %s",
				c.name, units.Seconds(c.i.Low), units.Seconds(c.i.High), calibrateMore))
		}
	}
	return notes
}

// TrustworthyFor is nil, or ErrUntrustworthy wrapped with the reason, if the prediction for
// one batch is too vague to compare with a measurement.
func (f Fit) TrustworthyFor(transfers, descriptors int, bytes int64) error {
	i := f.Predict(transfers, descriptors, bytes)
	if tooOpen(i) {
		return fmt.Errorf("%w: the prediction for %s in %d transfers is %s but could be %s to %s; %s",
			ErrUntrustworthy, units.Bytes(bytes), transfers, units.Seconds(i.Value), units.Seconds(i.Low), units.Seconds(i.High), calibrateMore)
	}
	return nil
}

// heaviest is the greatest share of a point's time that a second of the coefficient in
// column would be. Without points it is 0.
func (f Fit) heaviest(column int) (most float64) {
	for _, r := range f.Residuals {
		if r.Fitted > 0 {
			most = max(most, shape{knee: noKnee}.row(r.Transfers, r.Descriptors, r.Bytes)[column]/r.Fitted)
		}
	}
	return most
}

func rateOrAny(r float64) string {
	if r == math.MaxFloat64 {
		return "any rate"
	}
	return units.Rate(r)
}

// Outside describes, for people, how a batch lies outside the calibrated ones by more than
// a factor of two; it is empty for a batch inside. A prediction outside is an
// extrapolation, and its interval is too narrow.
func (f Fit) Outside(transfers, descriptors int, bytes int64) string {
	var k, n int
	var s int64
	for _, r := range f.Residuals {
		k, n, s = max(k, r.Transfers), max(n, r.Descriptors), max(s, r.Bytes)
	}
	switch {
	case len(f.Residuals) == 0:
		return ""
	case transfers > 2*k:
		return fmt.Sprintf("requests have more layers than the batches that were calibrated, %d", k)
	case descriptors > 2*n:
		return fmt.Sprintf("requests have more descriptors than the batches that were calibrated, %d", n)
	case bytes > 2*s:
		return fmt.Sprintf("requests are larger than the largest batch that was calibrated, %s", units.Bytes(s))
	}
	return ""
}
