package model

import (
	"math"
	"math/bits"
	"slices"

	"gonum.org/v1/gonum/blas"
	blasimpl "gonum.org/v1/gonum/blas/gonum"
	lapackimpl "gonum.org/v1/gonum/lapack/gonum"
)

// The unknowns of a fit, in the order of its columns. The last is used only with a
// second regime, which begins at knee bytes.
const (
	colAlpha = iota
	colBeta
	colGamma
	colInverseB
	colInverseB2
	columns
)

type coefficients [columns]float64

// shape is the form of a fit's curve, apart from its unknowns.
type shape struct {
	overlap float64 // share of posting hidden behind the wire, or of the wire behind posting
	knee    int64   // start of the second regime in bytes; noKnee without one
}

const noKnee = math.MaxInt64

// row holds the factor of each unknown in a batch's time when nothing overlaps.
func (h shape) row(transfers, descriptors int, bytes int64) coefficients {
	return coefficients{1, float64(transfers - 1), float64(descriptors), float64(min(bytes, h.knee)), float64(max(0, bytes-h.knee))}
}

// seen is the row after overlap with the coefficients x: of the shorter of posting and
// wire only the part that does not overlap counts.
func (h shape) seen(x, row coefficients) coefficients {
	if h.overlap == 0 {
		return row
	}
	post := x[colBeta]*row[colBeta] + x[colGamma]*row[colGamma]
	wire := x[colInverseB]*row[colInverseB] + x[colInverseB2]*row[colInverseB2]
	visible := 1 - h.overlap
	if post <= wire {
		row[colBeta] *= visible
		row[colGamma] *= visible
	} else {
		row[colInverseB] *= visible
		row[colInverseB2] *= visible
	}
	return row
}

// seconds is the time of a row with the coefficients x.
func (h shape) seconds(x, row coefficients) float64 { return x.dot(h.seen(x, row)) }

func (c coefficients) dot(r coefficients) (sum float64) {
	for i := range c {
		sum += c[i] * r[i]
	}
	return sum
}

// problem is a weighted least-squares problem with non-negative unknowns.
type problem struct {
	shape
	rows   []coefficients
	values []float64
	noise  []float64 // standard error of each value, as a share of it
	active uint      // bit i: unknown i is solved for; the others are 0
}

// robust is a problem's solution with the scale of its residuals in units of the noise:
// 1 if noise alone explains how far the curve misses the points.
type robust struct {
	coefficients
	scale float64
}

// huber is the turning point of Huber's loss from square to straight: 95 % efficient
// for normal residuals (Huber, Ann. Math. Stat. 35, 1964).
const huber = 1.345

// solveRobust minimises Huber's loss of (T/T̂-1)/noise. The residual is relative
// because sizes span decades: with plain least squares the largest size would set
// alpha. It is divided by the noise because large batches determine the bandwidth far
// better than small ones determine anything. The loss is Huber's because medians still
// let through a point that was disturbed throughout; unlike Theil-Sen's slopes it
// serves four unknowns at once. If posting and wire overlap, the previous step decides
// the hidden one.
func (p problem) solveRobust() robust {
	w := newWorkspace(len(p.values))
	for i, t := range p.values {
		w.weights[i] = 1 / (t * t * p.noise[i] * p.noise[i])
	}
	s := robust{coefficients: p.solve(p.rows, w.weights)}
	deviations := make([]float64, len(p.values))
	for range 30 {
		p.look(s.coefficients, w)
		copy(deviations, w.away)
		s.scale = robustScale(deviations) * math.Sqrt(p.freedom())
		before := s.coefficients
		s.coefficients = p.reweigh(s.scale, w)
		if closeTo(before, s.coefficients) {
			break
		}
	}
	return s
}

// residual is the distance of x from point i, in units of the point's noise.
func (p problem) residual(i int, x coefficients) float64 {
	return math.Abs(p.values[i]/p.seconds(x, p.rows[i])-1) / p.noise[i]
}

// workspace holds a step's results: the rows after overlap, their weights, and the
// distance of the solution from each, in units of its noise. A fit makes thousands of
// steps, so they share one.
type workspace struct {
	seen          []coefficients
	weights, away []float64
}

func newWorkspace(points int) workspace {
	return workspace{make([]coefficients, points), make([]float64, points), make([]float64, points)}
}

// look computes the rows after overlap with x, their weights of relative least squares,
// and the distance of x from each.
func (p problem) look(x coefficients, w workspace) {
	for i, r := range p.rows {
		w.seen[i] = p.seen(x, r)
		seconds := x.dot(w.seen[i])
		precision := 1 / (seconds * p.noise[i])
		w.weights[i] = precision * precision
		w.away[i] = math.Abs(p.values[i]-seconds) * precision
	}
}

// reweigh solves once with the weights from look, reduced for the points that are far
// away in units of scale.
func (p problem) reweigh(scale float64, w workspace) coefficients {
	for i, away := range w.away {
		if scale > 0 && away > huber*scale {
			w.weights[i] *= huber * scale / away
		}
	}
	return p.solve(w.seen, w.weights)
}

// resolve minimises the same loss for other values of the same points, starting from s and
// at its scale. Few steps suffice because the values moved by their noise only.
func (p problem) resolve(s robust, values []float64, w workspace) coefficients {
	p.values = values
	for range 4 {
		p.look(s.coefficients, w)
		s.coefficients = p.reweigh(s.scale, w)
	}
	return s.coefficients
}

// freedom corrects the variance of residuals for the unknowns fitted to them: n/(n-k)
// for n points and k unknowns.
func (p problem) freedom() float64 {
	n := float64(len(p.values))
	return n / max(1, n-float64(bits.OnesCount(p.active)))
}

// closeTo reports whether two solutions differ by less than a thousandth of
// [leastNoise].
func closeTo(a, b coefficients) bool {
	for i := range a {
		if math.Abs(a[i]-b[i]) > leastNoise/1000*math.Abs(b[i]) {
			return false
		}
	}
	return true
}

// solve finds the non-negative unknowns of least weighted squares. The optimum is the
// unconstrained solution over some subset of them. The unknowns are few, so solve tries
// all subsets and keeps the best feasible one.
func (p problem) solve(rows []coefficients, weights []float64) coefficients {
	gram, moment := normalEquations(rows, weights, p.values)
	if x, ok := solveSubset(gram, moment, p.active); ok && slices.Min(x[:]) >= 0 {
		return x // the unconstrained optimum is feasible
	}
	var best coefficients
	gain := 0.0 // the part of the weighted square of the values that is explained
	for subset := uint(1); subset < 1<<columns; subset++ {
		if subset&^p.active != 0 {
			continue
		}
		x, ok := solveSubset(gram, moment, subset)
		if !ok || slices.Min(x[:]) < 0 {
			continue
		}
		if g := x.dot(moment); g > gain {
			best, gain = x, g
		}
	}
	return best
}

func normalEquations(rows []coefficients, weights, values []float64) (gram [columns]coefficients, moment coefficients) {
	for i, r := range rows {
		for a := range r {
			wr := weights[i] * r[a]
			moment[a] += wr * values[i]
			for b := a; b < columns; b++ {
				gram[a][b] += wr * r[b]
			}
		}
	}
	return gram, moment
}

// leastPivot is the least square of a unit column's remainder beside the columns before
// it; less is rounding.
const leastPivot = 1e-13

// solveSubset solves the normal equations for the unknowns in subset. It scales the
// columns to unit length first, because they span a dozen decades. It reports false if
// it cannot separate them. It calls LAPACK's unblocked routines directly, on arrays of
// this frame, because a fit solves thousands of such systems.
func solveSubset(gram [columns]coefficients, moment coefficients, subset uint) (x coefficients, ok bool) {
	var index [columns]int
	var scale, b coefficients
	var a [columns * columns]float64
	n := 0
	for i := range columns {
		if subset&(1<<i) == 0 {
			continue
		}
		if gram[i][i] == 0 {
			return x, false
		}
		index[n], scale[n] = i, math.Sqrt(gram[i][i])
		b[n] = moment[i] / scale[n]
		n++
	}
	for i := range n {
		for j := i; j < n; j++ {
			a[i*columns+j] = gram[index[i]][index[j]] / (scale[i] * scale[j])
		}
	}
	if !(lapackimpl.Implementation{}).Dpotf2(blas.Upper, n, a[:], columns) {
		return x, false
	}
	for i := range n {
		if pivot := a[i*columns+i]; pivot*pivot < leastPivot {
			return x, false
		}
	}
	for _, half := range []blas.Transpose{blas.Trans, blas.NoTrans} {
		blasimpl.Implementation{}.Dtrsv(blas.Upper, half, blas.NonUnit, n, a[:], columns, b[:], 1)
	}
	for i := range n {
		x[index[i]] = b[i] / scale[i]
	}
	return x, true
}

// apart reports whether column c is independent of the columns in given: the remainder
// after the best combination of them, as a share, is above rounding.
func (p problem) apart(c int, given uint) bool {
	weights := make([]float64, len(p.values))
	column := make([]float64, len(p.values))
	length := 0.0
	for i, r := range p.rows {
		weights[i] = 1 / (p.values[i] * p.values[i])
		column[i] = r[c]
		length += weights[i] * r[c] * r[c]
	}
	if length == 0 {
		return false
	}
	gram, moment := normalEquations(p.rows, weights, column)
	x, ok := solveSubset(gram, moment, given)
	if !ok {
		return false
	}
	left := 0.0
	for i, r := range p.rows {
		d := column[i] - x.dot(r)
		left += weights[i] * d * d
	}
	return left/length > 1e-6
}
