package bench

import (
	"context"
	"runtime"
	"time"

	"kvbench/transport"
)

// alarm wakes a worker at a given time of the initiator's clock. The Go runtime's timers
// fire up to a millisecond late on Linux, because it waits in whole milliseconds, and a
// late start would count as time on the path. So an alarm sleeps on a finer timer until
// shortly before the time, then spins. The zero value is ready to use. It is not safe for
// concurrent use.
type alarm struct {
	timer timer
	meter *cpuMeter            // excludes the time spent spinning; nil: none
	now   func() time.Duration // the clock of the spin; nil is transport.Now
	// sleep replaces the timer and the spin with a sleep of exactly this long, if set: for
	// tests in virtual time, which passes only while nothing runs.
	sleep func(time.Duration)
}

// spinFor is how long an alarm spins before the time. It is short, so that the worker
// sleeps even between layers of 0.1 ms: the runtime does not poll the network while a
// goroutine keeps its processor busy.
const spinFor = 50 * time.Microsecond

// until returns at the given time of the initiator's clock, with the delay in waking, or
// with the context's error.
func (a *alarm) until(ctx context.Context, at time.Duration) (late time.Duration, err error) {
	if a.sleep != nil {
		a.sleep(at - transport.Now())
		return transport.Now() - at, ctx.Err()
	}
	const slice = 20 * time.Millisecond // longest sleep that ignores the context
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		left := at - transport.Now()
		switch {
		case left <= spinFor:
			return a.spin(at) - at, nil
		case left <= slice: // the usual case: it allocates nothing
			if err := a.timer.sleep(left - spinFor); err != nil {
				return 0, err
			}
		default:
			select {
			case <-time.After(left - slice/2):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
	}
}

// spin returns the clock once it has reached at. It yields, so that the goroutines that
// carry the last layer run meanwhile.
func (a *alarm) spin(at time.Duration) time.Duration {
	const turn = time.Microsecond // a yield during which no other goroutine ran is shorter
	clock := a.now
	if clock == nil {
		clock = transport.Now
	}
	var spun time.Duration
	now := clock()
	for now < at {
		last := now
		runtime.Gosched()
		now = clock()
		spun += min(now-last, turn)
	}
	if a.meter != nil {
		a.meter.takeOff(spun)
	}
	return now
}

func (a *alarm) close() error { return a.timer.close() }
