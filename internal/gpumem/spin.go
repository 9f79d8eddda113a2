package gpumem

import (
	"runtime"
	"time"

	"kvbench/transport"
)

// spareTime is how long an idle goroutine polls the driver before it sleeps, if there
// are enough cores. A wake-up by the driver takes tens of microseconds.
const spareTime = 50 * time.Microsecond

// Spin returns how long a goroutine that waits for copies polls the driver before it
// sleeps.
func Spin(cfg transport.Config) time.Duration {
	switch {
	case cfg.BusyPoll:
		return cfg.PeerTimeout
	case runtime.NumCPU() >= 4:
		return spareTime
	}
	return 0
}
