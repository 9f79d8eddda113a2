package cuda

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/transport"
)

const (
	greetTimeout = 5 * time.Second
	maxUnclaimed = 64 // connections that greet or wait to be accepted
)

// listener implements transport.Listener.
type listener struct {
	cfg     transport.Config
	driver  *cudadrv.Driver
	net     net.Listener
	addr    address
	closing chan struct{}
	once    sync.Once
	wg      sync.WaitGroup

	initiators, targets chan link // by the dialler's role

	mu       sync.Mutex
	greeting map[net.Conn]bool
}

// Listen implements transport.Transport. Config.Listen and Advertise are of
// network transports and change nothing.
func (Transport) Listen(ctx context.Context, cfg transport.Config) (transport.Listener, error) {
	cfg, err := checkConfig(cfg)
	if err != nil {
		return nil, err
	}
	driver, err := openDriver()
	if err != nil {
		return nil, err
	}
	addr := newAddress()
	addr.Descriptors = descriptorsOf(driver, cfg.GPU)
	var lc net.ListenConfig
	n, err := lc.Listen(ctx, "unix", addr.Socket)
	if err != nil {
		return nil, fmt.Errorf("listen on a local socket: %w", err)
	}
	l := &listener{
		cfg: cfg, driver: driver, net: n, addr: addr, closing: make(chan struct{}),
		initiators: make(chan link, maxUnclaimed), targets: make(chan link, maxUnclaimed),
		greeting: make(map[net.Conn]bool),
	}
	l.wg.Go(l.accept)
	return l, nil
}

// Address implements transport.Listener.
func (l *listener) Address() transport.Address { return l.addr.encode() }

// AcceptTarget implements transport.Listener.
func (l *listener) AcceptTarget(ctx context.Context) (transport.Target, error) {
	a, err := l.wait(ctx, l.initiators)
	if err != nil {
		return nil, err
	}
	return newTarget(a), nil
}

// AcceptInitiator implements transport.Listener.
func (l *listener) AcceptInitiator(ctx context.Context) (transport.Initiator, error) {
	a, err := l.wait(ctx, l.targets)
	if err != nil {
		return nil, err
	}
	return newInitiator(a), nil
}

func (l *listener) wait(ctx context.Context, from chan link) (link, error) {
	select {
	case a := <-from:
		return a, nil
	case <-ctx.Done():
		return link{}, ctx.Err()
	case <-l.closing:
		return link{}, transport.ErrClosed
	}
}

// Close implements transport.Listener.
func (l *listener) Close() error {
	var err error
	l.once.Do(func() {
		err = l.net.Close() // first: whoever knows of the end finds nobody listening
		close(l.closing)
		l.mu.Lock()
		for c := range l.greeting {
			c.Close()
		}
		l.mu.Unlock()
		l.wg.Wait()
		for _, unclaimed := range []chan link{l.initiators, l.targets} {
			for len(unclaimed) > 0 {
				(<-unclaimed).net.Close()
			}
		}
	})
	return err
}

func (l *listener) accept() {
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
		l.wg.Go(func() {
			err := l.admit(c.(*net.UnixConn))
			l.mu.Lock()
			delete(l.greeting, c)
			l.mu.Unlock()
			if err != nil {
				c.Close()
			}
		})
	}
}

// enter notes a socket that is about to greet. It reports false where too many do.
func (l *listener) enter(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closing:
		return false
	default:
	}
	if len(l.greeting) == maxUnclaimed {
		return false
	}
	l.greeting[c] = true
	return true
}

// admit reads a hello, answers it, and hands the connection on. An error means
// that the socket is to be closed; the dialler is told what it can be.
func (l *listener) admit(c *net.UnixConn) error {
	if err := c.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return err
	}
	var h hello
	if err := receive(c, &h); err != nil {
		return err
	}
	cfg, err := h.check(l.addr, l.cfg)
	if err != nil {
		return errors.Join(err, send(c, answer{Refused: err.Error()}))
	}
	if err := send(c, answer{}); err != nil {
		return err
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	noHandles, err := l.addr.party().agree(h.party())
	if err != nil {
		return err // checked above
	}
	to := l.initiators
	if h.Role == targetRole {
		to = l.targets
	}
	select {
	case to <- link{l.driver, c, cfg, noHandles}:
		return nil
	default:
		return fmt.Errorf("too many unclaimed connections: %w", transport.ErrProtocol)
	}
}
