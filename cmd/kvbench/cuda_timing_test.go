//go:build timing

package main

import (
	"path/filepath"
	"testing"
)

// TestStagedLoopbackPace: the copies of the two sides go side by side. Each takes far
// longer than the wire, so a request that overlaps them takes half of their sum, and one
// that does not the whole. The copies are timed in the same run by the device's clock.
func TestStagedLoopbackPace(t *testing.T) {
	for _, direction := range []string{"push", "pull"} {
		t.Run(direction, func(t *testing.T) {
			var sides, predicted []float64
			for range 3 {
				// 5.2 ms a layer and copy.
				r := stagedAt(t, 200e6, 256, "stamp", direction, filepath.Join(t.TempDir(), "run.json"))
				c := r.Cells[0]
				copies := r.Transport.Staging.ToHost.Seconds + r.Transport.Consumer.Staging.FromHost.Seconds
				sides = append(sides, c.BusySeconds/copies)
				predicted = append(predicted, float64(*c.Latency.Service.P50Ns)/1e9/c.Predicted.Staged.Seconds)
			}
			t.Logf("requests took %.3f of the sum of their copies, and %.3f of what was predicted", median(sides), median(predicted))
			if got := median(sides); got < 0.5 || got > 0.75 {
				t.Errorf("requests took %.3f of the sum of their copies, where 0.5 is side by side", got)
			}
			if got := median(predicted); got < 0.7 || got > 1.5 {
				t.Errorf("requests took %.3f of what was predicted", got)
			}
		})
	}
}
