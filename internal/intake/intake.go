// Package intake accepts sockets from diallers that must introduce themselves first.
// The listeners of the transports share it. It owns the listening socket, the sockets
// in the middle of an introduction, and the connections that wait for Accept. It bounds
// their numbers, so that strangers hold few resources of this host, and Close ends
// them.
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

// Most is the most sockets in the middle of an introduction at a time, and the most
// waiting connections of a role.
const Most = 64

// Role is the role of a connection's dialler.
type Role int

// The roles.
const (
	Initiator Role = iota
	Target
)

// Listener accepts connections of any type T.
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

// New returns a listener on l that does not accept yet. drop closes a connection that
// was offered and not accepted.
func New[T any](l net.Listener, drop func(T)) *Listener[T] {
	return &Listener[T]{
		net: l, drop: drop, closing: make(chan struct{}),
		waiting: [2]chan T{make(chan T, Most), make(chan T, Most)}, hearing: make(map[net.Conn]bool),
	}
}

// Start starts to accept sockets. For each it calls hear, on a new goroutine, to read
// the introduction. If hear returns an error or the listener is closed meanwhile, the
// socket is closed. Otherwise admit is called and takes over the socket.
func (l *Listener[T]) Start(hear func(net.Conn) (admit func(), err error)) {
	l.wg.Go(func() { l.accept(hear) })
}

// Offer queues a connection for Accept. It returns false if too many wait. admit calls
// it.
func (l *Listener[T]) Offer(as Role, c T) bool {
	select {
	case l.waiting[as] <- c:
		return true
	default:
		return false
	}
}

// Accept waits for a connection from a dialler with a role, in the order of the offers.
// It returns the context's error, or transport.ErrClosed.
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

// Close stops listening and drops the connections that were not accepted. The listener
// must have been started. After Close returns, no socket is read or admitted any more.
func (l *Listener[T]) Close() error {
	var err error
	l.once.Do(func() {
		err = l.net.Close() // first, so that a dial fails once the end is visible
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

// dropAll drops the waiting connections. A concurrent Accept may still take some.
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
			case <-time.After(10 * time.Millisecond): // for example out of file descriptors: wait until some are closed
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

// enter adds a socket to those that Close closes. It returns false if the listener is
// closed or too many sockets are being introduced.
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

// introduce reads a socket's introduction and admits it. Close drops a connection that
// is admitted after Close began.
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
