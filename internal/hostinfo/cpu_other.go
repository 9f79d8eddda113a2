//go:build unix && !linux

package hostinfo

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProcessCPU returns the processor time, user and system, that this process has used.
func ProcessCPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ThreadCPU returns 0: this system does not report it.
func ThreadCPU() time.Duration { return 0 }
