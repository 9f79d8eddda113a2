package control

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// handshakeTimeout bounds the whole handshake, so that a silent stranger does not occupy
// a place for long.
const handshakeTimeout = 4 * time.Second

// connectTimeout bounds resolving a consumer's name and trying all its addresses. Some
// may be in a network that is gone; each address gets a share of the time.
const connectTimeout = 20 * time.Second

// Options configure one side of the handshake.
type Options struct {
	Token string      // shared secret; empty demands no proof and gives none
	Build string      // this side's version, for messages
	TLS   *tls.Config // nil sends in the clear; the token never crosses the wire either way
	// DialContext connects a producer to a consumer's address. nil is net.Dialer's.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	kindHello = "hello"
	kindProof = "proof"
	magic     = "kvbench-control"
	nonceSize = 32
)

// hello opens the handshake, in either direction.
type hello struct {
	Magic   string `json:"magic"`
	Version int    `json:"version"`
	Build   string `json:"build"`
	Nonce   []byte `json:"nonce"`
	Auth    bool   `json:"auth"` // from the server: a proof is required, and will be given
}

// proof answers the peer's nonce: HMAC-SHA256, keyed by the token, over the sender's
// role, both nonces and the binding to the TLS connection.
type proof struct {
	MAC []byte `json:"mac"`
}

// Dial connects to a consumer's control address and completes the handshake.
func Dial(ctx context.Context, hostPort string, o Options) (*Conn, error) {
	dial := o.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	c, err := connect(ctx, dial, hostPort)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if o.TLS != nil {
		cfg := o.TLS.Clone()
		if cfg.ServerName == "" {
			cfg.ServerName = serverName(hostPort)
		}
		c = tls.Client(c, cfg)
	}
	conn, err := greet(ctx, c, o, client)
	if err != nil {
		return nil, fmt.Errorf("greet consumer %s: %w", hostPort, err)
	}
	return conn, nil
}

// connect connects to one of the addresses of a name.
func connect(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), hostPort string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c, err := dial(ctx, "tcp", hostPort)
	var unresolved *net.DNSError
	switch {
	case errors.As(err, &unresolved):
		return nil, fmt.Errorf("connect to consumer %s: cannot resolve %s: %w; correct the name, give an address in its place, or look at this host's resolver", hostPort, unresolved.Name, err)
	case err != nil:
		return nil, fmt.Errorf("connect to consumer %s: %w; is `kvbench consumer` running there, and the port open?", hostPort, err)
	}
	return c, nil
}

// serverName returns the name that a consumer's certificate must hold: its host, without
// the zone, which only has a meaning on this host.
func serverName(hostPort string) string {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return ""
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.WithZone("").String()
	}
	return host
}

// Accept completes the handshake with a producer that connected. On an error it closes
// the connection.
func Accept(ctx context.Context, c net.Conn, o Options) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if o.TLS != nil {
		c = tls.Server(c, o.TLS)
	}
	conn, err := greet(ctx, c, o, server)
	if err != nil {
		return nil, fmt.Errorf("greet producer %s: %w", c.RemoteAddr(), err)
	}
	return conn, nil
}

type greeting func(c *Conn, o Options, binding []byte) error

// greet runs one side of the handshake under the context.
func greet(ctx context.Context, c net.Conn, o Options, g greeting) (*Conn, error) {
	conn := newConn(c)
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetReadDeadline(deadline); err != nil {
			c.Close()
			return nil, err
		}
	}
	stop := conn.CloseOn(ctx)
	err := func() error {
		binding, err := bind(ctx, c)
		if err != nil {
			return err
		}
		return g(conn, o, binding)
	}()
	stop()
	if err != nil {
		conn.Close()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no answer from the peer within %v: %w", handshakeTimeout, ctx.Err())
		} else if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	conn.limit = frameLimit
	return conn, c.SetReadDeadline(time.Time{})
}

// bind completes TLS, if it is used, and returns keying material that only the two ends
// of this connection share.
func bind(ctx context.Context, c net.Conn) ([]byte, error) {
	t, ok := c.(*tls.Conn)
	if !ok {
		return nil, nil
	}
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("agree on TLS: %w; both sides need --tls-cert, --tls-key or --tls-ca that fit, or neither", err)
	}
	state := t.ConnectionState()
	return state.ExportKeyingMaterial("EXPORTER-kvbench-control", nil, 32)
}

func newHello(o Options) hello {
	h := hello{Magic: magic, Version: Version, Build: o.Build, Nonce: make([]byte, nonceSize), Auth: o.Token != ""}
	rand.Read(h.Nonce)
	return h
}

func checkHello(h hello) error {
	if h.Magic != magic || len(h.Nonce) != nonceSize || len(h.Build) > 256 {
		return fmt.Errorf("hello: %w", ErrFrame)
	}
	return nil
}

func versionRefusal(theirs hello, ours hello) *Refusal {
	return Refuse("version", "control protocol version %d (kvbench %q) cannot talk to version %d (kvbench %q): use the same kvbench on both hosts",
		theirs.Version, theirs.Build, ours.Version, ours.Build)
}

// client runs the producer's side of the handshake.
func client(c *Conn, o Options, binding []byte) error {
	mine := newHello(o)
	if err := c.Send(kindHello, mine); err != nil {
		return err
	}
	var theirs hello
	if err := c.Expect(kindHello, &theirs, 0); err != nil {
		if errors.Is(err, ErrFrame) || errors.Is(err, ErrClosed) {
			return fmt.Errorf("%w; is it a kvbench consumer, and does it use TLS where this side does not, or the reverse?", err)
		}
		return err
	}
	if err := checkHello(theirs); err != nil {
		return err
	}
	if theirs.Version != Version {
		return versionRefusal(theirs, mine)
	}
	if o.Token != "" && !theirs.Auth {
		return Refuse("token", "the consumer asks for no token, so it cannot prove that it is the right one: start it with --token, or leave --token out here")
	}
	mac := func(role string) []byte { return prove(o.Token, role, mine.Nonce, theirs.Nonce, binding) }
	p := proof{}
	if o.Token != "" {
		p.MAC = mac("producer")
	}
	if err := c.Send(kindProof, p); err != nil {
		return err
	}
	var answer proof
	if err := c.Expect(kindProof, &answer, 0); err != nil {
		return err
	}
	if o.Token != "" && !hmac.Equal(answer.MAC, mac("consumer")) {
		return Refuse("token", "the consumer did not prove that it knows the token: it is not the one that was meant, or its --token differs")
	}
	return nil
}

// server runs the consumer's side of the handshake.
func server(c *Conn, o Options, binding []byte) error {
	mine := newHello(o)
	var theirs hello
	if err := c.Expect(kindHello, &theirs, 0); err != nil {
		return err
	}
	if err := checkHello(theirs); err != nil {
		return err
	}
	if theirs.Version != Version {
		return c.refuse(versionRefusal(theirs, mine))
	}
	if err := c.Send(kindHello, mine); err != nil {
		return err
	}
	var p proof
	if err := c.Expect(kindProof, &p, 0); err != nil {
		return err
	}
	if o.Token == "" {
		return c.Send(kindProof, proof{})
	}
	mac := func(role string) []byte { return prove(o.Token, role, theirs.Nonce, mine.Nonce, binding) }
	if len(p.MAC) == 0 {
		return c.refuse(Refuse("token", "the consumer asks for a token: give the one that it was started with, or printed, as --token or KVBENCH_TOKEN"))
	}
	if !hmac.Equal(p.MAC, mac("producer")) {
		return c.refuse(Refuse("token", "wrong token: give the one that the consumer was started with, or printed, as --token or KVBENCH_TOKEN"))
	}
	return c.Send(kindProof, proof{MAC: mac("consumer")})
}

// refuse sends a refusal to the peer and returns it as this side's error.
func (c *Conn) refuse(r *Refusal) error {
	if err := c.Refuse(r); err != nil {
		return errors.Join(r, err)
	}
	return r
}

// prove computes a proof. Each part but the last has a fixed size, so that no two inputs
// yield the same bytes.
func prove(token, role string, clientNonce, serverNonce, binding []byte) []byte {
	m := hmac.New(sha256.New, []byte(token))
	m.Write([]byte(role)) // producer or consumer: eight bytes each
	m.Write(clientNonce)
	m.Write(serverNonce)
	m.Write(binding)
	return m.Sum(nil)
}

// NewToken returns a token that cannot be guessed.
func NewToken() string { return rand.Text() }
