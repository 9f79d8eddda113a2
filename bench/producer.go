package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"kvbench/internal/control"
	"kvbench/internal/hostinfo"
	"kvbench/model"
	"kvbench/payload"
	"kvbench/results"
	"kvbench/transport"
)

// ErrCorrupt is returned when received bytes differ from the bytes sent.
var ErrCorrupt = errors.New("data arrived wrong")

// Load sets how much a producer measures.
type Load struct {
	Requests  int           // per cell; used if Duration is 0
	Duration  time.Duration // per cell
	Warmup    int           // requests per cell, not counted
	Calibrate time.Duration // length of calibration; 0 skips it

	// Rate is the arrivals per second of an open loop. 0 is a closed loop: a worker
	// starts a request when its previous one is done.
	Rate     float64
	Arrivals Arrivals
	Seed     uint64
	// Prefill is the emulated prefill of each cell's requests; layers move as they become
	// ready. nil emulates none.
	Prefill []time.Duration
}

// Length returns the expected time for a cell's requests to arrive in an open loop:
// Requests / Rate. It is 0 in a closed loop, or if Duration ends a cell.
func (l Load) Length() time.Duration {
	if l.Rate <= 0 || l.Duration > 0 {
		return 0
	}
	return time.Duration(min(float64(l.Requests)/l.Rate*float64(time.Second), math.MaxInt64/2))
}

// Producer runs a plan against a consumer.
type Producer struct {
	Connect    string // the consumer's control address, host:port
	Transports []transport.Transport
	Control    control.Options
	Host       func(local net.Addr) hostinfo.Host
	SharesHost bool // the consumer uses this host's memory
	// Observe receives progress. It may be nil. It is called concurrently.
	Observe func(Progress)
	// Connected is called once both sides are connected, before anything is measured. Its
	// error ends the run. It may be nil.
	Connected func(*Outcome) error
	// MoreStreams is called after all measurements and reports whether to probe more
	// streams. nil means no.
	MoreStreams func(*Outcome) bool
}

// Progress is how far a run has come.
type Progress struct {
	Stage         string // calibrate, warm-up, measure or streams
	ContextTokens int64
	Done, Total   int64 // requests or batches; a Total of 0 is unknown
}

// Outcome is the result of a run, complete or not.
type Outcome struct {
	Plan               Plan
	Load               Load
	Started            time.Time
	Producer, Consumer results.Side
	Path, PeerPath     transport.Path
	Samples            []model.Sample
	CalibrationSeconds float64
	Cells              []CellOutcome
	Streams            *results.StreamProbe // nil if more streams were not tried
}

// CellOutcome is the measurement of one cell.
type CellOutcome struct {
	cell        *cell
	Record      *Record
	Verify      payload.Verdict
	Warmup      int64
	ProducerCPU float64
	ConsumerCPU *float64 // nil if another run shared the consumer's process
	Complete    bool
	Pace        time.Duration // prefill of one layer; 0 without
}

// Run makes the run. It returns the outcome so far even with an error.
func (p *Producer) Run(ctx context.Context, plan Plan, load Load) (*Outcome, error) {
	r := &run{Producer: p, load: load, outcome: &Outcome{Plan: plan, Load: load, Started: time.Now()}}
	r.side.plan = plan
	err := r.run(ctx)
	if errClose := r.side.close(); err == nil && errClose != nil {
		err = fmt.Errorf("end data connections: %w", errClose)
	}
	return r.outcome, err
}

// run is one run from the producer's side.
type run struct {
	side
	*Producer
	load    Load
	outcome *Outcome
	listing time.Duration // how long the consumer may take to make its lists

	nextID  atomic.Uint64
	clock   stageClock
	checked []chan checked // by worker
	inbox   chan control.Message
	lost    chan struct{} // closed when inbox receives no more
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
	if ctx.Err() != nil { // this side has closed the channel, not the peer
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.listen(cancel)
	r.watchTargets(ctx, cancel)
	r.outcome.Path = r.path()
	if r.Connected != nil {
		err = r.Connected(r.outcome)
	}
	if err == nil {
		err = r.phases(ctx)
	}
	if err != nil {
		err = r.explain(ctx, err)
		r.conn.Refuse(control.Refuse(failedCode, "%v", err))
		return err
	}
	if err := r.conn.Send(kindBye, struct{}{}); err != nil {
		return err
	}
	// The consumer closes the channel once it is free for the next run.
	select {
	case <-r.lost:
	case <-time.After(setupTimeout):
	}
	return nil
}

// prepare checks the plan against this host. Memory is made later, once the consumer has
// accepted.
func (r *run) prepare(ctx context.Context) (transport.Transport, error) {
	if err := r.plan.Validate(); err != nil {
		return nil, &PlanError{err}
	}
	t, err := pick(r.Transports, r.plan.Transport, r.plan.Memory)
	if err != nil {
		return nil, &PlanError{err}
	}
	if err := usable(ctx, t, r.plan); err != nil {
		return nil, err
	}
	need, err := r.plan.memory()
	if err != nil {
		return nil, &PlanError{err}
	}
	own := t.Capabilities().HostBytes
	need.worker += own
	if err := r.checkHostMemory(need); err != nil {
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
	need.worker, need.tokens = needed+own, tokens
	if err := r.checkHostMemory(need); err != nil {
		return nil, err
	}
	r.span, r.listing = source, need.listing()
	return t, nil
}

// checkHostMemory compares the plan's footprint with this host's memory, which the
// consumer may share.
func (r *run) checkHostMemory(need footprint) error {
	side := "producer"
	if r.SharesHost {
		side = bothSides
	}
	return r.plan.checkMemory(side, need, hostinfo.AvailableMemory()/10*9, "run where there is more memory")
}

// connect sends the plan and makes the workers' connections.
func (r *run) connect(ctx context.Context, t transport.Transport) error {
	r.via = t
	stop := r.conn.CloseOn(ctx)
	defer stop()
	var a accept
	err := r.conn.Send(kindPlan, r.plan)
	if err == nil {
		err = r.conn.Expect(kindAccept, &a, setupTimeout+r.listing)
	}
	if err != nil {
		return peerEnd("consumer", " before it answered the plan", err)
	}
	if there, ok := r.conn.RemoteAddr().(*net.TCPAddr); ok {
		r.plan.Config.Zone = there.Zone // data takes the same zone as control
	}
	r.outcome.Producer.Host = r.Host(hostinfo.PathAddr(r.conn))
	r.outcome.Consumer.Host = a.Host
	cfg := r.plan.configure(r.cells)
	start := time.Now()
	for range r.plan.Workers {
		if err := r.dialWorker(ctx, t, a.Address, cfg); err != nil {
			return whyUnconnected(r.conn, "consumer", 500*time.Millisecond, err)
		}
	}
	r.setup.ConnectSeconds = r.connectTime(start)
	var done ready
	if err := r.conn.Expect(kindReady, &done, r.plan.patience(r.cells)); err != nil {
		return peerEnd("consumer", settingUp, err)
	}
	r.conn.KeepAlive()
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
		if err := r.addTarget(ctx, tg); err != nil {
			return err
		}
		var joined struct{}
		return r.conn.Expect(kindJoined, &joined, r.plan.patience(r.cells))
	}
	in, err := t.Dial(ctx, addr, cfg)
	if err != nil {
		return err
	}
	return r.addInitiator(ctx, in)
}

// listen distributes the consumer's messages.
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

// receive distributes messages until the channel ends, and returns the reason.
func (r *run) receive() error {
	for {
		m, err := r.conn.Receive()
		if err != nil {
			return peerEnd("consumer", "", err)
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

// await takes the next message, which must have the given kind.
func (r *run) await(ctx context.Context, kind string, v any) error {
	var m control.Message
	select {
	case m = <-r.inbox:
	case <-r.lost:
		// Messages that came before the end still count.
		select {
		case m = <-r.inbox:
		default:
			return r.lostErr
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if m.Kind != kind {
		return control.OutOfTurn(m.Kind, kind)
	}
	return m.Decode(v)
}

// watchTargets takes notices, when pulling, so that reads never wait for this side.
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

// explain prefers the consumer's reason to the broken connection that comes with it.
func (r *run) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	if errors.Is(err, control.ErrRefused) && strings.Contains(err.Error(), transport.ErrPeer.Error()) {
		// The consumer lost this side, so the reason is here.
		if own := r.ownEnd(); own != nil {
			return fmt.Errorf("%w (%w)", err, own)
		}
		return err
	}
	broken := errors.Is(err, control.ErrClosed) // reported by any call
	if !broken && !errors.Is(err, transport.ErrPeer) {
		return err
	}
	select {
	case <-r.lost:
		if broken {
			return r.lostErr
		}
		return fmt.Errorf("%w (%w)", r.lostErr, err)
	case <-time.After(500 * time.Millisecond):
		return err
	}
}

// ownEnd returns why a target's connection ended on this side, or nil.
func (r *run) ownEnd() error {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	var notices [64]transport.Notice
	for _, t := range r.targets {
		for ctx.Err() == nil {
			if _, err := t.Notifications(ctx, notices[:]); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
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
	if err := r.calibratePath(ctx); err != nil {
		return err
	}
	return r.probeStreams(ctx)
}

func (r *run) observe(p Progress) {
	if r.Observe != nil {
		r.Observe(p)
	}
}

// begin announces a phase and waits until the consumer is ready.
func (r *run) begin(ctx context.Context, p phase) error {
	transfers := len(r.cells[p.Cell].plan.Transfers)
	if p.Kind == calibratePhase {
		transfers = 0
	}
	for _, t := range r.targets {
		t.transfers.Store(int64(transfers))
	}
	_, err := r.announce(ctx, p)
	return err
}

// announce sends a phase to the consumer and returns its answer.
func (r *run) announce(ctx context.Context, p phase) (ready phaseReady, err error) {
	if err := r.conn.Send(kindPhase, p); err != nil {
		return ready, err
	}
	return ready, r.await(ctx, kindPhaseReady, &ready)
}

// end closes a phase and returns the consumer's half.
func (r *run) end(ctx context.Context, abort bool) (done phaseDone, err error) {
	if abort { // the context has ended, but the consumer's half is still needed
		var cancel func()
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
	}
	if err := r.conn.Send(kindPhaseEnd, phaseEnd{Abort: abort}); err != nil {
		return done, err
	}
	err = r.await(ctx, kindPhaseDone, &done)
	if err == nil && done.Record != nil {
		err = done.Record.whole()
	}
	r.outcome.Path = r.path()
	if err != nil {
		return phaseDone{}, err // done may be partly decoded; keep the peer's earlier path
	}
	r.outcome.PeerPath = done.Path
	return done, nil
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
