package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kvbench/internal/control"
	"kvbench/internal/units"
	"kvbench/payload"
	"kvbench/results"
	"kvbench/transport"
)

// side is the state that both ends of a run share: the prepared plan, memory, and a
// connection for each worker as initiator or target.
type side struct {
	plan  Plan
	via   transport.Transport
	cells []cell
	conn  *control.Conn
	span  int64 // bytes of one worker's memory

	memories []*memory // by worker

	initiators []*initiator
	targets    []*target
	calibrator *calibrator // nil until the first calibration

	meter cpuMeter
	setup results.Setup
}

// place makes the next worker's memory and fills it with noise, which also faults in
// every page.
func (s *side) place(ctx context.Context, e transport.Endpoint) error {
	worker := len(s.memories)
	start := time.Now()
	m, err := s.makeMemory(e)
	if err != nil {
		return fmt.Errorf("make memory of worker %d: %w", worker, err)
	}
	s.memories = append(s.memories, m)
	const step = 64 << 20 // bytes between two checks for an interrupt
	for at := 0; at < len(m.view); at += step {
		if err := ctx.Err(); err != nil {
			return err
		}
		payload.Noise(m.view[at:min(at+step, len(m.view))], s.plan.RunID+uint64(worker)*uint64(s.span)+uint64(at))
	}
	if err := m.load(); err != nil {
		return fmt.Errorf("fill memory of worker %d: %w", worker, err)
	}
	s.setup.MemoryBytes += m.Size()
	s.setup.AllocateSeconds += time.Since(start).Seconds()
	return nil
}

// register registers a worker's memory with an endpoint.
func (s *side) register(e transport.Endpoint, worker int) (transport.Region, error) {
	start := time.Now()
	r, err := e.Register(s.memories[worker].Memory)
	s.setup.RegisterSeconds += time.Since(start).Seconds()
	if err != nil {
		return r, fmt.Errorf("register memory of worker %d: %w", worker, err)
	}
	return r, nil
}

// connectTime returns the seconds since start without the time to make and register
// memory.
func (s *side) connectTime(start time.Time) float64 {
	return time.Since(start).Seconds() - s.setup.AllocateSeconds - s.setup.RegisterSeconds
}

// addTarget makes a worker's memory and advertises it to the peer.
func (s *side) addTarget(ctx context.Context, t transport.Target) error {
	w := len(s.targets)
	s.targets = append(s.targets, &target{Target: t, worker: w, ordered: s.plan.Direction == Push})
	if err := s.place(ctx, t); err != nil {
		return err
	}
	return s.offer(s.targets[w])
}

// offer registers a target's memory and advertises it to the peer.
func (s *side) offer(t *target) error {
	r, err := s.register(t, t.worker)
	if err != nil {
		return err
	}
	ad, err := t.Advertise(r)
	if err != nil {
		return fmt.Errorf("advertise memory of worker %d: %w", t.worker, err)
	}
	return s.conn.Send(kindRegion, region{t.worker, ad})
}

// addInitiator makes a worker's memory and imports the peer's.
func (s *side) addInitiator(ctx context.Context, in transport.Initiator) error {
	i := &initiator{Initiator: in, op: s.plan.Direction.op(), record: newRecord(), alarm: alarm{meter: &s.meter}}
	s.initiators = append(s.initiators, i)
	if err := s.place(ctx, in); err != nil {
		return err
	}
	return s.reach(i, len(s.initiators)-1, func(peer *region) error {
		return s.conn.Expect(kindRegion, peer, s.plan.patience(s.cells))
	})
}

// reach registers an initiator's memory and imports the peer's, which await receives.
func (s *side) reach(i *initiator, worker int, await func(*region) error) (err error) {
	if i.local, err = s.register(i, worker); err != nil {
		return err
	}
	var peer region
	if err := await(&peer); err != nil {
		return err
	}
	remote, err := i.Import(peer.Advertisement)
	if err != nil {
		return fmt.Errorf("import memory of worker %d: %w", worker, err)
	}
	if peer.Worker != worker || len(remote) != 1 {
		return fmt.Errorf("import memory of worker %d: got %s of worker %d: %w", worker, units.Count(len(remote), "region"), peer.Worker, transport.ErrProtocol)
	}
	i.remote = remote[0]
	return nil
}

// path returns the path that carried the data: the lane of the first worker that moved
// any, with the counters of all workers. Every worker uses the same kind of lane.
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
		if path.Counters.PayloadBytes == 0 && p.Counters.PayloadBytes > 0 {
			path, p = p, path
		}
		path.Staging = addStaging(path.Staging, p.Staging)
		path.Counters.Packets += p.Counters.Packets
		path.Counters.Retransmits += p.Counters.Retransmits
		path.Counters.ReceiveWindowLimited = max(path.Counters.ReceiveWindowLimited, p.Counters.ReceiveWindowLimited)
		path.Counters.PayloadBytes += p.Counters.PayloadBytes
		if p.Counters.PayloadBytes > 0 { // without payload, the direction of the data is unclear
			path.Counters.PortBytes = max(path.Counters.PortBytes, p.Counters.PortBytes) // all share the same ports
			path.Counters.PortCounted = path.Counters.PortCounted && p.Counters.PortCounted
		}
	}
	return path
}

// ErrUnaccounted is returned when the device named as the path did not count the data.
var ErrUnaccounted = errors.New("data went another way")

// accounted returns ErrUnaccounted if a path's ports counted too few bytes for the data
// delivered.
func accounted(side string, p transport.Path) error {
	if p.Counters.Accounted() {
		return nil
	}
	return fmt.Errorf("%w: %s of the %s counted %s at most, where %s were delivered; the result names a path that did not carry it",
		ErrUnaccounted, p.Lane, side, units.Bytes(p.Counters.PortBytes), units.Bytes(p.Counters.PayloadBytes))
}

// disconnect ends the workers' connections. Afterwards nothing touches the memory.
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

// close ends the connections and frees the memory.
func (s *side) close() error {
	err := s.disconnect()
	for _, m := range s.memories {
		err = errors.Join(err, m.close())
	}
	s.memories = nil
	return err
}

// fill writes the bytes of a request.
func (s *side) fill(c *cell, worker int, request uint64) (err error) {
	m := s.memories[worker]
	s.meter.leaveOut(func() {
		c.plan.Fill(m.view, s.plan.RunID, request, s.plan.Verify)
		err = m.load()
	})
	if err != nil {
		return fmt.Errorf("fill memory of worker %d: %w", worker, err)
	}
	return nil
}

// check verifies the bytes of a request that arrived.
func (s *side) check(c *cell, worker int, request uint64) (v payload.Verdict, err error) {
	m := s.memories[worker]
	s.meter.leaveOut(func() {
		if err = m.fetch(); err == nil {
			v = c.plan.Check(m.view, s.plan.RunID, request, s.plan.Verify)
		}
	})
	if err != nil {
		return v, fmt.Errorf("read memory of worker %d: %w", worker, err)
	}
	return v, nil
}

// pick returns the first transport with the given name that moves the given kind of
// memory. Transports that move device memory directly come before those that stage it.
func pick(transports []transport.Transport, name string, kind transport.MemoryKind) (transport.Transport, error) {
	var names []string
	var kinds []transport.MemoryKind // that transports of that name move
	for _, t := range transports {
		if !slices.Contains(names, t.Name()) {
			names = append(names, t.Name())
		}
		if t.Name() != name {
			continue
		}
		if can := t.Capabilities().Memory; slices.Contains(can, kind) {
			return t, nil
		} else {
			kinds = append(kinds, can...)
		}
	}
	if len(kinds) > 0 {
		return nil, fmt.Errorf("transport %s moves no %s memory, only %v: %w", name, kind, kinds, transport.ErrUnsupported)
	}
	return nil, fmt.Errorf("transport %q is not known to this build, which has %v", name, names)
}

// usable returns an error if a transport cannot carry out a plan on this host.
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
