package bench

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"kvbench/payload"
	"kvbench/transport"
	"kvbench/transport/mem"
)

type descriptor = transport.Descriptor

// pair connects an initiator and a target, each with the memory that the cells
// need, and takes the target's notices.
func pair(t testing.TB, over transport.Transport, plan Plan, cells []cell) (*initiator, *target) {
	t.Helper()
	cfg := plan.configure(cells)
	ctx, cancel := context.WithCancel(context.Background())
	l, err := over.Listen(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	dialled, err := over.Dial(ctx, l.Address(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.AcceptTarget(ctx)
	if err != nil {
		t.Fatal(err)
	}
	source, dest, _ := spans(cells)
	size := max(source, dest)
	local, err := dialled.Register(transport.HostBytes(make([]byte, size)))
	if err != nil {
		t.Fatal(err)
	}
	remote, err := accepted.Register(transport.HostBytes(make([]byte, size)))
	if err != nil {
		t.Fatal(err)
	}
	ad, err := accepted.Advertise(remote)
	if err != nil {
		t.Fatal(err)
	}
	imported, err := dialled.Import(ad)
	if err != nil {
		t.Fatal(err)
	}
	tg := &target{Target: accepted}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		tg.watch(ctx, func(uint64) error { return nil })
	}()
	t.Cleanup(func() {
		cancel()
		dialled.Close()
		accepted.Close()
		l.Close()
		<-watched
	})
	return &initiator{Initiator: dialled, op: plan.Direction.op(), local: local, remote: imported[0], record: newRecord()}, tg
}

// calibrated is a side that can calibrate, over a transport without a network.
func calibrated(t *testing.T, specs ...payload.Spec) *side {
	t.Helper()
	plan := planOf(Push, specs...)
	cells, err := plan.cells()
	if err != nil {
		t.Fatal(err)
	}
	in, _ := pair(t, mem.New(), plan, cells)
	source, _, _ := spans(cells)
	return &side{plan: plan, cells: cells, span: source, initiators: []*initiator{in}}
}

// generous is a budget that no batch here comes near, so that memory alone bounds
// the sizes and the design does not depend on the machine's speed.
const generous = time.Hour

// TestDesign: sizes, descriptors and transfers vary independently over decades,
// and no batch is one of the requests that the fit will be held against.
func TestDesign(t *testing.T) {
	t.Parallel()
	// 64 MiB of memory; the second cell is made to look like a batch.
	s := calibrated(t, spec(t, tokens(4096)), spec(t, tokens(64)))
	first, err := s.newCalibrator(t.Context(), calibration{Seed: 1, Budget: generous})
	if err != nil {
		t.Fatal(err)
	}
	clash := first.trials[len(first.trials)/2]
	s.cells[1].plan = &payload.Plan{Transfers: make([]payload.Transfer, clash.transfers), Descriptors: clash.descriptors, Bytes: clash.bytes}
	k, err := s.newCalibrator(t.Context(), calibration{Seed: 1, Budget: generous})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(k.trials, clash) || len(k.trials) != len(first.trials) {
		t.Errorf("of %d batches one is a request: %+v", len(k.trials), clash)
	}
	counts := make(map[[2]int]int)
	seen := make(map[trial]bool)
	smallest, largest := int64(math.MaxInt64), int64(0)
	for _, b := range k.trials {
		if seen[b] {
			t.Errorf("batch %+v is there twice", b)
		}
		seen[b] = true
		counts[[2]int{b.transfers, b.descriptors}]++
		smallest, largest = min(smallest, b.bytes), max(largest, b.bytes)
		for _, c := range s.cells {
			if n := c.plan.Descriptors; n > 1 && b.descriptors == n {
				t.Errorf("batch %+v has the descriptors of a request", b)
			}
		}
		if b.descriptors < b.transfers || b.bytes < int64(b.descriptors) || b.bytes > s.span {
			t.Errorf("batch %+v cannot be, in %d bytes", b, s.span)
		}
	}
	if largest < 1000*smallest || largest < s.span/2 {
		t.Errorf("sizes from %d to %d, in %d bytes", smallest, largest, s.span)
	}
	for c, n := range counts {
		if n < sizeLevels-2 {
			t.Errorf("%v transfers and descriptors at %d sizes of %d", c, n, sizeLevels)
		}
	}
	logs := func(f func(trial) float64) (v []float64) {
		for _, b := range k.trials {
			v = append(v, math.Log(f(b)))
		}
		return v
	}
	bytes := logs(func(b trial) float64 { return float64(b.bytes) })
	descriptors := logs(func(b trial) float64 { return float64(b.descriptors) })
	transfers := logs(func(b trial) float64 { return float64(b.transfers) })
	for _, c := range []struct {
		what string
		r    float64
		most float64
	}{
		{"bytes and descriptors", correlation(bytes, descriptors), 0.2},
		{"bytes and transfers", correlation(bytes, transfers), 0.2},
		// A transfer has at least one descriptor, which ties them a little.
		{"descriptors and transfers", correlation(descriptors, transfers), 0.5},
	} {
		if math.Abs(c.r) > c.most {
			t.Errorf("%s go together: correlation %.2f", c.what, c.r)
		}
	}
}

func correlation(a, b []float64) float64 {
	mean := func(v []float64) (m float64) {
		for _, x := range v {
			m += x / float64(len(v))
		}
		return m
	}
	ma, mb := mean(a), mean(b)
	var ab, aa, bb float64
	for i := range a {
		ab += (a[i] - ma) * (b[i] - mb)
		aa += (a[i] - ma) * (a[i] - ma)
		bb += (b[i] - mb) * (b[i] - mb)
	}
	return ab / math.Sqrt(aa*bb)
}

// TestDesignIsDeterministic: a seed gives the batches and their order, and another
// seed another order.
func TestDesignIsDeterministic(t *testing.T) {
	order := func(seed uint64) []trial {
		s := calibrated(t, spec(t))
		samples, err := s.calibrate(t.Context(), calibration{Seed: seed, Budget: time.Nanosecond, Share: 1}, func(int, int) {})
		if err != nil {
			t.Fatal(err)
		}
		k, err := s.newCalibrator(t.Context(), calibration{Seed: seed, Budget: generous})
		if err != nil {
			t.Fatal(err)
		}
		if len(samples) != leastRounds*len(s.calibrator.trials) {
			t.Errorf("%d samples of %d batches", len(samples), len(s.calibrator.trials))
		}
		k.rng.Shuffle(len(k.trials), func(i, j int) { k.trials[i], k.trials[j] = k.trials[j], k.trials[i] })
		return k.trials
	}
	if a, b := order(5), order(5); !slices.Equal(a, b) {
		t.Errorf("one seed gives %v and %v", a, b)
	}
	if a, b := order(5), order(6); slices.Equal(a, b) {
		t.Error("two seeds give one order")
	}
}

// TestSmallMemory: calibration does what it can with what there is.
func TestSmallMemory(t *testing.T) {
	for _, span := range []int64{1, 5, 64, 5000} {
		s := calibrated(t, spec(t))
		s.span = span
		samples, err := s.calibrate(t.Context(), calibration{Budget: time.Millisecond}, func(int, int) {})
		if err != nil {
			t.Errorf("%d bytes: %v", span, err)
		}
		for _, m := range samples {
			if m.Bytes > span {
				t.Errorf("a batch of %d bytes in %d", m.Bytes, span)
			}
		}
	}
}

// TestSpread: a batch's descriptors cover its bytes once, in their memory, and
// leave a transport nothing to merge.
func TestSpread(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	k := &calibrator{span: 1 << 20}
	for range 300 {
		descriptors := 1 + rng.IntN(200)
		b := trial{transfers: 1 + rng.IntN(descriptors), descriptors: descriptors}
		b.bytes = int64(descriptors) + rng.Int64N(k.span-int64(descriptors))
		batch := k.spread(b)
		if len(batch) != b.transfers {
			t.Fatalf("%+v: %d transfers", b, len(batch))
		}
		var local, remote []span
		count := 0
		for _, transfer := range batch {
			if len(transfer) == 0 {
				t.Fatalf("%+v: a transfer without descriptors", b)
			}
			for i, d := range transfer {
				count++
				if d.Length < 1 || d.Local < 0 || d.Remote < 0 || d.Local+d.Length > k.span || d.Remote+d.Length > k.span {
					t.Fatalf("%+v: descriptor %+v", b, d)
				}
				local = append(local, span{time.Duration(d.Local), time.Duration(d.Local + d.Length)})
				remote = append(remote, span{time.Duration(d.Remote), time.Duration(d.Remote + d.Length)})
				if i > 0 && transfer[i-1].Remote+transfer[i-1].Length == d.Remote && transfer[i-1].Local+transfer[i-1].Length == d.Local {
					t.Fatalf("%+v: descriptors %d and %d can be merged", b, i-1, i)
				}
			}
		}
		if count != b.descriptors || int64(union(local)) != b.bytes || int64(union(remote)) != b.bytes {
			t.Fatalf("%+v: %d descriptors cover %d and %d bytes", b, count, union(local), union(remote))
		}
	}
}

// TestStretches: the stretches of a run share its budget, and each batch is timed
// often enough in all of them together.
func TestStretches(t *testing.T) {
	s := calibrated(t, spec(t))
	seen := make(map[trial]int)
	const share = 4
	for range share {
		samples, err := s.calibrate(t.Context(), calibration{Budget: time.Microsecond, Share: share}, func(int, int) {})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range samples {
			seen[trial{m.Transfers, m.Descriptors, m.Bytes}]++
		}
	}
	if len(seen) != len(s.calibrator.trials) {
		t.Errorf("%d batches were timed of %d", len(seen), len(s.calibrator.trials))
	}
	for b, n := range seen {
		if n < leastRounds {
			t.Errorf("%+v was timed %d times", b, n)
		}
	}
}
