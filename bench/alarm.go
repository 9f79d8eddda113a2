package bench

import (
	"context"
	"time"

	"kvbench/transport"
)

// alarm wakes a worker at times of the initiator's clock. The Go runtime's own timers
// wake up to a millisecond late on Linux, since it waits for them in whole milliseconds,
// and what starts late would be charged to the path. So an alarm sleeps on a finer timer
// to shortly before the time, and spins from there. Its zero value is ready to use; it is
// not safe for concurrent use.
type alarm struct{ timer timer }

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
			return spin(at) - at, nil
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

// spin returns the time once it has come to at.
func spin(at time.Duration) time.Duration {
	for {
		if now := transport.Now(); now >= at {
			return now
		}
	}
}

// close gives the alarm's timer back.
func (a *alarm) close() error { return a.timer.close() }
