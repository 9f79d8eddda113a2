package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"kvbench/model"
	"kvbench/payload"
	"kvbench/results"
	"kvbench/transport"
	"kvbench/transport/mem"
)

// slowPath is the reference transport with known costs, in virtual time: each descriptor
// takes this long to post, as in the engines that serve KV caches, and each stream carries
// this many bytes a second, as on a network that limits single flows.
type slowPath struct {
	transport.Transport
	perDescriptor time.Duration
	perStream     float64 // bytes a second; 0 is no limit
	shared        bool    // perStream is what all streams carry together
	mostStreams   int     // connections with more cannot be made; 0 is no limit
}

func (p slowPath) Dial(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Initiator, error) {
	if p.mostStreams > 0 && cfg.Streams > p.mostStreams {
		return nil, errors.New("a firewall drops it")
	}
	in, err := p.Transport.Dial(ctx, addr, cfg)
	return p.slow(in, cfg), err
}

func (p slowPath) Listen(ctx context.Context, cfg transport.Config) (transport.Listener, error) {
	l, err := p.Transport.Listen(ctx, cfg)
	return slowListener{l, p, cfg}, err
}

func (p slowPath) slow(in transport.Initiator, cfg transport.Config) transport.Initiator {
	rate := p.perStream
	if !p.shared {
		rate *= float64(max(1, cfg.Streams))
	}
	return slowInitiator{in, p.perDescriptor, rate}
}

type slowListener struct {
	transport.Listener
	path slowPath
	cfg  transport.Config
}

func (l slowListener) AcceptInitiator(ctx context.Context) (transport.Initiator, error) {
	in, err := l.Listener.AcceptInitiator(ctx)
	return l.path.slow(in, l.cfg), err
}

type slowInitiator struct {
	transport.Initiator
	perDescriptor time.Duration
	rate          float64
}

func (in slowInitiator) Post(t transport.Transfer) error {
	took := time.Duration(len(t.Descriptors)) * in.perDescriptor
	if in.rate > 0 {
		var bytes int64
		for _, d := range t.Descriptors {
			bytes += d.Length
		}
		took += time.Duration(float64(bytes) / in.rate * 1e9)
	}
	time.Sleep(took)
	return in.Initiator.Post(t)
}

// against is what a run is held against: a link of the given rate, in full.
func against(t *testing.T, link string) Assumptions {
	t.Helper()
	l, err := model.ParseLink(link)
	if err != nil {
		t.Fatal(err)
	}
	return Assumptions{Link: &l, Framing: model.Framing{Mode: model.FramingOff}, Judge: Judge{Tolerance: 0.3, Against: []string{"spec", "fit"}}}
}

// unverified is planOf for runs whose bytes are not in question, and of which 16 MiB would
// take long to check under the race detector.
func unverified(direction Direction, specs ...payload.Spec) Plan {
	plan := planOf(direction, specs...)
	plan.Verify = payload.VerifyNone
	return plan
}

// sixteenMiB is one layer of 16 MiB, K and V, in blocks of so many tokens: 4096
// bytes a token, so 8192/block descriptors.
func sixteenMiB(t *testing.T, block int) payload.Spec {
	return spec(t, tokens(4096), func(s *payload.Spec) {
		s.Layers = []int{0}
		s.Layout = payload.Layout{Paged: true, BlockTokens: block, Fragmentation: 1, Seed: 3}
	})
}

// TestDescriptorsAreNamed covers the way from calibration to the verdict on a path that
// costs 12 µs a descriptor and carries 500 MB/s: 33.55 ms for 16 MiB, and 49.15 ms more for
// 4096 descriptors. The fit timed none of these counts. It must find both costs within 1 %
// and predict 16, 256 and 4096 descriptors within 1 %. Against a link of 400 MB/s, 41.94 ms,
// the first two runs are fast enough, and descriptors limit the third.
func TestDescriptorsAreNamed(t *testing.T) {
	t.Parallel()
	const gamma = 12 * time.Microsecond
	inVirtualTime(t, func(t *testing.T) {
		b := newVirtualBed(t, slowPath{Transport: mem.New(), perDescriptor: gamma, perStream: 500e6})
		plan := planOf(Push, sixteenMiB(t, 512), sixteenMiB(t, 32), sixteenMiB(t, 2))
		plan.Verify = payload.VerifyStamp
		o, err := b.run(plan, Load{Requests: 15, Warmup: 2, Calibrate: 4 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		run, err := Summarize(o, against(t, "400MB/s"), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range run.Fit.Samples {
			if s.Descriptors == 16 || s.Descriptors == 256 || s.Descriptors == 4096 {
				t.Fatalf("calibration timed %d descriptors, a count that it must predict", s.Descriptors)
			}
		}
		near(t, "fitted seconds a descriptor", run.Fit.Gamma.Value, gamma.Seconds(), 0.01)
		near(t, "fitted bandwidth", run.Fit.Bandwidth.Value, 500e6, 0.01)
		for i, c := range []struct {
			descriptors int
			seconds     float64
			limiter     string
		}{
			{16, 33.554e-3 + 16*12e-6, ""},
			{256, 33.554e-3 + 256*12e-6, ""},
			{4096, 33.554e-3 + 4096*12e-6, model.LimiterDescriptors},
		} {
			got := run.Cells[i]
			if got.Descriptors != c.descriptors || got.Bytes != 16<<20 {
				t.Fatalf("%d descriptors of %d bytes", got.Descriptors, got.Bytes)
			}
			// A histogram keeps three digits.
			near(t, fmt.Sprintf("seconds of %d descriptors", c.descriptors), got.Service50.Value, c.seconds, 0.002)
			if got.Predicted.Fit == nil {
				t.Fatalf("%d descriptors: no prediction: %v", c.descriptors, run.Fit.Notes)
			}
			near(t, fmt.Sprintf("%d descriptors over the fit", c.descriptors), got.Predicted.Fit.Ratio, 1, 0.01)
			if got.Verdict.Limiter != c.limiter {
				t.Errorf("%d descriptors: %+v", c.descriptors, got.Verdict)
			}
		}
		var cost float64 // ms
		evidence := run.Cells[2].Verdict.Evidence
		if _, err := fmt.Sscanf(evidence, "4096 descriptors cost %f ms", &cost); err != nil {
			t.Errorf("no cost of descriptors: %s", evidence)
		}
		near(t, "stated milliseconds of 4096 descriptors", cost, 49.15, 0.02)
	})
}

// TestMoreStreams covers a run of one stream on a path that carries 100 MB/s a stream. The
// run is judged against 400 MB/s. After its measurement it finds that four streams carry
// that; if all streams share 100 MB/s, it finds that more do not help.
func TestMoreStreams(t *testing.T) {
	t.Parallel()
	for _, direction := range directions {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, shared %v", direction, shared), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T) { moreStreams(t, direction, shared) })
			})
		}
	}
}

func moreStreams(t *testing.T, direction Direction, shared bool) {
	b := newVirtualBed(t, slowPath{Transport: mem.New(), perStream: 100e6, shared: shared})
	run := b.judged(unverified(direction, sixteenMiB(t, 512)), Load{Requests: 4}, against(t, "3.2Gbit/s"))
	v := run.Cells[0].Verdict
	t.Logf("%+v; %s: %s", run.Streams, v.Limiter, v.Evidence)
	if run.Streams == nil || len(run.Streams.Rates) != 3 {
		t.Fatalf("probe %+v", run.Streams)
	}
	for i, streams := range []int{1, 2, 4} {
		want := 100e6
		if !shared {
			want *= float64(streams)
		}
		r := run.Streams.Rates[i]
		if r.Streams != streams || r.Batches != probeRounds*probeBatches {
			t.Errorf("%+v, want %d streams", r, streams)
		}
		near(t, fmt.Sprintf("goodput of %d streams", streams), r.Goodput, want, 0.01)
	}
	limiter, says := model.LimiterStream, "use --streams 4"
	if shared {
		limiter, says = model.LimiterPath, "more streams do not help"
	}
	if v.Limiter != limiter || !strings.Contains(v.Evidence, says) {
		t.Errorf("verdict %+v", v)
	}
}

// judged makes a run as the command line does: it looks for more streams where the
// link was missed.
func (b *bed) judged(plan Plan, load Load, assumed Assumptions) *results.Run {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	plan.Transport = b.transports[0].Name()
	p := b.producer()
	p.MoreStreams = assumed.SlowerThanLink
	o, err := p.Run(ctx, plan, load)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range o.Cells { // both ends, and tests beside this one, are one process: its time is nobody's
		o.Cells[i].ProducerCPU, o.Cells[i].ConsumerCPU = 0, nil
	}
	run, err := Summarize(o, assumed, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return run
}

// TestStreamsNotTried: a run that the link explains, or whose requests already share
// the path, tries no more streams; and a probe that fails spoils nothing.
func TestStreamsNotTried(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, streamsNotTried)
}

func streamsNotTried(t *testing.T) {
	path := slowPath{Transport: mem.New(), perStream: 200e6}
	if run := newVirtualBed(t, path).judged(unverified(Push, sixteenMiB(t, 512)), Load{Requests: 3}, against(t, "100Mbit/s")); run.Streams != nil {
		t.Errorf("faster than its link: %+v", run.Streams)
	}
	if run := newVirtualBed(t, path).judged(planOf(Push, spec(t)), Load{Requests: 3}, against(t, "100gbe")); run.Streams != nil {
		t.Errorf("too small to show a bandwidth: %+v", run.Streams)
	}
	shared := unverified(Push, sixteenMiB(t, 512))
	shared.Workers = 2
	if run := newVirtualBed(t, path).judged(shared, Load{Requests: 4}, against(t, "100gbe")); run.Streams != nil {
		t.Errorf("two requests at a time: %+v", run.Streams)
	}
	path.mostStreams = 1
	b := newVirtualBed(t, path)
	run := b.judged(unverified(Push, sixteenMiB(t, 512)), Load{Requests: 3}, against(t, "100gbe"))
	if v := run.Cells[0].Verdict; run.Streams == nil || len(run.Streams.Rates) > 0 || !strings.Contains(run.Streams.Note, "firewall") || v.Status != "fail" || strings.Contains(v.Evidence, "do not help") {
		t.Errorf("no second connection: probe %+v, verdict %+v", run.Streams, v)
	}
	b.goesOn()
}
