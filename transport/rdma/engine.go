package rdma

import (
	"math"
	"sync"
	"time"

	"kvbench/internal/ucx"
	"kvbench/transport"
)

// engine is a UCX worker, whose thread moves the bytes, with the goroutine that takes
// what the worker tells.
type engine struct {
	worker     *ucx.Worker
	handle     func(ucx.Event) // called with the engine held
	unmap      func()          // lets go of what was registered, once the endpoint is gone
	spent      func() bool     // nothing is left that needs the worker; asked with the engine held
	peerErrors bool
	offset     int64         // transport.Now's clock less UCX's, in ns
	taken      chan struct{} // closed when no more events are taken

	// mu holds the engine: one at a time calls the worker, or handles an event.
	mu      sync.Mutex
	drained func() // called once when UCX holds nothing
	ended   bool   // the endpoint has
	state   endState

	// life is held for reading by others while they post to the worker, and taken
	// before it goes.
	life sync.RWMutex
	gone bool // guarded by life
}

// endState is how an endpoint has ended: see letGo.
type endState int

const (
	disconnected endState = iota + 1 // the worker can be freed
	abandoned                        // it holds what the peer has not answered, without its memory
	kept                             // it stays with its memory
	retired                          // its thread has ended; what UCX held stays until the process ends
	over                             // nothing is left
)

const (
	// quietSpin is how long an idle thread looks before it sleeps: longer than a
	// megabyte takes on a good link, short beside a time slice.
	quietSpin = 100 * time.Microsecond
	// busySpin is that of one that is not to sleep while there may be something.
	busySpin = 100 * time.Millisecond
	// eventBatch is how many events are taken at a time.
	eventBatch = 64
)

// startEngine makes a worker. See engine for unmap and spent. The caller sets handle
// before it connects the worker.
func startEngine(o ucx.Options, unmap func(), spent func() bool) (*engine, error) {
	w, err := ucx.NewWorker(o)
	if err != nil {
		return nil, err
	}
	e := &engine{worker: w, unmap: unmap, spent: spent, peerErrors: o.PeerErrors, offset: clockOffset(), taken: make(chan struct{})}
	go e.take()
	return e, nil
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

// take hands events to whom they are for.
func (e *engine) take() {
	defer close(e.taken)
	for e.worker.Wait() {
		e.do(func() { e.handleSome() })
	}
}

// handleSome handles events that wait, with the engine held, and returns how many.
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

// do runs f with the engine held. It reports false, without having run it, once the
// endpoint has ended.
func (e *engine) do(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	f()
	return true
}

// drain posts no more and calls then once UCX holds nothing. What happened before it is
// still handled, and nothing after it; the peer is still answered.
func (e *engine) drain(then func()) {
	e.do(func() {
		e.drained = then
		e.worker.Stop()
	})
}

// end ends the endpoint. peerGone says that the peer is no more, or has ended its own
// worker.
func (e *engine) end(peerGone bool) {
	e.worker.Interrupt()
	<-e.taken
	e.do(func() {
		if e.drained == nil {
			e.drained = func() {}
		}
		for told, some := false, true; !told || some; some = e.handleSome() > 0 {
			told = e.worker.Stop() // what was acknowledged is told
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

// letGo ends the endpoint. UCX 1.13 aborts the process where one ends with something
// still to send that it cannot cancel. Such an endpoint is not ended: where the peer is
// gone it goes with its worker, which UCX allows (see finish), and otherwise it stays
// with its worker, their descriptors and the memory until the process ends, for the
// peer may still touch that.
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

// keep is the engines whose memory a peer may yet touch: it stays pinned, and out of
// the garbage collector's reach, until the process ends.
var keep struct {
	sync.Mutex
	engines []*engine
}

// finish lets the worker go once it is spent: memory that UCX made is its user's until
// it is freed, however the connection ended. Until then an endpoint that was
// disconnected still answers a peer that ends its own.
func (e *engine) finish() {
	if !e.spent() {
		return
	}
	switch {
	case e.state == abandoned && e.peerErrors:
		// UCX was asked to look after the peer and has not come to an end of it: the
		// endpoint is not to be freed under that.
		e.worker.Retire()
		e.state = retired
	case e.state == disconnected || e.state == abandoned:
		if e.state = over; !e.worker.Free() {
			e.state = retired
		}
	}
}

// keeps reports whether the memory stays as it is until the process ends, because the
// peer may yet touch it.
func (e *engine) keeps() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state == kept
}

// afterwards runs f with the engine held once the endpoint has ended, unless the
// worker is gone or kept.
func (e *engine) afterwards(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == disconnected || e.state == abandoned {
		f()
		e.finish()
	}
}

// borrow holds the worker for posting until giveBack. It reports false, and holds
// nothing, once the worker is gone.
func (e *engine) borrow() bool {
	e.life.RLock()
	if e.gone {
		e.life.RUnlock()
		return false
	}
	return true
}

func (e *engine) giveBack() { e.life.RUnlock() }

// post hands a slot to the thread.
func (e *engine) post(slot int) {
	if e.borrow() {
		e.worker.Submit(slot)
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

// at converts an event's time to transport.Now's clock.
func (e *engine) at(event ucx.Event) time.Duration { return time.Duration(event.At + e.offset) }
