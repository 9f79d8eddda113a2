//go:build timing

package main

import (
	"slices"
	"testing"
)

// TestPredictIsQuick: the heaviest predictions take at most ten times the processor time
// of version, which works nothing out. Processes of both alternate, so that a slow machine
// slows both.
func TestPredictIsQuick(t *testing.T) {
	record := calibratedRun(t, steady)
	for name := range heavyPredictions {
		args := heavyPrediction(name, record)
		var ratios []float64
		for range 15 {
			trivial := processorTime(t, "version")
			ratios = append(ratios, processorTime(t, args...).Seconds()/trivial.Seconds())
		}
		got := median(ratios)
		t.Logf("%s: %.1f times the processor time of version", name, got)
		if got > 10 {
			t.Errorf("%s: %.1f times the processor time of version, at most 10, for %v", name, got, args)
		}
	}
}

// median is the middle one of an odd number of values.
func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
