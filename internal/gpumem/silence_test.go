package gpumem

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kvbench/transport"
)

// TestWatchPeer: a peer is lost once it owes an answer and is silent for the timeout; one
// that owes nothing, or has said something since, is not.
func TestWatchPeer(t *testing.T) {
	const timeout = time.Second
	for _, c := range []struct {
		name  string
		owes  bool
		speak time.Duration // every so often; 0: never
		lost  bool
	}{
		{"silent, and owes", true, 0, true},
		{"silent, and owes nothing", false, 0, false},
		{"slow, and speaks", true, timeout / 2, false},
		{"speaks too seldom", true, 3 * timeout, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var heard atomic.Int64
				heard.Store(int64(transport.Now()))
				closing, ended, start := make(chan struct{}), make(chan error, 1), time.Now()
				go func() {
					ended <- WatchPeer(closing, timeout, &heard, func(time.Duration) bool { return c.owes })
				}()
				for i := time.Duration(1); c.speak > 0 && i <= 4; i++ {
					time.AfterFunc(i*c.speak, func() { heard.Store(int64(transport.Now())) })
				}
				time.AfterFunc(2*timeout, func() { close(closing) })
				err := <-ended
				if lost := errors.Is(err, transport.ErrPeer); lost != c.lost || (err != nil) != lost {
					t.Fatalf("%v, want a lost peer: %v", err, c.lost)
				}
				if took := time.Since(start); c.lost && (took < timeout || took > timeout+2*timeout/10 || !strings.Contains(err.Error(), "said nothing for 1s")) {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}
