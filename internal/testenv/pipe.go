package testenv

import (
	"io"
	"math"
	"net"
	"os"
	"sync"
	"time"
)

// PipeAddr is the address of both ends of a pipe.
var PipeAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}

// pipeEnd is one end of a pipe.
type pipeEnd struct{ in, out *flow }

// Pipe returns two connected ends. Unlike net.Pipe they hold bytes that were written and
// not yet read, as sockets do, so both ends may write at the same time. They work in the
// virtual time of testing/synctest.
func Pipe() (near, far net.Conn) {
	a, b := &flow{changed: make(chan struct{})}, &flow{changed: make(chan struct{})}
	return pipeEnd{a, b}, pipeEnd{b, a}
}

// flow holds the bytes on their way from one end to the other.
type flow struct {
	mu       sync.Mutex
	bytes    []byte
	ended    bool // the writer has closed: EOF after the bytes
	dropped  bool // the reader has closed
	deadline time.Time
	changed  chan struct{} // closed and replaced whenever one of the above changes
}

// change applies f and wakes whoever waits in Read.
func (f *flow) change(apply func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	apply()
	close(f.changed)
	f.changed = make(chan struct{})
}

// take reads what is there. If nothing is, it returns a channel that is closed when that
// changes, and the time left until the deadline.
func (f *flow) take(b []byte) (n int, wait <-chan struct{}, left time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left = math.MaxInt64
	if !f.deadline.IsZero() {
		left = time.Until(f.deadline)
	}
	switch {
	case f.dropped:
		return 0, nil, 0, net.ErrClosed
	case left <= 0:
		return 0, nil, 0, os.ErrDeadlineExceeded
	case len(f.bytes) > 0:
		n = copy(b, f.bytes)
		f.bytes = f.bytes[n:]
		return n, nil, 0, nil
	case f.ended:
		return 0, nil, 0, io.EOF
	}
	return 0, f.changed, left, nil
}

// Read implements net.Conn.
func (p pipeEnd) Read(b []byte) (int, error) {
	for {
		n, wait, left, err := p.in.take(b)
		if wait == nil {
			return n, err
		}
		timer := time.NewTimer(left)
		select {
		case <-wait:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Write implements net.Conn. It never waits.
func (p pipeEnd) Write(b []byte) (n int, err error) {
	p.out.change(func() {
		if n, err = len(b), net.ErrClosed; !p.out.ended && !p.out.dropped {
			p.out.bytes, err = append(p.out.bytes, b...), nil
		}
	})
	return n, err
}

// Close implements net.Conn.
func (p pipeEnd) Close() error {
	p.in.change(func() { p.in.dropped = true })
	p.out.change(func() { p.out.ended = true })
	return nil
}

// SetReadDeadline implements net.Conn.
func (p pipeEnd) SetReadDeadline(at time.Time) error {
	p.in.change(func() { p.in.deadline = at })
	return nil
}

// SetWriteDeadline implements net.Conn.
func (p pipeEnd) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline implements net.Conn.
func (p pipeEnd) SetDeadline(at time.Time) error { return p.SetReadDeadline(at) }

// LocalAddr implements net.Conn.
func (p pipeEnd) LocalAddr() net.Addr { return PipeAddr }

// RemoteAddr implements net.Conn.
func (p pipeEnd) RemoteAddr() net.Addr { return PipeAddr }
