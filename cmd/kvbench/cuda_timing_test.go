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
			const rate = 200e6
			values := map[string][]float64{}
			for range 3 {
				// 5.2 ms a layer and copy.
				r := stagedAt(t, rate, 256, "stamp", direction, filepath.Join(t.TempDir(), "run.json"))
				c, out, in := r.Cells[0], r.Transport.Staging.ToHost, r.Transport.Consumer.Staging.FromHost
				predicted := c.Predicted.Staged.Seconds
				for name, v := range map[string]float64{
					"request over the sum of its copies": c.BusySeconds / (out.Seconds + in.Seconds),
					"request over its prediction":        float64(*c.Latency.Service.P50Ns) / 1e9 / predicted,
					"prediction over one copy":           predicted / (float64(c.Bytes) / rate),
					"copy out over its rate":             out.BytesPerSecond / rate,
					"copy in over its rate":              in.BytesPerSecond / rate,
					"copy out alone over its rate":       out.AloneBandwidth / rate,
					"copy in alone over its rate":        in.AloneBandwidth / rate,
				} {
					values[name] = append(values[name], v)
				}
			}
			for name, bounds := range map[string][2]float64{
				"request over the sum of its copies": {0.5, 0.75}, // 0.5 is side by side, 1 one after the other
				"request over its prediction":        {0.7, 1.5},
				"prediction over one copy":           {0.95, 1.6},
				"copy out over its rate":             {0.5, 1.05},
				"copy in over its rate":              {0.5, 1.05},
				"copy out alone over its rate":       {0.5, 1.05},
				"copy in alone over its rate":        {0.5, 1.05},
			} {
				got := median(values[name])
				t.Logf("%s: %.3f", name, got)
				if got < bounds[0] || got > bounds[1] {
					t.Errorf("%s: %.3f, not from %g to %g", name, got, bounds[0], bounds[1])
				}
			}
		})
	}
}
