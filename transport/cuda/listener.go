package cuda

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/internal/intake"
	"kvbench/transport"
)

// greetTimeout limits the time a dialler has to send its hello.
const greetTimeout = 5 * time.Second

// listener implements transport.Listener.
type listener struct {
	*intake.Listener[link]
	cfg    transport.Config
	driver *cudadrv.Driver
	addr   address
}

// Listen implements transport.Transport. It ignores Config.Listen and Config.Advertise,
// which are for network transports.
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
	l := &listener{intake.New(n, func(a link) { a.net.Close() }), cfg, driver, addr}
	l.Start(l.greet)
	return l, nil
}

// Address implements transport.Listener.
func (l *listener) Address() transport.Address { return l.addr.encode() }

// AcceptTarget implements transport.Listener.
func (l *listener) AcceptTarget(ctx context.Context) (transport.Target, error) {
	a, err := l.Accept(ctx, intake.Initiator)
	if err != nil {
		return nil, err
	}
	return newTarget(a), nil
}

// AcceptInitiator implements transport.Listener.
func (l *listener) AcceptInitiator(ctx context.Context) (transport.Initiator, error) {
	a, err := l.Accept(ctx, intake.Target)
	if err != nil {
		return nil, err
	}
	return newInitiator(a), nil
}

// greet reads a hello and answers it. On an error the caller must close the socket. If
// the hello was refused, the dialler has received the reason.
func (l *listener) greet(s net.Conn) (admit func(), err error) {
	c := s.(*net.UnixConn)
	if err := c.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return nil, err
	}
	var h hello
	if err := receive(c, &h); err != nil {
		return nil, err
	}
	cfg, err := h.check(l.addr, l.cfg)
	if err != nil {
		return nil, errors.Join(err, send(c, answer{Refused: err.Error()}))
	}
	if err := send(c, answer{}); err != nil {
		return nil, err
	}
	noHandles, err := l.addr.party().agree(h.party())
	if err != nil {
		return nil, err // cannot happen: h.check called agree
	}
	as := intake.Initiator
	if h.Role == targetRole {
		as = intake.Target
	}
	admit = func() {
		if !l.Offer(as, link{l.driver, c, cfg, noHandles}) {
			c.Close()
		}
	}
	return admit, c.SetDeadline(time.Time{})
}
