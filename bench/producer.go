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

	// Rate is the arrivals a second of an open loop; 0 is a closed loop, in which a
	// worker starts a request when it is done with the one before.
	Rate     float64
	Arrivals Arrivals
	Seed     uint64
	// Prefill is the emulated prefill of each cell's requests, under which layers
	// move as they become ready; nil emulates none.
	Prefill []time.Duration
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
	Pace                     time.Duration // prefill of one layer; 0 without
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
	clock   stageClock
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
	err = r.connect(ctx, t)
	if ctx.Err() != nil { // then this side has closed the channel, and not the peer
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.listen(cancel)
	r.watchTargets(ctx, cancel)
	err = r.phases(ctx)
	if err != nil {
		err = r.explain(ctx, err)
		r.conn.Refuse(control.Refuse("failed", "%v", err))
		return err
	}
	if err := r.conn.Send(kindBye, struct{}{}); err != nil {
		return err
	}
	// The consumer hangs up once it is free for the next run.
	select {
	case <-r.lost:
	case <-time.After(setupTimeout):
	}
	return nil
}

// prepare checks the plan against this host. The memory itself comes once the
// consumer has agreed.
func (r *run) prepare(ctx context.Context) (transport.Transport, error) {
	if err := r.plan.Validate(); err != nil {
		return nil, &PlanError{err}
	}
	t, err := pick(r.Transports, r.plan.Transport)
	if err != nil {
		return nil, &PlanError{err}
	}
	if err := usable(ctx, t, r.plan); err != nil {
		return nil, err
	}
	need, tokens, err := r.plan.memory()
	if err != nil {
		return nil, &PlanError{err}
	}
	if err := r.checkHostMemory(need, tokens); err != nil {
		return nil, err
	}
	if r.cells, err = r.plan.cells(); err != nil {
		return nil, &PlanError{err}
	}
	source, dest, tokens := spans(r.cells)
	needed := source
	if r.SharesHost {
		needed = max(source, dest)
	}
	if err := r.checkHostMemory(needed, tokens); err != nil {
		return nil, err
	}
	r.span = source
	return t, nil
}

// checkHostMemory compares the need of a worker with what this host has, on which
// the consumer may run too.
func (r *run) checkHostMemory(perWorker, tokens int64) error {
	side := "producer"
	if r.SharesHost {
		side = bothSides
	}
	return r.plan.checkMemory(side, perWorker, tokens, hostinfo.AvailableMemory()/10*9, "run where there is more memory")
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
	r.outcome.Producer.Host = r.Host(onPath(r.conn))
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
	r.outcome.Producer.CopyBytesPerSecond, r.outcome.Consumer.CopyBytesPerSecond = hostinfo.CopyRate(), done.CopyRate
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
		if err := r.addTarget(tg); err != nil {
			return err
		}
		var joined struct{}
		return r.conn.Expect(kindJoined, &joined, r.plan.patience(r.cells))
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
			return peerEnd("consumer", err)
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
	var m control.Message
	select {
	case m = <-r.inbox:
	case <-r.lost:
		// What came before the end still counts.
		select {
		case m = <-r.inbox:
		default:
			return r.lostErr
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if m.Kind != kind {
		return fmt.Errorf("wait for %q message: got %q: %w", kind, m.Kind, control.ErrFrame)
	}
	return m.Decode(v)
}

// watchTargets takes notices, when pulling, so that reads never wait for their consumer.
func (r *run) watchTargets(ctx context.Context, cancel context.CancelCauseFunc) {
	for _, t := range r.targets {
		go func() {
			err := t.watch(ctx, func(uint64) error { return nil })
			if ctx.Err() == nil && !errors.Is(err, transport.ErrClosed) {
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
	if done.Record != nil && err == nil {
		if err = done.Record.whole(); err != nil {
			done.Record = nil
		}
	}
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
	p := phase{Kind: calibratePhase, Calibrate: calibration{Seed: r.load.Seed, Budget: r.load.Calibrate, Share: len(r.cells) + 1}}
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
	out.Complete = true
	return nil
}

// stage runs one phase of requests from its announcement to its end. It returns
// the consumer's half also with an error.
func (r *run) stage(ctx context.Context, c *cell, t *tally, p phase, warmup bool) (phaseDone, error) {
	if err := r.begin(ctx, p); err != nil {
		return phaseDone{}, err
	}
	r.meter.reset()
	errRun := r.workers(ctx, c, t, p.Pace, warmup)
	done, err := r.end(ctx, errRun != nil)
	if errRun != nil {
		return done, errRun
	}
	return done, err
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

// pace is the emulated prefill of one layer of a cell.
func (r *run) pace(index int) time.Duration {
	if r.load.Prefill == nil {
		return 0
	}
	return r.load.Prefill[index] / time.Duration(len(r.cells[index].plan.Transfers))
}

// tally deals out the requests of a stage and counts what came of them.
type tally struct {
	mu       sync.Mutex // taken between requests, never while one is timed
	total    int64      // 0 with a deadline: until then
	deadline time.Time
	started  int64
	finished int64
	verdict  payload.Verdict // of all stages
	schedule *schedule       // nil in a closed loop
}

// reset begins the stage that is measured.
func (t *tally) reset(l Load) {
	t.started, t.finished, t.total, t.deadline = 0, 0, int64(l.Requests), time.Time{}
	if l.Duration > 0 {
		t.total, t.deadline = 0, time.Now().Add(l.Duration)
	}
	if l.Rate > 0 {
		t.schedule = newSchedule(l)
	}
}

// next reports whether another request is to be started, and when it is due from
// the start of the stage: never less than 0 in an open loop, else -1.
func (t *tally) next() (due time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.deadline.IsZero() && t.started >= t.total || !t.deadline.IsZero() && time.Now().After(t.deadline) {
		return 0, false
	}
	t.started++
	if t.schedule == nil {
		return -1, true
	}
	return t.schedule.next(), true
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

// worker takes one request after the other through the run.
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
		r.fill(c, w, id)
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

// moveRequest moves one request, or has the consumer do it.
func (r *run) moveRequest(ctx context.Context, c *cell, q request, pace time.Duration) error {
	if r.plan.Direction == Pull {
		return r.conn.Send(kindRequest, q)
	}
	in := r.initiators[q.Worker]
	record := in.record
	if q.Warmup {
		record = nil
	}
	due, err := r.clock.await(ctx, q.Due)
	if err != nil {
		return err
	}
	m, err := in.move(ctx, job{q.ID, c.descriptors, pace, record})
	if err != nil {
		return err
	}
	if record != nil {
		record.request(min(due, m.start), m, c.plan.Bytes)
	}
	return nil
}
