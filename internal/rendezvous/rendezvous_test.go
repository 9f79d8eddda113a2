package rendezvous

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kvbench/internal/intake"
	"kvbench/internal/testenv"
	"kvbench/transport"
)

const patience = 10 * time.Second

type word struct{ Word string }

func listen(t *testing.T, patience time.Duration) *Listener {
	t.Helper()
	l, err := Listen(t.Context(), "127.0.0.1:0", "", patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// dial introduces a role and returns what came of it.
func dial(t *testing.T, l *Listener, as Role) <-chan result {
	t.Helper()
	done := make(chan result, 1)
	go func() {
		var r result
		r.conn, r.err = Dial(t.Context(), l.Address(), "", as, word{"hello from the " + string(as)}, &r.answer, patience)
		done <- r
	}()
	return done
}

type result struct {
	conn   *Conn
	answer word
	err    error
}

// bare opens a socket to a listener.
func bare(t *testing.T, l *Listener) net.Conn {
	t.Helper()
	s, err := net.Dial("tcp", l.addr.HostPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return s
}

func frame(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs encode
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// TestMeet: both roles, each with its own queue, hear what the other side said, and
// talk on.
func TestMeet(t *testing.T) {
	l := listen(t, patience)
	in, tg := dial(t, l, Initiator), dial(t, l, Target)
	for _, c := range []struct {
		as   Role
		done <-chan result
	}{{Target, tg}, {Initiator, in}} { // whichever came first
		caller, err := l.Accept(t.Context(), c.as)
		if err != nil {
			t.Fatal(err)
		}
		var said word
		if err := caller.Hello(&said); err != nil || said.Word != "hello from the "+string(c.as) {
			t.Errorf("the %s says %q, %v", c.as, said.Word, err)
		}
		conn, err := caller.Answer(word{"welcome"})
		if err != nil {
			t.Fatal(err)
		}
		r := <-c.done
		if r.err != nil || r.answer.Word != "welcome" {
			t.Fatalf("the %s hears %q, %v", c.as, r.answer.Word, r.err)
		}
		for from, to := range map[*Conn]*Conn{conn: r.conn, r.conn: conn} {
			var got word
			if err := from.Send(word{"more"}); err != nil {
				t.Error(err)
			}
			if err := to.Receive(&got); err != nil || got.Word != "more" {
				t.Errorf("received %q, %v", got.Word, err)
			}
		}
		if conn.LocalAddr().String() != r.conn.RemoteAddr().String() || conn.RemoteAddr().String() != r.conn.LocalAddr().String() {
			t.Error("the two ends are of different sockets")
		}
		if err := errors.Join(conn.Close(), conn.Close()); err != nil {
			t.Errorf("Close, twice: %v", err)
		}
		if err := r.conn.Receive(&word{}); !errors.Is(err, transport.ErrPeer) {
			t.Errorf("received from a peer that has closed: %v, want ErrPeer", err)
		}
		r.conn.Close()
	}
}

func TestRefuse(t *testing.T) {
	l := listen(t, patience)
	done := dial(t, l, Initiator)
	caller, err := l.Accept(t.Context(), Initiator)
	if err != nil {
		t.Fatal(err)
	}
	caller.Refuse(errors.New("no room"))
	if r := <-done; !errors.Is(r.err, transport.ErrPeer) || !strings.Contains(r.err.Error(), "meet the peer: the peer refused: no room") {
		t.Errorf("a dialler that is refused: %v", r.err)
	}
}

// TestIntroductions: what is not an introduction is refused with the reason, or,
// where it is nobody's language, with silence; and the listener goes on.
func TestIntroductions(t *testing.T) {
	l := listen(t, patience)
	good := introduction{Version: version, Secret: l.addr.Secret, Role: Initiator, Hello: json.RawMessage(`{}`)}
	changed := func(change func(*introduction)) []byte {
		i := good
		change(&i)
		return frame(i)
	}
	for _, c := range []struct {
		name    string
		say     []byte
		refusal string
	}{
		{"other version", changed(func(i *introduction) { i.Version = 2 }), "data protocol version 2, want 1: use the same kvbench on both sides"},
		{"version before the secret", changed(func(i *introduction) { i.Version, i.Secret = 2, nil }), "version 2"},
		{"stale secret", changed(func(i *introduction) { i.Secret = make([]byte, intake.SecretSize) }), "a stale data address"},
		{"no secret", changed(func(i *introduction) { i.Secret = nil }), "a stale data address"},
		{"part of the secret", changed(func(i *introduction) { i.Secret = i.Secret[:8] }), "a stale data address"},
		{"no role", changed(func(i *introduction) { i.Role = "" }), `role "" is not known`},
		{"another role", changed(func(i *introduction) { i.Role = "observer" }), `role "observer" is not known`},
		{"null", frame(nil), "version 0"},
		{"no JSON", []byte("\x00\x00\x00\x02}}"), ""},
		{"http", []byte("GET / HTTP/1.1\r\n\r\n"), ""},
		{"huge frame", []byte{0xff, 0xff, 0xff, 0xff}, ""},
		{"one byte too many", binary.BigEndian.AppendUint32(nil, maxFrame+1), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := bare(t, l)
			if _, err := s.Write(c.say); err != nil {
				t.Fatal(err)
			}
			var back introduction
			err := (&Conn{net: s}).Receive(&back)
			if c.refusal == "" {
				if err == nil {
					t.Errorf("answered with %+v", back)
				}
				return
			}
			if err != nil || !strings.Contains(back.Refusal, c.refusal) || back.Hello != nil {
				t.Errorf("answered with %+v, %v; want a refusal that says %q", back, err, c.refusal)
			}
		})
	}
	done := dial(t, l, Initiator)
	caller, err := l.Accept(t.Context(), Initiator)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := caller.Answer(word{}); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil {
		t.Errorf("after all of them, a proper dialler: %v", r.err)
	}
}

// pipes is a listener whose connections are in memory, for virtual time.
type pipes chan net.Conn

// Accept implements net.Listener.
func (p pipes) Accept() (net.Conn, error) {
	c, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close implements net.Listener.
func (p pipes) Close() error {
	close(p)
	return nil
}

// Addr implements net.Listener.
func (p pipes) Addr() net.Addr { return testenv.PipeAddr }

// dial opens a connection to a listener.
func (p pipes) dial(t *testing.T) net.Conn {
	near, far := testenv.Pipe()
	p <- far
	t.Cleanup(func() { near.Close() })
	return near
}

// listenInMemory is listen for virtual time.
func listenInMemory(t *testing.T, patience time.Duration) (*Listener, pipes) {
	t.Helper()
	n := make(pipes)
	l, err := listenOn(n, "", patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, n
}

// TestSilence: a dialler that does not introduce itself is dropped after the listener's
// patience, whether it says nothing or a byte now and then.
func TestSilence(t *testing.T) {
	for _, name := range []string{"silent", "slow"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, n := listenInMemory(t, patience)
				s, start := n.dial(t), time.Now()
				var saying sync.WaitGroup
				defer saying.Wait()
				if name == "slow" {
					saying.Go(func() {
						for _, b := range frame(introduction{Version: version, Secret: l.addr.Secret, Role: Target}) {
							if _, err := s.Write([]byte{b}); err != nil {
								return
							}
							time.Sleep(patience / 10)
						}
					})
				}
				if n, err := s.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) || time.Since(start) != patience {
					t.Errorf("read %d bytes, %v after %v; want the end after %v", n, err, time.Since(start), patience)
				}
			})
		})
	}
}

// TestManySilent: as many as may greet at a time do not keep others out for longer
// than their patience.
func TestManySilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, n := listenInMemory(t, patience)
		start := time.Now()
		for range intake.Most + 10 {
			n.dial(t)
		}
		early := &Conn{net: n.dial(t)}
		if err := early.Receive(&introduction{}); !errors.Is(err, transport.ErrPeer) || time.Since(start) != 0 {
			t.Errorf("one more is answered with %v after %v, want the end at once", err, time.Since(start))
		}
		time.Sleep(patience)
		synctest.Wait()
		proper := &Conn{net: n.dial(t)}
		if err := proper.Send(introduction{Version: version, Secret: l.addr.Secret, Role: Target, Hello: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
		caller, err := l.Accept(t.Context(), Target)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := caller.Answer(word{"welcome"}); err != nil {
			t.Error(err)
		}
		var back introduction
		if err := proper.Receive(&back); err != nil || !strings.Contains(string(back.Hello), "welcome") {
			t.Errorf("a proper dialler receives %+v, %v", back, err)
		}
	})
}

// TestDialSilent: a listener that answers nothing is given up after the patience,
// and as soon as the context ends.
func TestDialSilent(t *testing.T) {
	l := listen(t, patience)
	_, err := Dial(t.Context(), l.Address(), "", Target, word{}, &word{}, 100*time.Millisecond)
	if !errors.Is(err, transport.ErrPeer) {
		t.Errorf("%v, want ErrPeer", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // once the listener has heard the dialler
		l.Accept(ctx, Initiator)
		cancel()
	}()
	_, err = Dial(ctx, l.Address(), "", Initiator, word{}, &word{}, time.Hour)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}

// TestDialNobody: the port has gone.
func TestDialNobody(t *testing.T) {
	address, err := json.Marshal(intake.Address{HostPort: testenv.DeadAddress(t), Secret: make([]byte, intake.SecretSize)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Dial(t.Context(), address, "", Target, word{}, &word{}, patience)
	if !errors.Is(err, transport.ErrPeer) || !strings.Contains(err.Error(), "firewall") {
		t.Errorf("%v, want ErrPeer and what to look at", err)
	}
}

// TestOddAnswers: what is no answer is a protocol error, or a peer that has gone.
func TestOddAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer []byte
		want   error
	}{
		{"closed", nil, transport.ErrPeer},
		{"cut off", []byte{0, 0, 0, 9, '{'}, transport.ErrPeer},
		{"no JSON", []byte("\x00\x00\x00\x01}"), transport.ErrProtocol},
		{"too long", binary.BigEndian.AppendUint32(nil, maxFrame+1), transport.ErrProtocol},
		{"neither hello nor refusal", frame(introduction{Version: version}), transport.ErrProtocol},
		{"hello of another form", frame(introduction{Version: version, Hello: json.RawMessage(`[1]`)}), transport.ErrProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			go func() {
				s, err := n.Accept()
				if err != nil {
					return
				}
				var i introduction
				if (&Conn{net: s}).Receive(&i) == nil {
					s.Write(c.answer)
				}
				s.Close()
			}()
			to, err := json.Marshal(intake.Address{HostPort: n.Addr().String(), Secret: make([]byte, intake.SecretSize)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Dial(t.Context(), to, "", Initiator, word{}, &word{}, patience); !errors.Is(err, c.want) {
				t.Errorf("%v does not wrap %q", err, c.want)
			}
		})
	}
}

func TestSendBounds(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	go io.Copy(io.Discard, b)
	c := &Conn{net: a}
	if err := c.Send(word{strings.Repeat("x", maxFrame)}); !errors.Is(err, transport.ErrProtocol) {
		t.Errorf("a message too long: %v, want ErrProtocol", err)
	}
	if err := c.Send(func() {}); err == nil {
		t.Error("a function was sent")
	}
	b.Close()
	if err := c.Send(word{}); !errors.Is(err, transport.ErrPeer) {
		t.Errorf("to a peer that has gone: %v, want ErrPeer", err)
	}
}

// TestClose: whoever waits is told, whoever was not accepted is dropped, and it is
// done at once whatever is under way.
func TestClose(t *testing.T) {
	l := listen(t, 24*time.Hour) // whoever waits for it lets the tests time out
	greeting := bare(t, l)       // says nothing
	done := dial(t, l, Target)   // is not accepted
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept(t.Context(), Initiator)
		accepted <- err
	}()
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Errorf("Close, twice: %v", err)
	}
	if err := <-accepted; !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Accept: %v, want ErrClosed", err)
	}
	if r := <-done; !errors.Is(r.err, transport.ErrPeer) {
		t.Errorf("a dialler that was not accepted: %v, want ErrPeer", r.err)
	}
	if _, err := greeting.Read(make([]byte, 1)); err == nil {
		t.Error("a dialler that was greeting is kept")
	}
}

// TestCloseWhileDiallersCome: no dialler that comes while the listener closes holds
// it up. It closes after none has come, after one, and so on.
func TestCloseWhileDiallersCome(t *testing.T) {
	for after := range 50 {
		l := listen(t, time.Hour)
		enough, stop := make(chan struct{}), make(chan struct{})
		go func() {
			for i := 0; ; i++ {
				if i == after {
					close(enough)
				}
				select {
				case <-stop:
					return
				default:
				}
				if s, err := net.Dial("tcp", l.addr.HostPort); err == nil {
					defer s.Close()
				}
			}
		}()
		<-enough
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			l.Close()
		}()
		select {
		case <-closed:
		case <-time.After(time.Minute):
			t.Fatalf("Close waits for a dialler, after %d have come", after)
		}
		close(stop)
	}
}

func TestAcceptContext(t *testing.T) {
	l := listen(t, patience)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Accept(ctx, Target); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}

func TestAddress(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0", "decode-7.example", patience)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := intake.ParseAddress(l.Address())
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(a.HostPort)
	if err != nil || host != "decode-7.example" {
		t.Errorf("advertised as %q, %v; want the name that was asked for", a.HostPort, err)
	}
	if c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port)); err != nil {
		t.Errorf("the port that is advertised: %v", err)
	} else {
		c.Close()
	}
	if _, err := Dial(t.Context(), []byte(`{"host_port":"127.0.0.1:9"}`), "", Target, word{}, &word{}, patience); !errors.Is(err, transport.ErrProtocol) {
		t.Errorf("an address without a secret: dialled with %v, want ErrProtocol", err)
	}
}

// FuzzHear: whatever a dialler says, only one that knows the secret gets in.
func FuzzHear(f *testing.F) {
	secret := []byte("0123456789abcdef")
	f.Add(frame(introduction{Version: version, Secret: secret, Role: Initiator, Hello: json.RawMessage(`{"worker":"AQ=="}`)}))
	f.Add(frame(introduction{Version: version, Secret: secret, Role: Target}))
	f.Add(frame(introduction{Version: version + 1, Secret: secret, Role: Target}))
	f.Add(frame(introduction{Version: version, Secret: secret[:15], Role: Target}))
	f.Add(frame(introduction{Version: version, Secret: secret, Role: "observer"}))
	f.Add(frame(json.RawMessage(`{"version":1,"seCret":"MDEyMzQ1Njc4OWFi\nY2RlZv==","role":"initiator","hello":{}}`)))
	f.Add(frame(json.RawMessage(`{"version":1,"secret":[48,49,50,51,52,53,54,55,56,57,97,98,99,100,101,102],"role":"target"}`)))
	f.Add([]byte("\x00\x00\x00\x04null"))
	f.Add([]byte("\x00\x00\x00\x04null, and more"))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, said []byte) {
		l := &Listener{addr: intake.Address{Secret: secret}, patience: patience}
		here, there := net.Pipe()
		go io.Copy(io.Discard, there) // a refusal must not wait for what follows the introduction
		go func() {
			there.Write(said)
			there.Close()
		}()
		defer here.Close()
		caller, as, err := l.hear(here)
		if err != nil {
			return
		}
		var proof struct {
			Version int
			Secret  []byte // whatever spelling of base64 says these bytes knows the secret
			Role    Role
		}
		err = json.Unmarshal(said[4:4+binary.BigEndian.Uint32(said)], &proof)
		if role, known := roles[proof.Role]; err != nil || !known || role != as || proof.Version != version || !bytes.Equal(proof.Secret, secret) {
			t.Errorf("let in as %d: %q", as, said)
		}
		_ = caller.Hello(&word{})
	})
}
