package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kvbench/internal/control"
	"kvbench/internal/hostinfo"
	"kvbench/internal/testenv"
	"kvbench/payload"
	"kvbench/results"
	"kvbench/transport"
	"kvbench/transport/mem"
	"kvbench/transport/tcp"
)

// bed is a consumer in this process, serving on loopback until the test ends.
type bed struct {
	t          *testing.T
	transports []transport.Transport
	addr       string
	dial       func(ctx context.Context, network, address string) (net.Conn, error) // nil for sockets
	consumer   *Consumer
	stop       context.CancelFunc
	served     chan error
}

// newBed starts a consumer that moves data over one transport.
func newBed(t *testing.T, over transport.Transport, change ...func(*Consumer)) *bed {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, l, over, change...)
}

// serve starts a consumer that accepts producers at a listener.
func serve(t *testing.T, l net.Listener, over transport.Transport, change ...func(*Consumer)) *bed {
	t.Helper()
	b := &bed{t: t, transports: []transport.Transport{over}, addr: l.Addr().String(), served: make(chan error, 1)}
	log := quietly(t)
	b.consumer = &Consumer{Transports: b.transports, Host: noHost, Log: log}
	for _, c := range change {
		c(b.consumer)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	go func() { b.served <- b.consumer.Serve(ctx, l, false) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-b.served:
		case <-time.After(patience):
			t.Error("the consumer does not stop")
		}
	})
	return b
}

// quietly logs as long as the test runs, which its consumer may outlive by a moment.
func quietly(t *testing.T) func(string, ...any) {
	var over atomic.Bool
	t.Cleanup(func() { over.Store(true) })
	return func(format string, args ...any) {
		if !over.Load() {
			t.Logf("consumer: "+format, args...)
		}
	}
}

// noHost spares a test the look at this machine.
func noHost(net.Addr) hostinfo.Host { return hostinfo.Host{Hostname: "test"} }

// patience bounds what is not itself under test.
const patience = 30 * time.Second

// producer is one that reaches the bed.
func (b *bed) producer() *Producer {
	return &Producer{Connect: b.addr, Transports: b.transports, Host: noHost, SharesHost: true, Control: control.Options{DialContext: b.dial}}
}

// run makes a run against the bed.
func (b *bed) run(plan Plan, load Load) (*Outcome, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	plan.Transport = b.transports[0].Name()
	return b.producer().Run(ctx, plan, load)
}

// spec is a small request: four layers of 64 KiB each in two ranges.
func spec(t testing.TB, change ...func(*payload.Spec)) payload.Spec {
	t.Helper()
	g, err := payload.Load("qwen3-0.6b")
	if err != nil {
		t.Fatal(err)
	}
	s := payload.Spec{Geometry: g, Tokens: 16, Layers: []int{0, 1, 2, 3}}
	for _, c := range change {
		c(&s)
	}
	return s
}

// tokens sets a spec's context.
func tokens(n int64) func(*payload.Spec) { return func(s *payload.Spec) { s.Tokens = n } }

// paged lays a spec out in blocks of four tokens.
func paged(fragmentation float64) func(*payload.Spec) {
	return func(s *payload.Spec) {
		s.Layout = payload.Layout{Paged: true, BlockTokens: 4, Fragmentation: fragmentation, Seed: 3}
	}
}

// planOf is a plan that moves specs and checks every byte.
func planOf(direction Direction, specs ...payload.Spec) Plan {
	return Plan{RunID: 0xfeed, Transport: "tcp", Direction: direction, Memory: transport.HostMemory, Workers: 1, Specs: specs, Verify: payload.VerifyFull}
}

var directions = []Direction{Push, Pull}

// TestRun makes whole runs in many forms and checks that what was counted fits
// what was asked for. Outside the long run each form moves over one of the two transports,
// and over the other one in the other direction.
func TestRun(t *testing.T) {
	t.Parallel()
	for odd, over := range []transport.Transport{mem.New(), tcp.New()} {
		for reverse, direction := range directions {
			for i, c := range []struct {
				name  string
				specs []payload.Spec
				plan  func(*Plan)
				load  Load
			}{
				{name: "plain"},
				{name: "no warm-up", load: Load{Requests: 1}},
				{name: "concurrency", plan: func(p *Plan) { p.Workers = 3 }, load: Load{Requests: 8, Warmup: 2}},
				{name: "more workers than requests", plan: func(p *Plan) { p.Workers = 5 }, load: Load{Requests: 2}},
				{name: "pool", plan: func(p *Plan) { p.Pool = 128 << 10 }},
				{name: "pool of the whole", plan: func(p *Plan) { p.Pool = 1 << 30 }},
				{name: "stamps", plan: func(p *Plan) { p.Verify = payload.VerifyStamp }},
				{name: "unchecked", plan: func(p *Plan) { p.Verify = payload.VerifyNone }},
				{name: "paged", specs: []payload.Spec{spec(t, paged(1))}},
				{name: "paged in runs", specs: []payload.Spec{spec(t, paged(0.3), tokens(100))}},
				{name: "two contexts", specs: []payload.Spec{spec(t), spec(t, tokens(33))}},
				{name: "many layers", specs: []payload.Spec{spec(t, func(s *payload.Spec) { s.Layers = nil })}},
				{name: "ranks", specs: []payload.Spec{spec(t, func(s *payload.Spec) { s.TP, s.TPDecode = 4, 2 })}, plan: func(p *Plan) { p.Rank = Rank{3, 1} }},
				{name: "streams", plan: func(p *Plan) { p.Config.Streams = 3 }},
				{name: "few outstanding", plan: func(p *Plan) { p.Config.MaxOutstanding = 1 }},
				{name: "duration", load: Load{Duration: 50 * time.Millisecond}},
			} {
				if (i+odd+reverse)%2 == 1 && !testenv.Full {
					continue
				}
				t.Run(fmt.Sprintf("%s %s %s", over.Name(), direction, c.name), func(t *testing.T) {
					if c.specs == nil {
						c.specs = []payload.Spec{spec(t)}
					}
					if c.load.Requests == 0 && c.load.Duration == 0 {
						c.load = Load{Requests: 4, Warmup: 1}
					}
					plan := planOf(direction, c.specs...)
					if c.plan != nil {
						c.plan(&plan)
					}
					o, err := newBed(t, over).run(plan, c.load)
					if err != nil {
						t.Fatal(err)
					}
					if len(o.Cells) != len(c.specs) {
						t.Fatalf("%d cells of %d contexts", len(o.Cells), len(c.specs))
					}
					for i := range o.Cells {
						checkCell(t, &o.Cells[i], plan, c.load)
					}
					checkRecord(t, o)
				})
			}
		}
	}
}

// TestDuration covers requests of 10 ms each, in virtual time: those that begin within
// 95 ms are finished, and no other is made.
func TestDuration(t *testing.T) {
	for _, direction := range directions {
		t.Run(string(direction), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				b := newVirtualBed(t, slowPath{Transport: mem.New(), perStream: 256 << 10 * 100})
				o, err := b.run(planOf(direction, spec(t)), Load{Duration: 95 * time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				if r := o.Cells[0].Record; r.Requests != 10 || r.Busy != 100*time.Millisecond {
					t.Errorf("busy for %v with %d requests, want 100 ms with 10", r.Busy, r.Requests)
				}
			})
		})
	}
}

// checkCell holds what was counted of a cell against the plan and the load.
func checkCell(t *testing.T, c *CellOutcome, plan Plan, load Load) {
	t.Helper()
	r := c.Record
	pair, ok := c.cell.shape.Pair(plan.Rank.Prefill, plan.Rank.Decode)
	if !ok {
		t.Fatal("the cell moves nothing")
	}
	layers := int64(len(c.cell.plan.Transfers))
	want := int64(load.Requests)
	if load.Duration > 0 {
		if want = r.Requests; want == 0 {
			t.Error("nothing was measured")
		}
		if r.Busy > load.Duration+patience/2 {
			t.Errorf("busy for %v of %v", r.Busy, load.Duration)
		}
	}
	acked := want * layers
	if plan.Direction == Pull {
		acked = 0 // a read has no acknowledgement to wait for
	}
	for _, n := range []struct {
		what      string
		got, want int64
	}{
		{"requests", r.Requests, want},
		{"warm-up requests", c.Warmup, int64(load.Warmup)},
		{"bytes", r.Bytes, want * pair.Bytes},
		{"response times", r.Response.Count(), want},
		{"service times", r.Service.Count(), want},
		{"exposed times", r.Exposed.Count(), want},
		{"first layers", r.FirstLayer.Count(), want},
		{"layers", r.Layer.Count(), want * layers},
		{"posts", r.Post.Count(), want * layers},
		{"acknowledgements", r.AckRTT.Count(), acked},
		{"mismatches", c.Verify.Mismatched, 0},
	} {
		if n.got != n.want {
			t.Errorf("%d %s, want %d", n.got, n.what, n.want)
		}
	}
	if checked := c.Verify.Checked; (plan.Verify == payload.VerifyNone) != (checked == 0) {
		t.Errorf("%d blocks checked with %s", checked, plan.Verify)
	}
	if !c.Complete {
		t.Error("the cell is not complete")
	}
	longest := r.Service.Quantile(1)
	if r.Busy <= 0 || r.Busy < longest*999/1000 || plan.Workers == 1 && r.FirstLayer.Quantile(0) > longest {
		t.Errorf("busy for %v with a longest request of %v", r.Busy, longest)
	}
}

// checkRecord: the record of a whole run is whole, and survives being written.
func checkRecord(t *testing.T, o *Outcome) {
	t.Helper()
	run, err := Summarize(o, Assumptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := results.Encode(run)
	if err != nil {
		t.Fatal(err)
	}
	again, err := results.Decode(strings.NewReader(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if !again.Complete || len(again.Cells) != len(o.Cells) || again.Transport.Lane == "" || again.Producer.Setup.MemoryBytes == 0 || again.Consumer.Setup.MemoryBytes == 0 {
		t.Errorf("record: complete %v, %d cells, lane %q, memory %d and %d", again.Complete, len(again.Cells), again.Transport.Lane,
			again.Producer.Setup.MemoryBytes, again.Consumer.Setup.MemoryBytes)
	}
	for _, c := range again.Cells {
		if c.Goodput <= 0 || c.Service50.Value <= 0 || c.Verdict.Status != "unchecked" {
			t.Errorf("cell: %g B/s, p50 %g s, verdict %q", c.Goodput, c.Service50.Value, c.Verdict.Status)
		}
		if c.WorkingSetBytes > c.Bytes || o.Plan.Pool > 0 && c.WorkingSetBytes > o.Plan.Pool {
			t.Errorf("a working set of %d bytes of %d, pool %d", c.WorkingSetBytes, c.Bytes, o.Plan.Pool)
		}
	}
}

// TestRunCalibrated: calibration times batches before, between and after the
// cells, and each side may be the one that does.
func TestRunCalibrated(t *testing.T) {
	t.Parallel()
	for _, direction := range directions {
		t.Run(string(direction), func(t *testing.T) {
			plan := planOf(direction, spec(t), spec(t, tokens(20)))
			o, err := newBed(t, tcp.New()).run(plan, Load{Requests: 2, Calibrate: 100 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			if len(o.Samples) == 0 || o.CalibrationSeconds <= 0 {
				t.Fatalf("%d samples in %g s", len(o.Samples), o.CalibrationSeconds)
			}
			repeats := make(map[trial]int)
			for _, s := range o.Samples {
				repeats[trial{s.Transfers, s.Descriptors, s.Bytes}]++
				if s.Seconds <= 0 || s.Transfers < 1 || s.Descriptors < s.Transfers {
					t.Errorf("sample %+v", s)
				}
			}
			for k, n := range repeats {
				if n < leastRounds {
					t.Errorf("batch %+v was timed %d times, least %d", k, n, leastRounds)
				}
			}
			for i := range o.Cells {
				p := o.Cells[i].cell.plan
				if repeats[trial{len(p.Transfers), p.Descriptors, p.Bytes}] > 0 {
					t.Errorf("the fit saw a request of %d bytes that it is held against", p.Bytes)
				}
			}
			run, err := Summarize(o, Assumptions{}, nil)
			if err != nil || run.Fit == nil || len(run.Fit.Samples) != len(o.Samples) || run.Fit.Points != len(repeats) {
				t.Errorf("record of the fit: %+v, %v", run.Fit, err)
			}
		})
	}
}

// stopAfter ends a context once n requests were measured.
func stopAfter(p *Producer, n int64, stop func()) {
	p.Observe = func(o Progress) {
		if o.Stage == "measure" && o.Done >= n {
			stop()
		}
	}
}

// TestCancelKeeps what was measured until then, on either transport and in
// either direction, and the consumer goes on.
func TestCancelKeeps(t *testing.T) {
	t.Parallel()
	for _, over := range []transport.Transport{mem.New(), tcp.New()} {
		for _, direction := range directions {
			for _, workers := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s %s %d", over.Name(), direction, workers), func(t *testing.T) {
					b := newBed(t, over)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					p := b.producer()
					stopAfter(p, 5, cancel)
					plan := planOf(direction, spec(t), spec(t))
					plan.Transport, plan.Workers = over.Name(), workers
					begin := time.Now()
					o, err := p.Run(ctx, plan, Load{Duration: time.Minute})
					if !errors.Is(err, context.Canceled) {
						t.Fatalf("error %v, want context.Canceled", err)
					}
					if d := time.Since(begin); d > patience {
						t.Errorf("ended after %v of the minute that it was to measure", d)
					}
					if len(o.Cells) != 1 {
						t.Fatalf("%d cells", len(o.Cells))
					}
					c := &o.Cells[0]
					if c.Complete || c.Record == nil || c.Record.Requests < 5 || c.Record.Service.Count() != c.Record.Requests || c.Verify.Checked == 0 || c.Verify.Mismatched != 0 {
						t.Errorf("complete %v, record %+v, verification %+v", c.Complete, c.Record, c.Verify)
					}
					run, err := Summarize(o, Assumptions{Judge: Judge{Tolerance: 0.5, Against: []string{"spec", "fit"}}}, err)
					if err != nil {
						t.Fatal(err)
					}
					if run.Complete || run.Incomplete == "" || run.Cells[0].Verdict.Status != "fail" {
						t.Errorf("record: complete %v (%q), verdict %+v", run.Complete, run.Incomplete, run.Cells[0].Verdict)
					}
					b.goesOn()
				})
			}
		}
	}
}

// goesOn checks that the consumer serves another run. The place of a run that
// ended badly can take a moment to be free.
func (b *bed) goesOn() {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		_, err := b.run(planOf(Push, spec(b.t)), Load{Requests: 1})
		var refusal *control.Refusal
		if err == nil {
			return
		}
		if !errors.As(err, &refusal) || refusal.Code != "busy" || time.Now().After(deadline) {
			b.t.Errorf("the consumer does not go on: %v", err)
			return
		}
	}
}

// TestStoppedConsumer: the producer is told, and keeps what it has.
func TestStoppedConsumer(t *testing.T) {
	for _, direction := range directions {
		t.Run(string(direction), func(t *testing.T) {
			b := newBed(t, tcp.New())
			p := b.producer()
			stopAfter(p, 3, b.stop)
			o, err := p.Run(t.Context(), planOf(direction, spec(t)), Load{Duration: time.Minute})
			if err == nil || !strings.Contains(err.Error(), "stopped") {
				t.Errorf("error %v, want one that says that the consumer was stopped", err)
			}
			if len(o.Cells) != 1 || o.Cells[0].Complete {
				t.Errorf("cells %+v", o.Cells)
			}
			// Pulling, the record is at the consumer and goes with it.
			if direction == Push && (o.Cells[0].Record == nil || o.Cells[0].Record.Requests == 0) {
				t.Error("nothing was kept")
			}
		})
	}
}

// TestSessions: one run at a time unless told otherwise.
func TestSessions(t *testing.T) {
	t.Parallel()
	for places, want := range map[int]string{1: "busy", 2: ""} {
		t.Run(fmt.Sprint(places), func(t *testing.T) {
			b := newBed(t, tcp.New(), func(c *Consumer) { c.Limits.Sessions = places })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			running := make(chan struct{})
			first := b.producer()
			stopAfter(first, 1, func() {
				select {
				case <-running:
				default:
					close(running)
				}
			})
			ended := make(chan error, 1)
			go func() {
				_, err := first.Run(ctx, planOf(Push, spec(t)), Load{Duration: time.Minute})
				ended <- err
			}()
			<-running
			_, err := b.run(planOf(Pull, spec(t)), Load{Requests: 2})
			var refusal *control.Refusal
			if want == "" && err != nil || want != "" && (!errors.As(err, &refusal) || refusal.Code != want || !strings.Contains(refusal.Message, "--max-sessions")) {
				t.Errorf("second run: %v, want a refusal %q", err, want)
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("first run: %v", err)
			}
			b.goesOn()
		})
	}
}

// TestOnceServesOne run, and returns how it went.
func TestOnceServesOne(t *testing.T) {
	for _, verify := range []payload.Depth{payload.VerifyNone, payload.VerifyFull} {
		over := mem.New(mem.Corrupt)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() {
			c := &Consumer{Transports: []transport.Transport{over}, Host: noHost, Log: quietly(t)}
			served <- c.Serve(t.Context(), l, true)
		}()
		p := &Producer{Connect: l.Addr().String(), Transports: []transport.Transport{over}, Host: noHost}
		plan := planOf(Push, spec(t))
		plan.Transport, plan.Verify = "mem", verify
		_, errRun := p.Run(t.Context(), plan, Load{Requests: 1})
		errServed := <-served
		if bad := verify == payload.VerifyFull; (errRun != nil) != bad || (errServed != nil) != bad {
			t.Errorf("verify %s: producer %v, consumer %v", verify, errRun, errServed)
		}
	}
}

// TestMemoryLimits are found before any memory is made.
func TestMemoryLimits(t *testing.T) {
	b := newBed(t, tcp.New(), func(c *Consumer) { c.Limits.MemoryBytes = 1 << 20 })
	big := planOf(Push, spec(t, tokens(128)))
	_, err := b.run(big, Load{Requests: 1})
	var refusal *control.Refusal
	if !errors.As(err, &refusal) || refusal.Code != "memory" {
		t.Fatalf("error %v, want a refusal", err)
	}
	for _, says := range []string{"1 request at a time, of 2 MiB each at 128 tokens)", "1 MiB is the limit", "--context", "--pool", "--max-memory"} {
		if !strings.Contains(refusal.Message, says) {
			t.Errorf("the refusal does not say %q: %s", says, refusal.Message)
		}
	}
	// A pool fits where the whole does not; workers count each.
	big.Pool = 512 << 10
	if _, err := b.run(big, Load{Requests: 1}); err != nil {
		t.Errorf("with a pool that fits: %v", err)
	}
	big.Workers = 3
	if _, err := b.run(big, Load{Requests: 1}); !errors.As(err, &refusal) || !strings.Contains(refusal.Message, "3 requests") {
		t.Errorf("with three of them: %v", err)
	}
	// A layer of 64 tokens fits the pool, but the lists do not fit: 64 blocks of one token
	// in 4 layers, K and V apart, are 512 ranges of 24 bytes and as many stamped blocks and
	// descriptors, or 36 KiB a context. 32 contexts are 1.125 MiB.
	many := planOf(Push)
	many.Pool = 256 << 10
	for range 32 {
		many.Specs = append(many.Specs, spec(t, tokens(64), func(s *payload.Spec) {
			s.Layout = payload.Layout{Paged: true, BlockTokens: 1, Fragmentation: 1, Seed: 3}
		}))
	}
	if _, err := b.run(many, Load{Requests: 1}); !errors.As(err, &refusal) || !strings.Contains(refusal.Message, "and 1.125 MiB for the lists") || !strings.Contains(refusal.Message, "--block-tokens") {
		t.Errorf("with lists over the limit: %v", err)
	}
	// More than there is: the producer does not even ask.
	var limit *MemoryError
	huge := planOf(Push, spec(t, tokens(1<<40)))
	if _, err := b.run(huge, Load{Requests: 1}); !errors.As(err, &limit) || limit.Need < 1<<50 {
		t.Errorf("more than there is: %v", err)
	}
	b.goesOn()
}

// TestPlansRefused by the side that makes them, as a mistake of its user's.
func TestPlansRefused(t *testing.T) {
	b := newBed(t, tcp.New())
	for name, c := range map[string]struct {
		change func(*Plan)
		says   string
	}{
		"no workers":       {func(p *Plan) { p.Workers = 0 }, "concurrency of 0"},
		"many workers":     {func(p *Plan) { p.Workers = 1 << 20 }, "choose 1 to 1024"},
		"no contexts":      {func(p *Plan) { p.Specs = nil }, "0 contexts"},
		"direction":        {func(p *Plan) { p.Direction = "up" }, "push or pull"},
		"verification":     {func(p *Plan) { p.Verify = "maybe" }, "none, stamp or full"},
		"negative pool":    {func(p *Plan) { p.Pool = -1 }, "pool"},
		"small pool":       {func(p *Plan) { p.Pool = 1 }, "raise the pool"},
		"no such rank":     {func(p *Plan) { p.Rank.Decode = 7 }, "rank"},
		"negative rank":    {func(p *Plan) { p.Rank.Prefill = -1 }, "rank"},
		"no tokens":        {func(p *Plan) { p.Specs[0].Tokens = 0 }, "tokens"},
		"many streams":     {func(p *Plan) { p.Config.Streams = 1 << 20 }, "streams"},
		"negative streams": {func(p *Plan) { p.Config.Streams = -1 }, "streams"},
	} {
		plan := planOf(Push, spec(t))
		c.change(&plan)
		if _, err := b.run(plan, Load{Requests: 1}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.says)
		}
	}
	plan := planOf(Push, spec(t))
	plan.Transport = "pigeon"
	if _, err := b.producer().Run(t.Context(), plan, Load{Requests: 1}); err == nil || !strings.Contains(err.Error(), "pigeon") {
		t.Errorf("unknown transport: %v", err)
	}
	b.goesOn()
}
