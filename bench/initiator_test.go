package bench

import (
	"slices"
	"testing"
	"time"

	"kvbench/payload"
	"kvbench/transport"
)

// TestServeCountsWaits: a request of four layers that is due in 20 ms, at 20 ms a layer,
// waits five times, in one of three tries on a machine that may hold it up; at once and
// without prefill it waits for nothing, and what a warm-up waits for is not counted.
func TestServeCountsWaits(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name string
		due  time.Duration
		pace time.Duration
		warm bool
		want int64
	}{
		{"at once", -1, 0, false, 0},
		{"overlap", -1, 20 * ms, false, 4},
		{"open loop", 20 * ms, 0, false, 1},
		{"both", 20 * ms, 20 * ms, false, 5},
		{"warm-up", 20 * ms, 20 * ms, true, 0},
	} {
		var counts []int64
		for range 3 {
			in, descriptors, record := moving(t, Push)
			in.record = record
			var clock stageClock
			cell := cell{descriptors: descriptors, ready: []int{1, 2, 3, 4}, plan: &payload.Plan{Bytes: 4 * 64 << 10}}
			start := time.Now()
			if err := in.serve(t.Context(), &clock, request{ID: 1, Warmup: c.warm, Due: c.due}, &cell, c.pace); err != nil {
				t.Fatal(err)
			}
			if least := max(0, c.due) + 4*c.pace; time.Since(start) < least {
				t.Errorf("%s: over after %v, want at least %v", c.name, time.Since(start), least)
			}
			if counts = append(counts, record.Late.Count()); counts[len(counts)-1] == c.want {
				break
			}
		}
		if counts[len(counts)-1] != c.want {
			t.Errorf("%s: %v waits, want %d", c.name, counts, c.want)
		}
	}
}

// TestReadyByLayers: a transfer of several layers leaves when prefill has made the last of
// them, and prefill ends with the last of all.
func TestReadyByLayers(t *testing.T) {
	const pace = 5 * time.Millisecond
	in, descriptors, _ := moving(t, Push)
	m, err := in.move(t.Context(), job{request: 1, descriptors: descriptors, pace: pace, ready: []int{4, 5, 6, 10}})
	if err != nil {
		t.Fatal(err)
	}
	if m.prefill-m.start != 10*pace || m.first-m.start < 4*pace || m.end < m.prefill {
		t.Errorf("%v of prefill; the first transfer was delivered after %v, the last after %v", m.prefill-m.start, m.first-m.start, m.end-m.start)
	}
}

// TestOnPath: layers posted at 0 and 10 and delivered at 4 and 14 leave the path idle
// between; of those posted at 20 and 22, of which the second is delivered first, at 24 and
// then 28, something is on the path from 20 to 28, and on to 29 with one posted at 28.
func TestOnPath(t *testing.T) {
	var p progress
	for _, layer := range []span{{0, 4}, {10, 14}, {22, 24}, {20, 28}, {28, 29}} {
		p.count(&transport.Completion{Delivered: layer.end}, layer.start, 0)
	}
	if want := []span{{0, 4}, {10, 14}, {20, 29}}; !slices.Equal(p.onPath, want) {
		t.Errorf("on the path in %v, want %v", p.onPath, want)
	}
}
