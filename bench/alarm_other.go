//go:build !linux

package bench

import "time"

// spinFor is the last stretch before a time, which is spent spinning: more than the
// runtime's timers are late by.
const spinFor = 1500 * time.Microsecond

// timer is the runtime's.
type timer struct{}

func (timer) sleep(d time.Duration) error {
	time.Sleep(d)
	return nil
}

func (timer) close() error { return nil }
