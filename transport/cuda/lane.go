package cuda

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"kvbench/internal/cudadrv"
	"kvbench/internal/gpumem"
	"kvbench/transport"
)

// job is a transfer's part on one stream.
type job struct {
	slot  int
	part  int
	mark  int           // index of its events in lane.marks
	start time.Duration // when the first copy was added
}

// lane is one CUDA stream, with the goroutine that adds copies to it and the one
// that waits for them.
type lane struct {
	stream *cudadrv.Stream
	jobs   chan job // to be added
	added  chan job // to be waited for, in the stream's order
	marks  []mark
	next   int
	copies cudadrv.Copies
	spin   time.Duration // how long to poll before sleeping

	// Times of the copies in nanoseconds: on the device by events, on the clock from
	// the first call until the end was seen, and the part of it inside the calls.
	onDevice, onClock, inCalls atomic.Int64
	parts, copied              atomic.Int64
}

// mark is the pair of events around a part's copies.
type mark struct{ begin, end *cudadrv.Event }

// newLanes creates an initiator's streams.
func newLanes(c *cudadrv.Context, cfg transport.Config) ([]*lane, error) {
	var lanes []*lane
	err := c.Do(func() error {
		for range cfg.Streams {
			l, err := newLane(c, cfg.MaxOutstanding, gpumem.Spin(cfg))
			lanes = append(lanes, l)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, closeLanes(c, lanes))
	}
	return lanes, nil
}

// newLane creates a stream with events for outstanding transfers. If it fails, it also
// returns the parts it made, for closeLanes.
func newLane(c *cudadrv.Context, outstanding int, spin time.Duration) (l *lane, err error) {
	l = &lane{jobs: make(chan job, outstanding), added: make(chan job, outstanding), spin: spin}
	if l.stream, err = c.NewStream(); err != nil {
		return l, err
	}
	// One more than can be in flight, so that no event is recorded again while finish
	// reads it.
	for range outstanding + 1 {
		var m mark
		if m.begin, err = c.NewEvent(); err != nil {
			return l, err
		}
		l.marks = append(l.marks, m)
		if l.marks[len(l.marks)-1].end, err = c.NewEvent(); err != nil {
			return l, err
		}
	}
	return l, nil
}

// waitLanes waits for the work of streams. Its error wraps gpumem.ErrUnderWay.
func waitLanes(c *cudadrv.Context, lanes []*lane) error {
	err := c.Do(func() error {
		var errs []error
		for _, l := range lanes {
			errs = append(errs, l.stream.Synchronize())
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("%w: copy on CUDA device %d: %w: %w", transport.ErrDevice, c.Device.Ordinal, err, gpumem.ErrUnderWay)
	}
	return nil
}

// closeLanes frees streams and their events. The caller must have waited for their
// work.
func closeLanes(c *cudadrv.Context, lanes []*lane) error {
	return c.Do(func() error {
		var errs []error
		for _, l := range lanes {
			if l.stream == nil {
				continue
			}
			for _, m := range l.marks {
				errs = append(errs, m.begin.Close())
				if m.end != nil {
					errs = append(errs, m.end.Close())
				}
			}
			errs = append(errs, l.stream.Close())
		}
		return errors.Join(errs...)
	})
}

// issue adds copies to a stream. It runs bound to the device's context.
func (in *initiator) issue(l *lane) error {
	for {
		var j job
		select {
		case <-in.closing:
			return nil
		case j = <-l.jobs:
		}
		if err := in.add(l, &j); err != nil {
			return fmt.Errorf("%w: copy on CUDA device %d: %w", transport.ErrDevice, in.context.Device.Ordinal, err)
		}
		l.added <- j // has room: at most the outstanding transfers
	}
}

func (in *initiator) add(l *lane, j *job) error {
	j.start = transport.Now()
	j.mark = l.next
	l.next = (l.next + 1) % len(l.marks)
	m := l.marks[j.mark]
	l.copies.Reset()
	in.slots[j.slot].collect(j.part, &l.copies)
	if err := m.begin.Record(l.stream); err != nil {
		return err
	}
	if err := l.stream.Copy(&l.copies); err != nil {
		return err
	}
	if err := m.end.Record(l.stream); err != nil {
		return err
	}
	l.copied.Add(int64(l.copies.Len()))
	l.inCalls.Add(int64(transport.Now() - j.start))
	return nil
}

// collect lists the copies of one part. A part is an equal share of the transfer's
// bytes, in the order of its descriptors. A descriptor may be cut.
func (s *slot) collect(part int, copies *cudadrv.Copies) {
	share, rest := s.bytes/int64(s.parts), s.bytes%int64(s.parts)
	from := share*int64(part) + min(int64(part), rest)
	end := share*int64(part+1) + min(int64(part+1), rest)
	local, remote := s.local.pointer, s.remote.at()
	var passed int64 // bytes of the previous descriptors
	for _, d := range s.transfer.Descriptors {
		lo, hi := max(from-passed, 0), min(end-passed, d.Length)
		passed += d.Length
		if lo >= hi {
			if passed >= end {
				return
			}
			continue
		}
		here, there := local+cudadrv.DevicePointer(d.Local+lo), remote+cudadrv.DevicePointer(d.Remote+lo)
		if s.transfer.Op == transport.Write {
			copies.Add(there, here, hi-lo)
		} else {
			copies.Add(here, there, hi-lo)
		}
	}
}

// finish waits for copies in the stream's order. It runs bound to the device's context.
func (in *initiator) finish(l *lane) error {
	for {
		var j job
		select {
		case <-in.closing:
			return nil
		case j = <-l.added:
		}
		if err := l.await(j); err != nil {
			return fmt.Errorf("%w: copy on CUDA device %d: %w", transport.ErrDevice, in.context.Device.Ordinal, err)
		}
		if in.slots[j.slot].copying.Add(-1) == 0 {
			if err := in.deliver(j.slot); err != nil {
				return err
			}
		}
	}
}

// await waits until a part's copies have ended, and counts their time.
func (l *lane) await(j job) error {
	m := l.marks[j.mark]
	if err := m.end.Await(l.spin); err != nil {
		return err
	}
	l.onClock.Add(int64(transport.Now() - j.start))
	took, err := m.end.Since(m.begin)
	l.onDevice.Add(int64(took))
	l.parts.Add(1)
	return err
}

// deliver sends the notice of a transfer after its copies have ended, and completes a
// READ.
func (in *initiator) deliver(i int) error {
	s := &in.slots[i]
	now := transport.Now()
	s.localAt.Store(int64(now))
	notice := frame{typ: frameNotice, op: s.transfer.Op, region: s.transfer.Remote.ID, id: s.transfer.ID, slot: uint32(i), bytes: uint64(s.bytes)}
	if s.transfer.Op == transport.Write {
		if s.transfer.ReportLocal {
			in.done.Put(i, transport.Completion{ID: s.transfer.ID, Stage: transport.LocallyComplete, Bytes: s.bytes, Local: now})
		}
		s.noticeAt.Store(int64(now))
		return in.send(notice)
	}
	// Send before the release: after this frame the target may deregister the region.
	if err := in.send(notice); err != nil {
		return err
	}
	in.complete(i, transport.Completion{ID: s.transfer.ID, Stage: transport.Delivered, Bytes: s.bytes, Local: now, Delivered: now})
	return nil
}
