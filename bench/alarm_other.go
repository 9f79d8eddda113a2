//go:build !linux

package bench

import "time"

// timer is the runtime's, which waits in nanoseconds where there is kqueue.
type timer struct{}

func (timer) sleep(d time.Duration) error {
	time.Sleep(d)
	return nil
}

func (timer) close() error { return nil }
