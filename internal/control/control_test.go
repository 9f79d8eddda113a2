package control

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kvbench/internal/testenv"
)

// meet runs both sides of a handshake over loopback.
func meet(t *testing.T, producer, consumer Options) (p, c *Conn, errP, errC error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type result struct {
		c   *Conn
		err error
	}
	accepted := make(chan result, 1)
	go func() {
		nc, err := l.Accept()
		if err != nil {
			accepted <- result{nil, err}
			return
		}
		c, err := Accept(context.Background(), nc, consumer)
		accepted <- result{c, err}
	}()
	p, errP = Dial(t.Context(), l.Addr().String(), producer)
	r := <-accepted
	for _, conn := range []*Conn{p, r.c} {
		if conn != nil {
			t.Cleanup(func() { conn.Close() })
		}
	}
	return p, r.c, errP, r.err
}

// TestHandshake covers both sides of a handshake over loopback, and in virtual time, in which
// it takes none: whatever one side does not like, neither waits for the other to give up.
func TestHandshake(t *testing.T) {
	for _, c := range []struct {
		name               string
		producer, consumer Options
		tlsP, tlsC         bool
		want               string // in the producer's error; empty succeeds
		refused            bool
	}{
		{name: "no token", want: ""},
		{name: "same token", producer: Options{Token: "a"}, consumer: Options{Token: "a"}},
		{name: "wrong token", producer: Options{Token: "a"}, consumer: Options{Token: "b"}, want: "wrong token", refused: true},
		{name: "token of which the other is a prefix", producer: Options{Token: "token"}, consumer: Options{Token: "token-2"}, want: "wrong token", refused: true},
		{name: "token that is a prefix of the other", producer: Options{Token: "token-2"}, consumer: Options{Token: "token"}, want: "wrong token", refused: true},
		{name: "token of another end", producer: Options{Token: strings.Repeat("x", 99) + "a"}, consumer: Options{Token: strings.Repeat("x", 99) + "b"}, want: "wrong token", refused: true},
		{name: "token missing", consumer: Options{Token: "b"}, want: "asks for a token", refused: true},
		{name: "token not wanted", producer: Options{Token: "a"}, want: "asks for no token", refused: true},
		{name: "TLS", producer: Options{Token: "a"}, consumer: Options{Token: "a"}, tlsP: true, tlsC: true},
		{name: "TLS, wrong token", producer: Options{Token: "a"}, consumer: Options{Token: "b"}, tlsP: true, tlsC: true, want: "wrong token", refused: true},
		{name: "TLS at the consumer only", producer: Options{Token: "a"}, consumer: Options{Token: "a"}, tlsC: true, want: "TLS"},
		{name: "TLS at the producer only", producer: Options{Token: "a"}, consumer: Options{Token: "a"}, tlsP: true, want: "TLS"},
	} {
		shake := func(t *testing.T, meet func(t *testing.T, producer, consumer Options) (p, c *Conn, errP, errC error)) {
			serverTLS, clientTLS := testTLS(t) // valid around the time of this test, which may be virtual
			producer, consumer := c.producer, c.consumer
			if c.tlsP {
				producer.TLS = clientTLS
			}
			if c.tlsC {
				consumer.TLS = serverTLS
			}
			p, q, err, errC := meet(t, producer, consumer)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrRefused) != c.refused {
					t.Errorf("producer's error %v, want %q, refused %v", err, c.want, c.refused)
				}
				return
			}
			if err != nil || errC != nil {
				t.Fatalf("producer %v, consumer %v", err, errC)
			}
			if err := p.Send("plan", map[string]int{"n": 1}); err != nil {
				t.Fatal(err)
			}
			var got map[string]int
			if err := q.Expect("plan", &got, time.Minute); err != nil || got["n"] != 1 {
				t.Errorf("Expect: %v, %v", got, err)
			}
			if err := q.Refuse(Refuse("memory", "needs %d", 5)); err != nil {
				t.Fatal(err)
			}
			var r *Refusal
			if _, err := p.Receive(); !errors.As(err, &r) || r.Code != "memory" || r.Message != "needs 5" {
				t.Errorf("Receive of a refusal: %v", err)
			}
		}
		t.Run(c.name, func(t *testing.T) { shake(t, meet) })
		t.Run(c.name+", in virtual time", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				shake(t, meetOverPipe)
				if took := time.Since(start); took != 0 {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// TestStrangers connects to a consumer with what is not a kvbench producer.
func TestStrangers(t *testing.T) {
	frame := func(kind string, body any) []byte {
		raw, _ := json.Marshal(body)
		var b bytes.Buffer
		if err := writeFrame(&b, Message{kind, raw}, frameLimit); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	old := newHello(Options{Build: "v0"})
	old.Version = Version + 1
	for name, c := range map[string]struct {
		send []byte
		want error
	}{
		"nothing":       {nil, ErrClosed},
		"http":          {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), ErrFrame},
		"huge frame":    {binary.BigEndian.AppendUint32(nil, 1<<31), ErrFrame},
		"not json":      {append(binary.BigEndian.AppendUint32(nil, 3), "{{{"...), ErrFrame},
		"wrong message": {frame("plan", 1), ErrFrame},
		"no magic":      {frame("hello", hello{Version: Version, Nonce: old.Nonce}), ErrFrame},
		"short nonce":   {frame("hello", hello{Magic: magic, Version: Version}), ErrFrame},
		"other version": {frame("hello", old), ErrRefused},
		"over limit":    {frame("hello", hello{Magic: strings.Repeat("x", greetingLimit)}), ErrFrame},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := net.Pipe()
				start := time.Now()
				done := make(chan error, 1)
				go func() {
					_, err := Accept(context.Background(), b, Options{Token: "secret", Build: "v1"})
					done <- err
				}()
				answer := make(chan Message, 1)
				go func() {
					m, _ := readFrame(a, frameLimit)
					answer <- m
					a.Close()
				}()
				a.Write(c.send)
				if len(c.send) == 0 {
					a.Close()
				}
				if err := <-done; !errors.Is(err, c.want) {
					t.Errorf("error %v, want %v", err, c.want)
				}
				b.Close()
				if m := <-answer; name == "other version" && (m.Kind != kindRefuse || !strings.Contains(string(m.Body), "same kvbench")) {
					t.Errorf("the stranger of another version was told %q %s", m.Kind, m.Body)
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("took %v, in which neither side waited for anything", took)
				}
			})
		})
	}
}

func TestDialNobody(t *testing.T) {
	if _, err := Dial(t.Context(), testenv.DeadAddress(t), Options{}); err == nil || !strings.Contains(err.Error(), "is `kvbench consumer` running") {
		t.Errorf("Dial of a closed port: %v", err)
	}
}

// TestPartsOfAProof: a consumer refuses a proof that is cut short or goes on, and so does a
// producer.
func TestPartsOfAProof(t *testing.T) {
	const token = "secret"
	for _, cut := range []func([]byte) []byte{
		func(mac []byte) []byte { return mac[:1] },
		func(mac []byte) []byte { return mac[:len(mac)-1] },
		func(mac []byte) []byte { return append(mac, 0) },
		func(mac []byte) []byte { return append(mac, mac...) },
	} {
		synctest.Test(t, func(t *testing.T) {
			near, far := testenv.Pipe()
			refused := make(chan error, 1)
			go func() {
				_, err := Accept(context.Background(), far, Options{Token: token})
				refused <- err
			}()
			c := newConn(near)
			defer c.Close()
			mine := newHello(Options{Token: token})
			var theirs hello
			err := errors.Join(c.Send(kindHello, mine), c.Expect(kindHello, &theirs, time.Minute))
			mac := prove(token, "producer", mine.Nonce, theirs.Nonce, nil)
			if err := errors.Join(err, c.Send(kindProof, proof{MAC: cut(mac)})); err != nil {
				t.Fatal(err)
			}
			if err := <-refused; !errors.Is(err, ErrRefused) {
				t.Errorf("%d bytes of a proof of %d: %v, want a refusal", len(cut(mac)), len(mac), err)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			near, far := testenv.Pipe()
			refused := make(chan error, 1)
			go func() {
				dial := func(context.Context, string, string) (net.Conn, error) { return near, nil }
				_, err := Dial(context.Background(), "127.0.0.1:9400", Options{Token: token, DialContext: dial})
				refused <- err
			}()
			c := newConn(far)
			defer c.Close()
			mine := newHello(Options{Token: token})
			var theirs hello
			var theirProof proof
			err := errors.Join(c.Expect(kindHello, &theirs, time.Minute), c.Send(kindHello, mine), c.Expect(kindProof, &theirProof, time.Minute))
			mac := prove(token, "consumer", theirs.Nonce, mine.Nonce, nil)
			if err := errors.Join(err, c.Send(kindProof, proof{MAC: cut(mac)})); err != nil {
				t.Fatal(err)
			}
			if err := <-refused; !errors.Is(err, ErrRefused) {
				t.Errorf("%d bytes of the consumer's proof of %d: %v, want a refusal", len(cut(mac)), len(mac), err)
			}
		})
	}
}

// TestProofsDiffer: a proof for one role, nonce or TLS connection is none for another.
func TestProofsDiffer(t *testing.T) {
	n1, n2 := bytes.Repeat([]byte{1}, nonceSize), bytes.Repeat([]byte{2}, nonceSize)
	seen := make(map[string]string)
	for name, mac := range map[string][]byte{
		"base": prove("t", "producer", n1, n2, nil), "role": prove("t", "consumer", n1, n2, nil),
		"nonces": prove("t", "producer", n2, n1, nil), "token": prove("u", "producer", n1, n2, nil),
		"binding": prove("t", "producer", n1, n2, []byte{1}),
	} {
		if other, ok := seen[string(mac)]; ok {
			t.Errorf("%s and %s have the same proof", name, other)
		}
		seen[string(mac)] = name
	}
}

func FuzzReadFrame(f *testing.F) {
	for _, s := range []string{"", "\x00\x00\x00\x02{}", "\xff\xff\xff\xff", "\x00\x00\x00\x0f{\"kind\":\"plan\"}", "\x00\x00\x00\x20{\"kind\":\"hello\",\"body\":{\"nonce\":\"\"}}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readFrame(bytes.NewReader(b), greetingLimit)
		if err != nil {
			return
		}
		var h hello
		if m.Decode(&h) == nil {
			_ = checkHello(h)
		}
		var out bytes.Buffer
		if err := writeFrame(&out, m, 2*greetingLimit); err != nil {
			t.Fatalf("a frame that was read cannot be written: %v", err)
		}
		again, err := readFrame(&out, 2*greetingLimit)
		if err != nil || again.Kind != m.Kind {
			t.Fatalf("written and read again: %+v, %v", again, err)
		}
	})
}

func testTLS(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, &tls.Config{RootCAs: pool}
}

// TestLost watches a channel on which nobody receives.
func TestLost(t *testing.T) {
	serverTLS, clientTLS := testTLS(t)
	for name, o := range map[string][2]Options{"plain": {}, "TLS": {{TLS: clientTLS}, {TLS: serverTLS}}} {
		t.Run(name, func(t *testing.T) {
			p, c, errP, errC := meet(t, o[0], o[1])
			if errP != nil || errC != nil {
				t.Fatal(errP, errC)
			}
			// The watch ends with its context and leaves the channel as it was.
			ctx, cancel := context.WithCancel(t.Context())
			watched := make(chan error, 1)
			go func() { watched <- c.Lost(ctx) }()
			cancel()
			if err := <-watched; err != nil {
				t.Errorf("Lost under an ended context: %v", err)
			}
			if err := p.Send("plan", 1); err != nil {
				t.Fatal(err)
			}
			// What the peer says ends it too, and is still there to be received.
			if err := c.Lost(t.Context()); err != nil {
				t.Errorf("Lost with a message waiting: %v", err)
			}
			var n int
			if err := c.Expect("plan", &n, time.Minute); err != nil || n != 1 {
				t.Errorf("Expect after Lost: %d, %v", n, err)
			}
			p.Close()
			if err := c.Lost(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("Lost after the peer closed: %v, want ErrClosed", err)
			}
		})
	}
}

// TestKeepAlive: a peer that sends signs of life is never silent, however long it sends
// nothing else, and one that does not is silent after exactly the limit. A long frame on a
// slow network is not silence.
func TestKeepAlive(t *testing.T) {
	const beat, silence = 4 * time.Second, 20 * time.Second
	for _, secure := range []bool{false, true} {
		for _, c := range []struct {
			name string
			wait func(*Conn) error
		}{
			{"Receive", func(c *Conn) error { _, err := c.Receive(); return err }},
			{"Expect", func(c *Conn) error { return c.Expect("late", new(int), time.Hour) }},
			{"Lost", func(c *Conn) error { return c.Lost(context.Background()) }},
		} {
			t.Run(fmt.Sprintf("%s, TLS %v", c.name, secure), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var o [2]Options
					if secure {
						o[1].TLS, o[0].TLS = testTLS(t) // valid around the bubble's time
					}
					p, q, errP, errC := meetOverPipe(t, o[0], o[1])
					if err := errors.Join(errP, errC); err != nil {
						t.Fatal(err)
					}
					p.keepAlive(beat, silence)
					q.keepAlive(24*time.Hour, silence) // sends none
					time.AfterFunc(10*silence, func() { p.Send("late", 1) })
					start := time.Now()
					if err := c.wait(q); err != nil || time.Since(start) != 10*silence {
						t.Errorf("from a peer that is there: %v after %v, want the message after %v", err, time.Since(start), 10*silence)
					}
					start = time.Now()
					if err := c.wait(p); !errors.Is(err, ErrSilent) || time.Since(start) != silence+lastLook {
						t.Errorf("from a silent peer: %v after %v, want ErrSilent after %v", err, time.Since(start), silence+lastLook)
					}
				})
			})
		}
	}
	t.Run("slow frame", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			defer a.Close()
			c := newConn(b)
			defer c.Close()
			c.keepAlive(24*time.Hour, silence)
			go func() {
				for _, b := range []byte("\x00\x00\x00\x0f{\"kind\":\"slow\"}") {
					time.Sleep(silence * 9 / 10)
					a.Write([]byte{b})
				}
			}()
			if m, err := c.Receive(); err != nil || m.Kind != "slow" {
				t.Errorf("received %q, %v", m.Kind, err)
			}
		})
	})
	t.Run("woken", func(t *testing.T) { // whenever its context ends, Lost returns
		p, q, errP, errC := meet(t, Options{}, Options{})
		if errP != nil || errC != nil {
			t.Fatal(errP, errC)
		}
		p.keepAlive(time.Millisecond, time.Hour)
		q.keepAlive(time.Millisecond, time.Hour)
		for i := range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%20)*100*time.Microsecond)
			if err := q.Lost(ctx); err != nil {
				t.Fatalf("Lost under an ended context: %v", err)
			}
			cancel()
		}
	})
}

// meetOverPipe is meet in virtual time.
func meetOverPipe(t *testing.T, producer, consumer Options) (p, c *Conn, errP, errC error) {
	t.Helper()
	near, far := testenv.Pipe()
	producer.DialContext = func(context.Context, string, string) (net.Conn, error) { return near, nil }
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, errC = Accept(context.Background(), far, consumer)
	}()
	p, errP = Dial(t.Context(), "127.0.0.1:9400", producer)
	<-done
	t.Cleanup(func() {
		for _, conn := range []*Conn{p, c} {
			if conn != nil {
				conn.Close()
			}
		}
	})
	return p, c, errP, errC
}

// TestSilentPeer: a peer that sends nothing is given up after the handshake's limit, with
// the reason, or when the context ends.
func TestSilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		start := time.Now()
		_, err := Accept(t.Context(), b, Options{})
		if err == nil || !strings.Contains(err.Error(), "no answer") || time.Since(start) != handshakeTimeout {
			t.Errorf("after %v: %v, want no answer after %v", time.Since(start), err, handshakeTimeout)
		}
		c, d := net.Pipe()
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Accept(ctx, d, Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("under an ended context: %v", err)
		}
	})
}
