// Package rendezvous introduces the two ends of a connection that carries its data
// outside kvbench's sockets. Over one TCP socket each side sends the other a hello. The
// socket then stays open for the few messages that are not data. Its end shows at once
// that the other process is gone, also on lanes that cannot detect it. The address
// holds a secret that the dialler must send back, so an address must travel only on an
// authenticated channel.
//
// Transports call it, and its errors follow their contract: transport.ErrPeer if the
// peer is unreachable, gone or has refused, transport.ErrProtocol if it sent an invalid
// message, and transport.ErrClosed from a closed listener.
package rendezvous

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"kvbench/internal/intake"
	"kvbench/transport"
)

const (
	version  = 1
	maxFrame = 1 << 20
)

// Role is the role of a connection's dialler.
type Role string

// The roles.
const (
	Initiator Role = "initiator"
	Target    Role = "target"
)

// introduction is the first frame in either direction.
type introduction struct {
	Version int             `json:"version"`
	Secret  []byte          `json:"secret,omitempty"` // from the dialler
	Role    Role            `json:"role,omitempty"`
	Refusal string          `json:"refusal,omitempty"` // from the listener: the reason
	Hello   json.RawMessage `json:"hello,omitempty"`
}

// Conn is a socket to the peer. Send may be called from any goroutine, Receive from one.
type Conn struct {
	net     net.Conn
	writing sync.Mutex
}

// Send sends one message.
func (c *Conn) Send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxFrame {
		return fmt.Errorf("message of %d bytes: %w", len(b), transport.ErrProtocol)
	}
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.net.Write(frame); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrPeer, err)
	}
	return nil
}

// Receive waits for one message. Its error wraps transport.ErrPeer if the socket ended,
// and transport.ErrProtocol if the message is invalid.
func (c *Conn) Receive(v any) error {
	var size [4]byte
	if _, err := io.ReadFull(c.net, size[:]); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrPeer, err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxFrame {
		return fmt.Errorf("message of %d bytes where %d are allowed: %w", n, maxFrame, transport.ErrProtocol)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.net, b); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrPeer, err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read message: %w: %w", transport.ErrProtocol, err)
	}
	return nil
}

// Close ends the socket. It is safe to call twice.
func (c *Conn) Close() error {
	if err := c.net.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Net returns the socket, for messages in another format. Both sides must switch to it
// between the same two messages.
func (c *Conn) Net() net.Conn { return c.net }

// LocalAddr returns this side's address.
func (c *Conn) LocalAddr() net.Addr { return c.net.LocalAddr() }

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.net.RemoteAddr() }

// Dial connects to a listener in a role and sends hello. It waits up to patience until
// the listener's side calls Answer, and decodes that hello into answer. Link-local
// addresses are dialled in zone, if it is not empty.
func Dial(ctx context.Context, to []byte, zone string, as Role, hello, answer any, patience time.Duration) (*Conn, error) {
	a, err := intake.ParseAddress(to)
	if err != nil {
		return nil, err
	}
	said, err := json.Marshal(hello)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: patience}
	s, err := d.DialContext(ctx, "tcp", a.From(zone))
	if err != nil {
		return nil, fmt.Errorf("dial peer: %w: %w; data connections are arranged on a port of their own beside the control port, which a firewall must let through", transport.ErrPeer, err)
	}
	c := &Conn{net: s}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	var back introduction
	err = s.SetDeadline(time.Now().Add(patience))
	if err == nil {
		err = c.Send(introduction{Version: version, Secret: a.Secret, Role: as, Hello: said})
	}
	if err == nil {
		err = c.Receive(&back)
	}
	if err == nil && back.Refusal != "" {
		err = transport.Classify(errors.New("the peer refused: "+back.Refusal), transport.ErrPeer)
	}
	if err == nil {
		err = readHello(back.Hello, answer)
	}
	if err == nil {
		err = s.SetDeadline(time.Time{})
	}
	if err != nil {
		s.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("meet the peer: %w", err)
	}
	return c, nil
}

// Caller is a dialler that waits for an answer.
type Caller struct {
	conn  *Conn
	hello json.RawMessage
}

// Hello decodes the dialler's hello. Its error wraps transport.ErrProtocol.
func (c *Caller) Hello(v any) error { return readHello(c.hello, v) }

func readHello(b json.RawMessage, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read hello: %w: %w", transport.ErrProtocol, err)
	}
	return nil
}

// Answer accepts the dialler and sends it hello.
func (c *Caller) Answer(hello any) (*Conn, error) {
	said, err := json.Marshal(hello)
	if err == nil {
		err = c.conn.Send(introduction{Version: version, Hello: said})
	}
	if err == nil {
		err = c.conn.net.SetDeadline(time.Time{})
	}
	if err != nil {
		c.conn.Close()
		return nil, err
	}
	return c.conn, nil
}

// Refuse sends the dialler the reason and closes its socket.
func (c *Caller) Refuse(why error) {
	// If this fails, the dialler is gone.
	_ = c.conn.Send(introduction{Version: version, Refusal: why.Error()})
	c.conn.Close()
}

// Listener accepts diallers.
type Listener struct {
	callers  *intake.Listener[*Caller]
	addr     intake.Address
	patience time.Duration
}

// Listen opens a listener at a host and port. If advertise is not empty, its address
// names that host instead. A dialler that does not introduce itself within patience is
// dropped.
func Listen(ctx context.Context, hostPort, advertise string, patience time.Duration) (*Listener, error) {
	var lc net.ListenConfig
	n, err := lc.Listen(ctx, "tcp", hostPort)
	if err != nil {
		return nil, fmt.Errorf("listen for data connections: %w", err)
	}
	return listenOn(n, advertise, patience)
}

func listenOn(n net.Listener, advertise string, patience time.Duration) (*Listener, error) {
	addr, err := intake.NewAddress(n.Addr(), advertise)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	l := &Listener{intake.New(n, func(c *Caller) { c.conn.Close() }), addr, patience}
	l.callers.Start(l.introduce)
	return l, nil
}

// Address returns the address for Dial.
func (l *Listener) Address() []byte { return l.addr.Encode() }

// Accept waits for a dialler with a role, in the order of their arrival. It returns the
// context's error, or transport.ErrClosed.
func (l *Listener) Accept(ctx context.Context, as Role) (*Caller, error) {
	return l.callers.Accept(ctx, roles[as])
}

// Close stops listening and drops the diallers that were not accepted.
func (l *Listener) Close() error { return l.callers.Close() }

var roles = map[Role]intake.Role{Initiator: intake.Initiator, Target: intake.Target}

// introduce reads a dialler's introduction and queues it.
func (l *Listener) introduce(s net.Conn) (admit func(), err error) {
	caller, as, err := l.hear(s)
	return func() {
		if !l.callers.Offer(as, caller) {
			caller.Refuse(errors.New("too many unclaimed connections"))
		}
	}, err
}

func (l *Listener) hear(s net.Conn) (*Caller, intake.Role, error) {
	if err := s.SetDeadline(time.Now().Add(l.patience)); err != nil {
		return nil, 0, err
	}
	c := &Conn{net: s}
	var i introduction
	if err := c.Receive(&i); err != nil {
		return nil, 0, err
	}
	caller := &Caller{conn: c, hello: i.Hello}
	as, known := roles[i.Role]
	switch {
	case i.Version != version:
		caller.Refuse(fmt.Errorf("data protocol version %d, want %d: use the same kvbench on both sides", i.Version, version))
	case !l.addr.Admits(i.Secret):
		caller.Refuse(errors.New("a stale data address"))
	case !known:
		caller.Refuse(fmt.Errorf("role %q is not known", i.Role))
	default:
		// No deadline from here on, because Accept may come late.
		return caller, as, s.SetDeadline(time.Time{})
	}
	return nil, 0, transport.ErrProtocol
}
