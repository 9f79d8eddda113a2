package payload

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// published holds the geometry of models as their publishers state it: KV bytes
// of one token with every layer counted in full, of 4096 and 32768 tokens with
// windows clipped, all fp16, and the fixed state.
var published = []struct {
	name                      string
	attention, full, windowed int
	perToken                  float64
	at4096, at32768, state    int64
}{
	{"llama-2-7b", 32, 32, 0, 524288, 2147483648, 17179869184, 0},        // 32 layers * 32 heads * 256 * 2
	{"llama-2-70b", 80, 80, 0, 327680, 1342177280, 10737418240, 0},       // 80 * 8 * 256 * 2
	{"llama-3.1-8b", 32, 32, 0, 131072, 536870912, 4294967296, 0},        // 32 * 8 * 256 * 2
	{"llama-3.1-70b", 80, 80, 0, 327680, 1342177280, 10737418240, 0},     // as llama-2-70b
	{"llama-4-scout", 48, 12, 36, 196608, 805306368, 2818572288, 0},      // 48 * 8 * 256 * 2; 36 layers hold a chunk of 8192
	{"mistral-7b-v0.1", 32, 0, 32, 131072, 536870912, 536870912, 0},      // every layer holds 4096
	{"mixtral-8x7b", 32, 32, 0, 131072, 536870912, 4294967296, 0},        // sliding_window is null
	{"qwen2.5-7b", 28, 28, 0, 57344, 234881024, 1879048192, 0},           // 28 * 4 * 256 * 2
	{"qwen3-0.6b", 28, 28, 0, 114688, 469762048, 3758096384, 0},          // 28 * 8 * 256 * 2: head_dim 128, not 1024/16
	{"qwen3-8b", 36, 36, 0, 147456, 603979776, 4831838208, 0},            // 36 * 8 * 256 * 2
	{"qwen3-32b", 64, 64, 0, 262144, 1073741824, 8589934592, 0},          // 64 * 8 * 256 * 2
	{"qwen3-235b-a22b", 94, 94, 0, 192512, 788529152, 6308233216, 0},     // 94 * 4 * 256 * 2
	{"qwen3-vl-8b", 36, 36, 0, 147456, 603979776, 4831838208, 0},         // text_config alone counts
	{"qwen3-next-80b", 12, 12, 0, 24576, 100663296, 805306368, 39518208}, // 12 * 2 * 512 * 2; 36 * (8192*3*2 + 32*128*128*2)
	{"deepseek-v3", 61, 61, 0, 70272, 287834112, 2302672896, 0},          // 61 * 576 * 2
	{"chatglm3-6b", 28, 28, 0, 28672, 117440512, 939524096, 0},           // 28 * 2 * 256 * 2
	{"gpt-oss-120b", 36, 18, 18, 73728, 155713536, 1212678144, 0},        // 36 * 8 * 128 * 2; 18 layers hold 128
	{"gemma-3-12b", 48, 8, 40, 393216, 603979776, 2483027968, 0},         // 48 * 8 * 512 * 2; 40 layers hold 1024
	{"opt-66b", 64, 64, 0, 2359296, 9663676416, 77309411328, 0},          // 64 * 72 * 256 * 2
	{"gpt2", 12, 12, 0, 36864, 150994944, 1207959552, 0},                 // 12 * 12 * 128 * 2
	{"falcon-40b", 60, 60, 0, 122880, 503316480, 4026531840, 0},          // 60 * 8 * 128 * 2
	{"nemotron-3-nano", 6, 6, 0, 6144, 25165824, 201326592, 49082368},    // 6 * 2 * 256 * 2; 23 * (6144*3*2 + 64*64*128*4)
	{"granite-3-8b", 40, 40, 0, 163840, 671088640, 5368709120, 0},        // 40 * 8 * 256 * 2
}

func TestPublishedGeometry(t *testing.T) {
	for _, want := range published {
		g := load(t, want.name)
		full, windowed := 0, 0
		for _, l := range g.Layers {
			switch l.Kind {
			case Full, Latent:
				full++
			case Window, Chunked:
				windowed++
			}
		}
		if full != want.full || windowed != want.windowed || g.AttentionLayers() != want.attention {
			t.Errorf("%s: %d full and %d windowed of %d attention layers, want %d, %d, %d", want.name, full, windowed, g.AttentionLayers(), want.full, want.windowed, want.attention)
		}
		if got := g.BytesPerToken(Format{}); got != want.perToken {
			t.Errorf("%s: %v bytes a token, want %v", want.name, got, want.perToken)
		}
		if got := g.StateBytes(); got != want.state {
			t.Errorf("%s: state %d, want %d", want.name, got, want.state)
		}
		for tokens, bytes := range map[int64]int64{4096: want.at4096, 32768: want.at32768} {
			s := shape(t, Spec{Geometry: g, Tokens: tokens})
			if s.Bytes != bytes || s.WireBytes != bytes || s.PublishedBytes != bytes {
				t.Errorf("%s at %d tokens: %d bytes, %d on the wire, %d published, want %d", want.name, tokens, s.Bytes, s.WireBytes, s.PublishedBytes, bytes)
			}
		}
	}
}

// More models, by hand: layers * KV heads * (K + V) * 2.
func TestOtherPresets(t *testing.T) {
	for name, want := range map[string]struct {
		perToken float64
		at8192   int64
	}{
		"llama-3.1-405b": {126 * 8 * 256 * 2, 126 * 8 * 256 * 2 * 8192},
		"falcon-7b":      {32 * 1 * 128 * 2, 32 * 1 * 128 * 2 * 8192},
		"phi-3-mini-4k":  {32 * 32 * 192 * 2, 32 * 32 * 192 * 2 * 2047},
		"gemma-2-27b":    {46 * 16 * 256 * 2, (23*8192 + 23*4096) * 16 * 256 * 2},
		"gemma-3-4b":     {34 * 4 * 512 * 2, (5*8192 + 29*1024) * 4 * 512 * 2},
		"mimo-v2-flash":  {9*4*320*2 + 39*8*320*2, 9*4*320*2*8192 + 39*8*320*2*128},
		"deepseek-v3.2":  {61 * (576*2 + 132), 61 * (576*2 + 132) * 8192}, // and an FP8 key of 128 with its scale
		"jamba-1.5-mini": {4 * 8 * 256 * 2, 4 * 8 * 256 * 2 * 8192},
		"dbrx":           {40 * 8 * 256 * 2, 40 * 8 * 256 * 2 * 8192},
	} {
		g := load(t, name)
		if got := g.BytesPerToken(Format{}); got != want.perToken {
			t.Errorf("%s: %v bytes a token, want %v", name, got, want.perToken)
		}
		if got := shape(t, Spec{Geometry: g, Tokens: 8192}).Bytes; got != want.at8192 {
			t.Errorf("%s: %d bytes at 8192 tokens, want %d", name, got, want.at8192)
		}
	}
}

// The active parameters without embeddings, against what the publishers state
// with them: the difference is one or two matrices of vocabulary by hidden size.
func TestParameters(t *testing.T) {
	for name, want := range map[string]struct{ stated, vocabulary, matrices, tolerance float64 }{
		"llama-2-70b":      {68.977e9, 32000, 2, 0.001},
		"llama-3.1-8b":     {8.030e9, 128256, 2, 0.001},
		"llama-3.1-405b":   {405.85e9, 128256, 2, 0.001},
		"qwen3-8b":         {8.19e9, 151936, 2, 0.001},
		"gpt2":             {124.4e6, 50257, 1, 0.01}, // and learned positions
		"opt-66b":          {65.72e9, 50272, 1, 0.001},
		"mixtral-8x7b":     {12.88e9, 32000, 2, 0.001},
		"deepseek-v3":      {37e9, 129280, 2, 0.02},
		"qwen3-235b-a22b":  {22e9, 151936, 2, 0.02},
		"gpt-oss-120b":     {5.13e9, 201088, 1, 0.01},
		"llama-4-scout":    {17.17e9, 202048, 2, 0.01},
		"gemma-3-12b":      {11.77e9, 262208, 1, 0.001},
		"falcon-40b":       {41.3e9, 65024, 1, 0.005},
		"deepseek-v2-lite": {2.66e9, 102400, 2, 0.01},
	} {
		g := load(t, name)
		got := g.Parameters + want.matrices*want.vocabulary*float64(g.Hidden)
		if got < want.stated*(1-want.tolerance) || got > want.stated*(1+want.tolerance) {
			t.Errorf("%s: %.4g parameters with embeddings, stated are %.4g", name, got, want.stated)
		}
	}
	// 80 * (2*8192*8192 + 2*8192*1024 + 3*8192*28672)
	if got := load(t, "llama-2-70b").Parameters; got != 68451041280 {
		t.Errorf("llama-2-70b: %.0f parameters, want 68451041280", got)
	}
}

func TestPresetsAllLoad(t *testing.T) {
	names := Presets()
	if !slices.IsSorted(names) || len(names) < len(published) {
		t.Errorf("%d names, sorted: %v", len(names), slices.IsSorted(names))
	}
	for _, name := range names {
		g := load(t, name)
		if g.Model != name || g.Architecture == "" || g.Hidden == 0 || g.QueryHeads == 0 || g.HeadDim == 0 {
			t.Errorf("%s: %+v", name, Geometry{Model: g.Model, Architecture: g.Architecture, Hidden: g.Hidden, QueryHeads: g.QueryHeads, HeadDim: g.HeadDim})
		}
	}
}

func TestUnknownModel(t *testing.T) {
	for name, want := range map[string]string{
		"lama-2-70b":              "llama-2-70b",
		"deepseekv3":              "deepseek-v3",
		"qwen3-33b":               "qwen3-32b",
		"gemma3-27b":              "gemma-3-27b",
		"zzzzzzzzzzz":             "",
		strings.Repeat("x", 1000): "",
	} {
		_, err := Load(name)
		var unknown *UnknownModelError
		switch {
		case !errors.As(err, &unknown):
			t.Errorf("Load(%.20q): %v is no UnknownModelError", name, err)
		case want == "" && len(unknown.Nearest) > 0:
			t.Errorf("Load(%.20q) names %v", name, unknown.Nearest)
		case want != "" && (unknown.Nearest[0] != want || !strings.Contains(err.Error(), want)):
			t.Errorf("Load(%.20q): %v does not name %s first", name, err, want)
		}
	}
	if g, err := Load("Llama-2-70B"); err != nil || g.Model != "llama-2-70b" {
		t.Errorf("case matters: %v", err)
	}
}

func TestLoadFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "my-model")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	config := `{"model_type":"llama","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4}`
	path := filepath.Join(dir, "config.json")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{dir, path} {
		g, err := Load(p)
		if err != nil || g.Model != "my-model" || len(g.Layers) != 2 {
			t.Errorf("Load(%s) = %s with %d layers, %v", p, g.Model, len(g.Layers), err)
		}
	}
	for _, p := range []string{filepath.Join(dir, "none.json"), t.TempDir(), "./no/such"} {
		if _, err := Load(p); err == nil || !strings.HasPrefix(err.Error(), "load model: ") {
			t.Errorf("Load(%s): %v", p, err)
		}
	}
}

func load(t testing.TB, name string) Geometry {
	t.Helper()
	g, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func shape(t testing.TB, s Spec) Shape {
	t.Helper()
	got, err := s.Shape()
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func BenchmarkLoad(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		load(b, "llama-2-70b")
	}
}
