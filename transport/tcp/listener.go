package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"kvbench/internal/intake"
	"kvbench/transport"
)

// greetTimeout limits the time a dialler has to send its hello.
const greetTimeout = 5 * time.Second

// listener implements transport.Listener.
type listener struct {
	*intake.Listener[*connection]
	cfg  transport.Config
	addr intake.Address

	mu      sync.Mutex
	pending map[[secretSize]byte]*pendingConn
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
	addr, err := intake.NewAddress(n.Addr(), cfg.Advertise)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	l := &listener{
		Listener: intake.New(n, func(c *connection) { shut(c.streams) }), cfg: cfg, addr: addr,
		pending: make(map[[secretSize]byte]*pendingConn),
	}
	l.Start(l.introduce)
	return l, nil
}

// Address implements transport.Listener.
func (l *listener) Address() transport.Address { return l.addr.Encode() }

// AcceptTarget implements transport.Listener.
func (l *listener) AcceptTarget(ctx context.Context) (transport.Target, error) {
	c, err := l.Accept(ctx, intake.Initiator)
	if err != nil {
		return nil, err
	}
	return newTarget(c), nil
}

// AcceptInitiator implements transport.Listener.
func (l *listener) AcceptInitiator(ctx context.Context) (transport.Initiator, error) {
	c, err := l.Accept(ctx, intake.Target)
	if err != nil {
		return nil, err
	}
	return newInitiator(c), nil
}

// Close implements transport.Listener.
func (l *listener) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pending {
		shut(p.streams)
	}
	clear(l.pending)
	return err
}

// shut closes the streams that have arrived.
func shut(streams []*stream) {
	for _, s := range streams {
		if s != nil {
			s.shut()
		}
	}
}

// introduce answers a stream's hello. The returned admit adds the stream to its
// connection.
func (l *listener) introduce(c net.Conn) (admit func(), err error) {
	h, s, cfg, err := l.greet(c.(*net.TCPConn))
	return func() {
		if l.join(h, s, cfg) != nil {
			s.shut()
		}
	}, err
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
	if err != nil || !l.addr.Admits(h.secret[:]) {
		_, errWrite := c.Write([]byte{helloRefused})
		return h, nil, cfg, fmt.Errorf("refuse stream: %w: %w", transport.ErrProtocol, errWrite)
	}
	cfg = l.cfg
	cfg.Streams, cfg.MaxOutstanding = int(h.streams), int(h.outstanding)
	if s, err = newStream(c, cfg); err != nil {
		return h, nil, cfg, err
	}
	// The dialler may send as soon as it has the answer, so the stream is ready before.
	if _, err := c.Write([]byte{helloAccepted}); err != nil {
		return h, nil, cfg, err
	}
	return h, s, cfg, c.SetDeadline(time.Time{})
}

// join adds a stream to its connection, and offers the connection once all streams have
// arrived.
func (l *listener) join(h hello, s *stream, cfg transport.Config) error {
	l.mu.Lock()
	defer l.mu.Unlock()
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
	as := intake.Initiator
	if h.role == targetRole {
		as = intake.Target
	}
	if !l.Offer(as, newConnection(cfg, p.streams)) {
		shut(p.streams)
		return fmt.Errorf("too many unclaimed connections: %w", transport.ErrProtocol)
	}
	return nil
}
