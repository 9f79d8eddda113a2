package bench

import (
	"encoding/json"
	"testing"
	"time"

	"kvbench/payload"
	"kvbench/transport"
)

// inside checks that every descriptor of a plan's cells lies in the memory that
// both sides make for it, and that they cover the request.
func inside(t *testing.T, p Plan, cells []cell) {
	t.Helper()
	source, dest, _ := spans(cells)
	local, remote := source, dest
	if p.Direction == Pull {
		local, remote = dest, source
	}
	cfg := p.configure(cells)
	for i, c := range cells {
		var sum int64
		for _, d := range c.descriptors {
			n, err := transport.CheckDescriptors(d, local, remote)
			if err != nil {
				t.Fatalf("cell %d: %v", i, err)
			}
			if len(d) > cfg.MaxDescriptors {
				t.Fatalf("cell %d: %d descriptors, %d configured", i, len(d), cfg.MaxDescriptors)
			}
			sum += n
		}
		if sum != c.plan.Bytes {
			t.Fatalf("cell %d: descriptors of %d bytes, the plan has %d", i, sum, c.plan.Bytes)
		}
		if c.workingSet > c.plan.Bytes || c.workingSet < 1 {
			t.Fatalf("cell %d: a working set of %d bytes of %d", i, c.workingSet, c.plan.Bytes)
		}
	}
	if source%pageSize != 0 || dest%pageSize != 0 {
		t.Fatalf("workers' memory of %d and %d bytes is not whole pages", source, dest)
	}
}

// TestPlanTravels: a consumer makes of a plan what its producer did.
func TestPlanTravels(t *testing.T) {
	formats := []string{"fp16", "fp8", "int4-g32", "kivi2", "spectrum:0.5", "pdtrim:4/64/0-3"}
	for _, f := range formats {
		format, err := payload.ParseFormat(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, direction := range directions {
			p := planOf(direction,
				payload.Spec{Geometry: spec(t).Geometry, Tokens: 100, Format: format},
				payload.Spec{Geometry: spec(t).Geometry, Tokens: 33, Format: format, Layout: payload.Layout{Paged: true, Fragmentation: 0.5, Seed: 9}})
			b, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			var again Plan
			if err := json.Unmarshal(b, &again); err != nil {
				t.Fatal(err)
			}
			ours, err := p.cells()
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := again.cells()
			if err != nil {
				t.Fatal(err)
			}
			inside(t, p, ours)
			for i := range ours {
				a, errA := json.Marshal(ours[i].plan)
				b, errB := json.Marshal(theirs[i].plan)
				if errA != nil || errB != nil || string(a) != string(b) {
					t.Errorf("%s, cell %d: both sides make different plans of one", f, i)
				}
			}
		}
	}
}

// FuzzPlan reads what a producer may send. A plan that passes its checks has
// sizes that hold, and descriptors inside the memory that is made for them.
func FuzzPlan(f *testing.F) {
	g, err := payload.Load("qwen3-0.6b")
	if err != nil {
		f.Fatal(err)
	}
	whole := payload.Spec{Geometry: g, Tokens: 16}
	one := g // little text to mutate
	one.Layers = g.Layers[:1]
	for _, p := range []Plan{
		planOf(Push, payload.Spec{Geometry: one, Tokens: 4}),
		planOf(Pull, payload.Spec{Geometry: one, Tokens: 9, TP: 8, TPDecode: 4, Layout: payload.Layout{Paged: true, BlockTokens: 2, Fragmentation: 0.5}}),
		planOf(Push, whole),
		planOf(Pull, payload.Spec{Geometry: g, Tokens: 33, TP: 4, TPDecode: 2, Layout: payload.Layout{Paged: true, Fragmentation: 1}}),
		{Direction: Push, Verify: payload.VerifyNone, Workers: 2, Pool: 1 << 16, Specs: []payload.Spec{whole}},
	} {
		b, err := json.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"direction":"push","verify":"full","workers":1,"specs":[{"Tokens":1,"Geometry":{"Model":"x","Layers":[{"Kind":"full","KVHeads":1,"KDim":1,"VDim":1}]}}]}`))
	f.Add([]byte(`{"direction":"pull","verify":"stamp","workers":1024,"pool_bytes":9223372036854775807,"rank":{"prefill":-1},"specs":[{"Tokens":9223372036854775807}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Plan
		if json.Unmarshal(b, &p) != nil || p.Validate() != nil {
			return
		}
		need, err := p.memory()
		if err != nil {
			return
		}
		if need.worker < 0 || need.tokens < 0 || need.lists < 0 {
			t.Fatalf("%+v", need)
		}
		if p.checkMemory("consumer", need, 4<<20, "") != nil {
			return
		}
		cells, err := p.cells()
		if err != nil {
			return
		}
		inside(t, p, cells)
	})
}

// TestListing: a GiB of lists may take 51 s, where a plan without lists has none to wait for.
func TestListing(t *testing.T) {
	for _, c := range []struct {
		lists int64
		want  time.Duration
	}{{0, 0}, {1 << 30, 51200 * time.Millisecond}, {1000 * (1 << 40) * 72, 1000 * 72 * (1 << 20) * 50 * time.Millisecond}} {
		if got := (footprint{lists: c.lists}).listing(); got != c.want {
			t.Errorf("%d bytes: %v, want %v", c.lists, got, c.want)
		}
	}
}
