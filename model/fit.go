package model

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Errors of [FitCost], each wrapped with advice.
var (
	// ErrBadSample is returned when a sample cannot be a timed batch.
	ErrBadSample = errors.New("bad calibration sample")
	// ErrTooFewPoints is returned when the samples have fewer combinations of
	// transfers, descriptors and bytes than the unknowns and their check need.
	ErrTooFewPoints = errors.New("too few calibration points")
	// ErrTooFewRepeats is returned when points have too few repetitions for an estimate
	// of their spread.
	ErrTooFewRepeats = errors.New("too few repetitions")
	// ErrSizesDoNotVary is returned when startup and bandwidth cannot be separated.
	ErrSizesDoNotVary = errors.New("sizes do not vary")
	// ErrNoBandwidth is returned when time does not grow with the bytes.
	ErrNoBandwidth = errors.New("time does not grow with bytes")
	// ErrUntrustworthy is returned by [Fit.Trustworthy].
	ErrUntrustworthy = errors.New("calibration too uncertain")
)

// FitOptions configures [FitCost]; the zero value selects the defaults.
type FitOptions struct {
	Seed      uint64  // of the bootstrap: the same seed and samples give the same fit
	Resamples int     // bootstrap draws; 0 is 300
	Folds     int     // parts that are held out in turn; 0 is 10
	Quantile  float64 // quantile of each point that is fitted; 0 is 0.5, the median
	// Plain fits only alpha, beta, gamma and one bandwidth, added up. Otherwise FitCost
	// also tries an overlap of posting and wire (see [Cost]) and a second bandwidth
	// beyond some size (a cache that overflows, a change of protocol, a shaper's
	// burst), and keeps them only if they improve BIC enough.
	Plain bool
}

func (o FitOptions) withDefaults() FitOptions {
	if o.Resamples <= 0 {
		o.Resamples = 300
	}
	if o.Folds <= 1 {
		o.Folds = 10
	}
	if o.Quantile <= 0 || o.Quantile >= 1 {
		o.Quantile = 0.5
	}
	return o
}

// Fit is a path's cost found by calibration, with 95 % intervals. Each coefficient is
// at least 0. A High of math.MaxFloat64 means that the data set no upper bound. If the
// data hold an overhead at 0, its High is the bound set by the fastest batches.
type Fit struct {
	Alpha     Interval // seconds, startup of a batch with its acknowledgement
	Beta      Interval // seconds for each transfer after the first
	Gamma     Interval // seconds for each descriptor
	Bandwidth Interval // bytes a second; with a Second regime, of the first bytes only
	Second    *Regime  // nil if one bandwidth is enough
	Overlap   float64  // share of posting hidden behind the wire, in 0..1; see [Cost]

	MAPE, Worst float64 // held-out error as a share: mean and greatest
	Spread      float64 // standard deviation of one repetition about its median, as a share
	// LackOfFit is the standard deviation, as a share, of the fit's error beyond the
	// noise of the repetitions: the median over the points. Predictions widen by the
	// lack of fit of the points that took about as long.
	LackOfFit       float64
	Points, Samples int
	Dropped         int        // repetitions left out as wild (slower than the median by half and six deviations)
	Residuals       []Residual // in order of bytes
	Notes           []string   // unknowns that the calibration left open, for people

	draws  []coefficients
	lacks  []lack // in order of time
	active uint   // bit i: column i was solved for; the others are 0
	held   uint   // bit i: column i was solved for and is held at 0, see [heldShare]
}

// Regime is a bandwidth that holds for the bytes of a batch beyond FromBytes.
type Regime struct {
	FromBytes int64
	Bandwidth Interval // bytes a second
}

// Residual is one calibration point beside its fitted time.
type Residual struct {
	Transfers, Descriptors int
	Bytes                  int64
	Seconds                float64 // median, or the quantile fitted
	Fitted                 float64 // by the fit of all points
	HeldOut                float64 // by a fit without this point
}

// FitCost fits [Cost] to a calibration. To separate its four unknowns, bytes,
// descriptors and transfers a batch must each vary independently of the other two, over
// decades, with every combination repeated in random order. Nine repetitions are enough
// if one in ten is disturbed.
//
// Each point is its median, after wild repetitions are dropped. The coefficients, all
// held at or above 0, minimise Huber's loss of relative residuals over each point's own
// noise. This is least squares weighted 1/T² with more weight for a point that repeats
// well and less for a disturbed one. Intervals are percentiles of a bootstrap over the
// repetitions inside each point, widened by the lack of fit, so they hold for a path
// that is not a straight line too. Held-out error leaves sizes out in turn. The result
// is deterministic; the work grows with Resamples times the samples.
func FitCost(samples []Sample, opt FitOptions) (Fit, error) {
	opt = opt.withDefaults()
	points, err := collect(samples)
	if err != nil {
		return Fit{}, err
	}
	if err := enoughRepeats(points, opt.Quantile); err != nil {
		return Fit{}, err
	}
	f := Fit{Points: len(points), Samples: len(samples)}
	f.Spread = spread(points)
	f.Dropped = summarize(points, opt.Quantile)
	p := newProblem(points, shape{knee: noKnee})
	if p.active, f.Notes, err = p.identify(); err != nil {
		return Fit{}, err
	}
	solution := p.solveRobust()
	if !opt.Plain {
		p, solution = p.bestShape(points, solution)
	}
	if solution.coefficients[colInverseB] == 0 {
		return Fit{}, fmt.Errorf("%w: the fastest and largest batches take the same time; calibrate with larger sizes, up to at least 16 MiB", ErrNoBandwidth)
	}
	f.setLack(points, solution.scale)
	f.draws = p.bootstrap(points, solution, opt)
	f.setIntervals(p, solution.coefficients)
	f.holdOut(p, points, solution.coefficients, opt.Folds)
	return f, nil
}

// enoughRepeats returns an error if a point has too few repetitions for its statistic
// or spread.
func enoughRepeats(points []point, q float64) error {
	least := 3
	if q > 0.5 {
		least = int(math.Ceil(1/(1-q) - 1e-9))
	}
	for _, p := range points {
		if len(p.seconds) < least {
			return fmt.Errorf("%w: %d bytes in %d transfers was timed %d times and the %g quantile needs %d; repeat every point at least that often",
				ErrTooFewRepeats, p.bytes, p.transfers, len(p.seconds), q, least)
		}
	}
	return nil
}

func newProblem(points []point, h shape) problem {
	n := len(points)
	p := problem{shape: h, rows: make([]coefficients, n), values: make([]float64, n), noise: make([]float64, n)}
	for i, pt := range points {
		p.rows[i] = h.row(pt.transfers, pt.descriptors, pt.bytes)
		p.values[i], p.noise[i] = pt.statistic, pt.noise
	}
	return p
}

// identify returns the unknowns that the points can separate, and a note for each other
// one.
func (p problem) identify() (active uint, notes []string, err error) {
	const least = 6 // four unknowns and some points to check them with
	if len(p.values) < least {
		return 0, nil, fmt.Errorf("%w: %d combinations of transfers, descriptors and bytes, at least %d are needed; calibrate for longer", ErrTooFewPoints, len(p.values), least)
	}
	active = 1 << colAlpha
	if !p.apart(colInverseB, active) {
		return 0, nil, fmt.Errorf("%w: all points move the same bytes, so startup and bandwidth cannot be told apart; calibrate with sizes over several decades", ErrSizesDoNotVary)
	}
	active |= 1 << colInverseB
	if p.apart(colBeta, active) {
		active |= 1 << colBeta
	} else {
		notes = append(notes, "transfers a batch never vary on their own: beta is taken as 0")
	}
	if p.apart(colGamma, active) {
		active |= 1 << colGamma
	} else {
		notes = append(notes, "descriptors never vary apart from transfers and bytes: gamma is taken as 0 and its cost is inside the others")
	}
	return active, notes, nil
}

// lack is one point's lack of fit, applied to batches that take about as long.
type lack struct{ seconds, share float64 }

// setLack computes the lack of fit from the scale of the residuals over the noise. It
// assumes that the lack of fit grows with the noise, as the weights do.
func (f *Fit) setLack(points []point, scale float64) {
	excess := math.Sqrt(max(0, scale*scale-1))
	shares := make([]float64, len(points))
	for i, p := range points {
		shares[i] = excess * p.noise
		f.lacks = append(f.lacks, lack{p.statistic, shares[i]})
	}
	slices.SortFunc(f.lacks, func(a, b lack) int { return cmp.Compare(a.seconds, b.seconds) })
	slices.Sort(shares)
	f.LackOfFit = quantile(shares, 0.5)
}

// systematic is the standard deviation, as a share, of the error that all points have
// in common and no repetition shows: a path's drift between calibration and use, and
// the curve's own error. Without it a steady path would get intervals below a tenth of
// a per cent.
const systematic = 0.003

// bootstrap solves again with each point's repetitions drawn anew, each point moved by
// the lack of fit, and all points moved by the systematic error.
func (p problem) bootstrap(points []point, s robust, opt FitOptions) []coefficients {
	excess := math.Sqrt(max(0, s.scale*s.scale-1))
	source := rand.NewPCG(opt.Seed, 0x6b7662656e6368)
	rng := rand.New(source)
	draws := make([]coefficients, opt.Resamples)
	values, w := make([]float64, len(points)), newWorkspace(len(points))
	again := redraw{source: source}
	for d := range draws {
		for i, pt := range points {
			values[i] = again.quantile(pt.seconds, opt.Quantile) * max(0.01, 1+excess*pt.noise*rng.NormFloat64())
		}
		draws[d] = p.resolve(s, values, w)
		common := 1 + systematic*rng.NormFloat64()
		for c := range draws[d] {
			draws[d][c] *= common
		}
	}
	return draws
}

// redraw draws from a sorted sample with replacement. It counts the draws of each
// value, so that no draw needs a sort. A fit draws half a million values.
type redraw struct {
	source *rand.PCG
	times  []int
}

// quantile draws as many values as the sample has and returns their quantile.
func (r *redraw) quantile(sorted []float64, q float64) float64 {
	n := len(sorted)
	r.times = slices.Grow(r.times[:0], n)[:n]
	clear(r.times)
	// Half of a random word for each, scaled to n: uneven by n in 2^32.
	for drawn := 0; drawn < n; drawn += 2 {
		word := r.source.Uint64()
		r.times[word>>32*uint64(n)>>32]++
		if drawn+1 < n {
			r.times[word&math.MaxUint32*uint64(n)>>32]++
		}
	}
	return quantileOf(n, q, func(rank int) float64 {
		i := 0
		for below := r.times[0]; below <= rank; below += r.times[i] {
			i++
		}
		return sorted[i]
	})
}

// heldShare is the least share of bootstrap draws at 0 that makes an overhead count as
// held at 0. Unconstrained, such an overhead would be negative, for example because a
// shaper's burst passes small batches faster than the other costs explain. The draws
// then give no estimate of its size.
const heldShare = 0.9

// setIntervals computes the exported coefficients from the solution and its draws. If
// the draws leave an overhead open, its interval reaches up to the bound set by the
// points.
func (f *Fit) setIntervals(p problem, x coefficients) {
	of := func(c int) Interval {
		return f.percentiles(x[c], func(d coefficients) float64 { return d[c] })
	}
	overhead := func(c int) Interval {
		i := of(c)
		switch {
		case p.active&(1<<c) == 0:
			i.High = p.most(c)
		case x[c] == 0 && f.drawsAtZero(c) >= heldShare:
			f.held |= 1 << c
			i.High = p.most(c)
		}
		return i
	}
	f.active = p.active
	f.Alpha, f.Beta, f.Gamma = overhead(colAlpha), overhead(colBeta), overhead(colGamma)
	f.Bandwidth = inverse(of(colInverseB))
	f.Overlap = p.overlap
	if p.knee != noKnee {
		f.Second = &Regime{FromBytes: p.knee, Bandwidth: inverse(of(colInverseB2))}
	}
}

// drawsAtZero is the share of the draws that have column c at 0.
func (f *Fit) drawsAtZero(c int) float64 {
	n := 0
	for _, d := range f.draws {
		if d[c] == 0 {
			n++
		}
	}
	return float64(n) / float64(max(1, len(f.draws)))
}

// most is the upper bound of column c: no point took less than its share of c. It is
// math.MaxFloat64 if no point has any of c.
func (p problem) most(c int) float64 {
	least := math.MaxFloat64
	for i, r := range p.rows {
		if r[c] > 0 {
			least = min(least, p.values[i]/r[c])
		}
	}
	return least
}

// percentiles returns the middle 95 % of g over the draws, widened to include value.
// Without draws it returns the value alone.
func (f *Fit) percentiles(value float64, g func(coefficients) float64) Interval {
	if len(f.draws) == 0 {
		return Exactly(value)
	}
	v := make([]float64, len(f.draws))
	for i, d := range f.draws {
		v[i] = g(d)
	}
	slices.Sort(v)
	return Interval{Value: value, Low: min(value, quantile(v, 0.025)), High: max(value, quantile(v, 0.975))}
}

// inverse turns seconds a byte into bytes a second.
func inverse(i Interval) Interval {
	over := func(v float64) float64 {
		if v <= 0 {
			return math.MaxFloat64
		}
		return 1 / v
	}
	return Interval{Value: over(i.Value), Low: over(i.High), High: over(i.Low)}
}

// sameSize is the largest difference in bytes, as a share, between two sizes that count as
// one.
const sameSize = 0.05

// foldsOf deals points to at most most folds. It leaves a size out whole, because the
// same bytes with other counts would leak the held-out time. The smallest and the
// largest size, without which a fit would extrapolate, are dealt out point by point in
// order of time. If there are too few sizes, all points are dealt out in this way.
func foldsOf(points []point, most int) (fold []int, folds int) {
	order := make([]int, len(points))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(points[a].bytes, points[b].bytes) })
	size, largest := make([]int, len(points)), 0 // counted from the smallest, 0
	for at, from := 0, 0; at < len(order); at++ {
		if float64(points[order[at]].bytes) > (1+sameSize)*float64(points[order[from]].bytes) {
			from = at
			largest++
		}
		size[order[at]] = largest
	}
	inner := largest - 1
	whole := inner >= leastInnerSizes
	folds = min(most, len(points))
	if whole {
		folds = min(folds, inner)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(points[a].statistic, points[b].statistic) })
	fold = make([]int, len(points))
	dealt := 0
	for _, i := range order {
		if whole && size[i] > 0 && size[i] < largest {
			fold[i] = (size[i] - 1) % folds
			continue
		}
		fold[i] = dealt % folds
		dealt++
	}
	return fold, folds
}

// leastInnerSizes is the least number of sizes between the smallest and the largest for
// which a size is left out whole.
const leastInnerSizes = 3

// holdOut predicts each point by a fit without its fold.
func (f *Fit) holdOut(p problem, points []point, x coefficients, folds int) {
	fold, folds := foldsOf(points, folds)
	f.Residuals = make([]Residual, len(points))
	for out := range folds {
		rest := problem{shape: p.shape, active: p.active}
		for i := range points {
			if fold[i] != out {
				rest.rows = append(rest.rows, p.rows[i])
				rest.values = append(rest.values, p.values[i])
				rest.noise = append(rest.noise, p.noise[i])
			}
		}
		solution := rest.solveRobust()
		for i, pt := range points {
			if fold[i] == out {
				f.Residuals[i] = Residual{pt.transfers, pt.descriptors, pt.bytes, pt.statistic,
					p.seconds(x, p.rows[i]), p.seconds(solution.coefficients, p.rows[i])}
			}
		}
	}
	f.MAPE, f.Worst = 0, 0
	for _, r := range f.Residuals {
		e := math.Abs(r.HeldOut/r.Seconds - 1)
		f.MAPE += e / float64(len(points))
		f.Worst = max(f.Worst, e)
	}
}
