package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"kvbench/internal/control"
	"kvbench/internal/hostinfo"
	"kvbench/model"
	"kvbench/transport"
)

// settingUp is the stage of a peer between the plan and the first phase, in error texts.
const settingUp = " while it made its memory and connections ready"

// peerEnd describes how a peer left the control channel: with a reason, without one, or
// by falling silent. when begins with a space, or is empty. A refusal of the whole run is
// returned unchanged.
func peerEnd(who, when string, err error) error {
	var r *control.Refusal
	switch {
	case errors.As(err, &r) && r.Code != failedCode:
		return err
	case r != nil:
		return fmt.Errorf("the %s gave up%s: %w", who, when, err)
	case errors.Is(err, control.ErrClosed):
		return fmt.Errorf("the %s went away%s: %w; see what it printed", who, when, err)
	case errors.Is(err, control.ErrSilent):
		return fmt.Errorf("the %s fell silent%s: %w; see what it printed, and whether it is stopped, or its host or the network between is gone", who, when, err)
	}
	return err
}

// whyUnconnected returns the error of a data connection that failed. It waits up to
// patience for the peer's reason on the control channel, and prefers that reason to the
// broken connection.
func whyUnconnected(conn *control.Conn, who string, patience time.Duration, err error) error {
	if !errors.Is(err, transport.ErrPeer) {
		return peerEnd(who, settingUp, err)
	}
	until := time.Now().Add(patience)
	for left := patience; left > 0; left = time.Until(until) {
		var ignored json.RawMessage
		said := conn.Expect(kindBye, &ignored, left)
		switch {
		case errors.Is(said, control.ErrRefused), errors.Is(said, control.ErrClosed):
			return fmt.Errorf("%w (%w)", peerEnd(who, settingUp, said), err)
		case said != nil && !errors.Is(said, control.ErrFrame): // ErrFrame is a message from before
			return err
		}
	}
	return err
}

// failedCode is the code of a refusal that ends a run in progress.
const failedCode = "failed"

// session is one run from the consumer's side.
type session struct {
	side
	consumer *Consumer
	host     string               // local address that the producer reached
	current  atomic.Pointer[cell] // of the phase
	pace     time.Duration        // of the phase
	clock    stageClock
	requests []chan request
	regions  chan region // from a probe's target, when pulling; otherwise nil
	samples  []model.Sample
}

// prepare checks a plan against the limits. Memory is made later, so that a refusal is
// quick.
func (s *session) prepare(ctx context.Context) (transport.Transport, error) {
	if err := s.plan.Validate(); err != nil {
		return nil, err
	}
	t, err := pick(s.consumer.Transports, s.plan.Transport, s.plan.Memory)
	if err != nil {
		return nil, err
	}
	s.plan.Config.Device, s.plan.Config.GPU = s.consumer.Device, s.consumer.GPU
	if err := usable(ctx, t, s.plan); err != nil {
		return nil, err
	}
	limit := s.consumer.Limits.MemoryBytes
	raise := "start the consumer with a higher --max-memory"
	if limit == 0 {
		limit = hostinfo.AvailableMemory() / 5 * 4
		raise = "free memory on that host"
	}
	need, err := s.plan.memory()
	if err != nil {
		return nil, err
	}
	own := t.Capabilities().HostBytes
	need.worker += own
	if err := s.plan.checkMemory("consumer", need, limit, raise); err != nil {
		return nil, err
	}
	if s.cells, err = s.plan.cells(); err != nil {
		return nil, err
	}
	_, s.span, need.tokens = spans(s.cells)
	need.worker = s.span + own
	if err := s.plan.checkMemory("consumer", need, limit, raise); err != nil {
		return nil, err
	}
	return t, nil
}

// run serves the producer until its goodbye.
func (s *session) run(ctx context.Context, t transport.Transport) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer func() {
		// Report the error before closing the data connections, which may take as long as
		// the timeout for a lost peer.
		if err != nil {
			s.consumer.Log("%s: %v", s.conn.RemoteAddr(), err)
			if !errors.Is(err, control.ErrClosed) {
				s.leave(err)
			}
		}
		cancel(err)
		s.disconnect()
		wg.Wait()
	}()
	if err := s.connect(ctx, t); err != nil {
		// Wait less than the producer does, because it must receive this error.
		return whyUnconnected(s.conn, "producer", 200*time.Millisecond, err)
	}
	stopped := context.AfterFunc(ctx, func() {
		s.leave(context.Cause(ctx))
		s.conn.Close() // unblocks Receive below
	})
	defer stopped()
	for _, tg := range s.targets {
		wg.Go(func() {
			err := tg.watch(ctx, func(request uint64) error { return s.arrived(tg.worker, request) })
			// The control channel reports a lost producer, with the reason.
			if ctx.Err() == nil && !errors.Is(err, transport.ErrPeer) {
				cancel(err)
			}
		})
	}
	for {
		bye, err := s.step(ctx, &wg, cancel)
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if bye || err != nil {
			return peerEnd("producer", "", err)
		}
	}
}

// leave sends the producer the reason why the session ends.
func (s *session) leave(why error) {
	if errors.Is(why, context.Canceled) {
		why = errors.New("it was stopped")
	}
	s.conn.Refuse(control.Refuse(failedCode, "%v", why))
}

// connect accepts the workers' connections.
func (s *session) connect(ctx context.Context, t transport.Transport) error {
	host, _, err := net.SplitHostPort(s.conn.LocalAddr().String())
	if err != nil {
		return fmt.Errorf("find the address that the producer reached: %w", err)
	}
	s.via, s.host = t, host
	l, err := s.listen(ctx, s.plan.Config.Streams)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := s.conn.Send(kindAccept, accept{Address: l.Address(), Host: s.consumer.Host(hostinfo.PathAddr(s.conn)), Build: s.consumer.Control.Build}); err != nil {
		return err
	}
	start := time.Now()
	for range s.plan.Workers {
		if err := s.acceptWorker(ctx, l); err != nil {
			return err
		}
	}
	s.setup.ConnectSeconds = s.connectTime(start)
	if err := s.conn.Send(kindReady, ready{Setup: s.setup, CopyRate: hostinfo.CopyRate()}); err != nil {
		return err
	}
	s.conn.KeepAlive()
	return nil
}

// listen opens a listener for data connections with a number of streams.
func (s *session) listen(ctx context.Context, streams int) (transport.Listener, error) {
	cfg := s.plan.configure(s.cells)
	cfg.Listen, cfg.Advertise, cfg.Streams = net.JoinHostPort(s.host, "0"), "", streams
	return s.via.Listen(ctx, cfg)
}

func (s *session) acceptWorker(ctx context.Context, l transport.Listener) error {
	ctx, cancel := context.WithTimeout(ctx, s.plan.patience(s.cells))
	defer cancel()
	if s.plan.Direction == Pull {
		in, err := whileThere(ctx, s.conn, l.AcceptInitiator)
		if err != nil {
			return err
		}
		if err := s.addInitiator(ctx, in); err != nil {
			return err
		}
		return s.conn.Send(kindJoined, struct{}{})
	}
	t, err := whileThere(ctx, s.conn, l.AcceptTarget)
	if err != nil {
		return err
	}
	return s.addTarget(ctx, t)
}

// whileThere accepts only while the producer is there: a producer that has gone will not
// dial any more.
func whileThere[T any](ctx context.Context, conn *control.Conn, accept func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watch, enough := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := conn.Lost(watch); err != nil {
			cancel(err)
		}
	}()
	defer cancel(nil)
	accepted, err := accept(ctx)
	enough()
	<-done
	if err == nil {
		return accepted, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if errors.Is(err, control.ErrClosed) {
		return accepted, err
	}
	if errors.Is(err, context.DeadlineExceeded) { // the producer is there but does not dial
		return accepted, fmt.Errorf("%w: no data connection came in time", control.ErrSilent)
	}
	return accepted, fmt.Errorf("accept data connection: %w", err)
}

// step handles one message. bye reports whether the producer ended the run.
func (s *session) step(ctx context.Context, wg *sync.WaitGroup, cancel context.CancelCauseFunc) (bye bool, err error) {
	m, err := s.conn.Receive()
	if err != nil {
		return false, err
	}
	switch m.Kind {
	case kindPhase:
		var p phase
		if err := m.Decode(&p); err != nil {
			return false, err
		}
		return false, s.phase(ctx, p, cancel)
	case kindBye:
		return true, nil
	}
	return false, fmt.Errorf("message %q out of place: %w", m.Kind, control.ErrFrame)
}

// phase serves one phase, from announcement to end.
func (s *session) phase(ctx context.Context, p phase, cancel context.CancelCauseFunc) error {
	if p.Cell < 0 || p.Cell >= len(s.cells) || p.Pace < 0 {
		return fmt.Errorf("phase of cell %d of %d: %w", p.Cell, len(s.cells), control.ErrFrame)
	}
	switch p.Kind {
	case calibratePhase, measurePhase:
	case probePhase:
		return s.probe(ctx, p.Probe)
	default:
		return fmt.Errorf("phase of unknown kind %.40q: %w", p.Kind, control.ErrFrame)
	}
	s.current.Store(&s.cells[p.Cell])
	s.pace = p.Pace
	s.clock.reset()
	transfers := len(s.cells[p.Cell].plan.Transfers)
	if p.Kind == calibratePhase {
		transfers = 0
	}
	for _, t := range s.targets {
		t.transfers.Store(int64(transfers))
	}
	phaseCtx, abort := context.WithCancel(ctx)
	defer abort()
	var work sync.WaitGroup
	var late atomic.Pointer[string] // failure of a worker after the producer's abort
	guard := func(f func() error) {
		work.Go(func() {
			err := f()
			switch {
			case err != nil && phaseCtx.Err() == nil:
				cancel(err)
			case err != nil && !errors.Is(err, context.Canceled):
				why := err.Error()
				late.Store(&why)
			}
		})
	}
	s.requests = nil
	switch {
	case s.plan.Direction == Pull && p.Kind == calibratePhase:
		guard(func() (err error) {
			s.samples, err = s.calibrate(phaseCtx, p.Calibrate, func(int, int) {})
			return err
		})
	case s.plan.Direction == Pull:
		for w := range s.initiators {
			queue := make(chan request, 1)
			s.requests = append(s.requests, queue)
			guard(func() error { return s.pull(phaseCtx, w, queue) })
		}
	}
	alone := s.consumer.runs.alone()
	s.meter.reset()
	if err := s.conn.Send(kindPhaseReady, phaseReady{}); err != nil {
		return err
	}
	end, err := s.untilPhaseEnd(phaseCtx)
	if end.Abort || err != nil {
		abort()
	}
	for _, q := range s.requests {
		close(q)
	}
	work.Wait()
	if err != nil {
		return err
	}
	done := phaseDone{Path: s.path(), Samples: s.samples}
	if cpu := s.meter.seconds(); alone() {
		done.CPUSeconds = &cpu
	}
	s.samples = nil
	if why := late.Load(); why != nil {
		done.Failed = *why
	}
	if len(s.requests) > 0 {
		records := make([]*Record, len(s.initiators))
		for w, in := range s.initiators {
			records[w], in.record = in.record, newRecord()
		}
		done.Record = merge(records)
	}
	return s.conn.Send(kindPhaseDone, done)
}

// untilPhaseEnd distributes the producer's requests until the phase ends.
func (s *session) untilPhaseEnd(ctx context.Context) (end phaseEnd, err error) {
	for {
		m, err := s.conn.Receive()
		if err != nil {
			return end, err
		}
		switch m.Kind {
		case kindRequest:
			var r request
			if err := m.Decode(&r); err != nil {
				return end, err
			}
			if r.Worker < 0 || r.Worker >= len(s.requests) {
				return end, fmt.Errorf("request for worker %d of %d: %w", r.Worker, len(s.requests), control.ErrFrame)
			}
			select {
			case s.requests[r.Worker] <- r:
			case <-ctx.Done():
				return end, context.Cause(ctx)
			}
		case kindRegion:
			var r region
			if err := m.Decode(&r); err != nil {
				return end, err
			}
			select {
			case s.regions <- r: // there is no room outside a probe, or for a second region
			default:
				return end, fmt.Errorf("message %q out of place: %w", m.Kind, control.ErrFrame)
			}
		case kindPhaseEnd:
			return end, m.Decode(&end)
		default:
			return end, fmt.Errorf("message %q out of place: %w", m.Kind, control.ErrFrame)
		}
	}
}

// pull reads one worker's requests from the producer during a phase.
func (s *session) pull(ctx context.Context, worker int, queue <-chan request) error {
	in, c := s.initiators[worker], s.current.Load()
	for r := range queue {
		if err := in.serve(ctx, &s.clock, r, c, s.pace); err != nil {
			return err
		}
		if err := s.arrived(worker, r.ID); err != nil {
			return err
		}
	}
	return nil
}

// arrived checks a delivered request and reports it to the producer.
func (s *session) arrived(worker int, request uint64) error {
	v, err := s.check(s.current.Load(), worker, request)
	if err != nil {
		return err
	}
	return s.conn.Send(kindChecked, checked{worker, request, v})
}
