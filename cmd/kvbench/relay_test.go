package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// relay stands between a producer and a consumer on the control channel. It passes
// messages on until the n-th of a kind from one side, which it keeps.
type relay struct {
	addr string
	kept chan struct{} // closed once the message is
}

// newRelay returns a relay of one connection to a consumer.
func newRelay(t *testing.T, consumer, from, kind string, n int) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: l.Addr().String(), kept: make(chan struct{})}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		p, err := l.Accept()
		if err != nil {
			return // the test is over
		}
		defer p.Close()
		c, err := net.Dial("tcp", consumer)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		var both sync.WaitGroup
		pass := func(side string, from_, to net.Conn) {
			both.Go(func() {
				// As without a relay, each side sees the end of the other.
				defer from_.Close()
				defer to.Close()
				left := n
				for {
					frame, err := readFrame(from_)
					if err != nil {
						return
					}
					var m struct{ Kind string }
					if side == from && json.Unmarshal([]byte(frame), &m) == nil && m.Kind == kind {
						if left--; left == 0 {
							close(r.kept)
							io.Copy(io.Discard, from_)
							return
						}
					}
					head := binary.BigEndian.AppendUint32(nil, uint32(len(frame)))
					if _, err := to.Write(append(head, frame...)); err != nil && !errors.Is(err, net.ErrClosed) {
						return
					}
				}
			})
		}
		pass("producer", p, c)
		pass("consumer", c, p)
		both.Wait()
	})
	return r
}

// await waits until the message is kept.
func (r *relay) await(t *testing.T) {
	t.Helper()
	select {
	case <-r.kept:
	case <-time.After(patience):
		t.Fatal("the message did not come")
	}
}
