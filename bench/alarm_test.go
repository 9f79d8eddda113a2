package bench

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"kvbench/transport"
)

// TestAlarmIsNotEarly covers waits that sleep, only spin, or have nothing left to wait for:
// each ends after its time, and is said to be late by no more than has passed since.
func TestAlarmIsNotEarly(t *testing.T) {
	var a alarm
	defer a.close()
	for _, wait := range []time.Duration{25 * time.Millisecond, time.Millisecond, spinFor / 2, 0, -time.Millisecond} {
		at := transport.Now() + wait
		late, err := a.until(t.Context(), at)
		if since := transport.Now() - at; err != nil || late < 0 || late > since {
			t.Errorf("a wait of %v ended %v late, %v after its time: %v", wait, late, since, err)
		}
	}
}

// TestAlarmHeedsContext: a wait ends with its context, whether it is long or the next of
// many short ones.
func TestAlarmHeedsContext(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, 5 * time.Millisecond} {
		var a alarm
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		start := time.Now()
		var err error
		for err == nil && time.Since(start) < patience {
			_, err = a.until(ctx, transport.Now()+step)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waits of %v: %v after %v, want the context's end", step, err, time.Since(start))
		}
		cancel()
		if err := a.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestAlarmAllocatesNothing once its timer is made.
func TestAlarmAllocatesNothing(t *testing.T) {
	var a alarm
	defer a.close()
	wait := func() {
		if _, err := a.until(t.Context(), transport.Now()+time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	wait()
	if n := testing.AllocsPerRun(20, wait); n > 0 {
		t.Errorf("%v allocations a wait, want none", n)
	}
}

// TestSpinIsTakenOff covers the processor time that a spin takes off: turns of 300 ns count
// whole, and a turn in which another process had the processor for 2 ms counts as 1 µs.
// From 0 to 2.01 ms there are 34 turns, the tenth of them long: 33 x 0.3 + 1 = 10.9 µs.
func TestSpinIsTakenOff(t *testing.T) {
	var meter cpuMeter
	var now time.Duration
	reads := 0
	a := alarm{meter: &meter, now: func() time.Duration {
		defer func() {
			now += 300 * time.Nanosecond
			if reads++; reads == 10 {
				now += 2*time.Millisecond - 300*time.Nanosecond
			}
		}()
		return now
	}}
	const end = 2*time.Millisecond + 33*300*time.Nanosecond
	if got := a.spin(end); got != end {
		t.Errorf("the spin ended at %v, want %v", got, end)
	}
	if off := time.Duration(meter.aside.Load()); off != 10900*time.Nanosecond {
		t.Errorf("%v taken off, want 10.9 µs", off)
	}
}

// lateness returns how late 101 waits of 2 to 4 ms were, in rising order.
func lateness(tb testing.TB, wait func(at time.Duration) time.Duration) []time.Duration {
	tb.Helper()
	late := make([]time.Duration, 101)
	for i := range late { // at no fixed fraction of a millisecond
		late[i] = wait(transport.Now() + 2*time.Millisecond + time.Duration(i)*17*time.Microsecond)
	}
	slices.Sort(late)
	return late
}

// BenchmarkLateness is how late a wait ends: the alarm's and, beside it, the runtime's.
func BenchmarkLateness(b *testing.B) {
	var a alarm
	defer a.close()
	ways := []struct {
		name string
		wait func(at time.Duration) time.Duration
		late []time.Duration
	}{
		{name: "alarm", wait: func(at time.Duration) time.Duration {
			late, err := a.until(b.Context(), at)
			if err != nil {
				b.Fatal(err)
			}
			return late
		}},
		{name: "sleep", wait: func(at time.Duration) time.Duration {
			time.Sleep(at - transport.Now())
			return transport.Now() - at
		}},
	}
	b.ReportAllocs()
	for b.Loop() { // in turn: two minutes of a shared machine differ more than two ways
		for i := range ways {
			ways[i].late = append(ways[i].late, lateness(b, ways[i].wait)[50])
		}
	}
	for _, w := range ways {
		slices.Sort(w.late)
		b.ReportMetric(float64(w.late[len(w.late)/2].Nanoseconds()), w.name+"-late-ns")
	}
}
