package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kvbench/internal/control"
	"kvbench/internal/hostmem"
	"kvbench/internal/units"
	"kvbench/payload"
	"kvbench/results"
	"kvbench/transport"
)

// side is what both ends of a run have: the plan made ready, memory, and a
// connection for each worker, as initiator or as target.
type side struct {
	plan  Plan
	cells []cell
	conn  *control.Conn
	span  int64 // memory of one worker

	images [][]byte          // by worker
	mem    []*hostmem.Buffer // what is not the endpoints' own
	free   []func() error    // what is, once the endpoints are closed

	initiators []*initiator
	targets    []*target
	calibrator *calibrator // nil until the first calibration

	meter cpuMeter
	setup results.Setup
}

// place makes a worker's memory, filled with noise, which also brings every page
// in, and registers it with the worker's endpoint.
func (s *side) place(ctx context.Context, e transport.Endpoint, worker int) (transport.Region, error) {
	start := time.Now()
	m, err := s.memory(e)
	if err != nil {
		return transport.Region{}, fmt.Errorf("make memory of worker %d: %w", worker, err)
	}
	s.images = append(s.images, m.Bytes)
	const step = 64 << 20 // so that an interrupt need not wait for all of it
	for at := 0; at < len(m.Bytes); at += step {
		if err := ctx.Err(); err != nil {
			return transport.Region{}, err
		}
		payload.Noise(m.Bytes[at:min(at+step, len(m.Bytes))], s.plan.RunID+uint64(worker)*uint64(s.span)+uint64(at))
	}
	s.setup.MemoryBytes += int64(len(m.Bytes))
	s.setup.AllocateSeconds += time.Since(start).Seconds()
	start = time.Now()
	r, err := e.Register(m)
	s.setup.RegisterSeconds += time.Since(start).Seconds()
	if err != nil {
		return r, fmt.Errorf("register memory of worker %d: %w", worker, err)
	}
	return r, nil
}

// memory is what the endpoint makes, where it has its own way, or the host's.
func (s *side) memory(e transport.Endpoint) (transport.Memory, error) {
	if a, ok := e.(transport.Allocator); ok && s.span > 0 {
		m, err := a.Allocate(s.span)
		if err == nil {
			s.free = append(s.free, func() error { return a.Free(m) })
		}
		if !errors.Is(err, transport.ErrUnsupported) {
			return m, err
		}
	}
	mem, err := hostmem.Alloc(s.span, hostmem.Options{HugePages: s.plan.HugePages, Lock: s.plan.Lock})
	if err != nil {
		return transport.Memory{}, err
	}
	s.mem = append(s.mem, mem)
	return transport.HostBytes(mem.Bytes), nil
}

// image is a worker's memory.
func (s *side) image(worker int) []byte { return s.images[worker] }

// connectTime is how long the workers' connections took since start, less what
// their memory took.
func (s *side) connectTime(start time.Time) float64 {
	return time.Since(start).Seconds() - s.setup.AllocateSeconds - s.setup.RegisterSeconds
}

// addTarget registers a target's memory and sends the peer what it needs to reach it.
func (s *side) addTarget(ctx context.Context, t transport.Target) error {
	w := len(s.targets)
	s.targets = append(s.targets, &target{Target: t, worker: w, ordered: s.plan.Direction == Push})
	r, err := s.place(ctx, t, w)
	if err != nil {
		return err
	}
	ad, err := t.Advertise(r)
	if err != nil {
		return fmt.Errorf("advertise memory of worker %d: %w", w, err)
	}
	return s.conn.Send(kindRegion, region{w, ad})
}

// addInitiator registers an initiator's memory and awaits the peer's.
func (s *side) addInitiator(ctx context.Context, in transport.Initiator) error {
	w := len(s.initiators)
	i := &initiator{Initiator: in, op: s.plan.Direction.op(), record: newRecord()}
	s.initiators = append(s.initiators, i)
	var err error
	if i.local, err = s.place(ctx, in, w); err != nil {
		return err
	}
	var peer region
	if err := s.conn.Expect(kindRegion, &peer, s.plan.patience(s.cells)); err != nil {
		return err
	}
	remote, err := in.Import(peer.Advertisement)
	if err != nil {
		return fmt.Errorf("import memory of worker %d: %w", w, err)
	}
	if peer.Worker != w || len(remote) != 1 {
		return fmt.Errorf("import memory of worker %d: got %s of worker %d: %w", w, units.Count(len(remote), "region"), peer.Worker, transport.ErrProtocol)
	}
	i.remote = remote[0]
	return nil
}

// path returns what carried the data: the first worker's lane, since those of all
// are of one kind, with the counters of all.
func (s *side) path() transport.Path {
	var endpoints []transport.Endpoint
	for _, i := range s.initiators {
		endpoints = append(endpoints, i)
	}
	for _, t := range s.targets {
		endpoints = append(endpoints, t)
	}
	var path transport.Path
	for n, e := range endpoints {
		p := e.Path()
		if n == 0 {
			path = p
			continue
		}
		path.Counters.Packets += p.Counters.Packets
		path.Counters.Retransmits += p.Counters.Retransmits
		path.Counters.ReceiveWindowLimited = max(path.Counters.ReceiveWindowLimited, p.Counters.ReceiveWindowLimited)
		path.Counters.PayloadBytes += p.Counters.PayloadBytes
		path.Counters.PortBytes = max(path.Counters.PortBytes, p.Counters.PortBytes) // the same ports, for all
	}
	return path
}

// ErrUnaccounted is returned when the device that is named as the path did not see
// the data.
var ErrUnaccounted = errors.New("data went another way")

// accounted fails where the ports of a path counted less than was delivered.
func accounted(side string, p transport.Path) error {
	if p.Counters.Accounted() {
		return nil
	}
	return fmt.Errorf("%w: %s of the %s counted %s at most, where %s were delivered; the result names a path that did not carry it",
		ErrUnaccounted, p.Lane, side, units.Bytes(p.Counters.PortBytes), units.Bytes(p.Counters.PayloadBytes))
}

// disconnect ends the workers' connections. After it no memory is touched.
func (s *side) disconnect() error {
	var errs []error
	for _, i := range s.initiators {
		errs = append(errs, i.Close())
	}
	for _, t := range s.targets {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}

// close gives everything back.
func (s *side) close() error {
	err := s.disconnect()
	s.images = nil
	for _, free := range s.free {
		err = errors.Join(err, free())
	}
	s.free = nil
	for _, m := range s.mem {
		err = errors.Join(err, m.Close())
	}
	s.mem = nil
	return err
}

// fill prepares the bytes of a request.
func (s *side) fill(c *cell, worker int, request uint64) {
	s.meter.leaveOut(func() { c.plan.Fill(s.image(worker), s.plan.RunID, request, s.plan.Verify) })
}

// check looks at the bytes that arrived.
func (s *side) check(c *cell, worker int, request uint64) (v payload.Verdict) {
	s.meter.leaveOut(func() { v = c.plan.Check(s.image(worker), s.plan.RunID, request, s.plan.Verify) })
	return v
}

// pick returns the transport of that name.
func pick(transports []transport.Transport, name string) (transport.Transport, error) {
	var names []string
	for _, t := range transports {
		if t.Name() == name {
			return t, nil
		}
		names = append(names, t.Name())
	}
	return nil, fmt.Errorf("transport %q is not known to this build, which has %v", name, names)
}

// usable checks that a transport can do what a plan asks.
func usable(ctx context.Context, t transport.Transport, p Plan) error {
	if err := t.Probe(ctx); err != nil {
		return fmt.Errorf("%s: %w", t.Name(), err)
	}
	if c, ok := t.(transport.Checker); ok {
		if err := c.Check(ctx, p.Config); err != nil {
			if errors.Is(err, transport.ErrUnsupported) {
				return &PlanError{err}
			}
			return err
		}
	}
	can := t.Capabilities()
	if p.Direction == Push && !can.Write || p.Direction == Pull && !can.Read {
		return &PlanError{fmt.Errorf("transport %s cannot %s: %w", t.Name(), p.Direction, transport.ErrUnsupported)}
	}
	if can.MaxStreams > 0 && p.Config.Streams > can.MaxStreams {
		return &PlanError{fmt.Errorf("%d streams: transport %s has at most %d", p.Config.Streams, t.Name(), can.MaxStreams)}
	}
	return nil
}
