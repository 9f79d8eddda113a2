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

// link is a connected socket and the terms that both sides agreed on over it.
type link struct {
	driver    *cudadrv.Driver
	net       *net.UnixConn
	cfg       transport.Config
	noHandles error // why the peer cannot open legacy handles; nil if it can
}

// connection holds the parts that an initiator and a target share: the local socket,
// the regions, and the first error.
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
	stopped  chan struct{} // closed when no memory is accessed or mapped any more
	dead     chan struct{} // closed once every outstanding transfer is completed
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

// run starts a goroutine. If f returns an error, the connection ends. run does nothing
// if the connection has ended.
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

// supervise calls letGo after the connection's goroutines have ended, and then last.
func (c *connection) supervise(letGo func() error, last func()) {
	go func() {
		<-c.closing // no goroutine is added after this
		c.wg.Wait()
		c.closeErr = letGo()
		close(c.stopped)
		last()
		close(c.dead)
	}()
}

// fail ends the connection. The first error is kept. The socket stays open, because its
// end would signal the peer that the memory is free, and it is still in use.
func (c *connection) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = transport.Ended(err)
	// The deadline releases goroutines that wait for the socket.
	_ = c.net.SetDeadline(time.Now())
	close(c.closing)
}

// Err returns nil while the connection is open. After that it returns ErrClosed or an
// error that wraps ErrPeer, ErrDevice or ErrLocal.
func (c *connection) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close implements transport.Endpoint. After it returns, registered memory is no longer
// accessed or mapped, and all memory from Allocate is freed. At the target, an error
// means that the initiator did not confirm this; then nothing is freed.
func (c *connection) Close() error {
	c.fail(transport.ErrClosed)
	<-c.dead
	if c.closeErr != nil {
		c.Leave() // the peer may still have the memory mapped
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

// peerError wraps the error of a failed read or write in ErrPeer.
func peerError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("%w: it closed the connection", transport.ErrPeer)
	}
	return fmt.Errorf("%w: %w", transport.ErrPeer, err)
}
