package staged

import (
	"fmt"
	"time"

	"kvbench/transport"
)

// feed cuts transfers into chunks and begins each one when a place is free.
func (in *initiator) feed() error {
	for {
		var i int
		select {
		case <-in.closing:
			return nil
		case i = <-in.queue:
		}
		s := &in.slots[i]
		cut := newCutter(&s.transfer, s.bytes)
		// The slot may be reused once its last chunk has begun.
		for left := s.chunks; left > 0; left-- {
			select {
			case <-in.closing:
				return nil
			case place := <-in.places:
				if err := in.begin(place, i, &cut); err != nil {
					return err
				}
			}
		}
	}
}

// begin starts the next chunk of a transfer. A WRITE starts with the copy to the host,
// a READ with a request to the target.
func (in *initiator) begin(place, i int, cut *cutter) error {
	c, s := &in.chunks[place], &in.slots[i]
	c.slot, c.local, c.remote, c.landed = i, c.local[:0], c.remote[:0], false
	cut.more() // skips descriptors without bytes
	c.bytes = cut.each(func(local, remote, length int64) {
		c.local = append(c.local, piece{local, length})
		c.remote = append(c.remote, piece{remote, length})
	})
	if s.transfer.Op == transport.Write {
		c.enter(chunkCopying)
		return in.out.launch(place, s.local.pointer, c.local, c.bytes)
	}
	c.enter(chunkAwaiting)
	return in.tell(place)
}

func (c *chunk) enter(state chunkState) {
	c.mu.Lock()
	c.state, c.since = state, transport.Now()
	c.mu.Unlock()
}

// tell sends the target the ranges of a chunk.
func (in *initiator) tell(place int) error {
	c := &in.chunks[place]
	s := &in.slots[c.slot]
	return in.send(frame{
		typ: frameChunk, op: s.transfer.Op, place: uint32(place), id: s.transfer.ID, region: s.transfer.Remote.ID,
		slot: uint32(c.slot), bytes: uint64(s.bytes), chunks: uint32(s.chunks),
	}, c.remote)
}

// staged is called when the bytes of a WRITE's chunk are in the ring.
func (in *initiator) staged(place int) error {
	c := &in.chunks[place]
	s := &in.slots[c.slot]
	if s.unstaged.Add(-1) == 0 {
		now := transport.Now()
		s.localAt.Store(int64(now))
		if s.transfer.ReportLocal {
			in.done.Put(c.slot, transport.Completion{ID: s.transfer.ID, Stage: transport.LocallyComplete, Bytes: s.bytes, Local: now})
		}
	}
	if c.bytes == 0 {
		c.enter(chunkAwaiting)
		return in.tell(place)
	}
	// Post first, so that the bytes travel before the ranges.
	c.enter(chunkOnWire)
	if err := in.postInner(place, transport.Write); err != nil {
		return err
	}
	return in.tell(place)
}

// postInner posts a chunk to the inner connection.
func (in *initiator) postInner(place int, op transport.Op) error {
	in.posting.Lock()
	defer in.posting.Unlock()
	in.onWire[place] = transport.Descriptor{Local: offset(place), Remote: offset(place), Length: in.chunks[place].bytes}
	err := in.peer.Post(transport.Transfer{
		ID: uint64(place), Op: op, Local: in.ring.region, Remote: in.there, Descriptors: in.onWire[place : place+1],
	})
	if err != nil {
		return fmt.Errorf("post chunk: %w", err)
	}
	return nil
}

// reap polls the inner connection's completions.
func (in *initiator) reap() error {
	var done [ringPlaces]transport.Completion
	for {
		if err := in.peer.Wait(in.ctx); err != nil {
			return err
		}
		in.posting.Lock()
		n, err := in.peer.Poll(done[:])
		in.posting.Unlock()
		if err != nil {
			return err
		}
		for i := range done[:n] {
			if err := in.carriedOver(&done[i]); err != nil {
				return err
			}
		}
	}
}

// carriedOver handles a chunk that the wire has delivered.
func (in *initiator) carriedOver(d *transport.Completion) error {
	if d.Err != nil {
		return d.Err
	}
	if d.ID >= ringPlaces {
		return fmt.Errorf("inner completion of %d: %w", d.ID, transport.ErrProtocol)
	}
	place := int(d.ID)
	c := &in.chunks[place]
	c.mu.Lock()
	began, landed, bytes := c.since, c.landed, c.bytes
	if c.state != chunkOnWire {
		c.mu.Unlock()
		return fmt.Errorf("inner completion of place %d, which has nothing on the wire: %w", place, transport.ErrProtocol)
	}
	read := in.slots[c.slot].transfer.Op == transport.Read
	c.state, c.since = chunkAwaiting, transport.Now()
	if read {
		c.state = chunkCopying
	}
	c.mu.Unlock()
	// From here on a WRITE's chunk may end and its place be reused.
	in.carried.count(bytes, d.Delivered-max(began, min(in.freed, d.Delivered)))
	in.freed = max(in.freed, d.Delivered)
	switch {
	case read:
		return in.in.launch(place, in.slots[c.slot].local.pointer, c.local, bytes)
	case landed:
		return in.arrived(place)
	}
	return nil
}

// handle processes the target's frames.
func (in *initiator) handle(f frame, _ []byte) error {
	in.heard.Store(int64(transport.Now()))
	place := int(f.place)
	c := &in.chunks[place]
	c.mu.Lock()
	state, mine := c.state, c.state != chunkFree && in.slots[c.slot].transfer.ID == f.id
	read := mine && in.slots[c.slot].transfer.Op == transport.Read
	early := f.typ == frameLanded && mine && !read && state == chunkOnWire && !c.landed
	if early {
		c.landed = true
	}
	c.mu.Unlock()
	switch {
	case early:
		return nil // the inner completion comes next
	case f.typ == frameLanded && mine && !read && state == chunkAwaiting:
		return in.arrived(place)
	case f.typ == frameStaged && read && state == chunkAwaiting:
		if c.bytes == 0 {
			return in.arrived(place)
		}
		c.enter(chunkOnWire)
		return in.postInner(place, transport.Read)
	}
	return fmt.Errorf("frame type %d for place %d, which does not wait for it: %w", f.typ, place, transport.ErrProtocol)
}

// landed is called when a READ's chunk is in device memory.
func (in *initiator) landed(place int) error { return in.arrived(place) }

// arrived frees the place of a chunk that is at its destination. After the last chunk
// it completes the transfer.
func (in *initiator) arrived(place int) error {
	c := &in.chunks[place]
	i := c.slot
	c.enter(chunkFree)
	in.places <- place // has room
	s := &in.slots[i]
	if s.open.Add(-1) > 0 {
		return nil
	}
	now := transport.Now()
	local := time.Duration(s.localAt.Load())
	if s.transfer.Op == transport.Read {
		local = now
		// Send before the release: after this frame the target may deregister its
		// region.
		done := frame{typ: frameDone, op: transport.Read, id: s.transfer.ID, region: s.transfer.Remote.ID, bytes: uint64(s.bytes), chunks: uint32(s.chunks)}
		if err := in.send(done, nil); err != nil {
			return err
		}
	}
	in.complete(i, transport.Completion{ID: s.transfer.ID, Stage: transport.Delivered, Bytes: s.bytes, Local: local, Delivered: now})
	return nil
}
