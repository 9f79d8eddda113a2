package rdma

import (
	"errors"
	"testing"
	"time"

	"kvbench/transport"
)

// withRegion is a target of which only the socket is there, with an empty region that its
// peer was told of.
func withRegion(t *testing.T, patience time.Duration, id uint32) (*target, func(message), func() message) {
	t.Helper()
	tg := &target{withdrawn: make(map[uint32]chan struct{})}
	conn, peer := listening(t, func(m message) error { return tg.hear(m) })
	conn.cfg.PeerTimeout = patience
	conn.engine = &engine{}
	conn.regions.byID = map[uint32]*region{id: {id: id, advertised: true}}
	tg.connection = conn
	return tg, func(m message) { say(t, peer, m) }, func() message { return heard(t, peer) }
}

// TestDeregisterAgain: a region that the initiator uses for longer than the peer timeout is
// asked for once, and may be deregistered when the answer has come.
func TestDeregisterAgain(t *testing.T) {
	tg, say, hear := withRegion(t, 50*time.Millisecond, 7)
	for range 2 {
		if err := tg.Deregister(transport.Region{ID: 7}); !errors.Is(err, transport.ErrBusy) {
			t.Fatalf("%v, want ErrBusy", err)
		}
	}
	if m := hear(); m.Withdraw != 7 {
		t.Errorf("the initiator hears %+v", m)
	}
	say(message{Withdrawn: 7}) // between two calls
	tg.mu.Lock()
	asked := tg.withdrawn[7]
	tg.mu.Unlock()
	<-asked
	if err := tg.Deregister(transport.Region{ID: 7}); err != nil {
		t.Errorf("after the initiator has let go: %v", err)
	}
	if err := tg.Deregister(transport.Region{ID: 7}); !errors.Is(err, transport.ErrRegion) {
		t.Errorf("after that: %v, want ErrRegion", err)
	}
	if err := tg.Err(); err != nil {
		t.Errorf("the connection ended: %v", err)
	}
	tg.fail(transport.ErrClosed)
	if m := hear(); !m.Ending {
		t.Errorf("the initiator was asked once and hears %+v", m)
	}
}

// TestDeregisterWhileItEnds: what is on its way when a connection begins to end may arrive
// until it has ended.
func TestDeregisterWhileItEnds(t *testing.T) {
	t.Run("in time", func(t *testing.T) {
		tg, _, _ := withRegion(t, 10*time.Second, 7)
		tg.fail(transport.ErrPeer)
		returned := make(chan error, 1)
		go func() { returned <- tg.Deregister(transport.Region{ID: 7}) }()
		select {
		case err := <-returned:
			t.Errorf("it returns %v before the connection has ended", err)
		case <-time.After(50 * time.Millisecond):
		}
		close(tg.dead)
		if err := <-returned; errors.Is(err, transport.ErrBusy) {
			t.Errorf("%v once it has ended", err)
		}
	})
	t.Run("too late", func(t *testing.T) {
		tg, _, _ := withRegion(t, 50*time.Millisecond, 7)
		tg.fail(transport.ErrPeer)
		if err := tg.Deregister(transport.Region{ID: 7}); !errors.Is(err, transport.ErrBusy) {
			t.Errorf("%v, want ErrBusy", err)
		}
	})
	t.Run("begun before", func(t *testing.T) {
		tg, _, hear := withRegion(t, 10*time.Second, 7)
		returned := make(chan error, 1)
		go func() { returned <- tg.Deregister(transport.Region{ID: 7}) }()
		hear() // it waits for the answer
		tg.fail(transport.ErrPeer)
		select {
		case err := <-returned:
			t.Errorf("it returns %v before the connection has ended", err)
		case <-time.After(50 * time.Millisecond):
		}
		close(tg.dead)
		<-returned
	})
}
