// Package intake takes in sockets whose diallers introduce themselves before anybody
// accepts them: what the listeners of transports share. It owns the listening socket, the
// sockets that are part way through an introduction, and the connections that wait to be
// accepted; it bounds both, so that strangers hold little of this host's, and Close ends them.
//
// It is called by transports and internal/rendezvous.
package intake

import (
	"context"
	"net"
	"sync"
	"time"

	"kvbench/transport"
)

// Most is how many sockets may be part way through an introduction at a time, and how many
// connections of a role may wait.
const Most = 64

// Role is what the dialler of a connection is.
type Role int

// The roles.
const (
	Initiator Role = iota
	Target
)

// Listener takes connections in, of which it knows no more than that they are a T.
type Listener[T any] struct {
	net     net.Listener
	drop    func(T)
	closing chan struct{}
	once    sync.Once
	wg      sync.WaitGroup
	waiting [2]chan T // by role

	mu      sync.Mutex
	hearing map[net.Conn]bool
}

// New returns a listener on l that does not listen yet. drop ends a connection that was
// offered and not accepted.
func New[T any](l net.Listener, drop func(T)) *Listener[T] {
	return &Listener[T]{
		net: l, drop: drop, closing: make(chan struct{}),
		waiting: [2]chan T{make(chan T, Most), make(chan T, Most)}, hearing: make(map[net.Conn]bool),
	}
}

// Start begins to take sockets in. hear hears the introduction of each, on a goroutine of
// its own; the socket is closed where that returns an error or the listener is closed
// meanwhile. Otherwise admit is called, and the socket is for it to see to.
func (l *Listener[T]) Start(hear func(net.Conn) (admit func(), err error)) {
	l.wg.Go(func() { l.accept(hear) })
}

// Offer has a connection wait to be accepted. It reports false where too many do. It is
// called by admit.
func (l *Listener[T]) Offer(as Role, c T) bool {
	select {
	case l.waiting[as] <- c:
		return true
	default:
		return false
	}
}

// Accept waits for a connection whose dialler has a role, in the order in which they were
// offered. Its error is the context's, or transport.ErrClosed.
func (l *Listener[T]) Accept(ctx context.Context, as Role) (c T, err error) {
	select {
	case c = <-l.waiting[as]:
		return c, nil
	case <-ctx.Done():
		return c, ctx.Err()
	case <-l.closing:
		return c, transport.ErrClosed
	}
}

// Close stops listening, which must have been started, and drops what nobody accepted.
// Nothing is heard or admitted any more when it returns.
func (l *Listener[T]) Close() error {
	var err error
	l.once.Do(func() {
		err = l.net.Close() // first: whoever knows of the end finds nobody listening
		close(l.closing)
		l.mu.Lock()
		for c := range l.hearing {
			c.Close()
		}
		l.mu.Unlock()
		l.wg.Wait()
		for _, waiting := range l.waiting {
			l.dropAll(waiting)
		}
	})
	return err
}

// dropAll drops what waits. Accept may take some of it meanwhile.
func (l *Listener[T]) dropAll(waiting <-chan T) {
	for {
		select {
		case c := <-waiting:
			l.drop(c)
		default:
			return
		}
	}
}

func (l *Listener[T]) accept(hear func(net.Conn) (func(), error)) {
	for {
		c, err := l.net.Accept()
		if err != nil {
			select {
			case <-l.closing:
				return
			case <-time.After(10 * time.Millisecond): // out of file descriptors, say: let some go
			}
			continue
		}
		if !l.enter(c) {
			c.Close()
			continue
		}
		l.wg.Go(func() { l.introduce(c, hear) })
	}
}

// enter notes a socket for Close to end. It reports false where that has been, and where
// too many introduce themselves.
func (l *Listener[T]) enter(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closing:
		return false
	default:
	}
	if len(l.hearing) == Most {
		return false
	}
	l.hearing[c] = true
	return true
}

// introduce hears a socket. What is admitted after Close has begun, Close still drops.
func (l *Listener[T]) introduce(c net.Conn, hear func(net.Conn) (func(), error)) {
	admit, err := hear(c)
	l.mu.Lock()
	delete(l.hearing, c)
	l.mu.Unlock()
	if err != nil {
		c.Close()
		return
	}
	admit()
}
