package bench

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"kvbench/internal/control"
	"kvbench/transport"
	"kvbench/transport/mem"
)

// TestStandstill: a stopped producer keeps its connections open, and yet does not occupy
// the consumer for ever. Once it goes on, it receives the reason. The time is virtual.
func TestStandstill(t *testing.T) {
	for _, direction := range directions {
		t.Run(string(direction), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				var mu sync.Mutex
				var log strings.Builder
				b := newVirtualBed(t, mem.New(), func(c *Consumer) {
					c.Log = func(format string, args ...any) {
						mu.Lock()
						defer mu.Unlock()
						fmt.Fprintf(&log, format+"\n", args...)
					}
				})
				still := b.puppet(direction)
				defer still.Close()
				start := time.Now()
				// From here on it does nothing. Its last message is just in: 20 s later the
				// consumer gives it up.
				other := b.puppet(direction)
				defer other.Close()
				if waited := time.Since(start); waited < 20*time.Second || waited > 21*time.Second {
					t.Errorf("the next producer was served after %v, want 20 s", waited)
				}
				mu.Lock()
				if says := "the producer fell silent: no answer from the peer for 20s;"; !strings.Contains(log.String(), says) {
					t.Errorf("the consumer's log does not have %q:\n%s", says, log.String())
				}
				mu.Unlock()
				for {
					m, err := still.receive()
					if err != nil {
						t.Errorf("the producer that goes on receives no reason: %v", err)
						break
					}
					if m.Kind == "refuse" {
						var r control.Refusal
						if err := m.Decode(&r); err != nil || !strings.Contains(r.Message, "no answer from the peer for 20s") {
							t.Errorf("the producer that goes on receives %q, %v", r.Message, err)
						}
						break
					}
				}
			})
		})
	}
}

// puppet is a producer that does nothing but execute its methods: it sends no heartbeats.
type puppet struct {
	net.Conn
	in     transport.Initiator // pushing
	target transport.Target    // pulling
}

func (p *puppet) send(t *testing.T, kind string, body any) {
	t.Helper()
	raw, err := json.Marshal(body)
	if err == nil {
		raw, err = json.Marshal(control.Message{Kind: kind, Body: raw})
	}
	if err == nil {
		_, err = p.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (p *puppet) receive() (m control.Message, err error) {
	var size [4]byte
	if _, err := io.ReadFull(p, size[:]); err != nil {
		return m, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(p, b); err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, &m)
}

// expect receives a message, which must be of the given kind, into v unless v is nil.
func (p *puppet) expect(t *testing.T, kind string, v any) {
	t.Helper()
	m, err := p.receive()
	if err != nil {
		t.Fatal(err)
	}
	if m.Kind != kind {
		t.Fatalf("received %q %s, want %q", m.Kind, m.Body, kind)
	}
	if v != nil {
		if err := m.Decode(v); err != nil {
			t.Fatal(err)
		}
	}
}

// puppet connects a producer until it could begin its first phase. While the consumer
// refuses because it serves another, it tries again.
func (b *bed) puppet(direction Direction) *puppet {
	t, over := b.t, b.transports[0]
	t.Helper()
	for {
		c, err := b.dial(t.Context(), "tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		p := &puppet{Conn: c}
		p.send(t, "hello", map[string]any{"magic": "kvbench-control", "version": control.Version, "nonce": make([]byte, 32)})
		p.expect(t, "hello", nil)
		p.send(t, "proof", struct{}{})
		p.expect(t, "proof", nil)
		plan := planOf(direction, spec(t))
		plan.Transport = over.Name()
		p.send(t, kindPlan, plan)
		m, err := p.receive()
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind == "refuse" { // the place is taken
			p.Close()
			continue
		}
		var answer accept
		if err := m.Decode(&answer); err != nil {
			t.Fatal(err)
		}
		p.dial(t, over, plan, answer.Address)
		p.expect(t, kindReady, nil)
		return p
	}
}

// dial makes the data connection.
func (p *puppet) dial(t *testing.T, over transport.Transport, plan Plan, addr transport.Address) {
	t.Helper()
	var err error
	if plan.Direction == Push {
		if p.in, err = over.Dial(t.Context(), addr, plan.Config); err != nil {
			t.Fatal(err)
		}
		p.expect(t, kindRegion, nil)
		return
	}
	if p.target, err = over.DialTarget(t.Context(), addr, plan.Config); err != nil {
		t.Fatal(err)
	}
	r, err := p.target.Register(transport.HostBytes(make([]byte, 4<<20)))
	if err != nil {
		t.Fatal(err)
	}
	ad, err := p.target.Advertise(r)
	if err != nil {
		t.Fatal(err)
	}
	p.send(t, kindRegion, region{0, ad})
	p.expect(t, kindJoined, nil)
}

// Close ends both connections.
func (p *puppet) Close() error {
	if p.in != nil {
		p.in.Close()
	}
	if p.target != nil {
		p.target.Close()
	}
	return p.Conn.Close()
}
