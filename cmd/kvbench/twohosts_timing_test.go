//go:build timing

package main

import (
	"fmt"
	"testing"
	"time"

	"kvbench/internal/testenv"
)

// TestTwoHostsGoodput: a request takes as long as a plain copy of its bytes over the same
// link, measured in turn with it, within 3 %: the fastest of each round, the median of the
// rounds. A machine that is held up slows both. Requests
// and copies each begin after a pause that fills the shaper's burst.
func TestTwoHostsGoodput(t *testing.T) {
	// 32 ms of the rate: a shaper that is held up for less keeps it.
	const longBurst = 4 * linkBurst
	tokens, rate := int64(64), "4/s" // 0.17 s each
	if testenv.Full {
		tokens, rate = 256, "1/s"
	}
	for _, direction := range []string{"push", "pull"} {
		t.Run(direction, func(t *testing.T) {
			rounds := alternate(t, 7, []string{"--rate", "1gbit", "--mtu", "1500", "--burst", fmt.Sprint(longBurst)}, plain{1, 327680 * tokens, 4, 50 * time.Millisecond},
				"--calibrate", "off", "--warmup", "1", "--requests", "4", "--rate", rate, "--arrivals", "uniform", "--context", fmt.Sprint(tokens), "--direction", direction, "--link", "1Gbit/s", "--mtu", "1500", "--verify", "full")
			for _, r := range rounds {
				checkOnLink(t, r.Run, longBurst)
			}
			got := medianOf(rounds, func(r round) float64 { return fastestRequest(t, r.Cells[0]) / r.fastest })
			t.Logf("%.4f of a plain copy's time; medians of a round %.4f", got, medianOf(rounds, func(r round) float64 {
				return float64(*r.Cells[0].Latency.Service.P50Ns) / 1e9 / r.reference()
			}))
			if !within(got, 1, 0.03) {
				t.Errorf("a request takes %.4f of the time of a plain copy", got)
			}
		})
	}
}
