package intake

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"kvbench/transport"
)

const patience = 10 * time.Second

// listen starts a listener whose diallers introduce themselves with one byte: i and t for
// the roles, and anything else for nobody.
func listen(t *testing.T) (*Listener[net.Conn], net.Addr) {
	t.Helper()
	n, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := New(n, func(c net.Conn) { c.Close() })
	l.Start(func(c net.Conn) (func(), error) {
		var b [1]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return nil, err
		}
		as, known := map[byte]Role{'i': Initiator, 't': Target}[b[0]]
		if !known {
			return nil, transport.ErrProtocol
		}
		return func() {
			if !l.Offer(as, c) {
				c.Close()
			}
		}, nil
	})
	t.Cleanup(func() { l.Close() })
	return l, n.Addr()
}

// dial says something, or nothing.
func dial(t *testing.T, to net.Addr, say string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, say); err != nil {
		t.Fatal(err)
	}
	return c
}

// ended reports whether the other side has closed a socket, rather than said nothing.
func ended(c net.Conn) bool {
	_, err := c.Read(make([]byte, 1))
	var late net.Error
	return err != nil && !(errors.As(err, &late) && late.Timeout())
}

func accept(t *testing.T, l *Listener[net.Conn], as Role) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := l.Accept(ctx, as)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRoles(t *testing.T) {
	l, addr := listen(t)
	target, initiator := dial(t, addr, "t"), dial(t, addr, "i")
	for as, want := range map[Role]net.Conn{Target: target, Initiator: initiator} {
		if got := accept(t, l, as).RemoteAddr(); got.String() != want.LocalAddr().String() {
			t.Errorf("role %d: accepted %v, want %v", as, got, want.LocalAddr())
		}
	}
	if !ended(dial(t, addr, "x")) {
		t.Error("who is nobody was kept")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Accept(ctx, Target); !errors.Is(err, context.Canceled) {
		t.Errorf("Accept of nobody: %v", err)
	}
}

// TestMost: silent strangers are held up to a number, and a place is free again once one
// has gone.
func TestMost(t *testing.T) {
	l, addr := listen(t)
	var silent []net.Conn
	for range Most {
		silent = append(silent, dial(t, addr, ""))
	}
	if !ended(dial(t, addr, "")) {
		t.Errorf("more than %d sockets introduce themselves", Most)
	}
	silent[0].Close()
	accepted := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := l.Accept(ctx, Initiator)
		accepted <- err
	}()
	for { // until the listener has seen that a place is free
		c := dial(t, addr, "i")
		turned := make(chan bool, 1)
		go func() { turned <- ended(c) }()
		select {
		case <-turned:
		case err := <-accepted:
			if err != nil {
				t.Errorf("no place is free: %v", err)
			}
			c.Close()
			return
		}
	}
}

// TestClose ends who introduces itself and who waits, and leaves who was accepted.
func TestClose(t *testing.T) {
	l, addr := listen(t)
	mine := dial(t, addr, "i")
	kept := accept(t, l, Initiator)
	waits, silent := dial(t, addr, "i"), dial(t, addr, "")
	for len(l.waiting[Initiator]) == 0 {
		time.Sleep(time.Millisecond)
	}
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept(t.Context(), Target)
		accepted <- err
	}()
	for range 2 { // the second does nothing
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-accepted; !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Accept: %v, want ErrClosed", err)
	}
	if !ended(waits) || !ended(silent) {
		t.Error("a socket that nobody accepted is open")
	}
	if _, err := kept.Write([]byte{1}); err != nil {
		t.Errorf("to who was accepted: %v", err)
	}
	if ended(mine) {
		t.Error("who was accepted is cut off")
	}
	if _, err := l.net.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket still listens: %v", err)
	}
}
