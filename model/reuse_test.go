package model

import "testing"

// Mooncake (FAST '25): d = p = 8192, gqa 8, s 2, a 4, b 22.
func TestReuseThreshold(t *testing.T) {
	threshold := ReuseThreshold(8192, 8192, 8, 2, 4, 22)
	near(t, "threshold", threshold, 2.3475e-6, 1e-4)
	near(t, "8xA800", threshold*8*312e12, 5.86e9, 1e-3)
	near(t, "8xH800", threshold*8*989e12, 18.6e9, 2e-3)
}

func TestShippedBytes(t *testing.T) {
	for _, c := range []struct {
		hit  float64
		want int64
	}{{0, 1000}, {0.3664, 634}, {1, 0}, {2, 0}, {-1, 1000}} {
		if got := ShippedBytes(1000, c.hit); got != c.want {
			t.Errorf("hit %g: %d bytes, want %d", c.hit, got, c.want)
		}
	}
}
