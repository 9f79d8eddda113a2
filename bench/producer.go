package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"kvbench/internal/control"
	"kvbench/internal/hostinfo"
	"kvbench/model"
	"kvbench/payload"
	"kvbench/results"
	"kvbench/transport"
)

// ErrCorrupt is returned when bytes arrived that are not those that were sent.
var ErrCorrupt = errors.New("data arrived wrong")

// Load says how much a producer measures.
type Load struct {
	Requests  int           // a cell; used where Duration is 0
	Duration  time.Duration // a cell
	Warmup    int           // requests a cell, not counted
	Calibrate time.Duration // length of calibration; 0 leaves it out
}

// Producer runs a plan against a consumer.
type Producer struct {
	Connect    string // the consumer's control address, host:port
	Transports []transport.Transport
	Control    control.Options
	Host       func(local net.Addr) hostinfo.Host
	SharesHost bool // the consumer's memory is this host's too
	// Observe is told of progress; it may be nil. It is called concurrently.
	Observe func(Progress)
}

// Progress is how far a run is.
type Progress struct {
	Stage         string // calibrate, warm-up or measure
	ContextTokens int64
	Done, Total   int64 // requests, or batches; Total 0 is unknown
}

// Outcome is what a run brought, whole or not.
type Outcome struct {
	Plan               Plan
	Load               Load
	Started            time.Time
	Producer, Consumer results.Side
	Path, PeerPath     transport.Path
	Samples            []model.Sample
	CalibrationSeconds float64
	Cells              []CellOutcome
}

// CellOutcome is what was measured of one cell.
type CellOutcome struct {
	cell                     *cell
	Record                   *Record
	Verify                   payload.Verdict
	Warmup                   int64
	ProducerCPU, ConsumerCPU float64
	Complete                 bool
}

// Run makes the run. It returns what was measured also when it returns an error.
func (p *Producer) Run(ctx context.Context, plan Plan, load Load) (*Outcome, error) {
	r := &run{Producer: p, load: load, outcome: &Outcome{Plan: plan, Load: load, Started: time.Now()}}
	r.side.plan = plan
	err := r.run(ctx)
	if errClose := r.side.close(); err == nil && errClose != nil {
		err = fmt.Errorf("end data connections: %w", errClose)
	}
	return r.outcome, err
}

// run is one run as the producer sees it.
type run struct {
	side
	*Producer
	load    Load
	outcome *Outcome

	nextID  atomic.Uint64
	checked []chan checked // by worker
	inbox   chan control.Message
	lost    chan struct{} // closed when nothing more will come in inbox
	lostErr error
}

func (r *run) run(ctx context.Context) (err error) {
	t, err := r.prepare(ctx)
	if err != nil {
		return err
	}
	if r.conn, err = control.Dial(ctx, r.Connect, r.Control); err != nil {
		return err
	}
	defer r.conn.Close()
	if err := r.connect(ctx, t); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.listen(cancel)
	r.watchTargets(ctx, cancel)
	err = r.phases(ctx)
	if err != nil {
		err = r.explain(ctx, err)
		r.conn.Send(kindFailed, failed{Message: err.Error()})
		return err
	}
	return r.conn.Send(kindBye, struct{}{})
}

// prepare checks the plan against this host. The memory itself comes once the
// consumer has agreed.
func (r *run) prepare(ctx context.Context) (transport.Transport, error) {
	if err := r.plan.Validate(); err != nil {
		return nil, err
	}
	t, err := pick(r.Transports, r.plan.Transport)
	if err != nil {
		return nil, err
	}
	if err := usable(ctx, t, r.plan.Direction); err != nil {
		return nil, err
	}
	need, tokens, err := r.plan.memory()
	if err != nil {
		return nil, err
	}
	if err := r.checkHostMemory(need, need, tokens); err != nil {
		return nil, err
	}
	if r.cells, err = r.plan.cells(); err != nil {
		return nil, err
	}
	source, dest, tokens := spans(r.cells)
	if err := r.checkHostMemory(source, dest, tokens); err != nil {
		return nil, err
	}
	r.span = source
	return t, nil
}

// checkHostMemory compares the need with what this host has, on which the
// consumer may run too.
func (r *run) checkHostMemory(source, dest, tokens int64) error {
	who := "producer"
	if r.SharesHost {
		who, source = "host of both sides", source+dest
	}
	return r.plan.checkMemory(who, source, tokens, hostinfo.AvailableMemory()/10*9, "run where there is more memory")
}

// connect sends the plan and makes the workers' connections.
func (r *run) connect(ctx context.Context, t transport.Transport) error {
	stop := r.conn.CloseOn(ctx)
	defer stop()
	if err := r.conn.Send(kindPlan, r.plan); err != nil {
		return err
	}
	var a accept
	if err := r.conn.Expect(kindAccept, &a, setupTimeout); err != nil {
		return err
	}
	r.outcome.Producer.Host = r.Host(r.conn.LocalAddr())
	r.outcome.Consumer.Host = a.Host
	if err := r.allocate(); err != nil {
		return err
	}
	cfg := r.plan.configure(r.cells)
	start := time.Now()
	for range r.plan.Workers {
		if err := r.dialWorker(ctx, t, a.Address, cfg); err != nil {
			return err
		}
	}
	r.setup.ConnectSeconds = time.Since(start).Seconds()
	var done ready
	if err := r.conn.Expect(kindReady, &done, r.plan.patience(r.cells)); err != nil {
		return err
	}
	r.outcome.Producer.Setup, r.outcome.Consumer.Setup = r.setup, done.Setup
	return nil
}

func (r *run) dialWorker(ctx context.Context, t transport.Transport, addr transport.Address, cfg transport.Config) error {
	ctx, cancel := context.WithTimeout(ctx, r.plan.patience(r.cells))
	defer cancel()
	if r.plan.Direction == Pull {
		tg, err := t.DialTarget(ctx, addr, cfg)
		if err != nil {
			return err
		}
		return r.addTarget(tg)
	}
	in, err := t.Dial(ctx, addr, cfg)
	if err != nil {
		return err
	}
	return r.addInitiator(in)
}

// listen hands out the consumer's messages.
func (r *run) listen(cancel context.CancelCauseFunc) {
	r.inbox = make(chan control.Message, 4)
	r.lost = make(chan struct{})
	r.checked = make([]chan checked, r.plan.Workers)
	for w := range r.checked {
		r.checked[w] = make(chan checked, 1)
	}
	go func() {
		r.lostErr = r.receive()
		close(r.lost)
		cancel(r.lostErr)
	}()
}

// receive returns why no more messages come.
func (r *run) receive() error {
	for {
		m, err := r.conn.Receive()
		if err != nil {
			if errors.Is(err, control.ErrClosed) {
				return fmt.Errorf("the consumer went away: %w", err)
			}
			return err
		}
		switch m.Kind {
		case kindChecked:
			var c checked
			if err := m.Decode(&c); err != nil {
				return err
			}
			if c.Worker < 0 || c.Worker >= len(r.checked) || len(r.checked[c.Worker]) > 0 {
				return fmt.Errorf("check of worker %d out of place: %w", c.Worker, control.ErrFrame)
			}
			r.checked[c.Worker] <- c
		case kindFailed:
			var f failed
			if err := m.Decode(&f); err != nil {
				return err
			}
			return fmt.Errorf("the consumer gave up: %s", f.Message)
		default:
			if len(r.inbox) == cap(r.inbox) {
				return fmt.Errorf("message %q out of place: %w", m.Kind, control.ErrFrame)
			}
			r.inbox <- m
		}
	}
}

// await takes the next message of the given kind.
func (r *run) await(ctx context.Context, kind string, v any) error {
	select {
	case m := <-r.inbox:
		if m.Kind != kind {
			return fmt.Errorf("wait for %q message: got %q: %w", kind, m.Kind, control.ErrFrame)
		}
		return m.Decode(v)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watchTargets takes notices, when pulling, so that reads never wait for their consumer.
func (r *run) watchTargets(ctx context.Context, cancel context.CancelCauseFunc) {
	for _, t := range r.targets {
		go func() {
			err := t.watch(ctx, func(uint64) error { return nil })
			if err != nil && ctx.Err() == nil && !errors.Is(err, transport.ErrClosed) {
				cancel(err)
			}
		}()
	}
}

// explain prefers the consumer's own words to the broken connection that they
// come with.
func (r *run) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	if !errors.Is(err, transport.ErrPeer) {
		return err
	}
	select {
	case <-r.lost:
		return fmt.Errorf("%w (%w)", r.lostErr, err)
	case <-time.After(500 * time.Millisecond):
		return err
	}
}

func (r *run) phases(ctx context.Context) error {
	for i := range r.cells {
		if err := r.calibratePath(ctx); err != nil {
			return err
		}
		if err := r.measureCell(ctx, i); err != nil {
			return err
		}
	}
	return r.calibratePath(ctx)
}

func (r *run) observe(p Progress) {
	if r.Observe != nil {
		r.Observe(p)
	}
}

// begin announces a phase and waits until the consumer is ready for it.
func (r *run) begin(ctx context.Context, p phase) error {
	transfers := len(r.cells[p.Cell].plan.Transfers)
	if p.Kind == calibratePhase {
		transfers = 0
	}
	for _, t := range r.targets {
		t.transfers.Store(int64(transfers))
	}
	if err := r.conn.Send(kindPhase, p); err != nil {
		return err
	}
	var ok struct{}
	return r.await(ctx, kindPhaseReady, &ok)
}

// end closes a phase and returns the consumer's half of it.
func (r *run) end(ctx context.Context, abort bool) (done phaseDone, err error) {
	if abort { // the context has ended; the consumer's half is still wanted
		var cancel func()
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
	}
	if err := r.conn.Send(kindPhaseEnd, phaseEnd{Abort: abort}); err != nil {
		return done, err
	}
	err = r.await(ctx, kindPhaseDone, &done)
	r.outcome.Path, r.outcome.PeerPath = r.path(), done.Path
	return done, err
}

// calibratePath runs one stretch of calibration.
func (r *run) calibratePath(ctx context.Context) error {
	if r.load.Calibrate == 0 {
		return nil
	}
	start := time.Now()
	defer func() { r.outcome.CalibrationSeconds += time.Since(start).Seconds() }()
	p := phase{Kind: calibratePhase, Calibrate: calibration{Seed: r.plan.RunID, Budget: r.load.Calibrate, Share: len(r.cells) + 1}}
	if err := r.begin(ctx, p); err != nil {
		return err
	}
	if r.plan.Direction == Push {
		samples, err := r.calibrate(ctx, p.Calibrate, func(done, total int) {
			r.observe(Progress{Stage: "calibrate", Done: int64(done), Total: int64(total)})
		})
		if err != nil {
			return err
		}
		r.outcome.Samples = append(r.outcome.Samples, samples...)
	}
	done, err := r.end(ctx, false)
	r.outcome.Samples = append(r.outcome.Samples, done.Samples...)
	return err
}

// measureCell warms up and measures one cell, and adds it to the outcome as far as it came.
func (r *run) measureCell(ctx context.Context, index int) error {
	c := &r.cells[index]
	if err := r.begin(ctx, phase{Kind: measurePhase, Cell: index}); err != nil {
		return err
	}
	r.outcome.Cells = append(r.outcome.Cells, CellOutcome{cell: c})
	out := &r.outcome.Cells[len(r.outcome.Cells)-1]
	before := r.arrivals()
	r.meter.reset()
	tally := &tally{total: int64(r.load.Warmup)}
	errRun := r.workers(ctx, c, tally, true)
	out.Warmup = tally.finished
	if errRun == nil {
		tally.reset(int64(r.load.Requests), r.load.Duration)
		errRun = r.workers(ctx, c, tally, false)
	}
	out.ProducerCPU = r.meter.seconds()
	out.Verify = tally.verdict
	done, err := r.end(ctx, errRun != nil)
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
	if err != nil {
		return err
	}
	if out.Record == nil {
		return fmt.Errorf("the consumer sent no record: %w", control.ErrFrame)
	}
	if err := r.noticed(ctx, before+out.Warmup+tally.finished); err != nil {
		return err
	}
	out.Complete = true
	return nil
}

// arrivals counts, when pulling, the requests that this side was told of.
func (r *run) arrivals() (n int64) {
	for _, t := range r.targets {
		n += t.arrived.Load()
	}
	return n
}

// noticed checks, when pulling, that this side was told of every request read.
func (r *run) noticed(ctx context.Context, want int64) error {
	if len(r.targets) == 0 {
		return nil
	}
	deadline := time.Now().Add(2 * time.Second)
	for r.arrivals() < want {
		if time.Now().After(deadline) {
			return fmt.Errorf("the consumer says that it read everything, but notices of %d request(s) are missing: %w", want-r.arrivals(), transport.ErrProtocol)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// tally deals out the requests of a stage and counts what came of them.
type tally struct {
	mu       sync.Mutex // taken between requests, never while one is timed
	total    int64      // 0 with a deadline: until then
	deadline time.Time
	started  int64
	finished int64
	verdict  payload.Verdict // of all stages
}

func (t *tally) reset(total int64, d time.Duration) {
	t.started, t.finished, t.total, t.deadline = 0, 0, total, time.Time{}
	if d > 0 {
		t.total, t.deadline = 0, time.Now().Add(d)
	}
}

// next reports whether another request is to be started.
func (t *tally) next() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.deadline.IsZero() && t.started >= t.total || !t.deadline.IsZero() && time.Now().After(t.deadline) {
		return false
	}
	t.started++
	return true
}

func (t *tally) finish(v payload.Verdict) (finished, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finished++
	t.verdict.Add(v)
	return t.finished, t.total
}

// workers runs a stage on every worker and waits for all of them.
func (r *run) workers(ctx context.Context, c *cell, t *tally, warmup bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for w := range r.plan.Workers {
		wg.Go(func() {
			if err := r.worker(ctx, w, c, t, warmup); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// worker takes one request after the other through the run.
func (r *run) worker(ctx context.Context, w int, c *cell, t *tally, warmup bool) error {
	stage := "measure"
	if warmup {
		stage = "warm-up"
	}
	for t.next() {
		id := r.nextID.Add(1)
		r.fill(c, w, id)
		if err := r.moveRequest(ctx, w, c, id, warmup); err != nil {
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
	return nil
}

// moveRequest moves one request, or has the consumer do it.
func (r *run) moveRequest(ctx context.Context, w int, c *cell, id uint64, warmup bool) error {
	if r.plan.Direction == Pull {
		return r.conn.Send(kindRequest, request{Worker: w, ID: id, Warmup: warmup})
	}
	in := r.initiators[w]
	record := in.record
	if warmup {
		record = nil
	}
	s, first, err := in.move(ctx, id, c.descriptors, record)
	if err != nil {
		return err
	}
	if record != nil {
		record.request(s.start, s, first, c.plan.Bytes)
	}
	return nil
}
