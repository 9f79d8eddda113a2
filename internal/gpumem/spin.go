package gpumem

import (
	"runtime"
	"time"

	"kvbench/transport"
)

// spareTime is how long an idle goroutine asks the driver for news before it sleeps,
// where there are cores to spare: waking up takes the driver tens of microseconds.
const spareTime = 50 * time.Microsecond

// Spin is how long whoever waits for copies asks the driver before it sleeps.
func Spin(cfg transport.Config) time.Duration {
	switch {
	case cfg.BusyPoll:
		return cfg.PeerTimeout
	case runtime.NumCPU() >= 4:
		return spareTime
	}
	return 0
}
