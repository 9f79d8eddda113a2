package staged

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"kvbench/transport"
)

// arrival is the target's state of the chunk in one place of its ring.
type arrival struct {
	frame
	region *region
	pieces []piece
	bytes  int64 // of the chunk

	mu      sync.Mutex
	told    bool // the initiator has sent the chunk's ranges
	carried bool // WRITE: the bytes are in the ring
}

// target implements transport.Target.
type target struct {
	*connection
	peer     transport.Target // the inner connection
	arrivals [ringPlaces]arrival
	ended    []int // by slot of the initiator: landed chunks of its transfer
	notices  chan transport.Notice
}

var _ transport.Target = (*target)(nil)

func newTarget(c *connection, inner transport.Target) *target {
	t := &target{connection: c, peer: inner, ended: make([]int, c.cfg.MaxOutstanding), notices: make(chan transport.Notice, c.cfg.MaxOutstanding)}
	for i := range t.arrivals {
		t.arrivals[i].pieces = make([]piece, 0, chunkPieces)
	}
	c.out.ended, c.in.ended = t.staged, t.landed
	// Start now: the initiator's calibration produces notices too.
	t.run(t.takeNotices)
	return t
}

func (t *target) start() {
	t.listen(t.handle)
	t.run(func() error { return t.out.finish(t.closing) })
	t.run(func() error { return t.in.finish(t.closing) })
	t.supervise(func() {})
}

// Advertise implements transport.Target.
func (t *target) Advertise(regions ...transport.Region) (transport.Advertisement, error) {
	list := make([]transport.RemoteRegion, len(regions))
	for i, r := range regions {
		known := t.regions.get(r.ID)
		if known == nil {
			return nil, fmt.Errorf("advertise region %d: %w", r.ID, transport.ErrRegion)
		}
		list[i] = transport.RemoteRegion{ID: known.id, Size: known.size}
	}
	return json.Marshal(list)
}

// Deregister implements transport.Endpoint. It waits for the copies in flight.
func (t *target) Deregister(r transport.Region) error { return t.regions.withdraw(r.ID) }

// Notifications implements transport.Target.
func (t *target) Notifications(ctx context.Context, notices []transport.Notice) (int, error) {
	return transport.TakeNotices(ctx, notices, t.notices, t.dead, t.Err)
}

// takeNotices handles the inner connection's notices.
func (t *target) takeNotices() error {
	var notices [ringPlaces]transport.Notice
	for {
		n, err := t.peer.Notifications(t.ctx, notices[:])
		if err != nil {
			return err
		}
		for _, notice := range notices[:n] {
			if notice.Op == transport.Read || notice.ID >= calibrationID {
				continue // a READ's end comes in a frame, and calibration needs no notice
			}
			if err := t.carriedOver(notice); err != nil {
				return err
			}
		}
	}
}

// carriedOver handles a WRITE's chunk that is in the ring.
func (t *target) carriedOver(n transport.Notice) error {
	if n.ID >= ringPlaces {
		return fmt.Errorf("inner notice of %d: %w", n.ID, transport.ErrProtocol)
	}
	a := &t.arrivals[n.ID]
	a.mu.Lock()
	twice, ready := a.carried, a.told
	a.carried = true
	a.mu.Unlock()
	if twice {
		return fmt.Errorf("place %d was written twice: %w", n.ID, transport.ErrProtocol)
	}
	if ready {
		return t.land(int(n.ID))
	}
	return nil
}

// handle processes the initiator's frames.
func (t *target) handle(f frame, table []byte) error {
	switch f.typ {
	case frameChunk:
		return t.take(f, table)
	case frameDone:
		return t.notify(transport.Notice{ID: f.id, Op: transport.Read, Bytes: int64(f.bytes)})
	}
	return fmt.Errorf("frame type %d sent to a target: %w", f.typ, transport.ErrProtocol)
}

// take begins a chunk. It stages a READ's chunk, and lands a WRITE's chunk if its bytes
// are in the ring.
func (t *target) take(f frame, table []byte) error {
	a := &t.arrivals[f.place]
	a.mu.Lock()
	twice := a.told
	a.mu.Unlock()
	if twice || int(f.slot) >= len(t.ended) {
		return fmt.Errorf("chunk of slot %d for place %d, which has one: %w", f.slot, f.place, transport.ErrProtocol)
	}
	r := t.regions.acquire(f.region)
	if r == nil {
		return fmt.Errorf("region %d: %w", f.region, transport.ErrRegion)
	}
	var err error
	if a.pieces, a.bytes, err = parsePieces(table, a.pieces, r.size); err != nil {
		t.regions.release(r)
		return fmt.Errorf("region %d: %w", f.region, err)
	}
	a.frame, a.region = f, r
	a.mu.Lock()
	a.told = true
	carried := a.carried
	a.mu.Unlock()
	switch {
	case f.op == transport.Read:
		return t.out.launch(int(f.place), r.pointer, a.pieces, a.bytes)
	case carried || a.bytes == 0:
		return t.land(int(f.place))
	}
	return nil
}

// land starts the copy of a WRITE's chunk to the device.
func (t *target) land(place int) error {
	a := &t.arrivals[place]
	if a.op != transport.Write {
		return fmt.Errorf("place %d was written in a READ: %w", place, transport.ErrProtocol)
	}
	return t.in.launch(place, a.region.pointer, a.pieces, a.bytes)
}

// free ends a chunk at this side. The initiator may reuse its place after it receives
// the returned frame.
func (t *target) free(a *arrival) frame {
	f := a.frame
	t.regions.release(a.region)
	a.mu.Lock()
	a.told, a.carried = false, false
	a.mu.Unlock()
	return f
}

// staged is called when a READ's chunk is in the ring.
func (t *target) staged(place int) error {
	f := t.free(&t.arrivals[place])
	f.typ = frameStaged
	return t.send(f, nil)
}

// landed is called when a WRITE's chunk is in device memory. After the last chunk it
// notifies the application and then the initiator. A full queue of notices delays the
// acknowledgement and so slows the initiator.
func (t *target) landed(place int) error {
	f := t.free(&t.arrivals[place])
	if t.ended[f.slot]++; t.ended[f.slot] == int(f.chunks) {
		t.ended[f.slot] = 0
		if err := t.notify(transport.Notice{ID: f.id, Op: transport.Write, Bytes: int64(f.bytes)}); err != nil {
			return err
		}
	}
	f.typ = frameLanded
	return t.send(f, nil)
}

func (t *target) notify(n transport.Notice) error {
	n.At = transport.Now()
	select {
	case t.notices <- n:
		return nil
	case <-t.closing:
		return transport.ErrClosed
	}
}
