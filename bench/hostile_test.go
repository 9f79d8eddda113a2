package bench

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"kvbench/internal/control"
	"kvbench/model"
	"kvbench/results"
	"kvbench/transport"
	"kvbench/transport/tcp"
)

// said is a message of a peer that does not keep to the protocol.
type said struct {
	kind string
	body any
}

// connected brings a producer as far as a session whose next message is its own choice.
func (b *bed) connected(plan Plan) *run {
	b.t.Helper()
	r := &run{Producer: b.producer(), outcome: &Outcome{}}
	r.side.plan = plan
	over, err := r.prepare(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	if r.conn, err = control.Dial(b.t.Context(), b.addr, control.Options{}); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		r.conn.Close()
		r.side.close()
	})
	if err := r.connect(b.t.Context(), over); err != nil {
		b.t.Fatal(err)
	}
	return r
}

// answer receives until the peer says why it ends, and returns that.
func answer(t *testing.T, c *control.Conn) string {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := c.Receive(); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case err := <-ended:
		return err.Error()
	case <-time.After(patience):
		t.Error("the peer does not end the session")
		return ""
	}
}

// TestHostileProducer: whatever a producer says, the session ends with a reason
// and the consumer serves the next.
func TestHostileProducer(t *testing.T) {
	measure := said{kindPhase, phase{Kind: measurePhase}}
	probing := said{kindPhase, phase{Kind: probePhase, Probe: probe{Streams: 2, Bytes: 4096, Batches: 1}}}
	for _, c := range []struct {
		name      string
		direction Direction
		say       []said
		says      string // in what the producer is told
	}{
		{"cell too high", Push, []said{{kindPhase, phase{Kind: measurePhase, Cell: 1}}}, "cell 1 of 1"},
		{"cell negative", Push, []said{{kindPhase, phase{Kind: measurePhase, Cell: -1}}}, "cell -1 of 1"},
		{"cell too large for JSON", Push, []said{{kindPhase, json.RawMessage(`{"kind":"measure","cell":1e99}`)}}, "read"},
		{"phase of unknown kind", Push, []said{{kindPhase, phase{Kind: "nap"}}}, "nap"},
		{"phase without kind", Push, []said{{kindPhase, struct{}{}}}, "unknown kind"},
		{"phase as text", Push, []said{{kindPhase, "measure"}}, "read"},
		{"phase in a phase", Push, []said{measure, measure}, "out of place"},
		{"unknown message", Push, []said{{"dance", nil}}, "out of place"},
		{"unknown message in a phase", Pull, []said{measure, {"dance", nil}}, "out of place"},
		{"another plan", Push, []said{{kindPlan, Plan{}}}, "out of place"},
		{"end of no phase", Push, []said{{kindPhaseEnd, phaseEnd{}}}, "out of place"},
		{"request outside a phase", Pull, []said{{kindRequest, request{}}}, "out of place"},
		{"request while pushing", Push, []said{measure, {kindRequest, request{}}}, "worker 0 of 0"},
		{"worker too high", Pull, []said{measure, {kindRequest, request{Worker: 1}}}, "worker 1 of 1"},
		{"worker negative", Pull, []said{measure, {kindRequest, request{Worker: -1}}}, "worker -1 of 1"},
		{"request as a list", Pull, []said{measure, {kindRequest, []int{1}}}, "read"},
		{"end as a number", Pull, []said{measure, {kindPhaseEnd, 5}}, "read"},
		{"calibration of no length", Pull, []said{{kindPhase, phase{Kind: calibratePhase}}, {kindPhaseEnd, phaseEnd{}}, {"dance", nil}}, "out of place"},
		{"calibration of negative length", Pull, []said{{kindPhase, phase{Kind: calibratePhase, Calibrate: calibration{Budget: math.MinInt64, Share: math.MinInt}}}, {kindPhaseEnd, phaseEnd{}}, {"dance", nil}}, "out of place"},
		{"calibration of many shares", Pull, []said{{kindPhase, phase{Kind: calibratePhase, Calibrate: calibration{Budget: time.Second, Share: math.MaxInt}}}, {kindPhaseEnd, phaseEnd{Abort: true}}, {"dance", nil}}, "out of place"},
		{"calibration without end", Pull, []said{{kindPhase, phase{Kind: calibratePhase, Calibrate: calibration{Budget: math.MaxInt64}}}, {kindPhaseEnd, phaseEnd{Abort: true}}}, ""},
		{"request of calibration's numbers", Pull, []said{measure, {kindRequest, request{ID: math.MaxUint64}}}, ""},
		{"due in a long time", Pull, []said{measure, {kindRequest, request{Due: math.MaxInt64}}, {kindPhaseEnd, phaseEnd{Abort: true}}, {"dance", nil}}, "out of place"},
		{"prefill without end", Pull, []said{{kindPhase, phase{Kind: measurePhase, Pace: math.MaxInt64}}, {kindRequest, request{}}, {kindPhaseEnd, phaseEnd{Abort: true}}, {"dance", nil}}, "out of place"},
		{"prefill of negative length", Pull, []said{{kindPhase, phase{Kind: measurePhase, Pace: -1}}, {kindRequest, request{}}, {kindPhaseEnd, phaseEnd{}}, {"dance", nil}}, ""},
		{"probe of nothing", Push, []said{{kindPhase, phase{Kind: probePhase}}}, "probe of 0 batches"},
		{"probe of many streams", Pull, []said{{kindPhase, phase{Kind: probePhase, Probe: probe{Streams: math.MaxInt, Bytes: 1, Batches: 1}}}}, "probe of 1 batches"},
		{"probe without end", Pull, []said{{kindPhase, phase{Kind: probePhase, Probe: probe{Streams: 2, Bytes: 1, Batches: math.MaxInt}}}}, "probe of"},
		{"probe that nobody dials", Push, []said{probing, {kindPhaseEnd, phaseEnd{Abort: true}}, {"dance", nil}}, "out of place"},
		{"probe that nobody dials, pulling", Pull, []said{probing, {kindRegion, region{}}, {kindPhaseEnd, phaseEnd{Abort: true}}, {"dance", nil}}, "out of place"},
		{"two regions in a probe", Pull, []said{probing, {kindRegion, region{}}, {kindRegion, region{}}}, "out of place"},
		{"request in a probe", Pull, []said{probing, {kindRequest, request{}}}, "worker 0 of 0"},
		{"region outside a probe", Pull, []said{measure, {kindRegion, region{}}}, "out of place"},
		{"a refusal", Push, []said{{"refuse", control.Refusal{Code: "x", Message: "y"}}}, "y"},
		{"a refusal that is none", Push, []said{{"refuse", 5}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, tcp.New())
			r := b.connected(planOf(c.direction, spec(t)))
			for _, s := range c.say {
				if err := r.conn.Send(s.kind, s.body); err != nil {
					break // the consumer has ended the session already
				}
			}
			if c.says == "" {
				r.conn.Close() // what it says does not matter
			} else if got := answer(t, r.conn); !strings.Contains(got, c.says) {
				t.Errorf("the producer is told %q, want %q", got, c.says)
			}
			b.goesOn()
		})
	}
}

// TestHostileSetup is a producer that errs before the first phase.
func TestHostileSetup(t *testing.T) {
	t.Parallel()
	b := newBed(t, tcp.New(), func(c *Consumer) { c.Limits.MemoryBytes = 64 << 20 })
	for name, c := range map[string]struct {
		body any
		says string
	}{
		"no plan":          {struct{}{}, "push or pull"},
		"a list":           {[]int{1}, ""},
		"no workers":       {planFrom(t, func(p *Plan) { p.Workers = 0 }), "concurrency of 0"},
		"negative workers": {planFrom(t, func(p *Plan) { p.Workers = -1 << 40 }), "concurrency"},
		"many workers":     {planFrom(t, func(p *Plan) { p.Workers = 1024 }), "--max-memory"},
		"no contexts":      {planFrom(t, func(p *Plan) { p.Specs = nil }), "0 contexts"},
		"other transport":  {planFrom(t, func(p *Plan) { p.Transport = "pigeon" }), "pigeon"},
		"much memory":      {planFrom(t, func(p *Plan) { p.Specs[0].Tokens = 1 << 30 }), "--max-memory"},
		"no such rank":     {planFrom(t, func(p *Plan) { p.Rank.Prefill = 99 }), "rank"},
		"many streams":     {planFrom(t, func(p *Plan) { p.Config.Streams = 1 << 30 }), "streams"},
		"negative streams": {planFrom(t, func(p *Plan) { p.Config.Streams = -1 }), "streams"},
		"negative queue":   {planFrom(t, func(p *Plan) { p.Config.MaxDescriptors, p.Config.MaxOutstanding = -1, -1 }), ""},
		"negative timeout": {planFrom(t, func(p *Plan) { p.Config.PeerTimeout = -1 }), ""},
		"listen elsewhere": {planFrom(t, func(p *Plan) { p.Config.Listen, p.Config.Advertise = "192.0.2.1:80", "192.0.2.1" }), ""},
	} {
		conn, err := control.Dial(t.Context(), b.addr, control.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Send(kindPlan, c.body); err != nil {
			t.Fatal(err)
		}
		if c.says != "" {
			if got := answer(t, conn); !strings.Contains(got, c.says) {
				t.Errorf("%s: told %q, want %q", name, got, c.says)
			}
		}
		conn.Close()
		b.goesOn()
	}
	// A plan, and then no data connection: the place is free again as soon as the
	// producer has gone, not when patience ends.
	for _, direction := range directions {
		conn, err := control.Dial(t.Context(), b.addr, control.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Send(kindPlan, planOf(direction, spec(t))); err != nil {
			t.Fatal(err)
		}
		var a accept
		if err := conn.Expect(kindAccept, &a, patience); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		b.goesOn()
	}
}

func planFrom(t *testing.T, change func(*Plan)) Plan {
	p := planOf(Push, spec(t))
	change(&p)
	return p
}

// TestHostileRegions: an advertisement that is not what pulling needs.
func TestHostileRegions(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]any{
		"other worker": region{Worker: 3, Advertisement: transport.Advertisement(`[{"ID":1,"Size":4096}]`)},
		"none":         region{Advertisement: transport.Advertisement(`[]`)},
		"two":          region{Advertisement: transport.Advertisement(`[{"ID":1,"Size":4096},{"ID":2,"Size":4096}]`)},
		"garbage":      region{Advertisement: transport.Advertisement(`{{{`)},
		"negative":     region{Advertisement: transport.Advertisement(`[{"ID":1,"Size":-1}]`)},
		"text":         "region",
	} {
		b := newBed(t, tcp.New())
		conn, err := control.Dial(t.Context(), b.addr, control.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Send(kindPlan, planOf(Pull, spec(t))); err != nil {
			t.Fatal(err)
		}
		var a accept
		if err := conn.Expect(kindAccept, &a, patience); err != nil {
			t.Fatal(err)
		}
		target, err := tcp.New().DialTarget(t.Context(), a.Address, transport.Config{MaxOutstanding: 64})
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Send(kindRegion, body); err != nil {
			t.Fatal(err)
		}
		if got := answer(t, conn); got == "" || strings.Contains(got, "joined") {
			t.Errorf("%s: told %q", name, got)
		}
		target.Close()
		conn.Close()
		b.goesOn()
	}
}

// TestSmallRegion: memory that is smaller than the plan says is found when it is read.
func TestSmallRegion(t *testing.T) {
	b := newBed(t, tcp.New())
	r := b.connected(planOf(Pull, spec(t)))
	if err := r.targets[0].Deregister(transport.Region{ID: 1}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []said{{kindPhase, phase{Kind: measurePhase}}, {kindRequest, request{ID: 1}}} {
		if err := r.conn.Send(s.kind, s.body); err != nil {
			t.Fatal(err)
		}
	}
	if got := answer(t, r.conn); !strings.Contains(got, "region") {
		t.Errorf("told %q, want something of a region", got)
	}
	b.goesOn()
}

// TestHostileTransfers: writes whose numbers are those of no request.
func TestHostileTransfers(t *testing.T) {
	b := newBed(t, tcp.New())
	r := b.connected(planOf(Push, spec(t)))
	if err := r.conn.Send(kindPhase, phase{Kind: measurePhase}); err != nil {
		t.Fatal(err)
	}
	var ok struct{}
	if err := r.conn.Expect(kindPhaseReady, &ok, patience); err != nil {
		t.Fatal(err)
	}
	in := r.initiators[0]
	for _, id := range []uint64{transferID(1, 0), transferID(2, 0)} { // one layer of each
		err := in.Post(transport.Transfer{ID: id, Op: transport.Write, Local: in.local, Remote: in.remote, Descriptors: r.cells[0].descriptors[0]})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := answer(t, r.conn); !strings.Contains(got, "layer of request 2 while 3 of 4 layers of request 1 are missing") {
		t.Errorf("told %q", got)
	}
	b.goesOn()
}

// hostileConsumer accepts a producer's run as a consumer does, and then says
// what it likes. It returns the producer's error.
func hostileConsumer(t *testing.T, direction Direction, script func(s *session)) (*Outcome, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	over := []transport.Transport{tcp.New()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		conn, err := control.Accept(context.Background(), nc, control.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		s := &session{consumer: &Consumer{Transports: over, Host: noHost}, side: side{conn: conn}}
		defer s.close()
		if err := conn.Expect(kindPlan, &s.plan, patience); err != nil {
			t.Error(err)
			return
		}
		tr, err := s.prepare(context.Background())
		if err == nil {
			err = s.connect(context.Background(), tr)
		}
		if err != nil {
			t.Error(err)
			return
		}
		script(s)
		for err = nil; err == nil; { // until the producer has gone
			_, err = conn.Receive()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p := &Producer{Connect: l.Addr().String(), Transports: over, Host: noHost}
	o, err := p.Run(ctx, planOf(direction, spec(t)), Load{Requests: 2})
	l.Close()
	<-done
	return o, err
}

// awaits receives until a message of a kind comes.
func awaits(s *session, kind string) {
	for {
		m, err := s.conn.Receive()
		if err != nil || m.Kind == kind {
			return
		}
	}
}

// TestHostileConsumer: whatever a consumer says, the run ends with an error and
// what it says of numbers does no harm.
func TestHostileConsumer(t *testing.T) {
	half := func() *Record { // a record that lacks what it should have
		r := newRecord()
		r.Service = nil
		return r
	}
	negative := func() *Record {
		r := newRecord()
		r.Requests = -1
		return r
	}
	for _, c := range []struct {
		name      string
		direction Direction
		script    func(*session)
		says      string
	}{
		{"hangs up", Push, func(s *session) { awaits(s, kindPhase); s.conn.Close() }, "the consumer went away"},
		{"refuses", Pull, func(s *session) { s.conn.Refuse(control.Refuse("x", "because")) }, "because"},
		{"unknown message", Push, func(s *session) { s.conn.Send("dance", nil) }, `got "dance"`},
		{"a flood", Push, func(s *session) {
			for range 100 {
				s.conn.Send("dance", nil)
			}
		}, "dance"},
		{"ready as text", Push, func(s *session) { s.conn.Send(kindPhaseReady, "yes") }, "read"},
		{"check of worker 9", Pull, func(s *session) { inPhase(s); s.conn.Send(kindChecked, checked{Worker: 9}) }, "worker 9"},
		{"check of worker -1", Pull, func(s *session) { inPhase(s); s.conn.Send(kindChecked, checked{Worker: -1}) }, "worker -1"},
		{"check as text", Pull, func(s *session) { inPhase(s); s.conn.Send(kindChecked, "fine") }, "read"},
		{"two checks", Pull, func(s *session) {
			for range 3 {
				s.conn.Send(kindChecked, checked{ID: 1})
			}
			inPhase(s)
		}, "out of place"},
		{"check of another request", Pull, func(s *session) {
			warmUp(s)
			inPhase(s)
			awaits(s, kindRequest)
			s.conn.Send(kindChecked, checked{ID: 77})
		}, "request 77 in place of 1"},
		{"no record", Pull, func(s *session) { endWith(s, phaseDone{}) }, "no record"},
		{"half a record", Pull, func(s *session) { endWith(s, phaseDone{Record: half()}) }, "lacks a histogram"},
		{"a negative record", Pull, func(s *session) { endWith(s, phaseDone{Record: negative()}) }, "less than nothing"},
		{"a record of nothing read", Pull, func(s *session) { endWith(s, phaseDone{Record: newRecord()}) }, "those of 2 requests are missing"},
		{"histograms of garbage", Pull, func(s *session) {
			endWith(s, json.RawMessage(`{"record":{"service":{"count":1,"hdr":"HISTFAAAAAAAAA"}}}`))
		}, "read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o, err := hostileConsumer(t, c.direction, c.script)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one that says %q", err, c.says)
			}
			for _, cell := range o.Cells {
				if cell.Complete {
					t.Error("a cell is marked complete")
				}
			}
			if _, err := Summarize(o, Assumptions{}, errors.New("ended")); err != nil {
				t.Errorf("Summarize: %v", err)
			}
		})
	}
}

// inPhase lets a phase begin.
func inPhase(s *session) {
	awaits(s, kindPhase)
	s.conn.Send(kindPhaseReady, struct{}{})
}

// warmUp lets the phase pass that comes before the measured one.
func warmUp(s *session) {
	inPhase(s)
	awaits(s, kindPhaseEnd)
	s.conn.Send(kindPhaseDone, phaseDone{Record: newRecord()})
}

// endWith lets the measured phase pass as if every request had been read and
// checked, and ends it with a body of its own.
func endWith(s *session, body any) {
	warmUp(s)
	inPhase(s)
	for range 2 {
		m, err := s.conn.Receive()
		var r request
		if err != nil || m.Decode(&r) != nil {
			return
		}
		s.conn.Send(kindChecked, checked{ID: r.ID})
	}
	awaits(s, kindPhaseEnd)
	s.conn.Send(kindPhaseDone, body)
}

// TestHostileSamples: calibration samples from a consumer are data like any other.
func TestHostileSamples(t *testing.T) {
	for name, samples := range map[string][]model.Sample{
		"negative": {{Transfers: -1, Descriptors: -1, Bytes: -1, Seconds: -1}},
		"zero":     {{}},
		"huge":     {{Transfers: math.MaxInt, Descriptors: math.MaxInt, Bytes: math.MaxInt64, Seconds: math.MaxFloat64}},
		"one":      {{Transfers: 1, Descriptors: 1, Bytes: 1, Seconds: 1}},
	} {
		run, err := Summarize(&Outcome{Samples: samples}, Assumptions{}, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if run.Fit == nil || len(run.Fit.Notes) == 0 || run.Fit.Bandwidth.Value != 0 {
			t.Errorf("%s: fit %+v, want only a note", name, run.Fit)
		}
		if _, err := results.Encode(run); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
