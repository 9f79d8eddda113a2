package rdma

import (
	"errors"
	"fmt"
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
	// Failed is why the sender ends the connection.
	Failed string `json:"failed,omitempty"`
}

// connection is what an initiator and a target have in common.
type connection struct {
	cfg    transport.Config
	family family
	socket *rendezvous.Conn
	engine *engine

	regions regionTable
	counts  portMeter
	lane    atomic.Pointer[laneUse]
	// readBack says that lane is what carried the first transfer. It belongs to the
	// engine's thread.
	readBack bool

	mu      sync.Mutex
	err     error
	closing chan struct{} // closed when the connection begins to end
	dead    chan struct{} // closed when every outstanding transfer has been accounted for
	wg      sync.WaitGroup
}

// begin makes a connection's worker, without a peer.
func begin(cfg transport.Config, f family) (*connection, error) {
	c := &connection{cfg: cfg, family: f, closing: make(chan struct{}), dead: make(chan struct{})}
	var err error
	c.engine, err = startEngine(ucx.Options{
		Settings: settings(f, cfg.Device), Slots: cfg.MaxOutstanding, Window: window, PeerErrors: f.peerErrors,
	}, cfg.MaxOutstanding, cfg.BusyPoll, c.unmapAll)
	if err != nil {
		return nil, explain(err, f, cfg.Device)
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
	c.counts.start(c.lane.Load().device)
	return nil
}

// start begins to watch the socket. hear gets what the peer says, and last is
// called when the connection has ended.
func (c *connection) start(hear func(message) error, last func()) {
	c.wg.Go(func() {
		for {
			var m message
			err := c.socket.Receive(&m)
			switch {
			case err != nil:
				err = translate(err)
			case m.Failed != "":
				err = fmt.Errorf("%w: it says: %s", transport.ErrPeer, m.Failed)
			default:
				err = hear(m)
			}
			if err != nil {
				c.fail(err)
				return
			}
		}
	})
	go func() {
		<-c.closing
		c.wg.Wait()
		c.engine.end(c.grace())
		last()
		close(c.dead)
	}()
}

// grace is what the peer gets to take what is on its way: nothing if it is gone.
func (c *connection) grace() time.Duration {
	if errors.Is(c.Err(), transport.ErrClosed) {
		return time.Second
	}
	return 0
}

// fail ends the connection for the first reason given, which the peer learns if
// it is this side's.
func (c *connection) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	if !errors.Is(err, transport.ErrClosed) && !errors.Is(err, transport.ErrPeer) {
		// If it is not heard, the end of the socket is.
		_ = c.socket.Send(message{Failed: err.Error()})
	}
	close(c.closing)
	c.socket.Close()
	c.engine.wake()
}

// Err returns why the connection ended, or nil.
func (c *connection) Err() error {
	if !isClosed(c.closing) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close implements transport.Endpoint. When it returns, no registered memory is touched any more.
func (c *connection) Close() error {
	c.fail(transport.ErrClosed)
	<-c.dead
	return nil
}

// abandon ends a connection that never had a peer.
func (c *connection) abandon() {
	if c.socket != nil {
		c.socket.Close()
	}
	c.engine.end(0)
}

// happened takes in what is no transfer's own event.
func (c *connection) happened(e ucx.Event) {
	switch e.Kind {
	case ucx.Ended:
		c.fail(fmt.Errorf("%w: UCX: %s", transport.ErrPeer, ucx.StatusText(int(e.Status))))
	case ucx.Violation:
		c.fail(fmt.Errorf("the peer sent a message that does not fit: %w", transport.ErrProtocol))
	}
}

// translate says of the socket's errors which of the contract's they are.
func translate(err error) error {
	switch {
	case errors.Is(err, rendezvous.ErrClosed):
		return fmt.Errorf("%w: %w", transport.ErrClosed, err)
	case errors.Is(err, rendezvous.ErrProtocol):
		return fmt.Errorf("%w: %w", transport.ErrProtocol, err)
	case errors.Is(err, rendezvous.ErrPeer):
		return fmt.Errorf("%w: %w", transport.ErrPeer, err)
	}
	return err
}

// describe says of any end of a connection which of the contract's errors it is.
func describe(err error) error {
	if errors.Is(err, transport.ErrClosed) || errors.Is(err, transport.ErrPeer) {
		return err
	}
	return fmt.Errorf("%w: %w", transport.ErrPeer, err)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
