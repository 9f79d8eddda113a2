package hostinfo

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProcessCPU returns the processor time, user and system, that this process has used.
func ProcessCPU() time.Duration { return usage(unix.RUSAGE_SELF) }

// ThreadCPU returns the processor time of the calling thread. The caller must have locked
// the goroutine to it.
func ThreadCPU() time.Duration { return usage(unix.RUSAGE_THREAD) }

func usage(who int) time.Duration {
	var u unix.Rusage
	if unix.Getrusage(who, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
