package bench

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"kvbench/payload"
	"kvbench/transport"
	"kvbench/transport/tcp"
)

// lateness is what 101 waits of 2 to 4 ms were late by, the least first.
func lateness(tb testing.TB, wait func(at time.Duration) time.Duration) []time.Duration {
	tb.Helper()
	late := make([]time.Duration, 101)
	for i := range late { // at no fixed fraction of a millisecond
		late[i] = wait(transport.Now() + 2*time.Millisecond + time.Duration(i)*17*time.Microsecond)
	}
	slices.Sort(late)
	return late
}

// TestAlarmIsNotLate: waits end after their time. The runtime's own timers on Linux are
// late by any part of a millisecond, since it waits in whole ones, and a quarter of them
// by less than 0.3 ms: 0.25 ms too late for the spin. A quarter of an alarm's waits are
// undisturbed also on a machine that others use.
func TestAlarmIsNotLate(t *testing.T) {
	var a alarm
	defer a.close()
	const bound = 50 * time.Microsecond
	var got time.Duration
	for range 3 {
		got = lateness(t, func(at time.Duration) time.Duration {
			late, err := a.until(t.Context(), at)
			if now := transport.Now(); err != nil || late < 0 || late > now-at {
				t.Fatalf("late by %v of the %v that passed, %v", late, now-at, err)
			}
			return late
		})[25]
		if got < bound {
			return
		}
	}
	t.Errorf("three quarters of the waits end more than %v late, want a quarter within %v", got, bound)
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

// TestSpinIsTakenOff: waits of 40 µs, of which nothing is slept, are left out of the
// processor time, up to what passed, and some of it also on a machine that others use.
func TestSpinIsTakenOff(t *testing.T) {
	var meter cpuMeter
	a := alarm{meter: &meter}
	defer a.close()
	start := transport.Now()
	for range 100 {
		if _, err := a.until(t.Context(), transport.Now()+40*time.Microsecond); err != nil {
			t.Fatal(err)
		}
	}
	passed, off := transport.Now()-start, time.Duration(meter.aside.Load())
	if off < 400*time.Microsecond || off > passed { // others of this machine may have the rest of the 4 ms
		t.Errorf("%v taken off of %v in which 4 ms were spun", off, passed)
	}
	if got := meter.seconds(); got < 0 {
		t.Errorf("%v s of processor time", got)
	}
}

// TestPacingLeavesRoom: on one processor, a layer leaves while prefill makes the next,
// 150 µs apart: the first of 28 arrives in the first half of their 4.2 ms, in one of three
// tries on a machine that may hold it up.
func TestPacingLeavesRoom(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	layers := make([]int, 28)
	for i := range layers {
		layers[i] = i
	}
	prefill := 28 * 150 * time.Microsecond
	plan := planOf(Push, spec(t, tokens(1), func(s *payload.Spec) { s.Layers = layers }))
	plan.Verify = payload.VerifyStamp
	b := newBed(t, tcp.New())
	var first time.Duration
	for range 3 {
		o, err := b.run(plan, Load{Requests: 20, Prefill: []time.Duration{prefill}})
		if err != nil {
			t.Fatal(err)
		}
		if first = o.Cells[0].Record.FirstLayer.Quantile(0.5); first < prefill/2 {
			return
		}
	}
	t.Errorf("half of the first layers arrive after %v of a prefill of %v, want less than half of it", first, prefill)
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
