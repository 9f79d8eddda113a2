package rdma

import (
	"math"
	"sync"
	"time"

	"kvbench/internal/ucx"
	"kvbench/transport"
)

// engine is a UCX worker, with a thread that moves the bytes and a goroutine that
// handles the worker's events.
type engine struct {
	worker     *ucx.Worker
	handle     func(ucx.Event) // called with mu held
	unmap      func()          // unmaps registered memory after the endpoint has ended
	spent      func() bool     // reports whether nothing needs the worker any more; called with mu held
	peerErrors bool
	offset     int64         // transport.Now's clock minus UCX's, in ns
	taken      chan struct{} // closed when the goroutine has ended

	// mu serializes calls of the worker and the handling of events. "The engine is
	// held" means that mu is locked.
	mu      sync.Mutex
	drained func() // called once when UCX holds nothing
	ended   bool   // the endpoint has ended
	state   endState

	// life is read-locked while a goroutine posts to the worker, and locked before the
	// worker is freed.
	life sync.RWMutex
	gone bool // guarded by life
}

// endState is how an endpoint ended: see letGo.
type endState int

const (
	disconnected endState = iota + 1 // the worker can be freed
	abandoned                        // the worker holds the operations that the peer has not answered; the memory is unmapped
	kept                             // the worker and its memory stay until the process ends
	retired                          // the thread has ended; UCX's resources stay until the process ends
	over                             // the worker is freed
)

const (
	// quietSpin is how long an idle thread polls before it sleeps: longer than a
	// megabyte takes on a good link, and short beside a time slice.
	quietSpin = 100 * time.Microsecond
	// busySpin replaces quietSpin with Config.BusyPoll, so that the thread does not
	// sleep while data may arrive.
	busySpin = 100 * time.Millisecond
	// eventBatch is the most events handled in one go.
	eventBatch = 64
)

// startEngine creates a worker and its goroutine. See engine for unmap and spent. The
// caller must set handle before it connects the worker.
func startEngine(o ucx.Options, unmap func(), spent func() bool) (*engine, error) {
	w, err := ucx.NewWorker(o)
	if err != nil {
		return nil, err
	}
	e := &engine{worker: w, unmap: unmap, spent: spent, peerErrors: o.PeerErrors, offset: clockOffset(), taken: make(chan struct{})}
	go e.take()
	return e, nil
}

// clockOffset returns transport.Now minus UCX's clock, in ns. Both are the system's
// monotonic clock with different zeros, so the tightest of a few readings is correct to
// some tens of ns.
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

// take handles the worker's events until the worker ends.
func (e *engine) take() {
	defer close(e.taken)
	for e.worker.Wait() {
		e.do(func() { e.handleSome() })
	}
}

// handleSome handles waiting events and returns their number. The engine must be held.
func (e *engine) handleSome() int {
	var events [eventBatch]ucx.Event
	n := e.worker.Events(events[:])
	for _, event := range events[:n] {
		if event.Kind == ucx.Idle {
			e.drained()
			continue
		}
		e.handle(event)
	}
	return n
}

// do runs f with the engine held. Once the endpoint has ended, it returns false without
// a call of f.
func (e *engine) do(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	f()
	return true
}

// drain stops posting, and calls then once UCX holds nothing. Events from before the
// stop are still handled, later ones are not. The peer is still answered.
func (e *engine) drain(then func()) {
	e.do(func() {
		e.drained = then
		e.worker.Stop()
	})
}

// end ends the endpoint. peerGone means that the peer is gone or has ended its worker.
func (e *engine) end(peerGone bool) {
	e.worker.Interrupt()
	<-e.taken
	e.do(func() {
		if e.drained == nil {
			e.drained = func() {}
		}
		for told, some := false, true; !told || some; some = e.handleSome() > 0 {
			told = e.worker.Stop() // so that the events of acknowledged transfers are handled
		}
	})
	e.life.Lock()
	e.gone = true
	e.life.Unlock()
	e.do(func() {
		e.letGo(peerGone)
		e.ended = true
		e.finish()
	})
}

// letGo ends the endpoint. UCX 1.13 aborts the process if an endpoint ends with data to
// send that UCX cannot cancel. Such an endpoint is not ended. If the peer is gone, it
// is freed with its worker, which UCX allows (see finish). Otherwise the worker, the
// descriptors and the memory stay until the process ends, because the peer may still
// access the memory.
func (e *engine) letGo(peerGone bool) {
	switch {
	case (e.peerErrors || e.worker.Settle()) && e.worker.Disconnect():
		e.state = disconnected
	case peerGone:
		e.worker.Abandon()
		e.state = abandoned
	default:
		e.worker.Retire()
		e.state = kept
		keep.Lock()
		keep.engines = append(keep.engines, e)
		keep.Unlock()
		return
	}
	e.unmap()
}

// keep holds the engines with memory that a peer may still access. The memory stays
// pinned and out of the garbage collector's reach until the process ends.
var keep struct {
	sync.Mutex
	engines []*engine
}

// finish frees the worker once it is spent. Memory that UCX allocated belongs to its
// user until it is freed, also after the connection has ended. Until then a
// disconnected endpoint still answers a peer that ends its endpoint.
func (e *engine) finish() {
	if !e.spent() {
		return
	}
	switch {
	case e.state == abandoned && e.peerErrors:
		// UCX watches the peer for errors and has not finished, so the endpoint must
		// not be freed.
		e.worker.Retire()
		e.state = retired
	case e.state == disconnected || e.state == abandoned:
		if e.state = over; !e.worker.Free() {
			e.state = retired
		}
	}
}

// keeps reports whether the memory stays until the process ends, because the peer may
// still access it.
func (e *engine) keeps() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state == kept
}

// afterwards runs f with the engine held if the endpoint has ended and the worker is
// neither freed nor kept.
func (e *engine) afterwards(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == disconnected || e.state == abandoned {
		f()
		e.finish()
	}
}

// borrow holds the worker for posting until giveBack. It returns false, and holds
// nothing, if the worker is gone.
func (e *engine) borrow() bool {
	e.life.RLock()
	if e.gone {
		e.life.RUnlock()
		return false
	}
	return true
}

func (e *engine) giveBack() { e.life.RUnlock() }

// post submits a slot to the thread.
func (e *engine) post(slot int) {
	if e.borrow() {
		e.worker.Submit(slot)
		e.giveBack()
	}
}

// moved returns a counter that grows while any data moves.
func (e *engine) moved() uint64 {
	if !e.borrow() {
		return 0
	}
	defer e.giveBack()
	return e.worker.Moved()
}

// at converts an event's time to transport.Now's clock.
func (e *engine) at(event ucx.Event) time.Duration { return time.Duration(event.At + e.offset) }
