package control

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestConnectTriesEveryAddress: of a name's three addresses two answer nothing, until each
// has had its share of the time, 20 s/3 and then half of the rest: the third is reached
// after 13.3 s.
func TestConnectTriesEveryAddress(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// Package net makes a channel for all of its resolvers with the first, which must not
	// be the bubble's.
	if _, err := noServer.LookupHost(t.Context(), "decode-7.example."); err == nil {
		t.Fatal("a name was resolved by no server")
	}
	synctest.Test(t, func(t *testing.T) {
		var tried atomic.Int32
		d := &net.Dialer{
			Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
				return nameServer(t, net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2), net.IPv4(127, 0, 0, 3)), nil
			}},
			ControlContext: func(ctx context.Context, _, _ string, _ syscall.RawConn) error {
				if tried.Add(1) == 3 {
					return nil
				}
				<-ctx.Done() // as one whose SYN is dropped
				return ctx.Err()
			},
		}
		start := time.Now()
		c, err := connect(t.Context(), d.DialContext, "decode-7.example.:"+port)
		if err != nil {
			t.Fatalf("after %v and %d addresses: %v", time.Since(start), tried.Load(), err)
		}
		c.Close()
		if took := time.Since(start).Round(100 * time.Millisecond); tried.Load() != 3 || took != 13300*time.Millisecond {
			t.Errorf("connected after %v and %d addresses, want 13.3 s and 3", took, tried.Load())
		}
	})
}

// noServer resolves nothing.
var noServer = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no server")
}}

// TestConnectNamesTheUnresolved: a name that no server knows is told from a port that
// nobody listens on.
func TestConnectNamesTheUnresolved(t *testing.T) {
	_, err := connect(t.Context(), (&net.Dialer{Resolver: noServer}).DialContext, "decode-7.example.:9400")
	if err == nil || !strings.Contains(err.Error(), "cannot resolve decode-7.example.: ") || strings.Contains(err.Error(), "port open") {
		t.Errorf("a name without an address: %v", err)
	}
}

func TestServerName(t *testing.T) {
	for hostPort, want := range map[string]string{
		"decode-7.example:9400": "decode-7.example", "192.0.2.7:9400": "192.0.2.7", "[fe80::7%eth0]:9400": "fe80::7", "[2001:db8::7]:9400": "2001:db8::7", "decode-7": "",
	} {
		if got := serverName(hostPort); got != want {
			t.Errorf("%s: the certificate is to name %q, want %q", hostPort, got, want)
		}
	}
}

// nameServer is a connection to a server that knows the IPv4 addresses of every name
// (RFC 1035, over a stream).
func nameServer(t *testing.T, addresses ...net.IP) net.Conn {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		for {
			var size [2]byte
			if _, err := io.ReadFull(server, size[:]); err != nil {
				return
			}
			query := make([]byte, binary.BigEndian.Uint16(size[:]))
			if _, err := io.ReadFull(server, query); err != nil {
				return
			}
			answer := resolve(query, addresses)
			if _, err := server.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
				t.Errorf("answer: %v", err)
				return
			}
		}
	}()
	return client
}

// resolve answers a query of one question, of type A with the addresses and of any other with none.
func resolve(query []byte, addresses []net.IP) []byte {
	const header = 12
	end := header
	for query[end] != 0 { // labels
		end += 1 + int(query[end])
	}
	end += 5 // the root, type and class
	if kind := binary.BigEndian.Uint16(query[end-4:]); kind != 1 {
		addresses = nil
	}
	answer := append([]byte{}, query[:2]...)                                    // ID
	answer = append(answer, 0x84, 0, 0, 1, 0, byte(len(addresses)), 0, 0, 0, 0) // authoritative; one question
	answer = append(answer, query[header:end]...)
	for _, a := range addresses {
		// The name is the question's, then type A, class IN, a TTL of 0, four bytes.
		answer = append(answer, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		answer = append(answer, a.To4()...)
	}
	return answer
}
