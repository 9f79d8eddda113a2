//go:build !linux

package bench

import "time"

// timer sleeps with the runtime's timer, which has nanosecond resolution on systems with
// kqueue.
type timer struct{}

func (timer) sleep(d time.Duration) error {
	time.Sleep(d)
	return nil
}

func (timer) close() error { return nil }
