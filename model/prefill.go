package model

import (
	"errors"
	"fmt"
	"strings"
)

// ErrPrefill is returned, wrapped, when the arguments do not suffice for a prefill
// time.
var ErrPrefill = errors.New("cannot predict prefill")

// Attention is a group of attention layers with the same width and window.
type Attention struct {
	Layers int
	Width  float64 // d_attn: query heads times head dimension, the mean of K's and V's
	// Window is the most tokens that one token attends to; 0 is all before it.
	Window int64
	// Chunked layers attend only to the current chunk of Window tokens.
	Chunked bool
}

// Pairs is the number of query-key pairs that one layer scores for m new tokens on p
// cached ones, counting i pairs for the token at position i:
//
//	all        p·m + m²/2
//	window W   the integral of min(i, W) from p to p+m
//	chunk W    the integral of i mod W from p to p+m
func (a Attention) Pairs(newTokens, cachedTokens int64) float64 {
	m, p := float64(newTokens), float64(cachedTokens)
	if a.Window <= 0 {
		return p*m + m*m/2
	}
	w := float64(a.Window)
	if a.Chunked {
		upTo := func(tokens int64) float64 {
			rest := float64(tokens % a.Window)
			return float64(tokens/a.Window)*w*w/2 + rest*rest/2
		}
		return upTo(cachedTokens+newTokens) - upTo(cachedTokens)
	}
	growing := min(max(w-p, 0), m) // new tokens that still attend to all before them
	return p*growing + growing*growing/2 + (m-growing)*w
}

// PrefillFLOPs is the number of floating-point operations to prefill m new tokens on p
// cached ones:
//
//	2·P·m + Σ 4·L·d_attn·pairs
//
// P is the number of parameters that one token uses, without embeddings (for a mixture
// of experts, the active ones). The first term is the matrices (Kaplan et al., arXiv
// 2001.08361). The second is the scores and their product with V under a causal mask,
// summed over the groups of L layers, with [Attention.Pairs]. A layer that attends to
// all tokens before adds 4·d_attn·(p·m + m²/2), a linear one nothing.
func PrefillFLOPs(parameters float64, attention []Attention, newTokens, cachedTokens int64) float64 {
	flops := 2 * parameters * float64(newTokens)
	for _, a := range attention {
		flops += 4 * float64(a.Layers) * a.Width * a.Pairs(newTokens, cachedTokens)
	}
	return flops
}

// GPU is an accelerator's peak rate of dense matrix work.
type GPU struct {
	Name        string
	BF16, FP8   float64  // FLOP/s without sparsity; 0 if the format is absent
	MFU, MFUFP8 Interval // share of the peak that prefill reaches: a usual value and a usual range
}

// gpus holds data-sheet peaks. The MFU ranges match, to within 15 % of their ends,
// published prefill times of 7B to 405B dense models from 1500 tokens on. None were at
// hand for H200 and B200, so H100's stand in.
var gpus = []GPU{
	{"a100", 312e12, 0, Interval{0.5, 0.45, 0.6}, Interval{}},
	{"h100", 989e12, 1979e12, Interval{0.4, 0.2, 0.5}, Interval{0.33, 0.2, 0.45}},
	{"h200", 989e12, 1979e12, Interval{0.4, 0.2, 0.5}, Interval{0.33, 0.2, 0.45}},
	{"b200", 2250e12, 4500e12, Interval{0.4, 0.2, 0.5}, Interval{0.33, 0.2, 0.45}},
	{"a800", 312e12, 0, Interval{0.5, 0.45, 0.6}, Interval{}},
	{"h800", 989e12, 1979e12, Interval{0.4, 0.2, 0.5}, Interval{0.33, 0.2, 0.45}},
}

// GPUNames lists the names that ParseGPU accepts.
func GPUNames() []string {
	names := make([]string, len(gpus))
	for i, g := range gpus {
		names[i] = g.Name
	}
	return names
}

// ParseGPU returns the GPU with a name, or ErrPrefill with the list of names.
func ParseGPU(s string) (GPU, error) {
	name := strings.ToLower(strings.TrimSpace(s))
	for _, g := range gpus {
		if g.Name == name {
			return g, nil
		}
	}
	return GPU{}, fmt.Errorf("%w: unknown GPU %q; known are %s, or give the prefill time itself", ErrPrefill, s, strings.Join(GPUNames(), ", "))
}

// Peak returns the GPU's dense FLOP/s in fp8, or else in 16 bits, and the share of it
// that prefill usually reaches. It returns ErrPrefill if the GPU has no fp8.
func (g GPU) Peak(fp8 bool) (flops float64, mfu Interval, err error) {
	if !fp8 {
		return g.BF16, g.MFU, nil
	}
	if g.FP8 == 0 {
		return 0, Interval{}, fmt.Errorf("%w: %s has no fp8 arithmetic; use bf16", ErrPrefill, g.Name)
	}
	return g.FP8, g.MFUFP8, nil
}

// Prefill predicts how long a model's prefill takes.
type Prefill struct {
	Parameters      float64 // that one token uses, without embeddings
	Attention       []Attention
	GPUs            int
	PeakFLOPs       float64 // one GPU's, dense, FLOP/s
	MFU             float64 // model FLOPs utilization, in (0, 1]
	ConstantSeconds float64 // C0: the part of every prefill that does not depend on its length
}

// Validate returns ErrPrefill, wrapped with the field that is missing or invalid.
func (p Prefill) Validate() error {
	switch {
	case !(p.Parameters > 0):
		return fmt.Errorf("%w: the model's parameter count is unknown; give the prefill time itself", ErrPrefill)
	case p.GPUs < 1:
		return fmt.Errorf("%w: %d GPUs; at least one prefills", ErrPrefill, p.GPUs)
	case !(p.PeakFLOPs > 0):
		return fmt.Errorf("%w: no peak rate; name a GPU", ErrPrefill)
	case !(p.MFU > 0 && p.MFU <= 1):
		return fmt.Errorf("%w: an MFU of %g; it is a share of the peak, above 0 and at most 1, usually 0.2 to 0.6", ErrPrefill, p.MFU)
	case p.ConstantSeconds < 0:
		return fmt.Errorf("%w: a constant part of %g s is below zero", ErrPrefill, p.ConstantSeconds)
	}
	return nil
}

// Seconds is C0 + FLOPs/(GPUs·peak·MFU) for newTokens on cachedTokens. It holds while
// prefill is bound by arithmetic: from about 1500 tokens for a 70B model. Below that,
// reading the weights and launching kernels dominate, and without a C0 the result is
// too small. For an invalid Prefill it is NaN or +Inf.
func (p Prefill) Seconds(newTokens, cachedTokens int64) float64 {
	flops := PrefillFLOPs(p.Parameters, p.Attention, newTokens, cachedTokens)
	return p.ConstantSeconds + flops/(float64(p.GPUs)*p.PeakFLOPs*p.MFU)
}

// LeastSeconds is Seconds at a utilization of 1.
func (p Prefill) LeastSeconds(newTokens, cachedTokens int64) float64 {
	p.MFU = 1
	return p.Seconds(newTokens, cachedTokens)
}
