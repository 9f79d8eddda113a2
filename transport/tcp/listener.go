package tcp

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"kvbench/transport"
)

const (
	greetTimeout = 5 * time.Second
	maxGreeting  = 64 // sockets that may be part way through a hello at a time
)

// listener implements transport.Listener.
type listener struct {
	cfg     transport.Config
	net     net.Listener
	addr    address
	closing chan struct{}
	once    sync.Once
	wg      sync.WaitGroup

	initiators, targets chan *connection // accepted connections, by the dialler's role

	mu       sync.Mutex
	pending  map[[secretSize]byte]*pendingConn
	greeting map[*net.TCPConn]bool // sockets part way through a hello
}

// pendingConn collects the streams of one connection.
type pendingConn struct {
	hello   hello
	streams []*stream
	have    int
}

// Listen implements transport.Transport.
func (Transport) Listen(ctx context.Context, cfg transport.Config) (transport.Listener, error) {
	cfg, err := checkConfig(cfg)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	n, err := lc.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for data streams: %w", err)
	}
	if err := checkDevice(cfg.Device, n.Addr()); err != nil {
		n.Close()
		return nil, err
	}
	l := &listener{
		cfg: cfg, net: n, closing: make(chan struct{}),
		initiators: make(chan *connection, maxGreeting), targets: make(chan *connection, maxGreeting),
		pending: make(map[[secretSize]byte]*pendingConn), greeting: make(map[*net.TCPConn]bool),
	}
	host, port, err := net.SplitHostPort(n.Addr().String())
	if err != nil {
		return nil, err
	}
	if cfg.Advertise != "" {
		host = cfg.Advertise
	}
	l.addr = address{HostPort: net.JoinHostPort(host, port), Secret: make([]byte, secretSize)}
	rand.Read(l.addr.Secret)
	l.wg.Go(l.accept)
	return l, nil
}

// Address implements transport.Listener.
func (l *listener) Address() transport.Address { return l.addr.encode() }

// AcceptTarget implements transport.Listener.
func (l *listener) AcceptTarget(ctx context.Context) (transport.Target, error) {
	c, err := l.wait(ctx, l.initiators)
	if err != nil {
		return nil, err
	}
	return newTarget(c), nil
}

// AcceptInitiator implements transport.Listener.
func (l *listener) AcceptInitiator(ctx context.Context) (transport.Initiator, error) {
	c, err := l.wait(ctx, l.targets)
	if err != nil {
		return nil, err
	}
	return newInitiator(c), nil
}

func (l *listener) wait(ctx context.Context, from chan *connection) (*connection, error) {
	select {
	case c := <-from:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.closing:
		return nil, transport.ErrClosed
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
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, p := range l.pending {
			p.shut()
		}
		for _, unclaimed := range []chan *connection{l.initiators, l.targets} {
			for len(unclaimed) > 0 {
				for _, s := range (<-unclaimed).streams {
					s.shut()
				}
			}
		}
	})
	return err
}

func (p *pendingConn) shut() {
	for _, s := range p.streams {
		if s != nil {
			s.shut()
		}
	}
}

func (l *listener) accept() {
	greeting := make(chan struct{}, maxGreeting)
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
		select {
		case greeting <- struct{}{}:
			l.wg.Go(func() {
				defer func() { <-greeting }()
				if err := l.admit(c.(*net.TCPConn)); err != nil {
					c.Close()
				}
			})
		default:
			c.Close()
		}
	}
}

// admit reads a hello, answers it, and adds the stream to its connection. An
// error means that the socket is to be closed; the dialler is told what it can be.
func (l *listener) admit(c *net.TCPConn) error {
	l.mu.Lock()
	l.greeting[c] = true
	l.mu.Unlock()
	h, s, cfg, err := l.greet(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.greeting, c)
	if err != nil {
		return err
	}
	select {
	case <-l.closing:
		return transport.ErrClosed
	default:
		return l.join(h, s, cfg)
	}
}

// greet reads a hello and answers it.
func (l *listener) greet(c *net.TCPConn) (h hello, s *stream, cfg transport.Config, err error) {
	if err := c.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return h, nil, cfg, err
	}
	var buf [helloSize]byte
	if _, err := io.ReadFull(c, buf[:]); err != nil {
		return h, nil, cfg, err
	}
	h, err = parseHello(buf[:])
	if err != nil || !l.addr.admits(h.secret) {
		_, errWrite := c.Write([]byte{helloRefused})
		return h, nil, cfg, fmt.Errorf("refuse stream: %w: %w", transport.ErrProtocol, errWrite)
	}
	cfg = l.cfg
	cfg.Streams, cfg.MaxOutstanding = int(h.streams), int(h.outstanding)
	if s, err = newStream(c, cfg); err != nil {
		return h, nil, cfg, err
	}
	// The dialler may speak as soon as it has the answer, and it is silent before.
	if _, err := c.Write([]byte{helloAccepted}); err != nil {
		return h, nil, cfg, err
	}
	return h, s, cfg, c.SetDeadline(time.Time{})
}

// join adds a stream to its connection, and hands the connection on once it is
// whole. The caller holds l.mu.
func (l *listener) join(h hello, s *stream, cfg transport.Config) error {
	p := l.pending[h.conn]
	if p == nil {
		p = &pendingConn{hello: h, streams: make([]*stream, h.streams)}
		l.pending[h.conn] = p
	}
	if p.hello.streams != h.streams || p.hello.role != h.role || p.hello.outstanding != h.outstanding || p.streams[h.stream] != nil {
		return fmt.Errorf("stream %d does not fit its connection: %w", h.stream, transport.ErrProtocol)
	}
	p.streams[h.stream] = s
	if p.have++; p.have < len(p.streams) {
		return nil
	}
	delete(l.pending, h.conn)
	to := l.initiators
	if h.role == targetRole {
		to = l.targets
	}
	select {
	case to <- newConnection(cfg, p.streams):
		return nil
	default:
		p.shut()
		return fmt.Errorf("too many unclaimed connections: %w", transport.ErrProtocol)
	}
}
