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

// slowPath is the reference transport with costs that are known: each descriptor
// takes a core so long to post, as in the engines that serve KV caches, and each
// stream carries so many bytes a second, as where a network limits single flows.
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
	until := transport.Now() + took
	const oversleep = 2 * time.Millisecond // what a sleep may be late
	if took > 2*oversleep {
		time.Sleep(took - oversleep)
	}
	for transport.Now() < until {
	}
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

// oneOfThree gives a measurement three tries to agree with what is known: a busy
// machine stalls. What is wrong fails all three.
func oneOfThree(t *testing.T, try func() (wrong []string)) {
	t.Helper()
	var wrong []string
	for i := range 3 {
		time.Sleep(time.Duration(i) * 5 * time.Second)
		if wrong = try(); len(wrong) == 0 {
			return
		}
	}
	t.Error(strings.Join(wrong, "\n"))
}

// sixteenMiB is one layer of 16 MiB, K and V, in blocks of so many tokens: 4096
// bytes a token, so 8192/block descriptors.
func sixteenMiB(t *testing.T, block int) payload.Spec {
	return spec(t, tokens(4096), func(s *payload.Spec) {
		s.Layers = []int{0}
		s.Layout = payload.Layout{Paged: true, BlockTokens: block, Fragmentation: 1, Seed: 3}
	})
}

// TestDescriptorsAreNamed goes the whole way from calibration to the verdict on a
// path whose descriptors take 12 µs each, beside 500 MB/s and the copy that follows:
// about 36 ms for 16 MiB. That is four times the dearest published for engines (2.4
// to 4 µs a descriptor), so that the machine's own costs are small beside it where
// they are largest, under the race detector. The fit, which timed none of these
// counts, predicts 16, 256 and 4096 descriptors of these bytes. Held against a link
// of 400 MB/s, 42 ms, the first two are as fast as it, and 4096 descriptors, 49 ms
// more, are the limiter.
func TestDescriptorsAreNamed(t *testing.T) {
	const gamma = 12 * time.Microsecond
	oneOfThree(t, func() (wrong []string) {
		b := newBed(t, slowPath{Transport: mem.New(), perDescriptor: gamma, perStream: 500e6})
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
				t.Fatalf("calibration timed %d descriptors, which are to be predicted", s.Descriptors)
			}
		}
		got := time.Duration(run.Fit.Gamma.Value * 1e9)
		t.Logf("gamma %v, %v", got, run.Fit.Notes)
		if got < gamma*85/100 || got > gamma*115/100 {
			wrong = append(wrong, fmt.Sprintf("gamma is %v, fitted as %v", gamma, got))
		}
		for i, descriptors := range []int{16, 256, 4096} {
			c := run.Cells[i]
			if c.Descriptors != descriptors || c.Bytes != 16<<20 {
				t.Fatalf("%d descriptors of %d bytes", c.Descriptors, c.Bytes)
			}
			if c.Predicted.Fit == nil {
				wrong = append(wrong, fmt.Sprintf("%d descriptors: no prediction: %v", descriptors, run.Fit.Notes))
				continue
			}
			t.Logf("%d descriptors: %.4g s, ratio to the fit %.3f; %s: %s", descriptors, c.Service50.Value, c.Predicted.Fit.Ratio, c.Verdict.Limiter, c.Verdict.Evidence)
			if r := c.Predicted.Fit.Ratio; r < 0.85 || r > 1.15 {
				wrong = append(wrong, fmt.Sprintf("%d descriptors: measured is %.3f of the fit", descriptors, r))
			}
			limiter, cost := "", 0.0 // ms
			if descriptors == 4096 {
				limiter = model.LimiterDescriptors
				if _, err := fmt.Sscanf(c.Verdict.Evidence, "4096 descriptors cost %f ms", &cost); err != nil || cost < 42 || cost > 57 {
					wrong = append(wrong, fmt.Sprintf("4096 descriptors of 12 µs cost 49 ms: %s", c.Verdict.Evidence))
				}
			}
			if c.Verdict.Limiter != limiter {
				wrong = append(wrong, fmt.Sprintf("%d descriptors: %+v", descriptors, c.Verdict))
			}
		}
		return wrong
	})
}

// TestMoreStreams: on a path that carries 100 MB/s a stream a run of one stream
// that is held against 400 MB/s finds out, after its measurement, that four carry
// it; where all streams share 100 MB/s it finds that they do not help. The path
// keeps its rates by sleeping, so that on a busy machine it can be slower.
func TestMoreStreams(t *testing.T) {
	for _, direction := range directions {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, shared %v", direction, shared), func(t *testing.T) {
				t.Parallel() // it sleeps
				oneOfThree(t, func() []string { return tryMoreStreams(t, direction, shared) })
			})
		}
	}
}

// tryMoreStreams returns what is wrong with one such run.
func tryMoreStreams(t *testing.T, direction Direction, shared bool) (wrong []string) {
	b := newBed(t, slowPath{Transport: mem.New(), perStream: 100e6, shared: shared})
	run := b.judged(planOf(direction, sixteenMiB(t, 512)), Load{Requests: 4}, against(t, "3.2Gbit/s"))
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
		if r := run.Streams.Rates[i]; r.Streams != streams || r.Batches != probeRounds*probeBatches || r.Goodput < 0.6*want || r.Goodput > 1.05*want {
			wrong = append(wrong, fmt.Sprintf("%+v, want %d streams with %.4g B/s", r, streams, want))
		}
	}
	want, says := model.LimiterStream, "use --streams 4"
	if shared {
		want, says = model.LimiterPath, "more streams do not help"
	}
	if v.Limiter != want || !strings.Contains(v.Evidence, says) {
		wrong = append(wrong, fmt.Sprintf("verdict %+v", v))
	}
	return wrong
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
	path := slowPath{Transport: mem.New(), perStream: 200e6}
	if run := newBed(t, path).judged(planOf(Push, sixteenMiB(t, 512)), Load{Requests: 3}, against(t, "100Mbit/s")); run.Streams != nil {
		t.Errorf("faster than its link: %+v", run.Streams)
	}
	if run := newBed(t, path).judged(planOf(Push, spec(t)), Load{Requests: 3}, against(t, "100gbe")); run.Streams != nil {
		t.Errorf("too small to show a bandwidth: %+v", run.Streams)
	}
	shared := planOf(Push, sixteenMiB(t, 512))
	shared.Workers = 2
	if run := newBed(t, path).judged(shared, Load{Requests: 4}, against(t, "100gbe")); run.Streams != nil {
		t.Errorf("two requests at a time: %+v", run.Streams)
	}
	path.mostStreams = 1
	b := newBed(t, path)
	run := b.judged(planOf(Push, sixteenMiB(t, 512)), Load{Requests: 3}, against(t, "100gbe"))
	if v := run.Cells[0].Verdict; run.Streams == nil || len(run.Streams.Rates) > 0 || !strings.Contains(run.Streams.Note, "firewall") || v.Status != "fail" || strings.Contains(v.Evidence, "do not help") {
		t.Errorf("no second connection: probe %+v, verdict %+v", run.Streams, v)
	}
	b.goesOn()
}
