package tcp

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"kvbench/transport"
)

// target implements transport.Target.
type target struct {
	*connection
	shares  []share // one for each slot of the initiator
	notices chan transport.Notice
}

// share counts the parts of a transfer that have ended.
type share struct {
	parts atomic.Int32
	bytes atomic.Int64
}

func newTarget(c *connection) *target {
	t := &target{
		connection: c,
		shares:     make([]share, c.cfg.MaxOutstanding),
		notices:    make(chan transport.Notice, c.cfg.MaxOutstanding),
	}
	for _, s := range c.streams {
		c.run(func() error { return t.serve(s) })
	}
	c.supervise(func() {})
	return t
}

// Advertise implements transport.Target.
func (t *target) Advertise(regions ...transport.Region) (transport.Advertisement, error) {
	list := make([]transport.RemoteRegion, len(regions))
	for i, r := range regions {
		if t.regions.get(r.ID) == nil {
			return nil, fmt.Errorf("advertise region %d: %w", r.ID, transport.ErrRegion)
		}
		list[i] = transport.RemoteRegion(r)
	}
	return json.Marshal(list)
}

// Notifications implements transport.Target.
func (t *target) Notifications(ctx context.Context, notices []transport.Notice) (int, error) {
	return transport.TakeNotices(ctx, notices, t.notices, t.dead, func() error { return transport.Ended(t.Err()) })
}

// serve is the goroutine of one stream. It reads frames and answers them.
func (t *target) serve(s *stream) error {
	var head [headerSize + maxRanges*rangeSize]byte
	for {
		if err := t.serveFrame(s, head[:]); err != nil {
			if code, ok := refusal(err); ok {
				// Best effort: the connection ends whether or not the peer still reads.
				_ = s.sendControl(header{typ: frameAbort, slot: uint32(code)}, head[:])
			}
			return err
		}
	}
}

func (t *target) serveFrame(s *stream, buf []byte) error {
	if err := s.readHeader(buf[:headerSize]); err != nil {
		return err
	}
	h, err := parseHeader(buf)
	if err != nil {
		return err
	}
	if int(h.slot) >= len(t.shares) || int(h.parts) > len(t.streams) {
		return fmt.Errorf("slot %d, %d parts: %w", h.slot, h.parts, transport.ErrProtocol)
	}
	switch h.typ {
	case frameDone:
		return t.notify(h, transport.Read, int64(h.bytes))
	case frameWrite, frameReadReq:
	default:
		return fmt.Errorf("frame type %d sent to a target: %w", h.typ, transport.ErrProtocol)
	}
	r := t.regions.get(h.region)
	if r == nil || !r.acquire() {
		return fmt.Errorf("region %d: %w", h.region, transport.ErrRegion)
	}
	err = t.moveFrame(s, h, buf, r.mem)
	// Release before the notice is sent, because its receiver may deregister the
	// region.
	r.release()
	if err != nil || h.typ == frameReadReq {
		return err
	}
	return t.acknowledge(s, h, buf)
}

// moveFrame reads the range table of a frame and moves the payload of its ranges.
func (t *target) moveFrame(s *stream, h header, buf, mem []byte) error {
	table := buf[headerSize : headerSize+rangeSize*int(h.ranges)]
	if h.ranges > 0 {
		if err := s.readFull(table); err != nil {
			return err
		}
	}
	if err := checkRanges(h, table, int64(len(mem))); err != nil {
		return err
	}
	if h.typ == frameReadReq {
		return t.answer(s, h, buf, table, mem)
	}
	s.in.reset()
	gather(&s.in, table, mem)
	return s.fill(int64(h.bytes), 0)
}

// acknowledge counts a WRITE's frame that is in place. After the last frame of the
// stream's share it notifies the application and then acknowledges to the initiator.
func (t *target) acknowledge(s *stream, h header, buf []byte) error {
	t.shares[h.slot].bytes.Add(int64(h.bytes))
	if !h.last() {
		return nil
	}
	if err := t.notify(h, transport.Write, 0); err != nil {
		return err
	}
	return s.sendControl(header{typ: frameAck, flags: flagLast, parts: h.parts, id: h.id, region: h.region, slot: h.slot}, buf)
}

// answer sends the payload of a READ's ranges.
func (t *target) answer(s *stream, h header, buf, table, mem []byte) error {
	// The table follows the header in buf, so the answer's header can overwrite the
	// request's header.
	data := header{typ: frameReadData, flags: h.flags, parts: h.parts, id: h.id, region: h.region, slot: h.slot, bytes: h.bytes}
	data.put(buf)
	s.out.reset()
	s.out.add(buf[:headerSize])
	gather(&s.out, table, mem)
	return s.flush(int64(h.bytes), headerSize)
}

// gather adds the ranges of a checked table to a vector.
func gather(v *vector, table, mem []byte) {
	for i := range len(table) / rangeSize {
		off, length := rangeAt(table, i)
		v.add(mem[off : off+length])
	}
}

// notify counts one ended part and queues a notice after the last. A full queue of
// notices delays the acknowledgement and so slows the initiator.
func (t *target) notify(h header, op transport.Op, bytes int64) error {
	share := &t.shares[h.slot]
	if share.parts.Add(1) < int32(h.parts) {
		return nil
	}
	share.parts.Store(0)
	if op == transport.Write {
		bytes = share.bytes.Swap(0)
	}
	select {
	case t.notices <- transport.Notice{ID: h.id, Op: op, Bytes: bytes, At: transport.Now()}:
		return nil
	case <-t.closing:
		return transport.ErrClosed
	}
}
