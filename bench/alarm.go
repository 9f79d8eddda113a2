package bench

import (
	"context"
	"runtime"
	"time"

	"kvbench/transport"
)

// alarm wakes a worker at times of the initiator's clock. The Go runtime's own timers
// wake up to a millisecond late on Linux, since it waits for them in whole milliseconds,
// and what starts late would be charged to the path. So an alarm sleeps on a finer timer
// to shortly before the time, and spins from there. Its zero value is ready to use; it is
// not safe for concurrent use.
type alarm struct {
	timer timer
	meter *cpuMeter // that does not count what is spun; nil: none
}

// spinFor is the last stretch before a time, which is spent spinning. It is short, so
// that also between layers of 0.1 ms there is a sleep, in which the runtime looks what
// came from the network: it does not while a processor of its own is kept busy.
const spinFor = 50 * time.Microsecond

// until returns at a time of the initiator's clock, and how late, or with the context's
// error.
func (a *alarm) until(ctx context.Context, at time.Duration) (late time.Duration, err error) {
	const slice = 20 * time.Millisecond // in which the context is not looked at
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

// spin returns the time once it has come to at. Those that carry the last layer have
// their turn meanwhile.
func (a *alarm) spin(at time.Duration) time.Duration {
	const turn = time.Microsecond // one that nobody else took is shorter
	var spun time.Duration
	now := transport.Now()
	for now < at {
		last := now
		runtime.Gosched()
		now = transport.Now()
		spun += min(now-last, turn)
	}
	if a.meter != nil {
		a.meter.takeOff(spun)
	}
	return now
}

// close gives the alarm's timer back.
func (a *alarm) close() error { return a.timer.close() }
