package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"kvbench/transport"
)

// stream is one TCP connection of a data connection. One goroutine writes, one reads.
type stream struct {
	conn   *net.TCPConn
	closed atomic.Bool
	out    vector
	in     vector

	// progress counts bytes moved in either direction, headers included, so that a
	// watchdog can distinguish a slow peer from a dead one.
	progress atomic.Int64

	sent, received traffic

	last atomic.Pointer[kernelView] // counters of the socket when it was closed; nil before
}

// traffic counts the bytes that crossed a stream in one direction.
type traffic struct{ payload, overhead atomic.Int64 }

func (t *traffic) add(payload, overhead int64) {
	t.payload.Add(payload)
	t.overhead.Add(overhead)
}

// newStream prepares a connected socket. It takes ownership of conn, also if it fails.
func newStream(conn *net.TCPConn, cfg transport.Config) (*stream, error) {
	s := &stream{conn: conn}
	if err := tune(conn, cfg); err != nil {
		conn.Close()
		return nil, err
	}
	if err := s.out.init(s, cfg.BusyPoll); err != nil {
		conn.Close()
		return nil, err
	}
	if err := s.in.init(s, cfg.BusyPoll); err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// tune sets the socket options of a data stream.
func tune(conn *net.TCPConn, cfg transport.Config) error {
	if err := conn.SetNoDelay(true); err != nil {
		return fmt.Errorf("set TCP_NODELAY: %w", err)
	}
	if cfg.SocketBuffer > 0 {
		if err := errors.Join(conn.SetReadBuffer(cfg.SocketBuffer), conn.SetWriteBuffer(cfg.SocketBuffer)); err != nil {
			return fmt.Errorf("set socket buffers to %d bytes: %w", cfg.SocketBuffer, err)
		}
	}
	probes := 3
	every := max(cfg.PeerTimeout/time.Duration(probes+1), time.Second)
	if err := conn.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: every, Interval: every, Count: probes}); err != nil {
		return fmt.Errorf("set TCP keepalive: %w", err)
	}
	return setUserTimeout(conn, cfg.PeerTimeout)
}

// shut closes the socket. Reads and writes in progress return.
func (s *stream) shut() {
	s.keepStats()
	s.closed.Store(true)
	s.conn.Close()
}

// peerError wraps the error of a read or write in ErrPeer. The kernel reports a reset
// or a timeout to one caller only, and end of file to all others: givenUp detects it
// for them.
func (s *stream) peerError(err error) error {
	switch ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); {
	case ended && s.givenUp():
		return fmt.Errorf("%w: the connection timed out or was reset", transport.ErrPeer)
	case ended:
		return fmt.Errorf("%w: it closed the connection", transport.ErrPeer)
	}
	return fmt.Errorf("%w: %w", transport.ErrPeer, err)
}

// flush writes the buffers of out and counts them as sent.
func (s *stream) flush(payload, overhead int64) error {
	if err := s.out.writeAll(); err != nil {
		return s.peerError(err)
	}
	s.sent.add(payload, overhead)
	return nil
}

// readFull fills b.
func (s *stream) readFull(b []byte) error {
	s.in.reset()
	s.in.add(b)
	return s.fill(0, int64(len(b)))
}

// readHeader fills b with a frame's header, which may take long to arrive.
func (s *stream) readHeader(b []byte) error {
	s.in.waitBusy(spareCores)
	err := s.readFull(b)
	s.in.waitBusy(true)
	return err
}

// spareCores reports whether a stream that waits for work may spin. With few cores,
// spinning would take them from the streams that have work.
var spareCores = runtime.NumCPU() >= 4

// fill fills the buffers of in and counts them as received.
func (s *stream) fill(payload, overhead int64) error {
	if err := s.in.readAll(); err != nil {
		return s.peerError(err)
	}
	s.received.add(payload, overhead)
	return nil
}

// sendControl sends a frame that is only a header. buf must hold headerSize bytes.
func (s *stream) sendControl(h header, buf []byte) error {
	h.put(buf)
	s.out.reset()
	s.out.add(buf[:headerSize])
	return s.flush(0, headerSize)
}
