package rdma

import (
	"context"
	"fmt"
	"time"

	"kvbench/internal/rendezvous"
	"kvbench/transport"
)

// greetTimeout limits the time a dialler has to send its hello.
const greetTimeout = 5 * time.Second

// listener implements transport.Listener.
type listener struct {
	*rendezvous.Listener
	cfg    transport.Config
	family family
	gpu    *gpuSide // nil for connections of host memory
}

// Listen implements transport.Transport.
func (t Transport) Listen(ctx context.Context, cfg transport.Config) (transport.Listener, error) {
	if err := t.Check(ctx, cfg); err != nil {
		return nil, err
	}
	cfg, f, err := checkConfig(cfg)
	if err != nil {
		return nil, err
	}
	gpu, err := t.gpuOf(ctx, cfg)
	if err != nil {
		return nil, err
	}
	l, err := rendezvous.Listen(ctx, cfg.Listen, cfg.Advertise, greetTimeout)
	if err != nil {
		return nil, err
	}
	return &listener{l, cfg, f, gpu}, nil
}

// Address implements transport.Listener.
func (l *listener) Address() transport.Address { return l.Listener.Address() }

// AcceptTarget implements transport.Listener.
func (l *listener) AcceptTarget(ctx context.Context) (transport.Target, error) {
	var t *target
	err := l.answer(ctx, rendezvous.Initiator, func(c *connection) { t = newTarget(c) })
	if err != nil {
		return nil, err
	}
	t.start()
	if err := t.greet(ctx); err != nil {
		return nil, err
	}
	return t.withMemory(), nil
}

// AcceptInitiator implements transport.Listener.
func (l *listener) AcceptInitiator(ctx context.Context) (transport.Initiator, error) {
	var in *initiator
	err := l.answer(ctx, rendezvous.Target, func(c *connection) { in = newInitiator(c) })
	if err != nil {
		return nil, err
	}
	in.start()
	if err := in.greet(ctx); err != nil {
		return nil, err
	}
	return in.withMemory(), nil
}

// answer takes the next dialler and connects to it. If that fails, the dialler receives
// the reason.
func (l *listener) answer(ctx context.Context, as rendezvous.Role, adopt func(*connection)) error {
	caller, err := l.Accept(ctx, as)
	if err != nil {
		return err
	}
	c, err := l.met(caller, adopt)
	if err != nil {
		caller.Refuse(err)
		if c != nil {
			c.abandon()
		}
	}
	return err
}

func (l *listener) met(caller *rendezvous.Caller, adopt func(*connection)) (*connection, error) {
	var peer hello
	if err := caller.Hello(&peer); err != nil {
		return nil, err
	}
	if peer.Outstanding < 1 || peer.Outstanding > maxOutstanding {
		return nil, fmt.Errorf("%d transfers outstanding: %w", peer.Outstanding, transport.ErrProtocol)
	}
	cfg := l.cfg
	cfg.MaxOutstanding = peer.Outstanding
	c, err := begin(cfg, l.family, l.gpu)
	if err != nil {
		return nil, err
	}
	adopt(c)
	own, err := c.hello()
	if err == nil {
		err = c.meet(peer)
	}
	if err == nil {
		c.socket, err = caller.Answer(own)
	}
	return c, err
}

// Dial implements transport.Transport.
func (t Transport) Dial(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Initiator, error) {
	var in *initiator
	err := t.dial(ctx, addr, cfg, rendezvous.Initiator, func(c *connection) { in = newInitiator(c) })
	if err != nil {
		return nil, err
	}
	in.start()
	if err := in.greet(ctx); err != nil {
		return nil, err
	}
	return in.withMemory(), nil
}

// DialTarget implements transport.Transport.
func (t Transport) DialTarget(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Target, error) {
	var tg *target
	err := t.dial(ctx, addr, cfg, rendezvous.Target, func(c *connection) { tg = newTarget(c) })
	if err != nil {
		return nil, err
	}
	tg.start()
	if err := tg.greet(ctx); err != nil {
		return nil, err
	}
	return tg.withMemory(), nil
}

// dial connects to a listener.
func (t Transport) dial(ctx context.Context, addr transport.Address, cfg transport.Config, as rendezvous.Role, adopt func(*connection)) error {
	if err := t.Check(ctx, cfg); err != nil {
		return err
	}
	cfg, f, err := checkConfig(cfg)
	if err != nil {
		return err
	}
	gpu, err := t.gpuOf(ctx, cfg)
	if err != nil {
		return err
	}
	c, err := begin(cfg, f, gpu)
	if err != nil {
		return err
	}
	adopt(c)
	own, err := c.hello()
	var peer hello
	if err == nil {
		c.socket, err = rendezvous.Dial(ctx, addr, cfg.Zone, as, own, &peer, cfg.PeerTimeout)
	}
	if err == nil {
		err = c.meet(peer)
	}
	if err != nil {
		c.abandon()
	}
	return err
}
