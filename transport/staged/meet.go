package staged

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/internal/rendezvous"
	"kvbench/transport"
)

// greetTimeout limits the time a dialler has to send its hello.
const greetTimeout = 5 * time.Second

// The two sides connect in these steps. The dialler sends a hello. The listener opens
// an inner listener for this one connection, so that the two belong together, and
// answers with its address and its ability. If both sides can move GPU memory directly,
// the inner connection is the whole connection. Otherwise each side makes its ring. The
// target times its copies and offers its ring. Then the initiator times its copies and
// the wire, and sends ready. The sides take turns because on one host their copies
// share links and memory. Each waits up to PeerTimeout for the other's next message.

// hello is a dialler's first message.
type hello struct {
	Outstanding int   `json:"outstanding"`
	Chunk       int64 `json:"chunk_bytes"`
	Places      int   `json:"places"`
	ability           // the dialler's
}

// answer is the listener's reply to a hello.
type answer struct {
	Inner   transport.Address `json:"inner"`
	ability                   // the listener's; if both sides have it, the memory moves directly
}

// offer is the target's message with its ring.
type offer struct {
	Ring transport.Advertisement `json:"ring"`
}

// ready is the initiator's message after its timing.
type ready struct{}

// listener implements transport.Listener.
type listener struct {
	*rendezvous.Listener
	inner   transport.Transport
	cfg     transport.Config
	context *cudadrv.Context
	ability ability
}

// Listen implements transport.Transport.
func (t Transport) Listen(ctx context.Context, cfg transport.Config) (transport.Listener, error) {
	cfg, c, err := t.prepare(ctx, cfg)
	if err != nil {
		return nil, err
	}
	l, err := rendezvous.Listen(ctx, cfg.Listen, cfg.Advertise, greetTimeout)
	if err != nil {
		return nil, err
	}
	return &listener{l, t.inner, cfg, c, t.ability(ctx, cfg)}, nil
}

// prepare checks a configuration and opens a context on its GPU.
func (t Transport) prepare(ctx context.Context, cfg transport.Config) (transport.Config, *cudadrv.Context, error) {
	cfg, err := checkConfig(cfg)
	if err != nil {
		return cfg, nil, err
	}
	if err := t.Check(ctx, cfg); err != nil {
		return cfg, nil, err
	}
	d, err := openDriver()
	if err != nil {
		return cfg, nil, err
	}
	c, err := d.Context(cfg.GPU)
	return cfg, c, err
}

// Address implements transport.Listener.
func (l *listener) Address() transport.Address { return l.Listener.Address() }

// AcceptTarget implements transport.Listener.
func (l *listener) AcceptTarget(ctx context.Context) (transport.Target, error) {
	var inner transport.Target
	c, socket, err := l.accept(ctx, rendezvous.Initiator, func(ctx context.Context, from transport.Listener) (_ transport.Endpoint, err error) {
		inner, err = from.AcceptTarget(ctx)
		return inner, err
	})
	if err != nil {
		return nil, err
	}
	if c == nil {
		return inner, nil
	}
	return c.asTarget(ctx, socket, inner)
}

// AcceptInitiator implements transport.Listener.
func (l *listener) AcceptInitiator(ctx context.Context) (transport.Initiator, error) {
	var inner transport.Initiator
	c, socket, err := l.accept(ctx, rendezvous.Target, func(ctx context.Context, from transport.Listener) (_ transport.Endpoint, err error) {
		inner, err = from.AcceptInitiator(ctx)
		return inner, err
	})
	if err != nil {
		return nil, err
	}
	if c == nil {
		return inner, nil
	}
	return c.asInitiator(ctx, socket, inner)
}

// accept takes the next dialler of a role and makes an inner connection with it. If
// that fails before the answer, the dialler receives the reason. The connection is nil
// if the memory moves directly over the inner one.
func (l *listener) accept(ctx context.Context, as rendezvous.Role, from func(context.Context, transport.Listener) (transport.Endpoint, error)) (*connection, *rendezvous.Conn, error) {
	caller, err := l.Accept(ctx, as)
	if err != nil {
		return nil, nil, err
	}
	both := abilities{own: l.ability}
	cfg, inner, err := l.open(ctx, caller, &both.peer)
	if err != nil {
		caller.Refuse(err)
		return nil, nil, err
	}
	defer inner.Close()
	socket, err := caller.Answer(answer{inner.Address(), l.ability})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.PeerTimeout)
	defer cancel()
	endpoint, err := from(ctx, inner)
	if err != nil {
		return nil, nil, errors.Join(err, socket.Close())
	}
	return finish(l.context, cfg, both, socket, endpoint)
}

// open reads a dialler's hello, stores its ability in able, and opens an inner listener
// for it.
func (l *listener) open(ctx context.Context, caller *rendezvous.Caller, able *ability) (transport.Config, transport.Listener, error) {
	var peer hello
	if err := caller.Hello(&peer); err != nil {
		return l.cfg, nil, err
	}
	if peer.Chunk != chunkBytes || peer.Places != ringPlaces || peer.Outstanding < 1 || peer.Outstanding > maxOutstanding {
		return l.cfg, nil, fmt.Errorf("%d places of %d bytes, %d transfers outstanding: %w; use the same kvbench on both sides", peer.Places, peer.Chunk, peer.Outstanding, transport.ErrProtocol)
	}
	cfg := l.cfg
	cfg.MaxOutstanding = peer.Outstanding
	*able = peer.ability
	below := abilities{l.ability, *able}.config(cfg)
	host, _, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return cfg, nil, err
	}
	below.Listen = net.JoinHostPort(host, "0")
	inner, err := l.inner.Listen(ctx, below)
	return cfg, inner, err
}

// Dial implements transport.Transport.
func (t Transport) Dial(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Initiator, error) {
	var inner transport.Initiator
	c, socket, err := t.dial(ctx, addr, cfg, rendezvous.Initiator, func(ctx context.Context, addr transport.Address, cfg transport.Config) (_ transport.Endpoint, err error) {
		inner, err = t.inner.Dial(ctx, addr, cfg)
		return inner, err
	})
	if err != nil {
		return nil, err
	}
	if c == nil {
		return inner, nil
	}
	return c.asInitiator(ctx, socket, inner)
}

// DialTarget implements transport.Transport.
func (t Transport) DialTarget(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Target, error) {
	var inner transport.Target
	c, socket, err := t.dial(ctx, addr, cfg, rendezvous.Target, func(ctx context.Context, addr transport.Address, cfg transport.Config) (_ transport.Endpoint, err error) {
		inner, err = t.inner.DialTarget(ctx, addr, cfg)
		return inner, err
	})
	if err != nil {
		return nil, err
	}
	if c == nil {
		return inner, nil
	}
	return c.asTarget(ctx, socket, inner)
}

// dial connects to a listener and makes an inner connection with it. The connection is
// nil if the memory moves directly over the inner one.
func (t Transport) dial(ctx context.Context, addr transport.Address, cfg transport.Config, as rendezvous.Role, to func(context.Context, transport.Address, transport.Config) (transport.Endpoint, error)) (*connection, *rendezvous.Conn, error) {
	cfg, gpu, err := t.prepare(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	var peer answer
	own := t.ability(ctx, cfg)
	socket, err := rendezvous.Dial(ctx, addr, cfg.Zone, as, hello{cfg.MaxOutstanding, chunkBytes, ringPlaces, own}, &peer, cfg.PeerTimeout)
	if err != nil {
		return nil, nil, err
	}
	both := abilities{own, peer.ability}
	endpoint, err := to(ctx, peer.Inner, both.config(cfg))
	if err != nil {
		return nil, nil, errors.Join(err, socket.Close())
	}
	return finish(gpu, cfg, both, socket, endpoint)
}

// finish makes a connection over an inner endpoint. It returns nil if the memory moves
// directly.
func finish(gpu *cudadrv.Context, cfg transport.Config, both abilities, socket *rendezvous.Conn, endpoint transport.Endpoint) (*connection, *rendezvous.Conn, error) {
	if both.direct() {
		socket.Close() // the socket was needed only for the hello and the answer
		return nil, nil, nil
	}
	c, err := newConnection(gpu, endpoint, cfg)
	if err != nil {
		return nil, nil, errors.Join(err, socket.Close())
	}
	c.reason = both.reason()
	return c, socket, nil
}

// asTarget times the copies, offers the ring to the peer, and waits until the peer has
// timed its copies and the wire.
func (c *connection) asTarget(ctx context.Context, socket *rendezvous.Conn, inner transport.Target) (transport.Target, error) {
	c.socket = socket.Net()
	t := newTarget(c, inner)
	err := c.introduce(ctx, func() error {
		return c.offerRing(socket, func() (transport.Advertisement, error) {
			if err := calibrateCopies(c.context, c.out, c.in); err != nil {
				return nil, err
			}
			return inner.Advertise(c.ring.region)
		})
	})
	if err != nil {
		return nil, c.abandon(err)
	}
	t.start()
	return t, nil
}

// asInitiator receives the peer's ring and times this side's copies and the wire. The
// target has timed its copies before it sends the ring.
func (c *connection) asInitiator(ctx context.Context, socket *rendezvous.Conn, inner transport.Initiator) (transport.Initiator, error) {
	c.socket = socket.Net()
	var there transport.RemoteRegion
	var wire cost
	err := c.introduce(ctx, func() error {
		return c.takeRing(socket, func(ring transport.Advertisement) error {
			regions, err := inner.Import(ring)
			if err == nil && (len(regions) != 1 || regions[0].Size != ringBytes) {
				err = fmt.Errorf("the peer's ring is %+v: %w", regions, transport.ErrProtocol)
			}
			if err != nil {
				return err
			}
			there = regions[0]
			if err := calibrateCopies(c.context, c.out, c.in); err != nil {
				return err
			}
			wire, err = calibrateWire(ctx, inner, c.ring.region, there, transport.Write)
			if errors.Is(err, transport.ErrUnsupported) {
				wire, err = calibrateWire(ctx, inner, c.ring.region, there, transport.Read)
			}
			return err
		})
	})
	if err != nil {
		return nil, c.abandon(err)
	}
	in := newInitiator(c, inner, there)
	in.carried.alone = wire
	in.start()
	return in, nil
}

// words is a rendezvous.Conn, whose deadlines are those of the connection's socket.
type words interface {
	Send(any) error
	Receive(any) error
}

// offerRing makes the ring ready, with this side's copies timed, and offers it to the
// peer. It returns when the peer has timed its own copies.
func (c *connection) offerRing(peer words, prepare func() (transport.Advertisement, error)) error {
	ad, err := prepare()
	if err == nil {
		err = c.allow()
	}
	if err == nil {
		err = peer.Send(offer{ad})
	}
	if err == nil {
		err = peer.Receive(&ready{})
	}
	return err
}

// takeRing waits for the peer's ring, takes it, which includes this side's copies, and
// reports that it is ready.
func (c *connection) takeRing(peer words, take func(ring transport.Advertisement) error) error {
	var o offer
	err := peer.Receive(&o)
	if err == nil {
		err = take(o.Ring)
	}
	if err == nil {
		err = c.allow()
	}
	if err == nil {
		err = peer.Send(ready{})
	}
	return err
}

// introduce runs the last steps of a meeting, which end with the context.
func (c *connection) introduce(ctx context.Context, steps func() error) error {
	defer context.AfterFunc(ctx, func() { c.socket.Close() })()
	err := c.allow()
	if err == nil {
		err = steps()
	}
	if err == nil {
		err = c.socket.SetDeadline(time.Time{})
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// allow sets the socket's deadline to PeerTimeout from now, so that the time this side
// took does not count.
func (c *connection) allow() error {
	return c.socket.SetDeadline(time.Now().Add(c.cfg.PeerTimeout))
}

// abandon releases a connection that failed during the set-up.
func (c *connection) abandon(err error) error {
	c.fail(err)
	return errors.Join(err, c.socket.Close(), c.release())
}
