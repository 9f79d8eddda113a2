package payload

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// full returns a model of n like layers.
func full(n, heads, k, v int) Geometry {
	g := Geometry{Model: "test"}
	for range n {
		g.Layers = append(g.Layers, Layer{Kind: Full, KVHeads: heads, KDim: k, VDim: v})
	}
	return g
}

func TestReplication(t *testing.T) {
	for _, c := range []struct {
		model        string
		tp, tpDecode int
		times        int64 // bytes on the wire over bytes of the model
		says         string
	}{
		{"llama-2-70b", 8, 0, 1, ""},
		{"llama-2-70b", 16, 0, 2, "8 KV heads over 16 decode ranks"},
		{"llama-2-70b", 4, 8, 1, ""},
		{"llama-2-70b", 8, 4, 1, ""},
		{"llama-2-70b", 16, 8, 1, ""}, // copies at prefill cost nothing on the wire
		{"qwen3-235b-a22b", 8, 0, 2, "4 KV heads over 8 decode ranks: each head is replicated on 2 of them, so 2 times its bytes are on the wire"},
		{"deepseek-v3", 8, 0, 8, "each of 8 decode ranks receives all of it"},
		{"deepseek-v3", 1, 8, 8, "each of 8 decode ranks receives all of it"},
		{"deepseek-v3", 8, 1, 1, ""},
		{"falcon-7b", 4, 0, 4, "1 KV heads over 4"},
	} {
		g := load(t, c.model)
		s := shape(t, Spec{Geometry: g, Tokens: 4096, TP: c.tp, TPDecode: c.tpDecode})
		if s.WireBytes != c.times*s.Bytes {
			t.Errorf("%s, tp %d to %d: %d bytes on the wire, want %d times %d", c.model, c.tp, c.tpDecode, s.WireBytes, c.times, s.Bytes)
		}
		if notes := strings.Join(s.Notes, "\n"); c.says != "" && !strings.Contains(notes, c.says) || c.says == "" && strings.Contains(notes, "decode ranks") {
			t.Errorf("%s, tp %d to %d: notes %q, want %q", c.model, c.tp, c.tpDecode, notes, c.says)
		}
	}
	// Each rank of DeepSeek-V3 ships 61 * 576 * 2 bytes a token, not an eighth.
	s := shape(t, Spec{Geometry: load(t, "deepseek-v3"), Tokens: 4096, TP: 8})
	for _, p := range s.Pairs {
		if p.Prefill != p.Decode || p.Bytes != 70272*4096 || p.Descriptors != 61 {
			t.Errorf("rank pair %+v, want %d bytes in 61 descriptors", p, 70272*4096)
		}
	}
}

// llama-3.1-70b on one of 8 ranks, 118 blocks of 16 tokens, K and V of 80 layers:
// 118 * 160 = 18,880 descriptors where no block follows its predecessor, 160 where all do.
func TestDescriptors(t *testing.T) {
	g := load(t, "llama-3.1-70b")
	deepseek := load(t, "deepseek-v3")
	paged := func(f float64) Layout { return Layout{Paged: true, BlockTokens: 16, Fragmentation: f} }
	hnd, cross := paged(1), paged(1)
	hnd.HeadMajor, cross.CrossLayer = true, true
	crossHND := cross
	crossHND.HeadMajor = true
	for _, c := range []struct {
		name string
		spec Spec
		want int64
	}{
		{"apart", Spec{Geometry: g, Layout: paged(1), TP: 8}, 18880},
		{"adjacent", Spec{Geometry: g, Layout: paged(0), TP: 8}, 160},
		{"half", Spec{Geometry: g, Layout: paged(0.5), TP: 8}, 160 * 60}, // round(0.5 * 117) = 59 breaks
		{"contiguous", Spec{Geometry: g, TP: 8}, 160},
		{"latent", Spec{Geometry: deepseek, TP: 8}, 61},
		{"latent, apart", Spec{Geometry: deepseek, Layout: paged(1), TP: 8}, 61 * 118},
		{"token-major, a head cut out", Spec{Geometry: g, Layout: paged(0), TP: 4, TPDecode: 8}, 16 * 160 * 118},
		{"head-major, a head cut out", Spec{Geometry: g, Layout: hnd, TP: 4, TPDecode: 8}, 160 * 118},
		{"contiguous token-major, a head cut out", Spec{Geometry: g, TP: 4, TPDecode: 8}, 160 * 1888},
		{"contiguous head-major, a head cut out", Spec{Geometry: g, Layout: Layout{HeadMajor: true}, TP: 4, TPDecode: 8}, 160},
		{"cross-layer", Spec{Geometry: g, Layout: cross, TP: 8}, 118},
		{"cross-layer, token-major, a head cut out", Spec{Geometry: g, Layout: cross, TP: 4, TPDecode: 8}, 16 * 160 * 118},
		{"cross-layer, head-major, a head cut out", Spec{Geometry: g, Layout: crossHND, TP: 4, TPDecode: 8}, 118},
		{"cross-layer, half of the layers", Spec{Geometry: g, Layout: cross, TP: 8, PP: 2, PPDecode: 1}, 118},
		{"scales beside the codes", Spec{Geometry: g, Layout: paged(1), TP: 8, Format: format(t, "int8")}, 2 * 18880},
		{"scales inside", Spec{Geometry: g, Layout: paged(1), TP: 8, Format: format(t, "fp8-token-head")}, 18880},
	} {
		c.spec.Tokens = 1888
		s := shape(t, c.spec)
		p, ok := s.Pair(0, 0)
		if !ok || p.Descriptors != c.want {
			t.Errorf("%s: %d descriptors, want %d", c.name, p.Descriptors, c.want)
		}
		plan, err := c.spec.Pair(0, 0)
		if err != nil || int64(plan.Descriptors) != c.want || plan.Bytes != p.Bytes {
			t.Errorf("%s: the plan has %v, want %d", c.name, err, c.want)
		}
	}
}

// A window takes the blocks that it touches, the model's bytes do not.
func TestWindowBlocks(t *testing.T) {
	g := load(t, "gpt-oss-120b") // 18 layers of 128 tokens, 18 full; 8*64*2*2 = 2048 bytes a token and layer
	y := Layout{Paged: true, BlockTokens: 16}
	for tokens, blocks := range map[int64]int64{
		32768: 18*2048 + 18*8,
		1000:  18*63 + 18*9, // tokens 872 to 999 lie in blocks 54 to 62
		100:   18*7 + 18*7,
	} {
		s := shape(t, Spec{Geometry: g, Tokens: tokens, Layout: y})
		if want := blocks * 16 * 2048; s.WireBytes != want {
			t.Errorf("%d tokens: %d bytes on the wire, want %d", tokens, s.WireBytes, want)
		}
		if want := 18 * 2048 * (tokens + min(tokens, 128)); s.Bytes != want {
			t.Errorf("%d tokens: %d bytes, want %d", tokens, s.Bytes, want)
		}
	}
}

func TestLayersAndPruning(t *testing.T) {
	g := load(t, "llama-2-70b")
	layers, err := ParseLayers("0-9,70-79")
	if err != nil {
		t.Fatal(err)
	}
	s := shape(t, Spec{Geometry: g, Tokens: 4096, Layers: layers})
	if s.Bytes != 1342177280 || s.WireBytes != 1342177280/4 || s.Pairs[0].Descriptors != 40 {
		t.Errorf("20 of 80 layers: %d of %d bytes, %d descriptors", s.WireBytes, s.Bytes, s.Pairs[0].Descriptors)
	}
	const token = 8 * 256 * 2
	s = shape(t, Spec{Geometry: g, Tokens: 4096, Format: format(t, "pdtrim:4/64/0-39/70-79")})
	if want := int64(token * (40*68 + 30*4096)); s.WireBytes != want || s.Bytes != want {
		t.Errorf("40 layers of 68 tokens, 30 of all, 10 of none: %d bytes, want %d", s.WireBytes, want)
	}
	paged := shape(t, Spec{Geometry: g, Tokens: 4096, Format: format(t, "pdtrim:4/64/0-79"), Layout: Layout{Paged: true}})
	if want := int64(token * 80 * 16 * (1 + 4)); paged.WireBytes != want {
		t.Errorf("first and last tokens in blocks: %d bytes, want %d", paged.WireBytes, want)
	}
}

func TestStateOnRequest(t *testing.T) {
	g := load(t, "qwen3-next-80b") // 36 states in 39,518,208 bytes, 12 layers of KV
	s := shape(t, Spec{Geometry: g, Tokens: 4096})
	if s.StateBytes != 39518208 || s.WireBytes != s.Bytes || s.Pairs[0].Descriptors != 24 {
		t.Errorf("without state: %d bytes on the wire of %d, %d descriptors", s.WireBytes, s.Bytes, s.Pairs[0].Descriptors)
	}
	if notes := strings.Join(s.Notes, "\n"); !strings.Contains(notes, "fixed state of 39518208 bytes") {
		t.Errorf("notes do not mention the state: %q", notes)
	}
	s = shape(t, Spec{Geometry: g, Tokens: 4096, State: true})
	if s.WireBytes != s.Bytes+39518208 || s.Pairs[0].Descriptors != 24+36 {
		t.Errorf("with state: %d bytes on the wire of %d, %d descriptors", s.WireBytes, s.Bytes, s.Pairs[0].Descriptors)
	}
	for _, tp := range []int{1, 2, 4} {
		s := shape(t, Spec{Geometry: g, Tokens: 4096, State: true, TP: 2, TPDecode: tp})
		if want := s.Bytes*max(1, int64(tp)/2) + 39518208; s.WireBytes != want { // 2 KV heads
			t.Errorf("with state, tp 2 to %d: %d bytes on the wire, want %d", tp, s.WireBytes, want)
		}
	}
}

func TestPipelineStages(t *testing.T) {
	g := load(t, "llama-2-70b")
	s := shape(t, Spec{Geometry: g, Tokens: 1024, TP: 2, PP: 2, TPDecode: 4, PPDecode: 1})
	if len(s.Pairs) != 8 || s.WireBytes != s.Bytes {
		t.Fatalf("%d rank pairs and %d bytes, want 8 and %d", len(s.Pairs), s.WireBytes, s.Bytes)
	}
	for i, p := range s.Pairs {
		// prefill rank stage*2+r feeds decode ranks 2r and 2r+1
		if p.Prefill != i/2 || p.Decode != (i/2%2)*2+i%2 || p.Bytes != s.Bytes/8 {
			t.Errorf("pair %d is %+v", i, p)
		}
	}
}

// hugeContexts calls f with specs of 10^9 tokens in every format, for each kind of layer and
// layout.
func hugeContexts(t *testing.T, f func(Spec)) {
	t.Helper()
	for _, name := range []string{"llama-3.1-70b", "deepseek-v3", "gpt-oss-120b", "qwen3-next-80b"} {
		for _, text := range Formats() {
			if strings.HasPrefix(text, "pdtrim") {
				text = "pdtrim:4/64/0"
			}
			for _, y := range []Layout{{}, {Paged: true, Fragmentation: 0.5}, {Paged: true, HeadMajor: true}} {
				f(Spec{Geometry: load(t, name), Tokens: 1e9, Format: format(t, text), Layout: y, TP: 2, TPDecode: 8})
			}
		}
	}
}

// TestHugeContexts: a shape follows from closed forms. One step a block would take minutes.
func TestHugeContexts(t *testing.T) {
	hugeContexts(t, func(spec Spec) {
		if s := shape(t, spec); s.WireBytes <= 0 || s.Bytes <= 0 || s.Pairs[0].Descriptors <= 0 {
			t.Errorf("%s %s %+v: %+v", spec.Geometry.Model, spec.Format, spec.Layout, s)
		}
	})
	// 10^9 tokens of 327,680 bytes
	if s := shape(t, Spec{Geometry: load(t, "llama-2-70b"), Tokens: 1e9}); s.Bytes != 327680e9 {
		t.Errorf("%d bytes for 10^9 tokens", s.Bytes)
	}
	if _, err := (Spec{Geometry: load(t, "llama-2-70b"), Tokens: 1e9, Layout: Layout{Paged: true}}).Pair(0, 0); err == nil || !strings.Contains(err.Error(), "byte ranges") {
		t.Errorf("a plan for 10^9 tokens: %v", err)
	}
}

func TestSpecErrors(t *testing.T) {
	g := load(t, "opt-66b")
	layer := func(l Layer) Spec { return Spec{Geometry: Geometry{Layers: []Layer{l}}, Tokens: 1} }
	for says, s := range map[string]Spec{
		"Layers is empty":                {Tokens: 1},
		"context of 0 tokens":            {Geometry: g},
		"context of -1 tokens":           {Geometry: g, Tokens: -1},
		"outside 1..2^50":                {Geometry: g, Tokens: math.MaxInt64},
		"may pass 2^61":                  {Geometry: g, Tokens: 1 << 50},
		"tp 16 does not divide":          {Geometry: g, Tokens: 1, TP: 16},
		"tp-decode 5 does not divide":    {Geometry: g, Tokens: 1, TPDecode: 5},
		"tp -1":                          {Geometry: g, Tokens: 1, TP: -1},
		"tp 5000":                        {Geometry: g, Tokens: 1, TP: 5000},
		"pp 65":                          {Geometry: g, Tokens: 1, PP: 65},
		"pp-decode -2":                   {Geometry: g, Tokens: 1, PPDecode: -2},
		"layers names 64":                {Geometry: g, Tokens: 1, Layers: []int{0, 64}},
		"layers names 3 after 3":         {Geometry: g, Tokens: 1, Layers: []int{3, 3}},
		"pdtrim:1/1/0-99 names layer 99": {Geometry: g, Tokens: 1, Format: format(t, "pdtrim:1/1/0-99")},
		"cross-layer block holds every":  {Geometry: g, Tokens: 1, Layers: []int{0}, Layout: Layout{Paged: true, CrossLayer: true}},
		"fragmentation 7":                {Geometry: g, Tokens: 1, Layout: Layout{Fragmentation: 7}},
		"KVHeads -1":                     layer(Layer{Kind: Full, KVHeads: -1}),
		"KVHeads 0 and":                  layer(Layer{Kind: Full, KDim: 1, VDim: 1}),
		"KVHeads 2; a latent":            layer(Layer{Kind: Latent, KVHeads: 2, KDim: 1}),
		"KVHeads 1; a linear":            layer(Layer{Kind: Linear, KVHeads: 1}),
		"Kind":                           layer(Layer{Kind: "odd"}),
		"StateBytes":                     layer(Layer{Kind: Linear, StateBytes: math.MaxInt64}),
		"IndexBytes 1; only":             layer(Layer{Kind: Full, KVHeads: 1, KDim: 1, IndexBytes: 1}),
	} {
		_, err := s.Shape()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
		if _, pairErr := s.Pair(0, 0); pairErr == nil {
			t.Errorf("a plan is made of what should say %q", says)
		}
	}
}

func TestPairErrors(t *testing.T) {
	s := Spec{Geometry: load(t, "llama-2-70b"), Tokens: 100, TP: 2, PP: 2}
	for says, pair := range map[string][2]int{
		"4 prefill ranks": {4, 0}, "4 decode ranks": {0, 4}, "choose 0 to 3": {-1, 0},
		"moves nothing; choose one that does, such as 0:0, 1:1, 2:2": {0, 1}, "0:2 moves nothing": {0, 2},
	} {
		_, errPlan := s.Pair(pair[0], pair[1])
		_, errSizes := s.Sizes(pair[0], pair[1])
		for _, err := range []error{errPlan, errSizes} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("pair %v: %v does not say %q", pair, err, says)
			}
		}
	}
	mamba, err := read(`{"model_type":"mamba2","hidden_size":4096,"num_hidden_layers":2,"num_heads":128,"head_dim":64,"n_groups":8,"state_size":128,"conv_kernel":4}`)
	if err != nil {
		t.Fatal(err)
	}
	// Where no pair at all moves something, the rank is not to blame. The state of one
	// layer of mamba2 is (8192 + 2·8·128)·3 of its convolution and 128·64·128 elements.
	for says, s := range map[string]Spec{
		"no KV to move, only a state of 4317184 bytes": {Geometry: mamba, Tokens: 1},
		"no layer among those named":                   {Geometry: load(t, "qwen3-next-80b"), Tokens: 1, Layers: []int{0}},
		"drops every layer that keeps KV": { // one layer in four does
			Geometry: load(t, "qwen3-next-80b"), Tokens: 1, Format: format(t, "pdtrim:1/1/0/3+7+11+15+19+23+27+31+35+39+43+47"),
		},
	} {
		_, err := s.Sizes(0, 0)
		var nothing *NothingError
		if !errors.As(err, &nothing) || len(nothing.Pairs) > 0 || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "rank pair") {
			t.Errorf("%v does not say %q", err, says)
		}
		if _, errPlan := s.Pair(0, 0); errPlan == nil || errPlan.Error() != err.Error() {
			t.Errorf("the plan says %v, its sizes %v", errPlan, err)
		}
	}
	if p, err := (Spec{Geometry: mamba, Tokens: 1, State: true}).Pair(0, 0); err != nil || p.Bytes != mamba.StateBytes() {
		t.Errorf("a model without KV, with its state: %v", err)
	}
}

// TestSizesRefuse what the shape refuses.
func TestSizesRefuse(t *testing.T) {
	if _, err := (Spec{Geometry: load(t, "llama-3.1-8b")}).Sizes(0, 0); err == nil || !strings.Contains(err.Error(), "context of 0 tokens") {
		t.Errorf("no tokens are taken for a request: %v", err)
	}
}

func TestKinds(t *testing.T) {
	s := shape(t, Spec{Geometry: load(t, "gpt-oss-120b"), Tokens: 32768})
	if len(s.Kinds) != 2 || s.Layers != 36 || s.AttentionLayers != 36 {
		t.Fatalf("%+v", s.Kinds)
	}
	windowed, all := s.Kinds[0], s.Kinds[1]
	if windowed.Layer.Kind != Window || windowed.Count != 18 || windowed.Tokens != 128 || windowed.BytesPerToken != 18*2048 || windowed.Bytes != 18*2048*128 {
		t.Errorf("windowed layers: %+v", windowed)
	}
	if all.Layer.Kind != Full || all.Count != 18 || all.Tokens != 32768 || all.Bytes != 18*2048*32768 {
		t.Errorf("full layers: %+v", all)
	}
}

func BenchmarkShape(b *testing.B) {
	s := Spec{Geometry: load(b, "llama-3.1-70b"), Tokens: 1e9, TP: 8, TPDecode: 4, Layout: Layout{Paged: true, Fragmentation: 0.5}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Shape(); err != nil {
			b.Fatal(err)
		}
	}
}
