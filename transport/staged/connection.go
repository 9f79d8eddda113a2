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

// connection holds the parts that an initiator and a target share: the inner
// connection, the socket, the ring with its copiers, the regions, and the first error.
type connection struct {
	cfg     transport.Config
	context *cudadrv.Context
	reason  string // why the memory is staged, if it might not have been
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
	closing  <-chan struct{} // ctx.Done()
	heard    chan struct{}   // closed when nothing more comes from the peer's socket
	stopped  chan struct{}   // closed when no memory is accessed any more
	dead     chan struct{}   // closed once every outstanding transfer is completed
	closeErr error           // set before stopped is closed
}

// newConnection creates the ring and the copiers of an inner endpoint. It takes
// ownership of the endpoint, also if it fails.
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

// run starts a goroutine. If f returns an error, the connection ends. run does nothing
// if the connection has ended. A peer sends its reason before it ends the inner
// connection, so after ErrPeer the goroutine waits up to wordTime for the reason.
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

// listen reads frames and ends the connection when the socket ends.
func (c *connection) listen(handle func(f frame, table []byte) error) {
	c.run(func() error {
		defer close(c.heard)
		c.fail(c.hear(handle))
		return nil
	})
}

// supervise calls last after the connection has ended and accesses no memory any more.
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

// release waits for the goroutines and then for their copies. It frees the connection's
// device resources and closes the inner connection, which may access the ring until
// then. If waiting for the copies fails, the error wraps gpumem.ErrUnderWay, and the
// ring and the CUDA streams are kept.
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

// fail ends the connection. The first error is kept.
func (c *connection) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	c.cancel()
}

// farewell sends the peer the reason for the end, unless the peer caused it.
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
	// The deadline releases a sender in the middle of a frame and limits the wait for a
	// peer that does not read.
	if c.socket.SetWriteDeadline(time.Now().Add(farewellTime)) != nil {
		return
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	frame{typ: frameEnd, follow: uint32(len(reason))}.put(c.frames)
	n := frameSize + copy(c.frames[frameSize:], reason)
	_, _ = c.socket.Write(c.frames[:n]) // the closed socket reports the end if this write fails
}

// farewellTime limits the time to send the reason for the end.
const farewellTime = 100 * time.Millisecond

// wordTime limits the wait for the peer's reason after the inner connection has ended.
const wordTime = 500 * time.Millisecond

// Err returns nil while the connection is open. After that it returns ErrClosed or an
// error that wraps ErrPeer, ErrDevice or ErrLocal.
func (c *connection) Err() error {
	if c.ctx.Err() == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return transport.Ended(c.err)
}

// Close implements transport.Endpoint. After it returns, registered memory is no longer
// accessed, and all memory from Allocate is freed. If the error wraps
// gpumem.ErrUnderWay, a copy may still be in flight and nothing is freed.
func (c *connection) Close() error {
	c.fail(transport.ErrClosed)
	<-c.dead
	if errors.Is(c.closeErr, gpumem.ErrUnderWay) {
		c.Leave()
		return c.closeErr
	}
	return errors.Join(c.closeErr, c.FreeAll())
}

// send writes a frame, followed by a chunk's table.
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

// hear reads frames and calls handle with each frame and its table, until the socket
// ends.
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

// readFrame reads a frame and its table or reason into buf.
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
