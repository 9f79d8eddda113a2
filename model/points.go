package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Sample is one timed batch: Transfers posted together, with Descriptors and
// Bytes in all, delivered after Seconds.
type Sample struct {
	Transfers, Descriptors int
	Bytes                  int64
	Seconds                float64
}

// point holds the repetitions of one combination of transfers, descriptors and bytes.
type point struct {
	transfers, descriptors int
	bytes                  int64
	seconds                []float64 // sorted, outliers removed
	statistic              float64   // the median, or the quantile chosen in [FitOptions]
	noise                  float64   // standard error of statistic, as a share of it
}

// A repetition is wild if it is slower than its point's median by half and by six
// robust standard deviations: a stall of the host, not the path's spread. A point that
// would lose more than 30 % keeps all: that is the path's behaviour.
const (
	wildShare      = 0.5
	wildDeviations = 6
	wildMost       = 0.3
)

// collect groups samples into points, in order of bytes, transfers and descriptors.
func collect(samples []Sample) ([]point, error) {
	type key struct {
		bytes                  int64
		transfers, descriptors int
	}
	index := make(map[key]int)
	var points []point
	for i, s := range samples {
		if s.Transfers < 1 || s.Descriptors < 0 || s.Bytes < 0 || !(s.Seconds > 0) || math.IsInf(s.Seconds, 0) {
			return nil, fmt.Errorf("%w: sample %d has %d transfers, %d descriptors, %d bytes in %g s; a batch has at least one transfer and took time",
				ErrBadSample, i, s.Transfers, s.Descriptors, s.Bytes, s.Seconds)
		}
		k := key{s.Bytes, s.Transfers, s.Descriptors}
		at, ok := index[k]
		if !ok {
			at = len(points)
			index[k] = at
			points = append(points, point{transfers: s.Transfers, descriptors: s.Descriptors, bytes: s.Bytes})
		}
		points[at].seconds = append(points[at].seconds, s.Seconds)
	}
	slices.SortFunc(points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.transfers, b.transfers), cmp.Compare(a.descriptors, b.descriptors))
	})
	for i := range points {
		slices.Sort(points[i].seconds)
	}
	return points, nil
}

// summarize sets every point's statistic. For the median it first drops wild
// repetitions: if a tenth are wild, all of them slow, they would move every median the
// same way and so the bandwidth. It returns the number dropped.
func summarize(points []point, q float64) (dropped int) {
	if q == 0.5 {
		limit := 1 + max(wildShare, wildDeviations*spread(points))
		for i := range points {
			p := &points[i]
			cut := quantile(p.seconds, 0.5) * limit
			keep, _ := slices.BinarySearch(p.seconds, cut)
			if n := len(p.seconds) - keep; n > 0 && float64(n) <= wildMost*float64(len(p.seconds)) {
				p.seconds = p.seconds[:keep]
				dropped += n
			}
		}
	}
	for i := range points {
		points[i].statistic = quantile(points[i].seconds, q)
	}
	setNoise(points)
	return dropped
}

// leastNoise is the least noise assumed for any point, to cover the clock and a curve
// that is never quite straight.
const leastNoise = 0.001

// setNoise sets every point's noise, pooled over the seven points nearest in time. A
// point alone has too few repetitions for an estimate, and all points together differ
// too much: a batch of 20 µs scatters by tens of per cent, a batch of a second by
// tenths.
func setNoise(points []point) {
	order := make([]int, len(points))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(points[a].statistic, points[b].statistic) })
	const around = 3
	var near []point
	var deviations []float64
	for at, i := range order {
		first := max(0, min(at-around, len(order)-2*around-1))
		near = near[:0]
		for _, j := range order[first:min(first+2*around+1, len(order))] {
			near = append(near, points[j])
		}
		deviations = deviate(deviations[:0], near)
		// π/2 is the variance of a normal sample's median over the variance of its
		// mean.
		points[i].noise = max(leastNoise, robustScale(deviations)*math.Sqrt(math.Pi/2/float64(len(points[i].seconds))))
	}
}

// spread is the robust standard deviation of one repetition about its point's median,
// as a share of the median, pooled over the points.
func spread(points []point) float64 { return robustScale(deviate(nil, points)) }

// deviate appends each repetition's distance from its point's median, as a share of the
// median.
func deviate(deviations []float64, points []point) []float64 {
	for _, p := range points {
		n := float64(len(p.seconds))
		if n < 2 {
			continue
		}
		m := quantile(p.seconds, 0.5)
		widen := math.Sqrt(n / (n - 1)) // the median comes from the same few repetitions
		for _, t := range p.seconds {
			deviations = append(deviations, math.Abs(t/m-1)*widen)
		}
	}
	return deviations
}

// madToSigma converts a median absolute deviation to a normal distribution's standard
// deviation.
const madToSigma = 1.4826

// robustScale is the standard deviation of a normal distribution with the same median
// absolute deviation. It sorts its argument.
func robustScale(deviations []float64) float64 {
	slices.Sort(deviations)
	return madToSigma * quantile(deviations, 0.5)
}

// quantile interpolates between the order statistics around (n-1)q, which gives the
// usual median; gonum's stat.Quantile does not offer this kind. It is 0 for an empty
// slice.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return quantileOf(len(sorted), q, func(rank int) float64 { return sorted[rank] })
}

// quantileOf is [quantile] of n values, at least one; at returns the value of a rank.
func quantileOf(n int, q float64, at func(rank int) float64) float64 {
	h := q * float64(n-1)
	i := int(h)
	low := at(min(i, n-1))
	if share := h - float64(i); share > 0 && i+1 < n {
		low += share * (at(i+1) - low)
	}
	return low
}
