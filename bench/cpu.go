package bench

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"kvbench/internal/hostinfo"
)

// occupancy tells the runs of a process whether they have it to themselves. Its zero
// value is ready to use.
type occupancy struct {
	mu      sync.Mutex
	now     int   // runs
	entered int64 // runs, ever
}

// enter counts a run in. The function it returns counts it out again.
func (o *occupancy) enter() (leave func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now++
	o.entered++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.now--
	}
}

// alone begins a stretch of one run. The function it returns reports whether there has
// been no other run in it.
func (o *occupancy) alone() (still func() bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was, entered := o.now == 1, o.entered
	return func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return was && o.entered == entered
	}
}

// cpuMeter counts the processor time of a phase, leaving out what the
// benchmark itself needs to prepare and check bytes, and to wake up in time.
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
	m.takeOff(hostinfo.ThreadCPU() - before)
}

// takeOff does not count that much of what this process used.
func (m *cpuMeter) takeOff(d time.Duration) { m.aside.Add(int64(d)) }

func (m *cpuMeter) seconds() float64 {
	return max(0, (hostinfo.ProcessCPU() - m.start - time.Duration(m.aside.Load())).Seconds())
}
