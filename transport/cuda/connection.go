package cuda

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/internal/gpumem"
	"kvbench/transport"
)

// link is a connected socket, and what both sides agreed on over it.
type link struct {
	driver    *cudadrv.Driver
	net       *net.UnixConn
	cfg       transport.Config
	noHandles error // why legacy handles do not open at the peer; nil where they do
}

// connection is what an initiator and a target have in common: the local socket,
// regions, and one error that ends everything.
type connection struct {
	link
	regions regionTable
	joined  joined
	*gpumem.Owned
	inbox inbox

	writing sync.Mutex // one frame at a time
	out     [frameSize]byte

	mu       sync.Mutex
	err      error
	wg       sync.WaitGroup
	closing  chan struct{} // closed when the connection begins to end
	stopped  chan struct{} // closed when no memory is touched or held open any more
	dead     chan struct{} // closed when every outstanding transfer has been accounted for
	closeErr error         // set before stopped is closed
}

func newConnection(l link) *connection {
	conn := &connection{
		link: l, inbox: inbox{from: l.net},
		closing: make(chan struct{}), stopped: make(chan struct{}), dead: make(chan struct{}),
	}
	conn.Owned = gpumem.On(l.cfg.GPU, conn.regions.covers).MadeBy(conn.makeMemory)
	return conn
}

// run starts a goroutine whose error ends the connection, unless it has ended.
func (c *connection) run(f func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.wg.Go(func() {
		if err := f(); err != nil {
			c.fail(err)
		}
	})
}

// supervise calls letGo when the connection's goroutines have ended, and then last.
func (c *connection) supervise(letGo func() error, last func()) {
	go func() {
		<-c.closing // after it no goroutine is added
		c.wg.Wait()
		c.closeErr = letGo()
		close(c.stopped)
		last()
		close(c.dead)
	}()
}

// fail ends the connection for the first reason given. The socket stays open: its
// end tells the peer that memory is free, which it is not yet.
func (c *connection) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = transport.Ended(err)
	// Whoever waits for the socket is let go.
	_ = c.net.SetDeadline(time.Now())
	close(c.closing)
}

// Err returns why the connection ended, or nil: ErrClosed, or what wraps ErrPeer,
// ErrDevice or ErrLocal.
func (c *connection) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close implements transport.Endpoint. When it returns, no registered memory is
// touched or held open any more, and what Allocate made is freed; at the target an
// error says that the initiator has not confirmed it, and nothing is freed.
func (c *connection) Close() error {
	c.fail(transport.ErrClosed)
	<-c.dead
	if c.closeErr != nil {
		c.Leave() // the peer may still hold the memory open
		return c.closeErr
	}
	return c.FreeAll()
}

// send writes a frame.
func (c *connection) send(f frame) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	f.put(&c.out)
	if _, err := c.net.Write(c.out[:]); err != nil {
		return peerError(err)
	}
	return nil
}

// peerError says of a failed read or write what it means.
func peerError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("%w: it closed the connection", transport.ErrPeer)
	}
	return fmt.Errorf("%w: %w", transport.ErrPeer, err)
}
