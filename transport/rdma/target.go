package rdma

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"kvbench/internal/ucx"
	"kvbench/transport"
)

// target implements transport.Target.
type target struct {
	*connection
	notices notices

	mu        sync.Mutex
	withdrawn map[uint32]chan struct{} // by region; closed when the initiator has confirmed the withdrawal
	indirect  bool                     // the initiator's CPU cannot access all its imported regions

	imported chan struct{} // closed when the initiator has imported a region
}

var _ transport.Target = (*target)(nil)

func newTarget(c *connection) *target {
	t := &target{connection: c, withdrawn: make(map[uint32]chan struct{}), imported: make(chan struct{}), notices: notices{some: make(chan struct{}, 1)}}
	c.engine.handle = t.happened
	return t
}

func (t *target) start() { t.connection.start(t.hear, func() {}) }

// hear processes a message of the initiator.
func (t *target) hear(m message) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.Imported != 0 {
		t.indirect = t.indirect || !m.Direct
		if !isClosed(t.imported) {
			close(t.imported)
		}
		return nil
	}
	confirmed := t.withdrawn[m.Withdrawn]
	if confirmed == nil || isClosed(confirmed) {
		return fmt.Errorf("withdrawal of region %d confirmed, which was not asked for: %w", m.Withdrawn, transport.ErrProtocol)
	}
	close(confirmed)
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Advertise implements transport.Target.
func (t *target) Advertise(regions ...transport.Region) (transport.Advertisement, error) {
	list := make([]advertised, len(regions))
	t.regions.mu.Lock()
	defer t.regions.mu.Unlock()
	for i, want := range regions {
		r := t.regions.byID[want.ID]
		if r == nil {
			return nil, fmt.Errorf("advertise region %d: %w", want.ID, transport.ErrRegion)
		}
		r.advertised = true
		list[i] = advertised{ID: r.id, Size: r.size}
		if r.memory != nil {
			list[i].Address, list[i].Key = uint64(r.memory.Address), r.memory.Key
		}
	}
	return json.Marshal(list)
}

// Deregister implements transport.Endpoint. An advertised region ends only after the
// initiator has confirmed that it does not use the region any more, or the connection
// has ended. If neither happens within PeerTimeout, the error wraps ErrBusy and the
// region stays.
func (t *target) Deregister(r transport.Region) error {
	t.regions.mu.Lock()
	known := t.regions.byID[r.ID]
	advertised := known != nil && known.advertised
	t.regions.mu.Unlock()
	if advertised {
		if err := t.takeBack(r.ID); err != nil {
			return err
		}
	}
	return t.deregister(r.ID)
}

// takeBack waits until the initiator has confirmed the withdrawal of a region. If the
// connection is ending, data in flight may still arrive, so it waits for the end.
func (t *target) takeBack(id uint32) error {
	confirmed := t.withdraw(id)
	select {
	case <-confirmed:
		t.mu.Lock()
		delete(t.withdrawn, id)
		t.mu.Unlock()
		return nil
	case <-t.dead:
		return nil
	case <-time.After(t.cfg.PeerTimeout):
		return fmt.Errorf("withdraw region %d: the initiator still uses it: %w", id, transport.ErrBusy)
	}
}

// withdraw requests the initiator once per region not to use it any more. The returned
// channel is closed when the initiator has confirmed that.
func (t *target) withdraw(id uint32) (confirmed <-chan struct{}) {
	t.mu.Lock()
	asked := t.withdrawn[id]
	if asked != nil {
		t.mu.Unlock()
		return asked
	}
	made := make(chan struct{})
	t.withdrawn[id] = made
	t.mu.Unlock()
	if t.Err() != nil {
		return made // fail sends the initiator the end of the connection
	}
	if err := t.socket.Send(message{Withdraw: id}); err != nil {
		t.fail(err)
	}
	return made
}

// happened handles an event. The engine must be held.
func (t *target) happened(e ucx.Event) {
	n := transport.Notice{ID: e.ID, Op: transport.Write, Bytes: int64(e.Bytes), At: t.engine.at(e)}
	switch e.Kind {
	case ucx.Written:
	case ucx.Read:
		n.Op = transport.Read
	default:
		t.connection.happened(e)
		return
	}
	if !t.readBack && n.Bytes > 0 {
		t.readBack = true
		op := t.servedBy(n.Op)
		native := op == ucx.ActiveMessage || !t.family.ownMemory || t.reachable()
		if err := t.checkLane(op, native); err != nil {
			t.fail(transport.Classify(err, transport.ErrLocal))
			return
		}
	}
	t.counts.moved(n.Bytes, n.Op == transport.Write)
	if !t.notices.put(n) {
		t.fail(transport.Classify(fmt.Errorf("%d notices that nobody took: %w", maxNotices, transport.ErrQueueFull), transport.ErrLocal))
	}
}

// reachable reports whether the peer's CPU can access all its imported regions. Only
// the peer can determine this: UCX decodes a key by the lanes of each side, which may
// differ. The peer reports it on the socket before it posts, but the first notice comes
// on another path and may arrive first.
func (t *target) reachable() bool {
	select {
	case <-t.imported:
	case <-t.closing:
	case <-time.After(t.cfg.PeerTimeout):
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return isClosed(t.imported) && !t.indirect
}

// servedBy returns the UCX operation behind a notice.
func (t *target) servedBy(op transport.Op) ucx.Op {
	switch {
	case op == transport.Read:
		return ucx.Get
	case t.cfg.Operation == opAM:
		return ucx.ActiveMessage
	}
	return ucx.Put
}

// Notifications implements transport.Target.
func (t *target) Notifications(ctx context.Context, into []transport.Notice) (int, error) {
	for len(into) > 0 {
		if n := t.notices.take(into); n > 0 {
			return n, nil
		}
		select {
		case <-t.notices.some:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-t.dead:
			// Return notices from before the end first.
			if n := t.notices.take(into); n > 0 {
				return n, nil
			}
			return 0, transport.Ended(t.Err())
		}
	}
	return 0, nil
}

// maxNotices is the most notices that may wait for Notifications.
const maxNotices = 1 << 20

// notices is the queue between the engine and Notifications.
type notices struct {
	some chan struct{} // full if there may be notices
	mu   sync.Mutex
	list []transport.Notice
}

// put adds a notice. It returns false if too many wait.
func (q *notices) put(n transport.Notice) bool {
	q.mu.Lock()
	full := len(q.list) >= maxNotices
	if !full {
		q.list = append(q.list, n)
	}
	q.mu.Unlock()
	select {
	case q.some <- struct{}{}:
	default:
	}
	return !full
}

// take moves waiting notices into a slice and returns their number.
func (q *notices) take(into []transport.Notice) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := copy(into, q.list)
	q.list = q.list[:copy(q.list, q.list[n:])]
	return n
}
