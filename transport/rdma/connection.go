package rdma

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kvbench/internal/rendezvous"
	"kvbench/internal/ucx"
	"kvbench/transport"
)

// hello is each side's first message, with its worker's address and its lane.
type hello struct {
	Worker      []byte `json:"worker"` // UCX's address of the worker
	Lane        string `json:"lane"`
	Outstanding int    `json:"outstanding,omitempty"` // sent by the dialler
}

// message is one message on the socket after the hello.
type message struct {
	// Withdraw is a region of the target that must not be used any more. Withdrawn is
	// the initiator's confirmation.
	Withdraw  uint32 `json:"withdraw,omitempty"`
	Withdrawn uint32 `json:"withdrawn,omitempty"`
	// Imported is a region of the target that the initiator has imported. Direct is
	// true if the initiator's CPU can access its memory.
	Imported uint32 `json:"imported,omitempty"`
	Direct   bool   `json:"direct,omitempty"`
	// Ending means that the sender ends the connection. Reason is set if an error
	// caused it.
	Ending bool   `json:"ending,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Drained means that the sender has nothing in flight any more.
	Drained bool `json:"drained,omitempty"`
}

// connection holds the parts that an initiator and a target share.
type connection struct {
	cfg    transport.Config
	family family
	socket *rendezvous.Conn
	engine *engine

	gpu        *gpuSide // nil for a connection of host memory
	processors []int    // CPUs of the worker's thread; empty: any

	regions regionTable
	counts  portMeter
	lane    atomic.Pointer[laneUse]
	// readBack is true once lane holds the lanes of the first transfer. closed is true
	// after Close. The engine guards both.
	readBack, closed bool

	mu      sync.Mutex
	err     error
	greeted chan struct{} // has room for the peer's greeting
	drained chan struct{} // closed when the peer has nothing in flight any more, or is gone
	gone    atomic.Bool   // the peer is gone
	closing chan struct{} // closed when the connection begins to end
	told    chan struct{} // closed when the peer has been sent the reason, if it needs it; set before closing is closed
	dead    chan struct{} // closed once every outstanding transfer is completed
	wg      sync.WaitGroup
}

// begin creates a connection's worker, without a peer.
func begin(cfg transport.Config, f family, gpu *gpuSide) (*connection, error) {
	c := &connection{
		cfg: cfg, family: f, gpu: gpu, greeted: make(chan struct{}, 1),
		drained: make(chan struct{}), closing: make(chan struct{}), dead: make(chan struct{}),
	}
	o := ucx.Options{
		Settings: settings(f, cfg), Slots: cfg.MaxOutstanding, Window: window, PeerErrors: f.peerErrors,
		Spin: quietSpin, Processors: processorsNear(f, cfg.Device), Bind: gpu.bind(),
	}
	if cfg.BusyPoll {
		o.Spin = busySpin
	}
	var err error
	if c.engine, err = startEngine(o, c.unmapAll, c.spent); err != nil {
		return nil, explain(err, f, cfg.Device)
	}
	if c.engine.worker.Placed() {
		c.processors = o.Processors
	}
	return c, nil
}

// hello returns this side's first message.
func (c *connection) hello() (h hello, err error) {
	h = hello{Lane: c.cfg.Lane, Outstanding: c.cfg.MaxOutstanding}
	c.engine.do(func() { h.Worker, err = c.engine.worker.Address() })
	return h, err
}

// meet connects the worker to the peer's worker.
func (c *connection) meet(peer hello) (err error) {
	if peer.Lane != c.cfg.Lane {
		return fmt.Errorf("the peer asks for lane %q where this side asks for %v: %w", peer.Lane, c.family, transport.ErrProtocol)
	}
	c.engine.do(func() {
		if err = c.engine.worker.Connect(peer.Worker); err != nil {
			err = explain(err, c.family, c.cfg.Device)
			return
		}
		// UCX has chosen its lanes by now, so a wrong lane fails before any
		// measurement. The lanes of the first transfer are read after that transfer.
		err = c.checkLane(ucx.ActiveMessage, true)
	})
	if err != nil {
		return err
	}
	c.counts.start(c.lane.Load().all)
	return nil
}

// greet waits until UCX has connected the two workers, so that no transfer pays for the
// connecting, and an unreachable address fails before any transfer. On an error it
// closes the connection.
func (c *connection) greet(ctx context.Context) error {
	c.engine.do(c.engine.worker.Greet)
	var err error
	select {
	case <-c.greeted:
		return nil
	case <-c.closing:
		err = c.Err()
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(c.cfg.PeerTimeout):
		err = fmt.Errorf("%w: UCX did not connect the two sides in %v, on %s; %s", transport.ErrPeer, c.cfg.PeerTimeout, strings.Join(c.lane.Load().all, ", "), c.family.reachability())
	}
	c.fail(err)
	c.Close()
	return err
}

// start starts to read the socket. hear is called for each message of the peer, and
// last after the connection has ended.
func (c *connection) start(hear func(message) error, last func()) {
	c.wg.Go(func() { c.listen(hear) })
	go func() {
		<-c.closing
		c.leave()
		c.socket.Close()
		c.wg.Wait()
		last()
		close(c.dead)
	}()
}

// listen reads the socket to its end.
func (c *connection) listen(hear func(message) error) {
	defer close(c.drained)
	for {
		var m message
		err := c.socket.Receive(&m)
		switch {
		case err != nil:
			c.gone.Store(true)
			c.fail(err)
			return
		case m.Drained:
			c.fail(fmt.Errorf("%w: it ended the connection", transport.ErrPeer)) // no effect if the peer has sent Ending before
			return
		case m.Ending && m.Reason != "":
			err = fmt.Errorf("%w: it says: %s", transport.ErrPeer, m.Reason)
		case m.Ending:
			err = fmt.Errorf("%w: it ended the connection", transport.ErrPeer)
		default:
			err = hear(m)
		}
		if err != nil {
			c.fail(err)
		}
	}
}

// leave closes the connection in step with the peer. UCX 1.13 aborts the process in
// many cases if an endpoint ends with data still to send. So each side lets its data in
// flight arrive while it still answers the other, and ends its endpoint after both have
// sent Drained. On RDMA lanes UCX can report the end of a peer, so data in flight is
// cancelled instead. On other lanes, data in flight to a lost peer is given up: see
// engine.letGo.
func (c *connection) leave() {
	idle := make(chan struct{})
	c.engine.drain(func() { close(idle) })
	wait := c.cfg.PeerTimeout
	if !errors.Is(c.Err(), transport.ErrClosed) {
		wait = min(wait, failedPatience) // a silent peer has already had its time
	}
	patience, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if !c.gone.Load() {
		if !c.family.peerErrors {
			c.settle(patience, idle)
		}
		select {
		case <-c.told: // the reason must arrive before Drained
		case <-patience.Done():
		}
		// If this fails, the peer is gone.
		_ = c.socket.Send(message{Drained: true})
		select {
		case <-c.drained:
		case <-patience.Done():
		}
	}
	c.engine.end(c.gone.Load())
}

// failedPatience limits the wait for the peer when a failed connection closes.
const failedPatience = 2 * time.Second

// settle waits until the data in flight has arrived or cannot arrive.
func (c *connection) settle(patience context.Context, idle <-chan struct{}) {
	select {
	case <-idle:
	case <-patience.Done():
	case <-c.drained:
		if c.gone.Load() { // the peer receives nothing any more
			return
		}
		select {
		case <-idle:
		case <-patience.Done():
		}
	}
}

// fail ends the connection. The first error is kept.
func (c *connection) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	told := make(chan struct{})
	c.told = told
	close(c.closing)
	if errors.Is(err, transport.ErrPeer) {
		close(told)
		return
	}
	m := message{Ending: true}
	if !errors.Is(err, transport.ErrClosed) {
		m.Reason = err.Error()
	}
	// In a goroutine, because the caller may hold the engine, which must not wait for a
	// socket. If sending fails, the peer is gone.
	go func() {
		defer close(told)
		_ = c.socket.Send(m)
	}()
}

// Err returns the error that ended the connection, or nil.
func (c *connection) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close implements transport.Endpoint. After it returns, registered memory is no longer
// accessed.
func (c *connection) Close() error {
	c.fail(transport.ErrClosed)
	<-c.dead
	c.engine.afterwards(func() { c.closed = true })
	return nil
}

// spent reports whether nothing needs the worker any more. The caller must hold the
// engine.
func (c *connection) spent() bool { return c.closed && c.regions.empty() }

// abandon ends a connection that never had a peer.
func (c *connection) abandon() {
	if c.socket != nil {
		c.socket.Close()
	}
	c.engine.end(true)
	c.engine.afterwards(func() { c.closed = true })
}

// happened handles every event that does not belong to a transfer.
func (c *connection) happened(e ucx.Event) {
	switch e.Kind {
	case ucx.Greeted:
		select {
		case c.greeted <- struct{}{}:
		default:
			c.fail(fmt.Errorf("a second greeting: %w", transport.ErrProtocol))
		}
	case ucx.Ended:
		c.fail(fmt.Errorf("%w: UCX: %s", transport.ErrPeer, ucx.StatusText(int(e.Status))))
	case ucx.Broken:
		c.fail(fmt.Errorf("%w: UCX gave up on the connection, and says why on standard error", transport.ErrPeer))
	case ucx.Violation:
		c.fail(fmt.Errorf("the peer sent a message that does not fit: %w", transport.ErrProtocol))
	}
}
