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

// hello is what each side says of itself when they meet.
type hello struct {
	Worker      []byte `json:"worker"` // UCX's address of the worker
	Lane        string `json:"lane"`
	Outstanding int    `json:"outstanding,omitempty"` // the dialler's
}

// message is what travels on the socket after that.
type message struct {
	// Withdraw is a region of the target's that is to be used no more; Withdrawn is
	// the initiator's word that it is not.
	Withdraw  uint32 `json:"withdraw,omitempty"`
	Withdrawn uint32 `json:"withdrawn,omitempty"`
	// Imported is a region of the target's that the initiator has imported, and Direct whether
	// the initiator's CPU reaches its memory.
	Imported uint32 `json:"imported,omitempty"`
	Direct   bool   `json:"direct,omitempty"`
	// Ending says that the sender ends the connection, and why if it was not told to.
	Ending bool   `json:"ending,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Drained says that nothing of the sender's is on its way any more.
	Drained bool `json:"drained,omitempty"`
}

// connection is what an initiator and a target have in common.
type connection struct {
	cfg    transport.Config
	family family
	socket *rendezvous.Conn
	engine *engine

	gpu        *gpuSide // nil: a connection of host memory
	processors []int    // that the worker's thread keeps to; empty: any

	regions regionTable
	counts  portMeter
	lane    atomic.Pointer[laneUse]
	// readBack says that lane is what carried the first transfer, and closed that the
	// user has called Close. They are guarded by the engine.
	readBack, closed bool

	mu      sync.Mutex
	err     error
	greeted chan struct{} // has room for the peer's greeting
	drained chan struct{} // closed when the peer has nothing on its way any more, or is gone
	gone    atomic.Bool   // the peer is
	closing chan struct{} // closed when the connection begins to end
	told    chan struct{} // closed when the peer has been told of that, if it is to be; made before closing is closed
	dead    chan struct{} // closed when every outstanding transfer has been accounted for
	wg      sync.WaitGroup
}

// begin makes a connection's worker, without a peer.
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

// hello is what this side has to say.
func (c *connection) hello() (h hello, err error) {
	h = hello{Lane: c.cfg.Lane, Outstanding: c.cfg.MaxOutstanding}
	c.engine.do(func() { h.Worker, err = c.engine.worker.Address() })
	return h, err
}

// meet connects the worker to the peer's.
func (c *connection) meet(peer hello) (err error) {
	if peer.Lane != c.cfg.Lane {
		return fmt.Errorf("the peer asks for lane %q where this side asks for %v: %w", peer.Lane, c.family, transport.ErrProtocol)
	}
	c.engine.do(func() {
		if err = c.engine.worker.Connect(peer.Worker); err != nil {
			err = explain(err, c.family, c.cfg.Device)
			return
		}
		// What UCX has chosen by now tells a wrong lane before anything is measured;
		// what the first transfer used is read then.
		err = c.checkLane(ucx.ActiveMessage, true)
	})
	if err != nil {
		return err
	}
	c.counts.start(c.lane.Load().all)
	return nil
}

// greet waits until UCX has connected the two workers, so that no transfer pays
// for that, and an address that leads nowhere is seen before there is one. It ends
// a connection that does not come about.
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

// start begins to watch the socket. hear gets what the peer says, and last is
// called when the connection has ended.
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
			c.fail(fmt.Errorf("%w: it ended the connection", transport.ErrPeer)) // if it has not said so before
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

// leave parts from the peer. UCX 1.13 aborts the process in many of the cases in
// which an endpoint ends with something still to send, so each side lets what it
// has on its way arrive, while it still answers the other, and ends its endpoint
// when both have said so. On RDMA lanes, where UCX can be told of an end, what is on
// its way is cancelled instead. On others, where the peer is gone it is given up: see
// engine.letGo.
func (c *connection) leave() {
	idle := make(chan struct{})
	c.engine.drain(func() { close(idle) })
	wait := c.cfg.PeerTimeout
	if !errors.Is(c.Err(), transport.ErrClosed) {
		wait = min(wait, failedPatience) // a peer that is silent has had its time already
	}
	patience, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if !c.gone.Load() {
		if !c.family.peerErrors {
			c.settle(patience, idle)
		}
		select {
		case <-c.told: // first why, then that it is over
		case <-patience.Done():
		}
		// If it cannot be sent, the peer is gone.
		_ = c.socket.Send(message{Drained: true})
		select {
		case <-c.drained:
		case <-patience.Done():
		}
	}
	c.engine.end(c.gone.Load())
}

// failedPatience is what a peer gets to part from a connection that has failed.
const failedPatience = 2 * time.Second

// settle waits until what is on its way has arrived, or will not.
func (c *connection) settle(patience context.Context, idle <-chan struct{}) {
	select {
	case <-idle:
	case <-patience.Done():
	case <-c.drained:
		if c.gone.Load() { // nobody takes it any more
			return
		}
		select {
		case <-idle:
		case <-patience.Done():
		}
	}
}

// fail ends the connection for the first reason given.
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
	// Not here, where the engine may be held, which must not wait for a socket. If it
	// cannot be sent, the peer is gone.
	go func() {
		defer close(told)
		_ = c.socket.Send(m)
	}()
}

// Err returns why the connection ended, or nil.
func (c *connection) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close implements transport.Endpoint. When it returns, no registered memory is touched any more.
func (c *connection) Close() error {
	c.fail(transport.ErrClosed)
	<-c.dead
	c.engine.afterwards(func() { c.closed = true })
	return nil
}

// spent reports whether nothing needs the worker any more. It is asked with the engine held.
func (c *connection) spent() bool { return c.closed && c.regions.empty() }

// abandon ends a connection that never had a peer.
func (c *connection) abandon() {
	if c.socket != nil {
		c.socket.Close()
	}
	c.engine.end(true)
	c.engine.afterwards(func() { c.closed = true })
}

// happened takes in what is no transfer's own event.
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
