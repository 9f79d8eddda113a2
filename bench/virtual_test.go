package bench

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"kvbench/internal/hostinfo"
	"kvbench/internal/testenv"
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

// pipeListener listens in this process.
type pipeListener struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := testenv.Pipe()
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
func (l *pipeListener) Addr() net.Addr { return testenv.PipeAddr }
