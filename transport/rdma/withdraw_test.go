package rdma

import (
	"errors"
	"testing"
	"testing/synctest"
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
	tg, say, hear := withRegion(t, time.Millisecond, 7) // it takes as long as it takes: there is no answer
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
	tg.cfg.PeerTimeout = time.Hour
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
	const patience = 10 * time.Second
	// asks begins to deregister the region of a target that has no socket, and so has asked
	// for it before, or does not.
	asks := func(before func(*target)) (tg *target, returned chan error) {
		c := &connection{cfg: transport.Config{PeerTimeout: patience}, engine: &engine{}, closing: make(chan struct{}), dead: make(chan struct{})}
		c.regions.byID = map[uint32]*region{7: {id: 7, advertised: true}}
		tg = &target{connection: c, withdrawn: make(map[uint32]chan struct{})}
		before(tg)
		returned = make(chan error, 1)
		go func() { returned <- tg.Deregister(transport.Region{ID: 7}) }()
		synctest.Wait()
		return tg, returned
	}
	ends := func(tg *target) { tg.fail(transport.ErrPeer) }
	waits := func(t *testing.T, returned chan error) {
		t.Helper()
		synctest.Wait()
		select {
		case err := <-returned:
			t.Errorf("it returns %v before the connection has ended", err)
		default:
		}
	}
	t.Run("in time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			tg, returned := asks(ends)
			time.Sleep(patience - 1)
			waits(t, returned)
			close(tg.dead)
			if err := <-returned; errors.Is(err, transport.ErrBusy) {
				t.Errorf("%v once it has ended", err)
			}
		})
	})
	t.Run("too late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			_, returned := asks(ends)
			if err := <-returned; !errors.Is(err, transport.ErrBusy) || time.Since(start) != patience {
				t.Errorf("%v after %v, want ErrBusy after %v", err, time.Since(start), patience)
			}
		})
	})
	t.Run("begun before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			tg, returned := asks(func(tg *target) { tg.withdrawn[7] = make(chan struct{}) })
			waits(t, returned)
			ends(tg)
			waits(t, returned)
			close(tg.dead)
			if err := <-returned; errors.Is(err, transport.ErrBusy) {
				t.Errorf("%v once it has ended", err)
			}
		})
	})
}
