package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kvbench/transport"
)

// initiator is one worker's posting side.
type initiator struct {
	transport.Initiator
	op     transport.Op
	local  transport.Region
	remote transport.RemoteRegion
	record *Record
	alarm  alarm

	posted []time.Duration // by transfer: time of posting
	cost   []time.Duration // by transfer: duration of the Post call
	onPath []span          // see moved.onPath
	done   [64]transport.Completion
}

// transferID puts the request into the upper half and the index of the transfer into the
// lower.
func transferID(request uint64, index int) uint64 { return request<<32 | uint64(uint32(index)) }

func splitID(id uint64) (request uint64, index int) { return id >> 32, int(uint32(id)) }

// arrange sizes the worker's scratch space, so that the timed path allocates nothing.
func (in *initiator) arrange(transfers int) {
	if cap(in.posted) < transfers {
		in.posted = make([]time.Duration, transfers)
		in.cost = make([]time.Duration, transfers)
		in.onPath = make([]span, 0, transfers)
	}
	in.posted, in.cost = in.posted[:transfers], in.cost[:transfers]
	for i := range in.posted {
		in.posted[i] = notOutstanding
	}
}

// notOutstanding is the posting time of a transfer that is not posted yet, or already
// delivered.
const notOutstanding = -1

// job is one request to move.
type job struct {
	request     uint64
	descriptors [][]transport.Descriptor // by transfer
	// pace is the emulated prefill of one layer. A transfer becomes ready at start +
	// pace·n, with n its entry in ready: the layers made by then. 0 emulates no prefill:
	// all transfers are ready at once.
	pace   time.Duration
	ready  []int   // by transfer; may be nil if pace is 0
	record *Record // nil counts nothing
}

// moved holds the times of a job's parts, on the initiator's clock.
type moved struct {
	span
	first   time.Duration // delivery of the first layer
	prefill time.Duration // when the last layer became ready
	// onPath holds, in order, the spans with a layer on the path: from a post until no
	// layer is outstanding. It is valid until the worker's next job.
	onPath []span
}

// serve moves a cell's request when it is due, and records it unless it is a warm-up.
func (in *initiator) serve(ctx context.Context, clock *stageClock, q request, c *cell, pace time.Duration) error {
	record := in.record
	if q.Warmup {
		record = nil
	}
	due := clock.due(q.Due)
	if due != notDue {
		if err := in.await(ctx, due, record); err != nil {
			return err
		}
	}
	m, err := in.move(ctx, job{q.ID, c.descriptors, pace, c.ready, record})
	if err != nil {
		return err
	}
	if record != nil {
		record.request(min(due, m.start), m, c.plan.Bytes)
	}
	return nil
}

// move posts a job's layers as they become ready, and waits until all are delivered.
func (in *initiator) move(ctx context.Context, j job) (m moved, err error) {
	in.arrange(len(j.descriptors))
	state := progress{record: j.record, acked: in.op == transport.Write, onPath: in.onPath[:0]}
	m.start = transport.Now()
	m.prefill = m.start
	if j.pace > 0 {
		m.prefill += j.pace * time.Duration(j.ready[len(j.ready)-1])
	}
	state.freed = m.start
	for i, d := range j.descriptors {
		if j.pace > 0 {
			if err := in.await(ctx, m.start+j.pace*time.Duration(j.ready[i]), j.record); err != nil {
				return m, err
			}
		}
		t := transport.Transfer{ID: transferID(j.request, i), Op: in.op, Local: in.local, Remote: in.remote, Descriptors: d}
		at := transport.Now()
		in.posted[i] = at
		err := in.Post(t)
		for errors.Is(err, transport.ErrQueueFull) {
			if err := in.collect(ctx, j.request, &state); err != nil {
				return m, err
			}
			at = transport.Now()
			err = in.Post(t)
		}
		if err != nil {
			return m, fmt.Errorf("post layer %d: %w", i, err)
		}
		in.posted[i], in.cost[i] = at, transport.Now()-at
	}
	for state.delivered < len(j.descriptors) {
		if err := in.collect(ctx, j.request, &state); err != nil {
			return m, err
		}
	}
	m.first, m.end, m.onPath = state.first, state.freed, state.onPath
	return m, nil
}

// await returns at the given time of the initiator's clock, or with an error. If it
// sleeps and record is not nil, it records how late it woke.
func (in *initiator) await(ctx context.Context, at time.Duration, record *Record) error {
	if transport.Now() >= at {
		return nil
	}
	late, err := in.alarm.until(ctx, at)
	if err == nil && record != nil {
		record.Late.Record(late)
	}
	return err
}

// Close ends the connection and releases the worker's timer.
func (in *initiator) Close() error {
	return errors.Join(in.Initiator.Close(), in.alarm.close())
}

// progress is the state of one request in flight.
type progress struct {
	record    *Record
	acked     bool
	delivered int
	first     time.Duration // delivery of the first layer
	freed     time.Duration // when the latest delivery freed the path for the next layer
	onPath    []span
}

// collect takes the completions that have arrived, or waits if there are none.
func (in *initiator) collect(ctx context.Context, request uint64, p *progress) error {
	n, err := in.Poll(in.done[:])
	if err != nil {
		return fmt.Errorf("move layers: %w", err)
	}
	if n == 0 {
		return in.Wait(ctx)
	}
	for i := range in.done[:n] {
		c := &in.done[i]
		if c.Err != nil {
			return fmt.Errorf("move layers: %w", c.Err)
		}
		of, index := splitID(c.ID)
		if of != request || index >= len(in.posted) {
			return fmt.Errorf("move layers: completion of transfer %#x, which is not of request %d: %w", c.ID, request, transport.ErrProtocol)
		}
		if in.posted[index] == notOutstanding {
			return fmt.Errorf("move layers: layer %d of request %d completed twice, or before it was posted: %w", index, of, transport.ErrProtocol)
		}
		p.count(c, in.posted[index], in.cost[index])
		in.posted[index] = notOutstanding
	}
	return nil
}

// count records one delivered layer. The layer's own time starts once it was posted and
// the layer before it was delivered.
func (p *progress) count(c *transport.Completion, posted, cost time.Duration) {
	if p.delivered++; p.delivered == 1 {
		p.first = c.Delivered
	}
	if p.record != nil {
		p.record.layer(cost, c.Delivered-max(posted, min(p.freed, c.Delivered)), c.Delivered-c.Local, p.acked)
	}
	if n := len(p.onPath); n > 0 && posted <= p.onPath[n-1].end {
		last := &p.onPath[n-1]
		last.start, last.end = min(last.start, posted), max(last.end, c.Delivered)
	} else {
		p.onPath = append(p.onPath, span{posted, c.Delivered})
	}
	p.freed = max(p.freed, c.Delivered)
}
