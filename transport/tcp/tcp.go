package tcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"time"

	"kvbench/internal/hostinfo"
	"kvbench/internal/intake"
	"kvbench/transport"
)

// Transport is the TCP transport. The zero value is ready for use.
type Transport struct{}

var _ transport.Transport = Transport{}

// New returns the TCP transport.
func New() Transport { return Transport{} }

// Name implements transport.Transport.
func (Transport) Name() string { return "tcp" }

// Probe implements transport.Transport. TCP is always available.
func (Transport) Probe(context.Context) error { return nil }

// Capabilities implements transport.Transport.
func (Transport) Capabilities() transport.Capabilities {
	return transport.Capabilities{Write: true, Read: true, Memory: []transport.MemoryKind{transport.HostMemory}, MaxStreams: maxStreams}
}

// checkConfig applies the defaults and the limits of the wire protocol.
func checkConfig(cfg transport.Config) (transport.Config, error) {
	cfg = cfg.WithDefaults()
	if cfg.Streams < 1 || cfg.Streams > maxStreams {
		return cfg, fmt.Errorf("%d streams, where 1 to %d are possible: %w", cfg.Streams, maxStreams, transport.ErrUnsupported)
	}
	if cfg.MaxOutstanding < 1 || cfg.MaxOutstanding > maxOutstanding {
		return cfg, fmt.Errorf("%d outstanding transfers, where 1 to %d are possible: %w", cfg.MaxOutstanding, maxOutstanding, transport.ErrUnsupported)
	}
	if cfg.PeerTimeout < 0 || cfg.SocketBuffer < 0 {
		return cfg, fmt.Errorf("negative timeout or socket buffer: %w", transport.ErrUnsupported)
	}
	return cfg, nil
}

// Dial implements transport.Transport.
func (Transport) Dial(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Initiator, error) {
	c, err := dial(ctx, addr, cfg, initiatorRole)
	if err != nil {
		return nil, err
	}
	return newInitiator(c), nil
}

// DialTarget implements transport.Transport.
func (Transport) DialTarget(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Target, error) {
	c, err := dial(ctx, addr, cfg, targetRole)
	if err != nil {
		return nil, err
	}
	return newTarget(c), nil
}

func dial(ctx context.Context, to transport.Address, cfg transport.Config, as role) (*connection, error) {
	cfg, err := checkConfig(cfg)
	if err != nil {
		return nil, err
	}
	addr, err := intake.ParseAddress(to)
	if err != nil {
		return nil, err
	}
	h := hello{secret: [secretSize]byte(addr.Secret), role: as, streams: uint16(cfg.Streams), outstanding: uint32(cfg.MaxOutstanding)}
	rand.Read(h.conn[:])
	var streams []*stream
	for i := range cfg.Streams {
		h.stream = uint16(i)
		s, err := dialStream(ctx, addr.From(cfg.Zone), h, cfg)
		if err != nil {
			for _, s := range streams {
				s.shut()
			}
			return nil, err
		}
		streams = append(streams, s)
	}
	c := newConnection(cfg, streams)
	if err := checkDevice(cfg.Device, hostinfo.PathAddr(streams[0].conn)); err != nil {
		c.fail(err)
		return nil, err
	}
	return c, nil
}

// checkDevice returns ErrUnavailable if data at a local address does not travel over
// the wanted device.
func checkDevice(want string, local net.Addr) error {
	if want == "" {
		return nil
	}
	if got := hostinfo.DeviceOf(local).Name; got != want {
		return fmt.Errorf("%w: asked for device %s, and the address %v is on %s: use an address of %[2]s, or change the route (ip route get ADDRESS)", transport.ErrUnavailable, want, local, cmp.Or(got, "no device that is known"))
	}
	return nil
}

func dialStream(ctx context.Context, hostPort string, h hello, cfg transport.Config) (*stream, error) {
	d := net.Dialer{Timeout: cfg.PeerTimeout}
	c, err := d.DialContext(ctx, "tcp", hostPort)
	if err != nil {
		return nil, fmt.Errorf("dial data stream: %w: %w; data comes in on a port of its own beside the control port, which a firewall must let through", transport.ErrPeer, err)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := c.SetDeadline(time.Now().Add(cfg.PeerTimeout)); err != nil {
		return nil, err
	}
	if err := greet(c, h); err != nil {
		c.Close()
		return nil, err
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		c.Close()
		return nil, err
	}
	return newStream(c.(*net.TCPConn), cfg)
}
