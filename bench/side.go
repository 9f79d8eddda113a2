package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kvbench/internal/control"
	"kvbench/internal/hostmem"
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
	mem   *hostmem.Buffer
	span  int64 // memory of one worker

	initiators []*initiator
	targets    []*target
	calibrator *calibrator // nil until the first calibration

	meter cpuMeter
	setup results.Setup
}

// allocate makes the memory of all workers, filled with noise, which also brings
// every page in.
func (s *side) allocate(ctx context.Context) error {
	start := time.Now()
	mem, err := hostmem.Alloc(s.span*int64(s.plan.Workers), hostmem.Options{HugePages: s.plan.HugePages, Lock: s.plan.Lock})
	if err != nil {
		return err
	}
	s.mem = mem
	const step = 64 << 20 // so that an interrupt need not wait for all of it
	for at := 0; at < len(mem.Bytes); at += step {
		if err := ctx.Err(); err != nil {
			return err
		}
		payload.Noise(mem.Bytes[at:min(at+step, len(mem.Bytes))], s.plan.RunID+uint64(at))
	}
	s.setup.MemoryBytes = int64(len(mem.Bytes))
	s.setup.AllocateSeconds = time.Since(start).Seconds()
	return nil
}

// image is a worker's memory.
func (s *side) image(worker int) []byte {
	return s.mem.Bytes[int64(worker)*s.span : int64(worker+1)*s.span]
}

// register makes a worker's memory known to its endpoint.
func (s *side) register(e transport.Endpoint, worker int) (transport.Region, error) {
	start := time.Now()
	r, err := e.Register(transport.HostBytes(s.image(worker)))
	s.setup.RegisterSeconds += time.Since(start).Seconds()
	if err != nil {
		return r, fmt.Errorf("register memory of worker %d: %w", worker, err)
	}
	return r, nil
}

// addTarget registers a target's memory and sends the peer what it needs to reach it.
func (s *side) addTarget(t transport.Target) error {
	w := len(s.targets)
	s.targets = append(s.targets, &target{Target: t, worker: w, ordered: s.plan.Direction == Push})
	r, err := s.register(t, w)
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
func (s *side) addInitiator(in transport.Initiator) error {
	w := len(s.initiators)
	i := &initiator{Initiator: in, op: s.plan.Direction.op(), record: newRecord()}
	s.initiators = append(s.initiators, i)
	var err error
	if i.local, err = s.register(in, w); err != nil {
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
		return fmt.Errorf("import memory of worker %d: got %d region(s) of worker %d: %w", w, len(remote), peer.Worker, transport.ErrProtocol)
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
	}
	return path
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
	if s.mem != nil {
		err = errors.Join(err, s.mem.Close())
	}
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
		return err
	}
	can := t.Capabilities()
	if !slices.Contains(can.Memory, transport.HostMemory) {
		return fmt.Errorf("transport %s moves %s memory only, and a run makes host memory only so far: %w", t.Name(), can.Memory[0], transport.ErrUnsupported)
	}
	if p.Direction == Push && !can.Write || p.Direction == Pull && !can.Read {
		return &PlanError{fmt.Errorf("transport %s cannot %s: %w", t.Name(), p.Direction, transport.ErrUnsupported)}
	}
	if can.MaxStreams > 0 && p.Config.Streams > can.MaxStreams {
		return &PlanError{fmt.Errorf("%d streams: transport %s has at most %d", p.Config.Streams, t.Name(), can.MaxStreams)}
	}
	return nil
}
