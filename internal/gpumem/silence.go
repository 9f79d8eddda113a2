package gpumem

import (
	"fmt"
	"sync/atomic"
	"time"

	"kvbench/transport"
)

// WatchPeer returns an error that wraps transport.ErrPeer if the peer sends nothing for
// the timeout while it owes an answer, and nil once closing is closed. The time of
// copies does not count. heard holds the time of the peer's last message, as
// [transport.Now]. owed reports whether an answer has been due since before a time.
func WatchPeer(closing <-chan struct{}, timeout time.Duration, heard *atomic.Int64, owed func(before time.Duration) bool) error {
	tick := time.NewTicker(max(timeout/10, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-closing:
			return nil
		case <-tick.C:
		}
		limit := transport.Now() - timeout
		if time.Duration(heard.Load()) < limit && owed(limit) {
			return fmt.Errorf("%w: it said nothing for %v with transfers outstanding", transport.ErrPeer, timeout)
		}
	}
}
