package staged

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/internal/gpumem"
	"kvbench/transport"
)

// connection is what an initiator and a target have in common: the inner connection,
// the socket, the ring and its copiers, regions, and one error that ends everything.
type connection struct {
	cfg     transport.Config
	context *cudadrv.Context
	reason  string // why the memory is staged, where it might not have been
	inner   transport.Endpoint
	socket  net.Conn
	ring    *ring
	out, in *copier // to the host, and from it
	wire    *meter  // nil at a target, which does not see the wire
	regions regionTable
	*gpumem.Owned

	writing sync.Mutex // one frame at a time
	frames  []byte     // guarded by writing: a frame and its table

	mu       sync.Mutex
	err      error
	wg       sync.WaitGroup
	ctx      context.Context // ends when the connection begins to end
	cancel   context.CancelFunc
	closing  <-chan struct{} // of ctx
	heard    chan struct{}   // closed when nothing more comes from the peer's socket
	stopped  chan struct{}   // closed when no memory is touched any more
	dead     chan struct{}   // closed when every outstanding transfer has been accounted for
	closeErr error           // set before stopped is closed
}

// newConnection gives an inner endpoint its ring and copiers. It owns the endpoint,
// with an error too.
func newConnection(c *cudadrv.Context, inner transport.Endpoint, cfg transport.Config) (*connection, error) {
	conn := &connection{
		cfg: cfg, context: c, inner: inner, frames: make([]byte, frameSize+chunkPieces*pieceSize),
		heard: make(chan struct{}), stopped: make(chan struct{}), dead: make(chan struct{}),
	}
	conn.ctx, conn.cancel = context.WithCancel(context.Background())
	conn.closing = conn.ctx.Done()
	conn.Owned = gpumem.On(cfg.GPU, conn.regions.covers)
	conn.regions.idle.L = &conn.regions.mu
	var err error
	if conn.ring, err = newRing(c, inner); err == nil {
		conn.out, err = newCopier(c, toHost, conn.ring.pinned, cfg)
	}
	if err == nil {
		conn.in, err = newCopier(c, fromHost, conn.ring.pinned, cfg)
	}
	if err != nil {
		return nil, errors.Join(err, conn.release())
	}
	return conn, nil
}

// run starts a goroutine whose error ends the connection, unless it has ended. A peer
// says why it ends before it ends the inner connection: its word is waited for.
func (c *connection) run(f func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.wg.Go(func() {
		err := f()
		if errors.Is(err, transport.ErrPeer) {
			select {
			case <-c.heard:
			case <-c.closing:
			case <-time.After(wordTime):
			}
		}
		if err != nil {
			c.fail(err)
		}
	})
}

// listen hears frames, and ends the connection with the socket.
func (c *connection) listen(handle func(f frame, table []byte) error) {
	c.run(func() error {
		defer close(c.heard)
		c.fail(c.hear(handle))
		return nil
	})
}

// supervise calls last when the connection has ended and touches no memory any more.
func (c *connection) supervise(last func()) {
	go func() {
		<-c.closing
		c.farewell()
		c.socket.Close()
		c.closeErr = c.release()
		c.regions.end(errors.Is(c.closeErr, gpumem.ErrUnderWay))
		close(c.stopped)
		last()
		close(c.dead)
	}()
}

// release waits for the goroutines, which have been told to end, and for their copies,
// gives back what the connection holds of the device, and ends the inner connection,
// whose the ring is to write to until then. Where copies cannot be waited for, the error
// wraps gpumem.ErrUnderWay, and the ring and the streams stay.
func (c *connection) release() error {
	c.wg.Wait()
	var copiers []*copier
	var waits, errs []error
	for _, k := range []*copier{c.out, c.in} {
		if k != nil {
			copiers = append(copiers, k)
			waits = append(waits, k.wait())
		}
	}
	if err := errors.Join(waits...); err != nil {
		return errors.Join(err, c.inner.Close())
	}
	for _, k := range copiers {
		errs = append(errs, k.close())
	}
	if c.ring != nil {
		errs = append(errs, c.ring.pinned.Unpin())
	}
	errs = append(errs, c.inner.Close())
	if c.ring != nil {
		errs = append(errs, c.ring.own.Close())
	}
	return errors.Join(errs...)
}

// fail ends the connection for the first reason given.
func (c *connection) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	c.cancel()
}

// farewell tells the peer why the connection ends, if it listens still.
func (c *connection) farewell() {
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	if errors.Is(err, transport.ErrPeer) {
		return
	}
	reason := ""
	if !errors.Is(err, transport.ErrClosed) {
		reason = err.Error()
	}
	reason = reason[:min(len(reason), maxReason)]
	// Whoever is in the middle of a frame is let go, and nobody waits for a peer that
	// takes nothing.
	if c.socket.SetWriteDeadline(time.Now().Add(farewellTime)) != nil {
		return
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	frame{typ: frameEnd, follow: uint32(len(reason))}.put(c.frames)
	n := frameSize + copy(c.frames[frameSize:], reason)
	_, _ = c.socket.Write(c.frames[:n]) // the end of the socket says as much
}

// farewellTime bounds how long a connection's end waits to tell the peer.
const farewellTime = 100 * time.Millisecond

// wordTime is how long the peer's reason may come after the end of the inner connection.
const wordTime = 500 * time.Millisecond

// Err returns why the connection ended, or nil: ErrClosed, or what wraps ErrPeer,
// ErrDevice or ErrLocal.
func (c *connection) Err() error {
	if c.ctx.Err() == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return transport.Ended(c.err)
}

// Close implements transport.Endpoint. When it returns, no registered memory is
// touched any more, and what Allocate made is freed, unless the error says that a copy
// may be under way still: then nothing is freed.
func (c *connection) Close() error {
	c.fail(transport.ErrClosed)
	<-c.dead
	if errors.Is(c.closeErr, gpumem.ErrUnderWay) {
		c.Leave()
		return c.closeErr
	}
	return errors.Join(c.closeErr, c.FreeAll())
}

// send writes a frame, with a chunk's table after it.
func (c *connection) send(f frame, table []piece) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	f.follow = uint32(len(table))
	f.put(c.frames)
	putPieces(c.frames[frameSize:], table)
	if _, err := c.socket.Write(c.frames[:frameSize+len(table)*pieceSize]); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrPeer, err)
	}
	return nil
}

// hear reads frames and hands them on, with what follows, until the socket ends.
func (c *connection) hear(handle func(f frame, table []byte) error) error {
	r := bufio.NewReaderSize(c.socket, 64<<10)
	buf := make([]byte, frameSize+chunkPieces*pieceSize)
	for {
		f, follows, err := readFrame(r, buf)
		if err != nil {
			return err
		}
		if f.typ == frameEnd {
			if len(follows) == 0 {
				return fmt.Errorf("%w: it ended the connection", transport.ErrPeer)
			}
			return fmt.Errorf("%w: it says: %q", transport.ErrPeer, follows)
		}
		if err := handle(f, follows); err != nil {
			return err
		}
	}
}

// readFrame reads a frame and what follows it into buf.
func readFrame(r io.Reader, buf []byte) (frame, []byte, error) {
	if _, err := io.ReadFull(r, buf[:frameSize]); err != nil {
		return frame{}, nil, fmt.Errorf("%w: it closed the connection (%w)", transport.ErrPeer, err)
	}
	f, err := parseFrame(buf[:frameSize])
	if err != nil {
		return f, nil, err
	}
	size := int(f.follow)
	if f.typ == frameChunk {
		size *= pieceSize
	}
	follows := buf[frameSize : frameSize+size]
	if _, err := io.ReadFull(r, follows); err != nil {
		return f, nil, fmt.Errorf("%w: it closed the connection (%w)", transport.ErrPeer, err)
	}
	return f, follows, nil
}
