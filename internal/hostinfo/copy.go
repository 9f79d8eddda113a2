package hostinfo

import (
	"sync"
	"time"

	"kvbench/internal/hostmem"
)

// CopyRate returns one core's rate, in bytes a second, of copying memory that is in no
// cache: the ceiling of any transfer by copying. The first call measures for about 50 ms;
// later calls of the process return the same value.
func CopyRate() float64 { return copyRate() }

var copyRate = sync.OnceValue(measureCopyRate)

// measureCopyRate is not instrumented by the race detector, because its work on every byte
// would be measured too. No other goroutine sees the memory.
//
//go:norace
func measureCopyRate() float64 {
	const size, rounds = 32 << 20, 4
	// Not Go's heap: a short process would collect garbage because of it.
	memory, err := hostmem.Alloc(2*size, hostmem.Options{})
	if err != nil {
		return 0
	}
	defer memory.Close()
	from, to := memory.Bytes[:size], memory.Bytes[size:]
	for i := 0; i < size; i += 4096 {
		from[i], to[i] = 1, 1
	}
	best := time.Duration(1<<63 - 1)
	for range rounds {
		start := time.Now()
		copy(to, from)
		best = min(best, time.Since(start))
	}
	return size / best.Seconds()
}
