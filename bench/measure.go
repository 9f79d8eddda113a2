package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"kvbench/internal/control"
	"kvbench/internal/units"
	"kvbench/payload"
	"kvbench/transport"
)

// measureCell warms up and measures one cell. It adds the cell to the outcome even if it
// fails midway.
func (r *run) measureCell(ctx context.Context, index int) error {
	c := &r.cells[index]
	pace := r.pace(index)
	r.outcome.Cells = append(r.outcome.Cells, CellOutcome{cell: c, Pace: pace})
	out := &r.outcome.Cells[len(r.outcome.Cells)-1]
	before := r.arrivals()
	tally := &tally{total: int64(r.load.Warmup)}
	if _, err := r.stage(ctx, c, tally, phase{Kind: measurePhase, Cell: index, Pace: pace}, true); err != nil {
		out.Verify = tally.verdict
		return err
	}
	out.Warmup = tally.finished
	tally.reset(r.load)
	done, errRun := r.stage(ctx, c, tally, phase{Kind: measurePhase, Cell: index, Pace: pace}, false)
	out.ProducerCPU = r.meter.seconds()
	out.Verify = tally.verdict
	out.ConsumerCPU = done.CPUSeconds
	out.Record = done.Record
	if r.plan.Direction == Push {
		records := make([]*Record, len(r.initiators))
		for w, in := range r.initiators {
			records[w], in.record = in.record, newRecord()
		}
		out.Record = merge(records)
	}
	if errRun != nil {
		return errRun
	}
	if out.Record == nil {
		return fmt.Errorf("the consumer sent no record: %w", control.ErrFrame)
	}
	if err := r.noticed(ctx, before+out.Warmup+tally.finished); err != nil {
		return err
	}
	// Between two processes of one host, a NIC may loop the data back inside, past its
	// port's counters.
	if oneHost := r.outcome.Producer.Host.Device.Loopback; !oneHost || r.outcome.Path.SoftwareDevice {
		if err := errors.Join(accounted("producer", r.outcome.Path), accounted("consumer", r.outcome.PeerPath)); err != nil {
			return err
		}
	}
	out.Complete = true
	return nil
}

// stage runs one phase of requests from announcement to end. It returns the consumer's
// half even with an error.
func (r *run) stage(ctx context.Context, c *cell, t *tally, p phase, warmup bool) (phaseDone, error) {
	if err := r.begin(ctx, p); err != nil {
		return phaseDone{}, err
	}
	r.meter.reset()
	errRun := r.workers(ctx, c, t, p.Pace, warmup)
	done, err := r.end(ctx, errRun != nil)
	if errRun != nil && done.Failed != "" && errors.Is(errRun, transport.ErrPeer) {
		// This side saw the connection end before the consumer could send its reason.
		errRun = fmt.Errorf("the consumer failed: %s (%w)", done.Failed, errRun)
	}
	if errRun != nil {
		return done, errRun
	}
	return done, err
}

// arrivals returns, when pulling, the number of requests that notices have reported as
// read.
func (r *run) arrivals() (n int64) {
	for _, t := range r.targets {
		n += t.arrived.Load()
	}
	return n
}

// noticed checks, when pulling, that a notice came for every request read.
func (r *run) noticed(ctx context.Context, want int64) error {
	if len(r.targets) == 0 {
		return nil
	}
	deadline := time.Now().Add(2 * time.Second)
	for r.arrivals() < want {
		if time.Now().After(deadline) {
			return fmt.Errorf("the consumer says that it read everything, but not all notices came: those of %s are missing: %w", units.Count(want-r.arrivals(), "request"), transport.ErrProtocol)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// pace returns the emulated prefill of one layer of a cell.
func (r *run) pace(index int) time.Duration {
	if r.load.Prefill == nil {
		return 0
	}
	return r.load.Prefill[index] / time.Duration(r.cells[index].layers())
}

// tally hands out the requests of a stage and counts the finished ones.
type tally struct {
	mu       sync.Mutex // taken between requests, never while one is timed
	total    int64      // 0 if deadline is set
	deadline time.Time
	length   time.Duration // until the deadline
	started  int64
	finished int64
	verdict  payload.Verdict // of all stages
	schedule *schedule       // nil in a closed loop
}

// reset begins the measured stage.
func (t *tally) reset(l Load) {
	t.started, t.finished, t.total, t.deadline, t.length = 0, 0, int64(l.Requests), time.Time{}, 0
	if l.Duration > 0 {
		t.total, t.deadline, t.length = 0, time.Now().Add(l.Duration), l.Duration
	}
	if l.Rate > 0 {
		t.schedule = newSchedule(l)
	}
}

// next reports whether to start another request, and when it is due from the start of the
// stage: at least 0 in an open loop, otherwise -1.
func (t *tally) next() (due time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	timed, first := t.length > 0, t.started == 0 // at least one request is measured, even in a short stage
	due = -1
	if t.schedule != nil {
		due = t.schedule.next()
	}
	switch {
	case !timed && t.started >= t.total:
		return 0, false
	case timed && !first && t.schedule != nil && due > t.length: // a due request is served, however late
		return 0, false
	case timed && !first && t.schedule == nil && time.Now().After(t.deadline):
		return 0, false
	}
	t.started++
	return due, true
}

func (t *tally) finish(v payload.Verdict) (finished, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finished++
	t.verdict.Add(v)
	return t.finished, t.total
}

// workers runs a stage on every worker and waits for all of them.
func (r *run) workers(ctx context.Context, c *cell, t *tally, pace time.Duration, warmup bool) error {
	r.clock.reset()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for w := range r.plan.Workers {
		wg.Go(func() {
			if err := r.worker(ctx, w, c, t, pace, warmup); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// worker takes requests through the stage, one after another.
func (r *run) worker(ctx context.Context, w int, c *cell, t *tally, pace time.Duration, warmup bool) error {
	stage := "measure"
	if warmup {
		stage = "warm-up"
	}
	for {
		due, ok := t.next()
		if !ok {
			return nil
		}
		id := r.nextID.Add(1)
		if err := r.fill(c, w, id); err != nil {
			return err
		}
		if err := r.moveRequest(ctx, c, request{Worker: w, ID: id, Warmup: warmup, Due: due}, pace); err != nil {
			return err
		}
		var answer checked
		select {
		case answer = <-r.checked[w]:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if answer.ID != id {
			return fmt.Errorf("check of request %d in place of %d: %w", answer.ID, id, control.ErrFrame)
		}
		done, total := t.finish(answer.Verdict)
		r.observe(Progress{Stage: stage, ContextTokens: c.spec.Tokens, Done: done, Total: total})
		if answer.Mismatched > 0 {
			return fmt.Errorf("%w: %d of %d blocks; %s", ErrCorrupt, answer.Mismatched, answer.Checked, answer.First)
		}
	}
}

// moveRequest moves one request or, when pulling, sends it to the consumer to read.
func (r *run) moveRequest(ctx context.Context, c *cell, q request, pace time.Duration) error {
	if r.plan.Direction == Pull {
		return r.conn.Send(kindRequest, q)
	}
	return r.initiators[q.Worker].serve(ctx, &r.clock, q, c, pace)
}
