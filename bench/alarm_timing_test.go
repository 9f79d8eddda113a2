//go:build timing

package bench

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"kvbench/internal/testenv"
	"kvbench/payload"
	"kvbench/transport"
	"kvbench/transport/tcp"
)

// TestAlarmIsNotLate compares the alarm with the runtime's timers, which are late by any
// part of a millisecond because the runtime waits in whole ones. The alarm must be late by
// less than half as much in the median of alternate rounds. The lower quartile of a round
// is its undisturbed part.
func TestAlarmIsNotLate(t *testing.T) {
	if runtime.GOOS != "linux" {
		testenv.Skip(t, "timerfd", "other systems use the runtime's timers")
	}
	var a alarm
	defer a.close()
	var alarms, sleeps []time.Duration
	for range 9 {
		alarms = append(alarms, lateness(t, func(at time.Duration) time.Duration {
			late, err := a.until(t.Context(), at)
			if now := transport.Now(); err != nil || late < 0 || late > now-at {
				t.Fatalf("late by %v of the %v that passed, %v", late, now-at, err)
			}
			return late
		})[25])
		sleeps = append(sleeps, lateness(t, func(at time.Duration) time.Duration {
			time.Sleep(at - transport.Now())
			return transport.Now() - at
		})[25])
	}
	slices.Sort(alarms)
	slices.Sort(sleeps)
	t.Logf("alarm %v, sleep %v late", alarms, sleeps)
	if alarms[4] > sleeps[4]/2 {
		t.Errorf("the alarm is %v late and a sleep %v, want at most half of it", alarms[4], sleeps[4])
	}
}

// TestPacingLeavesRoom: on one processor a layer moves while prefill makes the next, 150 µs
// later. The first of 126 layers, 18.9 ms in all, must take less than half as long as the
// last in the medians of 20 requests. Pacing that keeps the processor delivers all at the end.
func TestPacingLeavesRoom(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const layers = 126
	g, err := payload.Load("llama-3.1-405b")
	if err != nil {
		t.Fatal(err)
	}
	prefill := layers * 150 * time.Microsecond
	plan := planOf(Push, payload.Spec{Geometry: g, Tokens: 1})
	plan.Verify = payload.VerifyStamp
	o, err := newBed(t, tcp.New()).run(plan, Load{Requests: 20, Prefill: []time.Duration{prefill}})
	if err != nil {
		t.Fatal(err)
	}
	r := o.Cells[0].Record
	if first, last := r.FirstLayer.Quantile(0.5), r.Service.Quantile(0.5); first > last/2 {
		t.Errorf("half of the first layers arrive after %v and of the last ones after %v, want less than half of that", first, last)
	}
}
