package model

import (
	"errors"
	"strings"
	"testing"
)

// Parameters without embeddings. 70B: as published less 2·32000·8192 (Llama 3.3:
// 2·128256·8192). 7B: 6.738e9 - 2·32000·4096. 405B: 405.85e9 - 2·128256·16384.
var (
	llama70B  = Prefill{Parameters: 68.45e9, Attention: full(80, 8192)}
	llama7B   = Prefill{Parameters: 6.476e9, Attention: full(32, 4096)}
	llama405B = Prefill{Parameters: 401.65e9, Attention: full(126, 16384)}
)

// full is layers that attend to every token before.
func full(layers int, width float64) []Attention { return []Attention{{Layers: layers, Width: width}} }

func TestPrefillFLOPs(t *testing.T) {
	for tokens, want := range map[int64]float64{1024: 141.56e12, 2048: 285.87e12, 4096: 582.73e12, 32768: 5893.3e12} {
		near(t, "FLOPs", PrefillFLOPs(68.45e9, full(80, 8192), tokens, 0), want, 5e-5)
	}
	// Cached and new tokens together make the whole.
	whole := PrefillFLOPs(68.45e9, full(80, 8192), 4096, 0)
	parts := PrefillFLOPs(68.45e9, full(80, 8192), 1000, 0) + PrefillFLOPs(68.45e9, full(80, 8192), 3096, 1000)
	near(t, "in two parts", parts, whole, 1e-12)
}

// By hand, with W 10: from 0 to 30 tokens min(i, 10) makes 10²/2 + 20·10 = 250, and i mod
// 10 three triangles of 50. From 4 to 30 the first loses 4²/2; so does the first chunk.
// From 12 to 30 the window is full, and of the chunk from 10 on 2²/2 is past.
func TestAttentionPairs(t *testing.T) {
	for _, c := range []struct {
		new, cached             int64
		all, windowed, inAChunk float64
	}{
		{30, 0, 450, 250, 150},
		{26, 4, 4*26 + 338, 242, 142},
		{18, 12, 12*18 + 162, 180, 98},
		{6, 0, 18, 18, 18}, // shorter than the window: all
		{4, 3, 20, 20, 20},
		{10, 5, 100, 5*5 + 12.5 + 50, 50}, // 5 to 15
		{0, 7, 0, 0, 0},
	} {
		near(t, "all", Attention{}.Pairs(c.new, c.cached), c.all, 1e-12)
		near(t, "window", Attention{Window: 10}.Pairs(c.new, c.cached), c.windowed, 1e-12)
		near(t, "chunk", Attention{Window: 10, Chunked: true}.Pairs(c.new, c.cached), c.inAChunk, 1e-12)
	}
}

// Gemma 3 12B, 10.76e9 parameters without embeddings, 16 heads of 256: 8 layers look at
// all, 40 at 1024. At 131,072 tokens 2·10.76e9·131072 = 2820.7e12; 4·8·4096·131072²/2 =
// 1125.9e12; 4·40·4096·(131072·1024 - 1024²/2) = 87.6e12.
func TestPrefillFLOPsOfWindows(t *testing.T) {
	gemma := []Attention{{Layers: 8, Width: 4096}, {Layers: 40, Width: 4096, Window: 1024}}
	near(t, "gemma", PrefillFLOPs(10.76e9, gemma, 131072, 0), 4034.2e12, 1e-4)
	parts := PrefillFLOPs(10.76e9, gemma, 500, 0) + PrefillFLOPs(10.76e9, gemma, 130572, 500)
	near(t, "in two parts", parts, PrefillFLOPs(10.76e9, gemma, 131072, 0), 1e-12)
}

// Meta (arXiv 2411.01783, table 4): LLaMA-3 405B, 128,000 tokens. Operations alone
// say 0.599 and 0.136 of the full prefill at half and a tenth missing; measured
// were 0.597 and 0.182: at a high hit share what is not arithmetic shows.
func TestMetaPrefixTable(t *testing.T) {
	full := PrefillFLOPs(llama405B.Parameters, llama405B.Attention, 128000, 0)
	for miss, want := range map[int64]float64{64000: 0.599, 12800: 0.136} {
		share := PrefillFLOPs(llama405B.Parameters, llama405B.Attention, miss, 128000-miss) / full
		near(t, "share", share, want, 4e-3)
	}
	half := PrefillFLOPs(llama405B.Parameters, llama405B.Attention, 64000, 64000) / full
	near(t, "measured at half", half, 0.597, 0.01)
}

// Published prefill times imply MFUs inside the stated ranges, with 15 % about
// their ends, for prompts of 1500 tokens and more.
func TestMeasuredPrefillsLieInMFURanges(t *testing.T) {
	const slack = 0.15
	for _, c := range []struct {
		model  Prefill
		gpu    string
		fp8    bool
		gpus   int
		tokens int64
		ms     float64
	}{
		{llama70B, "a100", false, 4, 2048, 377},
		{llama70B, "a100", false, 8, 2048, 249},
		{llama70B, "a100", false, 8, 1500, 185},
		{llama70B, "h100", false, 8, 1500, 95},
		{llama70B, "h100", true, 4, 2048, 109},
		{llama70B, "h100", true, 8, 2048, 85.1},
		{llama7B, "a100", false, 1, 2048, 132},
		{llama7B, "h100", true, 1, 2048, 30.8},
		{llama70B, "h100", true, 2, 5000, 407},
		{llama405B, "h100", false, 8, 8192, 1740},
		{llama405B, "h100", false, 8, 32768, 7658},
		{llama405B, "h100", false, 8, 131072, 42010},
	} {
		p := c.model
		gpu, err := ParseGPU(c.gpu)
		if err != nil {
			t.Fatal(err)
		}
		peak, mfu, err := gpu.Peak(c.fp8)
		if err != nil {
			t.Fatal(err)
		}
		p.GPUs, p.PeakFLOPs = c.gpus, peak
		p.MFU = mfu.High * (1 + slack)
		fastest := p.Seconds(c.tokens, 0)
		p.MFU = mfu.Low / (1 + slack)
		slowest := p.Seconds(c.tokens, 0)
		if got := c.ms / 1e3; got < fastest || got > slowest {
			t.Errorf("%d tokens on %d %s: measured %g s, predicted %.3g to %.3g", c.tokens, c.gpus, c.gpu, got, fastest, slowest)
		}
	}
}

// Short prompts are bound by reading weights and by launches: 128 tokens on four
// A100 took 47 ms, twice what the range allows, and need a constant part.
func TestShortPrefillsNeedAConstant(t *testing.T) {
	p := llama70B
	p.GPUs, p.PeakFLOPs, p.MFU = 4, 312e12, 0.45
	if s := p.Seconds(128, 0); s > 0.047 {
		t.Errorf("%g s at the low end of the range; the constant would not be needed", s)
	}
	p.ConstantSeconds = 20e-3
	near(t, "with 20 ms", p.Seconds(128, 0), 0.047, 0.15)
}

func TestPrefillRefuses(t *testing.T) {
	if _, err := ParseGPU("h101"); !errors.Is(err, ErrPrefill) || !strings.Contains(err.Error(), "h100") {
		t.Errorf("h101: %v", err)
	}
	a100, _ := ParseGPU("A100")
	if _, _, err := a100.Peak(true); !errors.Is(err, ErrPrefill) {
		t.Errorf("fp8 on A100: %v", err)
	}
	good := Prefill{Parameters: 1e9, GPUs: 1, PeakFLOPs: 1e15, MFU: 0.4}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*Prefill){
		func(p *Prefill) { p.Parameters = 0 }, func(p *Prefill) { p.GPUs = 0 }, func(p *Prefill) { p.PeakFLOPs = 0 },
		func(p *Prefill) { p.MFU = 0 }, func(p *Prefill) { p.MFU = 40 }, func(p *Prefill) { p.ConstantSeconds = -1 },
	} {
		p := good
		change(&p)
		if err := p.Validate(); !errors.Is(err, ErrPrefill) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
