package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"kvbench/internal/control"
	"kvbench/model"
	"kvbench/results"
	"kvbench/transport"
)

// probe is a stretch of batches over a separate connection, to measure the bandwidth of a
// number of streams.
type probe struct {
	Streams int   `json:"streams"`
	Bytes   int64 `json:"bytes"`   // of a batch: one transfer of one descriptor
	Batches int   `json:"batches"` // timed; one more precedes them
}

const (
	probeRounds  = 2 // stream counts alternate, so that drift does not look like a difference
	probeBatches = 4 // per round
	probeLength  = 80 * time.Millisecond

	// leastProbe is the size in bytes of the smallest batch that shows a bandwidth, not a
	// startup.
	leastProbe = 1 << 20
)

// validate checks values from the peer.
func (p probe) validate(can transport.Capabilities) error {
	if p.Streams < 1 || can.MaxStreams > 0 && p.Streams > can.MaxStreams || p.Streams > maxProbeStreams || p.Bytes < 1 || p.Batches < 1 || p.Batches > 100 {
		return fmt.Errorf("probe of %d batches of %d bytes over %d streams: %w", p.Batches, p.Bytes, p.Streams, control.ErrFrame)
	}
	return nil
}

// maxProbeStreams is more than any path needs and few enough for any host.
const maxProbeStreams = 256

// probeStreams measures, after everything else and if MoreStreams agrees, whether more
// streams carry more. A failed probe spoils no measurement: the outcome notes the reason.
func (r *run) probeStreams(ctx context.Context) error {
	if r.MoreStreams == nil || r.plan.Workers > 1 || !r.MoreStreams(r.outcome) {
		return nil
	}
	can := r.via.Capabilities()
	own := max(1, r.plan.Config.Streams)
	counts := slices.DeleteFunc([]int{own, 2 * own, 4 * own}, func(n int) bool {
		return n > maxProbeStreams || can.MaxStreams > 0 && n > can.MaxStreams
	})
	bytes := r.probeBytes()
	if len(counts) < 2 || bytes < leastProbe {
		return nil
	}
	path, peer := r.outcome.Path, r.outcome.PeerPath
	defer func() { r.outcome.Path, r.outcome.PeerPath = path, peer }() // keep the paths of the measurements
	out := &results.StreamProbe{Bytes: bytes}
	r.outcome.Streams = out
	seconds := make([][]float64, len(counts))
	for round := range probeRounds {
		for i, n := range counts {
			samples, err := r.probeOnce(ctx, probe{Streams: n, Bytes: bytes, Batches: probeBatches})
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				out.Note = fmt.Sprintf("%d streams: %v", n, err)
				return nil
			}
			for _, s := range samples {
				seconds[i] = append(seconds[i], s.Seconds)
			}
			r.observe(Progress{Stage: "streams", Done: int64(round*len(counts) + i + 1), Total: int64(probeRounds * len(counts))})
		}
	}
	for i, n := range counts {
		out.Rates = append(out.Rates, streamRate(n, bytes, seconds[i]))
	}
	return nil
}

// probeBytes returns the size of a batch that takes about probeLength at the goodput of
// the last cell. It returns 0 if a batch large enough to show a bandwidth would take too
// long.
func (r *run) probeBytes() int64 {
	last := r.outcome.Cells[len(r.outcome.Cells)-1].Record
	if last.Busy <= 0 {
		return 0
	}
	bytes := int64(float64(last.Bytes) / last.Busy.Seconds() * probeLength.Seconds())
	if bytes < leastProbe/4 {
		return 0
	}
	source, dest, _ := spans(r.cells)
	return min(max(bytes, leastProbe), source, dest, largestBatch)
}

// streamRate summarizes the batches of one stream count.
func streamRate(streams int, bytes int64, seconds []float64) results.StreamRate {
	slices.Sort(seconds)
	rate := func(s float64) float64 { return float64(bytes) / s }
	return results.StreamRate{
		Streams: streams, Batches: len(seconds), Goodput: rate(model.MedianInterval(seconds).Value),
		Slowest: rate(seconds[len(seconds)-1]), Fastest: rate(seconds[0]),
	}
}

// probeOnce connects with a number of streams, moves batches, and ends the connection.
func (r *run) probeOnce(ctx context.Context, p probe) ([]model.Sample, error) {
	ready, err := r.announce(ctx, phase{Kind: probePhase, Probe: p})
	if err != nil {
		return nil, err
	}
	if ready.Failed != "" {
		_, err := r.end(ctx, true)
		return nil, errors.Join(errors.New(ready.Failed), err)
	}
	samples, leave, errProbe := r.dialProbe(ctx, ready.Address, p)
	done, err := r.end(ctx, errProbe != nil)
	leave()
	switch {
	case errProbe != nil:
		return nil, errProbe
	case err != nil:
		return nil, err
	case done.Failed != "":
		return nil, errors.New(done.Failed)
	}
	if r.plan.Direction == Pull {
		samples = done.Samples
	}
	if len(samples) != p.Batches || slices.ContainsFunc(samples, func(s model.Sample) bool { return !(s.Seconds > 0) }) {
		return nil, fmt.Errorf("%d of %d batches were timed: %w", len(samples), p.Batches, control.ErrFrame)
	}
	return samples, nil
}

// dialProbe is the producer's side of a probe. When pushing, it moves the batches. When
// pulling, it lets the consumer read them until leave is called.
func (r *run) dialProbe(ctx context.Context, addr transport.Address, p probe) (samples []model.Sample, leave func(), err error) {
	cfg := r.plan.configure(r.cells)
	cfg.Streams = p.Streams
	dialCtx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	if r.plan.Direction == Pull {
		dialled, err := r.via.DialTarget(dialCtx, addr, cfg)
		if err != nil {
			return nil, func() {}, err
		}
		t := &target{Target: dialled}
		if err := r.offer(t); err != nil {
			return nil, func() { t.Close() }, err
		}
		return nil, t.takeNotices(ctx), nil
	}
	dialled, err := r.via.Dial(dialCtx, addr, cfg)
	if err != nil {
		return nil, func() {}, err
	}
	in := &initiator{Initiator: dialled, op: r.plan.Direction.op()}
	leave = func() { in.Close() }
	if err := r.reach(in, 0, func(peer *region) error { return r.await(dialCtx, kindRegion, peer) }); err != nil {
		return nil, leave, err
	}
	samples, err = r.timeBatches(ctx, in, p)
	return samples, leave, err
}

// takeNotices discards a target's notices until leave is called, which also closes the
// target.
func (t *target) takeNotices(ctx context.Context) (leave func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { t.watch(ctx, func(uint64) error { return nil }) })
	return func() {
		cancel()
		t.Close()
		wg.Wait()
	}
}

// timeBatches moves one batch to warm up the connection, then times p.Batches more.
func (s *side) timeBatches(ctx context.Context, in *initiator, p probe) (samples []model.Sample, err error) {
	k := &calibrator{in: in, span: min(s.span, in.remote.Size)}
	if p.Bytes > k.span {
		return nil, fmt.Errorf("batches of %d bytes in a memory of %d: %w", p.Bytes, k.span, transport.ErrBounds)
	}
	for i := range p.Batches + 1 {
		d, err := k.time(ctx, trial{1, 1, p.Bytes})
		if err != nil {
			return nil, fmt.Errorf("probe streams: %w", err)
		}
		if i > 0 {
			samples = append(samples, model.Sample{Transfers: 1, Descriptors: 1, Bytes: p.Bytes, Seconds: d.Seconds()})
		}
	}
	return samples, nil
}

// probe is the consumer's side of a probe, from announcement to end. It sends a failure
// of the probe's connection to the producer; the session goes on.
func (s *session) probe(ctx context.Context, p probe) error {
	if err := p.validate(s.via.Capabilities()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, errListen := s.listen(ctx, p.Streams)
	var ready phaseReady
	if errListen != nil {
		ready.Failed = errListen.Error()
	} else {
		defer l.Close()
		ready.Address = l.Address()
	}
	s.requests, s.regions = nil, make(chan region, 1)
	defer func() { s.regions = nil }()
	var done phaseDone
	var work sync.WaitGroup
	if errListen == nil {
		work.Go(func() {
			var err error
			if done.Samples, err = s.acceptProbe(ctx, l, p); err != nil {
				done.Failed = err.Error()
			}
		})
	}
	err := s.conn.Send(kindPhaseReady, ready)
	var end phaseEnd
	if err == nil {
		end, err = s.untilPhaseEnd(ctx)
	}
	if err != nil || end.Abort || s.plan.Direction == Push {
		cancel() // when pulling, the batches in flight still count
	}
	work.Wait()
	if err != nil {
		return err
	}
	done.Path = s.path()
	return s.conn.Send(kindPhaseDone, done)
}

// acceptProbe is the consumer's end of a probe's connection. When pulling, it moves the
// batches. When pushing, it lets the producer write them until the context ends.
func (s *session) acceptProbe(ctx context.Context, l transport.Listener, p probe) ([]model.Sample, error) {
	acceptCtx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	if s.plan.Direction == Push {
		accepted, err := l.AcceptTarget(acceptCtx)
		if err != nil {
			return nil, err
		}
		t := &target{Target: accepted}
		if err := s.offer(t); err != nil {
			return nil, errors.Join(err, t.Close())
		}
		defer t.takeNotices(ctx)()
		<-ctx.Done()
		return nil, nil
	}
	accepted, err := l.AcceptInitiator(acceptCtx)
	if err != nil {
		return nil, err
	}
	in := &initiator{Initiator: accepted, op: s.plan.Direction.op()}
	defer in.Close()
	if err := s.reach(in, 0, func(peer *region) error {
		select {
		case *peer = <-s.regions:
			return nil
		case <-acceptCtx.Done():
			return context.Cause(acceptCtx)
		}
	}); err != nil {
		return nil, err
	}
	return s.timeBatches(ctx, in, p)
}
