// Package control is the channel beside the data: one TCP connection for a producer and a
// consumer to greet, prove that they share a token, and exchange messages. It owns
// framing, authentication and encryption. Package bench calls it and gives the messages
// their meaning.
//
// A frame is a big-endian length of four bytes and that many bytes of JSON. The length
// has a limit, which is small until the peer is authenticated.
package control

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Version is the version of the control protocol. Both sides must use the same version.
const Version = 2

const (
	greetingLimit = 4 << 10  // bytes of a frame before authentication
	frameLimit    = 64 << 20 // bytes of a frame after authentication
	writeTimeout  = 10 * time.Second
)

var (
	// ErrRefused is returned, wrapped in a Refusal, when the peer refuses.
	ErrRefused = errors.New("refused")
	// ErrFrame is returned when the peer sends bytes that are no frame of this protocol.
	ErrFrame = errors.New("not a kvbench control frame")
	// ErrClosed is returned when the peer has closed the channel.
	ErrClosed = errors.New("peer closed the control channel")
	// ErrSilent is returned when nothing came from the peer in time.
	ErrSilent = errors.New("no answer from the peer")
)

// Refusal is the reason why one side will not go on. It is sent to the peer, and Receive
// returns it there as an error.
type Refusal struct {
	Code    string `json:"code"`    // a word for programs: version, token, memory, busy, plan, failed
	Message string `json:"message"` // the cause and the fix, for people
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// Unwrap returns ErrRefused.
func (r *Refusal) Unwrap() error { return ErrRefused }

// Refuse returns a Refusal with a formatted message.
func Refuse(code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Message is one frame.
type Message struct {
	Kind string          `json:"kind"`
	Body json.RawMessage `json:"body,omitempty"`
}

const kindRefuse = "refuse"

// Decode decodes the message's body into v. Its error wraps ErrFrame.
func (m Message) Decode(v any) error {
	if err := json.Unmarshal(m.Body, v); err != nil {
		return fmt.Errorf("read %q message: %w: %w", m.Kind, ErrFrame, err)
	}
	return nil
}

// Conn is an authenticated control channel. Send may be called from any goroutine,
// Receive only from one.
type Conn struct {
	net   net.Conn
	in    *bufio.Reader // reads from net
	limit int

	mu sync.Mutex // serializes writes

	closing sync.Once
	closed  chan struct{}

	until   time.Time    // deadline of Expect; zero means none
	silence atomic.Int64 // longest silence of the peer, ns; 0 means no limit
	woken   atomic.Bool  // Lost must return
}

func newConn(c net.Conn) *Conn {
	conn := &Conn{net: c, limit: greetingLimit, closed: make(chan struct{})}
	conn.in = bufio.NewReader(reading{conn})
	return conn
}

// Send sends a message. Its error wraps ErrClosed if the peer accepts no more.
func (c *Conn) Send(kind string, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %q message: %w", kind, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.net.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return writeFrame(c.net, Message{kind, raw}, c.limit)
}

// Receive waits for a message. It returns a Refusal from the peer as an error.
func (c *Conn) Receive() (Message, error) {
	m, err := readFrame(c.in, c.limit)
	for err == nil && m.Kind == kindAlive {
		m, err = readFrame(c.in, c.limit)
	}
	if err != nil {
		return Message{}, err
	}
	if m.Kind == kindRefuse {
		var r Refusal
		if err := m.Decode(&r); err != nil {
			return Message{}, err
		}
		return Message{}, &r
	}
	return m, nil
}

// Expect receives a message of the given kind into v, within d; a d of 0 waits for ever.
// Its error wraps ErrSilent if no message came in time.
func (c *Conn) Expect(kind string, v any, d time.Duration) error {
	if d > 0 {
		c.until = time.Now().Add(d)
		defer func() {
			c.until = time.Time{}
			c.net.SetReadDeadline(time.Time{})
		}()
	}
	m, err := c.Receive()
	if err != nil {
		return err
	}
	if m.Kind != kind {
		return OutOfTurn(m.Kind, kind)
	}
	return m.Decode(v)
}

// OutOfTurn returns the error for a message that came when another was due.
func OutOfTurn(kind, due string) error {
	return fmt.Errorf("got %q where %q was due: %w; use the same kvbench on both hosts", kind, due, ErrFrame)
}

// Refuse sends the peer the reason why this side will not go on.
func (c *Conn) Refuse(r *Refusal) error { return c.Send(kindRefuse, r) }

// Close closes the channel.
func (c *Conn) Close() error {
	c.closing.Do(func() { close(c.closed) })
	return c.net.Close()
}

// LocalAddr returns this side's address.
func (c *Conn) LocalAddr() net.Addr { return c.net.LocalAddr() }

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.net.RemoteAddr() }

// CloseOn closes the channel when the context ends. The returned function stops that.
func (c *Conn) CloseOn(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { c.Close() })
}

func writeFrame(w io.Writer, m Message, limit int) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > limit {
		return fmt.Errorf("%q message of %d bytes, limit %d: %w", m.Kind, len(b), limit, ErrFrame)
	}
	buf := make([]byte, 4, 4+len(b))
	binary.BigEndian.PutUint32(buf, uint32(len(b)))
	if _, err := w.Write(append(buf, b...)); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return nil
}

// readFrame reads one frame. It allocates in proportion to the bytes that arrive, not to
// the length that the frame claims.
func readFrame(r io.Reader, limit int) (Message, error) {
	var m Message
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return m, readError(err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || uint64(n) > uint64(limit) {
		return m, fmt.Errorf("frame of %d bytes, limit %d: %w", n, limit, ErrFrame)
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err == nil && len(b) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return m, readError(err)
	}
	return decodeFrame(b)
}

// decodeFrame decodes the content of a frame.
func decodeFrame(b []byte) (m Message, err error) {
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	if m.Kind == "" || len(m.Kind) > 64 {
		return m, fmt.Errorf("frame without a kind: %w", ErrFrame)
	}
	return m, nil
}

func readError(err error) error {
	if errors.Is(err, ErrSilent) {
		return err
	}
	if isTimeout(err) {
		return fmt.Errorf("%w: %w", ErrSilent, err)
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}
