package bench

import (
	"slices"
	"testing"
	"time"

	"kvbench/payload"
	"kvbench/transport"
	"kvbench/transport/mem"
)

// TestServeCountsWaits covers a request of four layers that is due in 20 ms, at 20 ms a
// layer: five waits. Without a due time and without prefill there is none, and the waits of
// a warm-up are not counted. The reference transport takes no virtual time.
func TestServeCountsWaits(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name  string
		due   time.Duration
		pace  time.Duration
		warm  bool
		waits int64
		takes time.Duration
	}{
		{"at once", -1, 0, false, 0, 0},
		{"overlap", -1, 20 * ms, false, 4, 80 * ms},
		{"open loop", 20 * ms, 0, false, 1, 20 * ms},
		{"both", 20 * ms, 20 * ms, false, 5, 100 * ms},
		{"warm-up", 20 * ms, 20 * ms, true, 0, 100 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				in, descriptors, record := movingOver(t, mem.New(), Push)
				in.record, in.alarm.sleep = record, time.Sleep
				var clock stageClock
				cell := cell{descriptors: descriptors, ready: []int{1, 2, 3, 4}, plan: &payload.Plan{Bytes: 4 * 64 << 10}}
				start := time.Now()
				if err := in.serve(t.Context(), &clock, request{ID: 1, Warmup: c.warm, Due: c.due}, &cell, c.pace); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took != c.takes || record.Late.Count() != c.waits {
					t.Errorf("%d waits in %v, want %d in %v", record.Late.Count(), took, c.waits, c.takes)
				}
			})
		})
	}
}

// TestReadyByLayers covers transfers of several layers: each is posted when prefill has
// made its last layer, and prefill ends with the last layer of the last transfer.
func TestReadyByLayers(t *testing.T) {
	const pace = 5 * time.Millisecond
	inVirtualTime(t, func(t *testing.T) {
		in, descriptors, _ := movingOver(t, mem.New(), Push)
		in.alarm.sleep = time.Sleep
		m, err := in.move(t.Context(), job{request: 1, descriptors: descriptors, pace: pace, ready: []int{4, 5, 6, 10}})
		if err != nil {
			t.Fatal(err)
		}
		if m.prefill-m.start != 10*pace || m.first-m.start != 4*pace || m.end != m.prefill {
			t.Errorf("prefill of %v, first delivery after %v, last after %v; want %v, %v and %v",
				m.prefill-m.start, m.first-m.start, m.end-m.start, 10*pace, 4*pace, 10*pace)
		}
	})
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
