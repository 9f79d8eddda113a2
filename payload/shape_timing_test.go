//go:build timing

package payload

import (
	"testing"
	"time"
)

// TestHugeContextsTakeNoLonger compares shapes of 10^9 tokens with shapes of 10^6, which one
// step a block would make 1000 times as slow. The two take turns. Other processes only make
// a turn longer, so the shortest of each is compared.
func TestHugeContextsTakeNoLonger(t *testing.T) {
	hugeContexts(t, func(spec Spec) {
		smaller := spec
		smaller.Tokens = 1e6
		took := func(s Spec) time.Duration {
			start := time.Now()
			shape(t, s)
			return time.Since(start)
		}
		million, billion := took(smaller), took(spec)
		for range 4 {
			million, billion = min(million, took(smaller)), min(billion, took(spec))
		}
		if billion > 30*million {
			t.Errorf("%s %s %+v: 10^9 tokens took %v, 10^6 tokens %v", spec.Geometry.Model, spec.Format, spec.Layout, billion, million)
		}
	})
}
