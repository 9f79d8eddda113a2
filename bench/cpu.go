package bench

import (
	"runtime"
	"sync/atomic"
	"time"

	"kvbench/internal/hostinfo"
)

// cpuMeter counts the processor time of a phase, leaving out what the
// benchmark itself needs to prepare and check bytes.
type cpuMeter struct {
	start time.Duration
	aside atomic.Int64
}

func (m *cpuMeter) reset() {
	m.aside.Store(0)
	m.start = hostinfo.ProcessCPU()
}

// leaveOut runs f and does not count its time.
func (m *cpuMeter) leaveOut(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := hostinfo.ThreadCPU()
	f()
	m.aside.Add(int64(hostinfo.ThreadCPU() - before))
}

func (m *cpuMeter) seconds() float64 {
	return max(0, (hostinfo.ProcessCPU() - m.start - time.Duration(m.aside.Load())).Seconds())
}
