package model

import (
	"math"
	"math/bits"
)

// bicGain is the least drop of BIC that justifies an overlap or a knee: "strong"
// evidence on the scale of Kass and Raftery (JASA 90, 1995).
const bicGain = 6

// overlaps lists the overlaps that are tried; the data cannot separate finer steps.
var overlaps = []float64{0, 0.25, 0.5, 0.75, 1}

// bestShape tries overlaps and knees and returns the shape with the best criterion. All
// shapes are judged by the same Huber loss at the plain shape's scale, so that a
// disturbed point does not justify a shape. If posting cannot be separated from the
// rest there is nothing to overlap.
func (p problem) bestShape(points []point, plain robust) (problem, robust) {
	if plain.scale < 1e-9 {
		return p, plain // nothing left to explain
	}
	best, solution := p, plain
	least := p.criterion(plain.coefficients, plain.scale)
	for _, overlap := range overlaps {
		if overlap > 0 && p.active&(1<<colBeta|1<<colGamma) == 0 {
			break
		}
		for _, knee := range append([]int64{noKnee}, innerSizes(points)...) {
			q := newProblem(points, shape{overlap, knee})
			q.active = p.active
			if knee != noKnee {
				q.active |= 1 << colInverseB2
			}
			s := q.solveRobust()
			if knee != noKnee && (s.coefficients[colInverseB] == 0 || s.coefficients[colInverseB2] == 0) {
				continue
			}
			if c := q.criterion(s.coefficients, plain.scale); c < least {
				best, solution, least = q, s, c
			}
		}
	}
	return best, solution
}

// criterion is Schwarz's BIC with Huber's loss at a given scale in place of squares,
// plus the gain required for each departure from the plain shape.
func (p problem) criterion(x coefficients, scale float64) float64 {
	n := float64(len(p.values))
	loss := 0.0
	for i := range p.rows {
		z := p.residual(i, x) / scale
		if z <= huber {
			loss += z * z
		} else {
			loss += huber * (2*z - huber)
		}
	}
	unknowns, departures := float64(bits.OnesCount(p.active)), 0.0
	if p.overlap > 0 {
		unknowns, departures = unknowns+1, departures+1
	}
	if p.knee != noKnee {
		unknowns, departures = unknowns+1, departures+1 // its bandwidth is already counted in active
	}
	return n*math.Log(loss/n) + unknowns*math.Log(n) + departures*bicGain
}

// innerSizes lists the distinct sizes that have at least two sizes on each side.
func innerSizes(points []point) []int64 {
	var sizes []int64
	for _, pt := range points { // in order of bytes
		if len(sizes) == 0 || sizes[len(sizes)-1] != pt.bytes {
			sizes = append(sizes, pt.bytes)
		}
	}
	if len(sizes) < 5 {
		return nil
	}
	return sizes[2 : len(sizes)-2]
}
