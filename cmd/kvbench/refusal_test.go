package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kvbench/internal/testenv"
)

// promptly is how long a refusal may take.
const promptly = testenv.Slowdown * 5 * time.Second

// frame is a frame of the control channel.
func frame(kind string, body any) []byte {
	b, err := json.Marshal(map[string]any{"kind": kind, "body": body})
	if err != nil {
		panic(err) // plain maps encode
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// hello is what a kvbench of some version greets with.
func hello(version int) []byte {
	return frame("hello", map[string]any{"magic": "kvbench-control", "version": version, "build": "other", "nonce": make([]byte, 32)})
}

// readFrame reads a frame as text.
func readFrame(r io.Reader) (string, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(r, b)
	return string(b), err
}

// TestRefusals: each ends within seconds with a message that says what to do,
// and the consumer goes on serving.
func TestRefusals(t *testing.T) {
	t.Parallel()
	serving, addr := consumer(t, "--token", "right-token", "--max-memory", "8MiB")
	refused := func(args ...string) output {
		return start(t, with(append([]string{"producer", "--connect", addr}, small...), args...)...).end(promptly)
	}
	refused("--token", "wrong").want(t, exitFailed, "wrong token", "--token", "KVBENCH_TOKEN")
	refused().want(t, exitFailed, "asks for a token", "--token")
	refused("--token", "right-token", "--context", "4K").want(t, exitFailed, "the consumer", "448 MiB", "8 MiB", "--max-memory", "--context")
	refused("--token", "right-token", "--concurrency", "9").want(t, exitFailed, "15.75 MiB", "8 MiB", "--max-memory")
	refused("--token", "right-token", "--transport", "pigeon").want(t, exitUsage, "pigeon", "tcp")

	// A producer of another version, and strangers.
	for name, c := range map[string]struct {
		say  []byte
		hear string
	}{
		"other version": {hello(99), "use the same kvbench on both hosts"},
		"http":          {[]byte("GET / HTTP/1.1\r\n\r\n"), ""},
		"huge frame":    {[]byte{0xff, 0xff, 0xff, 0xff}, ""},
		"no frame":      {[]byte("\x00\x00\x00\x02{}"), ""},
	} {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		nc.SetDeadline(time.Now().Add(promptly))
		if _, err := nc.Write(c.say); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if heard, _ := readFrame(nc); !strings.Contains(heard, c.hear) {
			t.Errorf("%s heard %q, want %q", name, heard, c.hear)
		}
		nc.Close()
	}

	produce(t, addr, "--token", "right-token").want(t, exitDone)
	// The token crosses from the environment too, and not into the record.
	out := filepath.Join(t.TempDir(), "run.json")
	known := launch{env: []string{"KVBENCH_TOKEN=right-token"}}
	known.start(t, with(append([]string{"producer", "--connect", addr}, small...), "--out", out)...).end(patience).want(t, exitDone)
	if b, err := os.ReadFile(out); err != nil || strings.Contains(string(b), "right-token") {
		t.Errorf("the record holds the token (%v)", err)
	}
	log := serving.stderr.text()
	if strings.Contains(log, "right-token") || !strings.Contains(log, "wrong token") || !strings.Contains(log, "max-memory") {
		t.Errorf("the consumer's log:\n%s", log)
	}
}

// TestNobodyThere: an address where nothing, or something else, listens.
func TestNobodyThere(t *testing.T) {
	dead := testenv.DeadAddress(t)
	answer := func(f func(net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go f(c)
			}
		}()
		return l.Addr().String()
	}
	for _, c := range []struct {
		name, addr string
		says       []string
	}{
		{"dead", dead, []string{"connection refused", "kvbench consumer", dead}},
		{"no such host", "nowhere.invalid:9400", []string{"nowhere.invalid"}},
		{"silent", answer(func(c net.Conn) { io.Copy(io.Discard, c) }), []string{"no answer"}},
		{"hangs up", answer(func(c net.Conn) { c.Close() }), []string{"is it a kvbench consumer"}},
		{"something else", answer(func(c net.Conn) { io.WriteString(c, "SSH-2.0-OpenSSH\r\n"); io.Copy(io.Discard, c) }), []string{"is it a kvbench consumer"}},
		{"other version", answer(func(c net.Conn) { readFrame(c); c.Write(hello(99)); io.Copy(io.Discard, c) }), []string{"version 99", "use the same kvbench on both hosts"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			start(t, with([]string{"producer", "--connect", c.addr}, small...)...).end(promptly).want(t, exitFailed, c.says...)
		})
	}
}

// TestPortTaken: two consumers cannot have one port.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	_, addr := consumer(t)
	start(t, "consumer", "--listen", addr).end(promptly).want(t, exitFailed, "address already in use", "--listen")
}

// TestBusy: a consumer serves one run at a time unless told otherwise.
func TestBusy(t *testing.T) {
	t.Parallel()
	serving, addr := consumer(t)
	first := start(t, with([]string{"producer", "--connect", addr}, endless...)...)
	serving.stderr.await(t, "tcp push")
	start(t, with([]string{"producer", "--connect", addr}, small...)...).end(promptly).want(t, exitFailed, "serves 1 run already", "--max-sessions")
	first.signal(os.Interrupt)
	first.end(promptly).want(t, exitFailed, "interrupted")
	goesOn(t, addr)

	serving, addr = consumer(t, "--max-sessions", "2")
	first = start(t, with([]string{"producer", "--connect", addr}, endless...)...)
	serving.stderr.await(t, "tcp push")
	produce(t, addr).want(t, exitDone)
	first.signal(os.Interrupt)
	first.end(promptly).want(t, exitFailed, "interrupted")
}

// goesOn checks that a consumer serves again within seconds of a run that ended badly.
// Over a lane of UCX the next producer is a process of its own: UCX may end its process.
func goesOn(t *testing.T, addr string, lane ...string) {
	t.Helper()
	again := func() output {
		if len(lane) > 0 {
			return produce(t, addr, lane...)
		}
		return kvbench(t, with([]string{"producer", "--connect", addr}, small...)...)
	}
	for deadline := time.Now().Add(promptly); ; time.Sleep(20 * time.Millisecond) {
		got := again()
		if got.status == exitDone {
			return
		}
		if !strings.Contains(got.stderr, "already, its limit") || time.Now().After(deadline) {
			t.Errorf("the consumer does not serve again: %s", got.stderr)
			return
		}
	}
}

// TestOnce: it ends with the run, whichever way that ended, and not before.
func TestOnce(t *testing.T) {
	t.Parallel()
	serving, addr := consumer(t, "--once", "--token", "a")
	produce(t, addr, "--token", "b").want(t, exitFailed, "wrong token") // no run
	produce(t, addr, "--token", "a").want(t, exitDone)
	serving.end(promptly).want(t, exitDone)

	serving, addr = consumer(t, "--once")
	p := start(t, with([]string{"producer", "--connect", addr}, endless...)...)
	serving.stderr.await(t, "tcp push")
	p.signal(os.Interrupt)
	p.end(promptly)
	serving.end(promptly).want(t, exitFailed)

	serving, addr = consumer(t, "--once")
	p = start(t, with([]string{"producer", "--connect", addr}, endless...)...)
	serving.stderr.await(t, "tcp push")
	serving.signal(os.Interrupt)
	serving.end(promptly).want(t, exitFailed, "stopped before the run was done")
	p.end(promptly).want(t, exitFailed)

	serving, _ = consumer(t, "--once")
	serving.signal(os.Interrupt)
	serving.end(promptly).want(t, exitDone) // stopped before there was one, as asked
}

// outside is an address of this host that is not loopback.
func outside(t *testing.T) net.IP {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP
		}
	}
	t.Skip("this host has no address but loopback")
	return nil
}

// TestBeyondLoopback only listens there: a token is made and the producer's
// command is printed with it.
func TestBeyondLoopback(t *testing.T) {
	t.Parallel()
	host := outside(t).String()
	for _, listen := range []string{net.JoinHostPort(host, "0"), "0.0.0.0:0"} {
		p := start(t, "consumer", "--listen", listen)
		addr, _ := listeningOn(p.stdout.await(t, "listening on"))
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		command := strings.Fields(p.stdout.await(t, net.JoinHostPort(host, port)+" --token"))
		if len(command) != 6 || strings.Join(command[:3], " ") != "kvbench producer --connect" || command[4] != "--token" || len(command[5]) < 20 {
			t.Errorf("listening on %s prints %q", listen, command)
		}
		p.signal(os.Interrupt)
		p.end(promptly).want(t, exitDone)
	}
	given := start(t, "consumer", "--listen", net.JoinHostPort(host, "0"), "--token", "given")
	given.stdout.await(t, "--token given")
	open := start(t, "consumer", "--listen", net.JoinHostPort(host, "0"), "--insecure")
	open.stderr.await(t, "warning: no token")
	if line := open.stdout.await(t, "kvbench producer"); strings.Contains(line, "--token") {
		t.Errorf("--insecure prints %q", line)
	}
}

// TestStoppedConsumer tells its producer, which keeps what it has.
func TestStoppedConsumer(t *testing.T) {
	t.Parallel()
	serving, addr := consumer(t)
	out := filepath.Join(t.TempDir(), "run.json")
	at := afterRequests(3, "push")
	p := at.to(announce).start(t, with(append([]string{"producer", "--connect", addr}, endless...), "--out", out)...)
	p.reached(t, at)
	serving.signal(syscall.SIGTERM)
	serving.end(promptly).want(t, exitDone)
	p.end(promptly).want(t, exitFailed, "it was stopped")
	if r := readRun(t, out); r.Complete || r.Cells[0].Requests == 0 {
		t.Errorf("complete %v with %d requests", r.Complete, r.Cells[0].Requests)
	}
}

// authority is a certificate authority for a test.
type authority struct {
	t    *testing.T
	dir  string
	name string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), name: name}
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, key := a.sign(template)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, a.key = cert, key
	a.write("ca", der, key)
	return a
}

// ca is the file that the other side trusts.
func (a *authority) ca() string { return filepath.Join(a.dir, "ca.crt") }

// issue makes a certificate for 127.0.0.1 and returns the flags that use it.
func (a *authority) issue(name string) []string {
	der, key := a.sign(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature})
	a.write(name, der, key)
	return []string{"--tls-cert", filepath.Join(a.dir, name+".crt"), "--tls-key", filepath.Join(a.dir, name+".key")}
}

func (a *authority) sign(template *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.Subject = pkix.Name{CommonName: a.name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

func (a *authority) write(name string, der []byte, key *ecdsa.PrivateKey) {
	a.t.Helper()
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	_, plain := consumer(t)
	_, secure := consumer(t, append(ours.issue("consumer"), "--token", "t")...)
	_, mutual := consumer(t, append(ours.issue("both"), "--tls-ca", ours.ca())...)
	for _, c := range []struct {
		name, addr string
		args       []string
		status     int
		says       []string
	}{
		{"secure", secure, []string{"--tls-ca", ours.ca(), "--token", "t"}, exitDone, nil},
		{"wrong token", secure, []string{"--tls-ca", ours.ca(), "--token", "u"}, exitFailed, []string{"wrong token"}},
		{"wrong authority", secure, []string{"--tls-ca", theirs.ca(), "--token", "t"}, exitFailed, []string{"certificate", "--tls-ca"}},
		{"TLS at the consumer only", secure, []string{"--token", "t"}, exitFailed, []string{"TLS"}},
		{"TLS at the producer only", plain, []string{"--tls-ca", ours.ca()}, exitFailed, []string{"TLS"}},
		{"mutual", mutual, append(ours.issue("producer"), "--tls-ca", ours.ca()), exitDone, nil},
		{"mutual, producer without certificate", mutual, []string{"--tls-ca", ours.ca()}, exitFailed, []string{"certificate"}},
		{"mutual, producer of another authority", mutual, append(theirs.issue("producer"), "--tls-ca", ours.ca()), exitFailed, []string{"certificate"}},
		{"certificate without authority", mutual, ours.issue("lonely"), exitUsage, []string{"--tls-ca"}},
		{"key without certificate", secure, []string{"--tls-key", "x"}, exitUsage, []string{"go together"}},
		{"no such file", secure, []string{"--tls-ca", "/nonexistent.pem"}, exitFailed, []string{"/nonexistent.pem"}},
		{"no certificate in it", secure, []string{"--tls-ca", os.Args[0]}, exitFailed, []string{"holds no certificate"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := with(append([]string{"producer", "--connect", c.addr}, small...), c.args...)
			start(t, args...).end(promptly).want(t, c.status, c.says...)
		})
	}
	// All three still serve.
	for name, args := range map[string][]string{
		plain: nil, secure: {"--tls-ca", ours.ca(), "--token", "t"}, mutual: append(ours.issue("last"), "--tls-ca", ours.ca()),
	} {
		if got := produce(t, name, args...); got.status != exitDone {
			t.Error(fmt.Sprint("afterwards: ", got.stderr))
		}
	}
}
