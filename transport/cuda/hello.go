package cuda

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"kvbench/transport"
)

const (
	wireVersion = 2
	secretSize  = 16
	maxGreeting = 4 << 10 // bytes of a hello or its answer
)

// role is the role of a connection's dialler.
type role string

const (
	initiatorRole role = "initiator"
	targetRole    role = "target"
)

// address is the content of a transport.Address.
type address struct {
	Socket string   `json:"socket"` // abstract: it has no file and lasts as long as its listener
	Secret []byte   `json:"secret"`
	Host   identity `json:"host"`

	Descriptors descriptors `json:"descriptors"` // of the listener's device
}

func newAddress() address {
	a := address{Secret: make([]byte, secretSize), Host: self()}
	var name [8]byte
	rand.Read(name[:])
	rand.Read(a.Secret)
	a.Socket = "@kvbench-cuda-" + hex.EncodeToString(name[:])
	return a
}

// encode returns the address in its wire form.
func (a address) encode() transport.Address { return mustMarshal(a) }

// mustMarshal encodes a struct of plain fields, which cannot fail.
func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// parseAddress reads and checks a listener's address.
func parseAddress(b transport.Address) (address, error) {
	var a address
	if err := json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("read cuda address: %w: %w", transport.ErrProtocol, err)
	}
	if len(a.Secret) != secretSize || len(a.Socket) < 2 || len(a.Socket) > 100 || !strings.HasPrefix(a.Socket, "@") {
		return a, fmt.Errorf("read cuda address: socket %.100q, secret of %d bytes: %w", a.Socket, len(a.Secret), transport.ErrProtocol)
	}
	return a, nil
}

// hello is a dialler's first message.
type hello struct {
	Version     int      `json:"version"`
	Secret      []byte   `json:"secret"`
	Role        role     `json:"role"`
	Streams     int      `json:"streams"`
	Outstanding int      `json:"outstanding"`
	Host        identity `json:"host"`

	Descriptors descriptors `json:"descriptors"` // of the dialler's device
}

// answer is the listener's reply to a hello. A refusal has a reason.
type answer struct {
	Refused string `json:"refused,omitempty"`
}

func (a address) party() party { return party{a.Host, a.Descriptors} }

func (h hello) party() party { return party{h.Host, h.Descriptors} }

// check returns the configuration of a connection that begins with h, or the reason to
// refuse it.
func (h hello) check(a address, cfg transport.Config) (transport.Config, error) {
	if h.Version != wireVersion {
		return cfg, fmt.Errorf("data protocol version %d, want %d: %w", h.Version, wireVersion, transport.ErrProtocol)
	}
	if subtle.ConstantTimeCompare(a.Secret, h.Secret) != 1 {
		return cfg, fmt.Errorf("wrong secret: %w", transport.ErrProtocol)
	}
	if h.Role != initiatorRole && h.Role != targetRole {
		return cfg, fmt.Errorf("role %.20q: %w", h.Role, transport.ErrProtocol)
	}
	if h.Streams == 0 || h.Outstanding == 0 {
		return cfg, fmt.Errorf("%d streams, %d transfers: %w", h.Streams, h.Outstanding, transport.ErrProtocol)
	}
	if _, err := a.party().agree(h.party()); err != nil {
		return cfg, err
	}
	cfg.Streams, cfg.MaxOutstanding = h.Streams, h.Outstanding
	return checkConfig(cfg)
}

// send writes the length of a message and then the message.
func send(w io.Writer, v any) error {
	body := mustMarshal(v)
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// receive reads a message.
func receive(r io.Reader, v any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxGreeting {
		return fmt.Errorf("greeting of %d bytes: %w", n, transport.ErrProtocol)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrProtocol, err)
	}
	return nil
}

// dial connects to a listener in a role.
func dial(ctx context.Context, to transport.Address, cfg transport.Config, as role) (link, error) {
	cfg, err := checkConfig(cfg)
	if err != nil {
		return link{}, err
	}
	addr, err := parseAddress(to)
	if err != nil {
		return link{}, err
	}
	driver, err := openDriver()
	if err != nil {
		return link{}, err
	}
	own := party{self(), descriptorsOf(driver, cfg.GPU)}
	noHandles, err := own.agree(addr.party())
	if err != nil {
		return link{}, err
	}
	d := net.Dialer{Timeout: cfg.PeerTimeout}
	c, err := d.DialContext(ctx, "unix", addr.Socket)
	if err != nil {
		return link{}, fmt.Errorf("dial the peer's local socket: %w: %w; it has gone, or runs in another network namespace: run both in one, with --network=host (docker) or hostNetwork: true (Kubernetes)",
			transport.ErrPeer, err)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	h := hello{
		Version: wireVersion, Secret: addr.Secret, Role: as, Streams: cfg.Streams, Outstanding: cfg.MaxOutstanding,
		Host: own.host, Descriptors: own.fds,
	}
	if err := greet(c, h, cfg.PeerTimeout); err != nil {
		c.Close()
		return link{}, fmt.Errorf("greet the peer: %w", err)
	}
	return link{driver, c.(*net.UnixConn), cfg, noHandles}, nil
}

// greet sends the hello and waits for the answer.
func greet(c net.Conn, h hello, timeout time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if err := send(c, h); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrPeer, err)
	}
	var a answer
	if err := receive(c, &a); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrPeer, err)
	}
	if a.Refused != "" {
		return transport.Classify(fmt.Errorf("the peer refused this connection: %s", a.Refused), transport.ErrProtocol)
	}
	return c.SetDeadline(time.Time{})
}
