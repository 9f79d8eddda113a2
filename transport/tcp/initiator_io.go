package tcp

import (
	"fmt"
	"time"

	"kvbench/transport"
)

// write is the writing goroutine of one stream.
func (in *initiator) write(stream int) error {
	w := frameWriter{stream: in.streams[stream]}
	for {
		var job work
		select {
		case <-in.closing:
			return nil
		case job = <-in.queues[stream]:
		}
		if err := in.send(&w, job); err != nil {
			return err
		}
	}
}

func (in *initiator) send(w *frameWriter, job work) error {
	if job.done {
		h := header{typ: frameDone, flags: flagLast, parts: uint16(job.parts), id: job.id, region: job.region, slot: uint32(job.slot), bytes: job.bytes}
		return w.stream.sendControl(h, w.head[:])
	}
	s := &in.slots[job.slot]
	h := header{typ: frameWrite, parts: uint16(s.parts), id: s.transfer.ID, region: s.transfer.Remote.ID, slot: uint32(job.slot)}
	source := s.local.mem
	read := s.transfer.Op == transport.Read
	if read {
		h.typ, source = frameReadReq, nil
	}
	if err := w.sendPart(h, s.transfer.Descriptors, s.cuts[job.part], s.cuts[job.part+1], source); err != nil {
		return err
	}
	if read {
		return nil // the transfer may be complete by now, and its slot reused
	}
	if s.unsent.Add(-1) == 0 {
		now := transport.Now()
		s.localAt.Store(int64(now))
		if s.transfer.ReportLocal {
			in.done.Put(job.slot, transport.Completion{ID: s.transfer.ID, Stage: transport.LocallyComplete, Bytes: s.bytes, Local: now})
		}
		in.settle(job.slot)
	}
	return nil
}

// settle counts one of the events that end a WRITE: the acknowledgement of each part,
// and the hand-over of the last part to the kernel. The hand-over can be counted after
// the acknowledgement of the same part.
func (in *initiator) settle(i int) {
	s := &in.slots[i]
	if s.open.Add(-1) != 0 {
		return
	}
	in.complete(i, transport.Completion{
		ID: s.transfer.ID, Stage: transport.Delivered, Bytes: s.bytes,
		Local: time.Duration(s.localAt.Load()), Delivered: transport.Now(),
	})
}

// read is the reading goroutine of one stream.
func (in *initiator) read(stream int) error {
	st := in.streams[stream]
	var buf [headerSize]byte
	for {
		if err := st.readHeader(buf[:]); err != nil {
			return err
		}
		h, err := parseHeader(buf[:])
		if err != nil {
			return err
		}
		if err := in.handle(stream, h); err != nil {
			return err
		}
	}
}

func (in *initiator) handle(stream int, h header) error {
	if h.typ == frameAbort {
		return abortCode(h.slot).err()
	}
	if int(h.slot) >= len(in.slots) {
		return fmt.Errorf("frame for slot %d of %d: %w", h.slot, len(in.slots), transport.ErrProtocol)
	}
	s := &in.slots[h.slot]
	if s.state.Load() != slotPosted || s.transfer.ID != h.id {
		return fmt.Errorf("frame for transfer %d, which is not outstanding in slot %d: %w", h.id, h.slot, transport.ErrProtocol)
	}
	switch {
	case h.typ == frameAck && s.transfer.Op == transport.Write:
		in.settle(int(h.slot))
		return nil
	case h.typ == frameReadData && s.transfer.Op == transport.Read:
		return in.readData(stream, h)
	}
	return fmt.Errorf("frame type %d in answer to a %v: %w", h.typ, s.transfer.Op, transport.ErrProtocol)
}

// readData reads the payload of a READ into the local region.
func (in *initiator) readData(stream int, h header) error {
	s := &in.slots[h.slot]
	part := in.partOf(s, stream)
	if part < 0 {
		return fmt.Errorf("data for transfer %d on stream %d, which has no part of it: %w", h.id, stream, transport.ErrProtocol)
	}
	end := s.cuts[part+1]
	st := in.streams[stream]
	left := int64(h.bytes)
	for left > 0 {
		st.in.reset()
		var batch int64
		for left > batch && !st.in.full() {
			d, ok := nextRange(s.transfer.Descriptors, &s.position[part], end, left-batch)
			if !ok {
				return fmt.Errorf("more data for transfer %d than was asked for: %w", h.id, transport.ErrProtocol)
			}
			st.in.add(s.local.mem[d.Local : d.Local+d.Length])
			batch += d.Length
		}
		if err := st.fill(batch, 0); err != nil {
			return err
		}
		left -= batch
	}
	if !h.last() {
		return nil
	}
	if _, more := nextRange(s.transfer.Descriptors, &s.position[part], end, 1); more {
		return fmt.Errorf("less data for transfer %d than was asked for: %w", h.id, transport.ErrProtocol)
	}
	notice := work{slot: int(h.slot), done: true, id: h.id, region: s.transfer.Remote.ID, parts: s.parts, bytes: uint64(s.bytes)}
	if s.open.Add(-1) == 0 {
		now := transport.Now()
		in.complete(int(h.slot), transport.Completion{ID: h.id, Stage: transport.Delivered, Bytes: s.bytes, Local: now, Delivered: now})
	}
	select {
	case in.queues[stream] <- notice:
	case <-in.closing:
	}
	return nil
}
