package bench

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"kvbench/internal/hostinfo"
)

// occupancy reports to each run of a process whether other runs shared the process. Its
// zero value is ready to use.
type occupancy struct {
	mu      sync.Mutex
	now     int   // runs in progress
	entered int64 // runs ever started
}

// enter counts a run. The returned function ends it.
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

// alone begins a stretch of one run. The returned function reports whether no other run
// was in progress during the stretch.
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

// cpuMeter measures the processor time of a phase. It leaves out the time that the
// benchmark spends preparing and checking bytes, or spinning before a wake-up.
type cpuMeter struct {
	start time.Duration
	aside atomic.Int64
}

func (m *cpuMeter) reset() {
	m.aside.Store(0)
	m.start = hostinfo.ProcessCPU()
}

// leaveOut runs f and leaves out its processor time.
func (m *cpuMeter) leaveOut(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := hostinfo.ThreadCPU()
	f()
	m.takeOff(hostinfo.ThreadCPU() - before)
}

// takeOff leaves out d of this process's time.
func (m *cpuMeter) takeOff(d time.Duration) { m.aside.Add(int64(d)) }

func (m *cpuMeter) seconds() float64 {
	return max(0, (hostinfo.ProcessCPU() - m.start - time.Duration(m.aside.Load())).Seconds())
}
