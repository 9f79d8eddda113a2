package bench

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kvbench/internal/hostinfo"
	"kvbench/transport"
)

// inVirtualTime runs a test whose clock advances only while every goroutine waits, so that
// its durations are exact on any machine. The test may use no socket and no device.
func inVirtualTime(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	hostinfo.CopyRate() // measured once a process, in real time
	synctest.Test(t, test)
}

// newVirtualBed is newBed for virtual time: its control channel is a pipe.
func newVirtualBed(t *testing.T, over transport.Transport, change ...func(*Consumer)) *bed {
	t.Helper()
	l := &pipeListener{accepted: make(chan net.Conn), closed: make(chan struct{})}
	b := serve(t, l, over, change...)
	b.dial = l.dial
	return b
}

// pipeListener listens in this process. Its connections hold what was written and not yet
// read, as sockets do: both sides may send at the same time.
type pipeListener struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := newPipe()
	select {
	case l.accepted <- far:
		return near, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	close(l.closed)
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return loopbackAddr }

// loopbackAddr stands for both ends of a pipe.
var loopbackAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}

// pipeEnd is one end of a pipe that holds what was written and not yet read.
type pipeEnd struct {
	net.Conn
	queue  chan []byte
	mu     sync.Mutex
	closed bool
}

func newPipe() (near, far net.Conn) {
	a, b := net.Pipe()
	return newPipeEnd(a), newPipeEnd(b)
}

func newPipeEnd(c net.Conn) *pipeEnd {
	const messages = 1 << 12 // more than the control channel ever has under way
	p := &pipeEnd{Conn: c, queue: make(chan []byte, messages)}
	go func() {
		defer c.Close() // once the peer has read everything
		for b := range p.queue {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}()
	return p
}

// LocalAddr implements net.Conn.
func (p *pipeEnd) LocalAddr() net.Addr { return loopbackAddr }

// RemoteAddr implements net.Conn.
func (p *pipeEnd) RemoteAddr() net.Addr { return loopbackAddr }

// Write implements net.Conn.
func (p *pipeEnd) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, net.ErrClosed
	}
	p.queue <- slices.Clone(b)
	return len(b), nil
}

// Read implements net.Conn.
func (p *pipeEnd) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && p.closed {
		err = net.ErrClosed
	}
	return n, err
}

// SetWriteDeadline implements net.Conn. A write never waits.
func (p *pipeEnd) SetWriteDeadline(time.Time) error { return nil }

// Close implements net.Conn.
func (p *pipeEnd) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		close(p.queue)
		p.Conn.SetReadDeadline(time.Unix(0, 0)) // ends a Read
	}
	return nil
}
