package rdma

import (
	"math"
	"runtime"
	"sync"
	"time"

	"kvbench/internal/ucx"
	"kvbench/transport"
)

// engine drives a UCX worker from the one thread that may touch it.
type engine struct {
	worker *ucx.Worker
	calls  chan func() // to be run on the thread
	submit chan int    // slots to post
	handle func(ucx.Event)
	idle   func()        // called once when UCX holds nothing; the thread's
	unmap  func()        // lets go of what was registered, once the endpoint is gone
	spent  func() bool   // nothing is left that needs the worker; asked on the thread
	spin   time.Duration // how long to look for events before sleeping
	ended  chan struct{} // closed when the endpoint has ended
	late   chan func()   // to be run on the thread after that
	freed  chan struct{} // closed when the thread has let go of the worker
	offset int64         // transport.Now's clock less UCX's, in ns
	stop   bool          // set on the thread
	// peerErrors and peerGone say how the endpoint may end, and disconnected and kept
	// how it has: see letGo. All but the first belong to the thread.
	peerErrors, peerGone, disconnected, kept bool

	// life is held for reading by other threads while they use the worker, and
	// taken by this one before it frees it.
	life sync.RWMutex
	gone bool // guarded by life
}

const (
	// quietSpin is how long an idle thread looks before it sleeps: longer than a
	// round trip on a good link, short beside a time slice.
	quietSpin = 20 * time.Microsecond
	// nap bounds a sleep, should a wake-up be lost.
	nap = 100 * time.Millisecond
	// closingNap is that of a thread that waits for UCX to have nothing left.
	closingNap = time.Millisecond
	// settleTurns is how often an ending worker is looked at, 32 rounds of UCX each time.
	settleTurns = 256
	// answering is how long a worker whose endpoint has ended answers a peer that ends
	// its own, for which UCX has a second.
	answering = 2 * time.Second
	// eventBatch is how many events are taken at a time.
	eventBatch = 64
)

// engineConfig is what an engine is made with.
type engineConfig struct {
	ucx.Options
	busy  bool        // never sleep while there may be something
	place func()      // called first on the thread, to put it where it is to run
	unmap func()      // see engine
	spent func() bool // see engine
}

// startEngine makes a worker on a thread of its own.
func startEngine(c engineConfig) (*engine, error) {
	e := &engine{unmap: c.unmap, spent: c.spent, peerErrors: c.PeerErrors,
		calls: make(chan func(), 4), submit: make(chan int, c.Slots), spin: quietSpin,
		ended: make(chan struct{}), late: make(chan func()), freed: make(chan struct{}),
		offset: clockOffset(),
	}
	if c.busy {
		e.spin = nap
	}
	ready := make(chan error)
	go e.run(c, ready)
	return e, <-ready
}

// clockOffset returns transport.Now less UCX's clock, in ns. Both are the system's
// monotonic clock with different zeros, so that the tightest of a few readings is
// right to some tens of ns.
func clockOffset() int64 {
	best, offset := int64(math.MaxInt64), int64(0)
	for range 32 {
		before := ucx.Clock()
		now := int64(transport.Now())
		after := ucx.Clock()
		if after-before < best {
			best, offset = after-before, now-(before+after)/2
		}
	}
	return offset
}

// run is the thread. It locks its goroutine to it and lets it end with it.
func (e *engine) run(c engineConfig, ready chan<- error) {
	runtime.LockOSThread()
	defer close(e.freed)
	c.place()
	var err error
	if e.worker, err = ucx.NewWorker(c.Options); err != nil {
		ready <- err
		return
	}
	ready <- nil
	var events [eventBatch]ucx.Event
	for !e.stop {
		e.takeWork()
		if e.stop {
			break
		}
		sleep := nap
		if e.idle != nil {
			sleep = closingNap
		}
		for _, event := range events[:e.worker.Progress(events[:], e.spin, sleep)] {
			e.handle(event)
		}
		if e.idle != nil && e.worker.Idle() {
			e.idle()
			e.idle = nil
		}
	}
	e.life.Lock()
	e.gone = true
	e.life.Unlock()
	e.letGo()
	close(e.ended)
	e.linger()
}

// letGo ends the endpoint. UCX 1.13 aborts the process where one ends with something
// still to send that it cannot cancel. Such an endpoint stays as it is, with its
// worker and their descriptors, until the process ends; and so does the memory,
// unless the peer, too, can touch it no more.
func (e *engine) letGo() {
	switch {
	case (e.peerErrors || e.settle()) && e.worker.Disconnect():
		e.disconnected = true
	case e.peerGone:
		e.worker.Abandon()
	default:
		e.kept = true
		abandoned.Lock()
		abandoned.engines = append(abandoned.engines, e)
		abandoned.Unlock()
		return
	}
	e.unmap()
}

// linger keeps the worker until it is spent: memory that UCX made is its user's
// until it is freed, however the connection ended.
func (e *engine) linger() {
	if e.kept {
		return
	}
	for begin := time.Now(); e.disconnected && !e.spent() && time.Since(begin) < answering; {
		select {
		case f := <-e.late:
			f()
		default:
			e.worker.Progress(make([]ucx.Event, 1), 0, closingNap)
		}
	}
	for !e.spent() {
		(<-e.late)()
	}
	if e.disconnected {
		e.worker.Free()
	}
}

// afterwards runs f on the thread once the endpoint has ended, unless the worker is
// gone too, and waits for it.
func (e *engine) afterwards(f func()) {
	last := make(chan bool, 1)
	select {
	case e.late <- func() { f(); last <- e.spent() }:
		if <-last {
			<-e.freed
		}
	case <-e.freed:
	}
}

// abandoned are the engines whose memory a peer may yet touch: it stays pinned, and
// out of the garbage collector's reach, until the process ends.
var abandoned struct {
	sync.Mutex
	engines []*engine
}

// settle gives UCX a few turns to end what ends without the peer. It reports
// whether nothing is left.
func (e *engine) settle() bool {
	var events [1]ucx.Event // a stopped worker has none
	for range settleTurns {
		if e.worker.Idle() {
			return true
		}
		e.worker.Progress(events[:], 0, 0)
	}
	return e.worker.Idle()
}

// borrow holds the worker for use by another thread until giveBack. It reports
// false, and holds nothing, once the worker is gone.
func (e *engine) borrow() bool {
	e.life.RLock()
	if e.gone {
		e.life.RUnlock()
		return false
	}
	return true
}

func (e *engine) giveBack() { e.life.RUnlock() }

// wake makes the thread look for work.
func (e *engine) wake() {
	if e.borrow() {
		e.worker.Wake()
		e.giveBack()
	}
}

// moved grows while anything moves.
func (e *engine) moved() uint64 {
	if !e.borrow() {
		return 0
	}
	defer e.giveBack()
	return e.worker.Moved()
}

// takeWork runs what other goroutines have asked for.
func (e *engine) takeWork() {
	for {
		select {
		case i := <-e.submit:
			e.worker.Submit(i)
		case f := <-e.calls:
			f()
		default:
			return
		}
	}
}

// post hands a slot to the thread. It has room for every slot.
func (e *engine) post(slot int) {
	e.submit <- slot
	e.wake()
}

// do runs f on the thread and waits for it. It reports false, without having run
// it, once the thread has ended.
func (e *engine) do(f func()) bool {
	done := make(chan struct{})
	select {
	case e.calls <- func() { f(); close(done) }:
		e.wake()
	case <-e.ended:
		return false
	}
	select {
	case <-done:
		return true
	case <-e.ended:
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}

// drain posts no more, and calls then once UCX holds nothing. The thread goes on to
// answer the peer.
func (e *engine) drain(then func()) {
	e.do(func() {
		e.worker.Stop()
		e.idle = then
	})
}

// end ends the endpoint and waits for that. peerGone says that the peer is no more,
// or has ended its own worker.
func (e *engine) end(peerGone bool) {
	e.do(func() {
		e.worker.Stop()
		e.stop, e.peerGone = true, peerGone
	})
	<-e.ended
}

// at converts an event's time to transport.Now's clock.
func (e *engine) at(event ucx.Event) time.Duration { return time.Duration(event.At + e.offset) }
