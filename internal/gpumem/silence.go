package gpumem

import (
	"fmt"
	"sync/atomic"
	"time"

	"kvbench/transport"
)

// WatchPeer returns an error that wraps transport.ErrPeer once the peer has said nothing
// for the timeout while it owed an answer all along, and nil once closing is closed. How
// long copies take is not its business. heard is when the peer last said something, as
// [transport.Now]; owed reports whether an answer is due since before a time.
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
