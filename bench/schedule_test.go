package bench

import (
	"math"
	"testing"
	"time"
)

// TestNextDue: of a loop of 10 requests a second, evenly spaced and the first after a
// gap, those that are due within the stage are started, also when it is over, and no other is waited for;
// the first always is.
func TestNextDue(t *testing.T) {
	for _, c := range []struct {
		load Load
		want int
	}{
		{Load{Rate: 10, Arrivals: Uniform, Duration: 950 * time.Millisecond}, 9}, // due at 0.1, 0.2, ..., 0.9 s
		{Load{Rate: 10, Arrivals: Uniform, Duration: 10 * time.Millisecond}, 1},
		{Load{Rate: 10, Arrivals: Uniform, Requests: 25}, 25},
		{Load{Rate: 1e-3, Arrivals: Uniform, Requests: 2}, 2},
	} {
		var k tally
		k.reset(c.load)
		k.deadline = time.Now().Add(-time.Hour) // what was due is served although time is up
		got := 0
		for {
			due, ok := k.next()
			if !ok {
				break
			}
			got++
			if want := time.Duration(float64(got) / c.load.Rate * 1e9); (due - want).Abs() > time.Microsecond {
				t.Errorf("%+v: request %d is due after %v, want %v", c.load, got, due, want)
			}
		}
		if got != c.want {
			t.Errorf("%+v: %d requests, want %d", c.load, got, c.want)
		}
	}
}

func TestLoadLength(t *testing.T) {
	for _, c := range []struct {
		load Load
		want time.Duration
	}{
		{Load{Requests: 20}, 0},
		{Load{Requests: 20, Rate: 10}, 2 * time.Second},
		{Load{Requests: 20, Rate: 1. / 3600}, 20 * time.Hour},
		{Load{Requests: 20, Rate: 10, Duration: time.Second}, 0},
		{Load{Requests: math.MaxInt, Rate: 1e-300}, math.MaxInt64 / 2},
	} {
		if got := c.load.Length(); (got - c.want).Abs() > time.Millisecond {
			t.Errorf("%+v: %v, want %v", c.load, got, c.want)
		}
	}
}
