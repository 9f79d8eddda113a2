package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kvbench/bench"
	"kvbench/internal/units"
	"kvbench/payload"
)

// shapeFlags select a KV cache. They are the same for every command that has them.
type shapeFlags struct {
	model         string
	context       []string
	dtype         string
	layers        string
	tp, tpDecode  int
	pp, ppDecode  int
	rank          string
	layout        string
	blockTokens   int
	blockOrder    string
	crossLayer    bool
	fragmentation float64
	seed          uint64
}

func (f *shapeFlags) register(cmd *cobra.Command, contexts []string) {
	flags := cmd.Flags()
	flags.StringVar(&f.model, "model", "llama-2-70b", "a known model, a config.json, or a directory with one")
	flags.StringSliceVar(&f.context, "context", contexts, "tokens of a request, a cell each; 4K is 4096")
	flags.StringVar(&f.dtype, "kv-dtype", "fp16", "format on the wire: "+strings.Join(payload.Formats(), ", "))
	flags.StringVar(&f.layers, "layers", "", "layers that move, such as 0-9,70-79 (default all)")
	flags.IntVar(&f.tp, "tp", 1, "tensor parallel ranks at prefill")
	flags.IntVar(&f.tpDecode, "tp-decode", 0, "tensor parallel ranks at decode (default as --tp)")
	flags.IntVar(&f.pp, "pp", 1, "pipeline stages at prefill")
	flags.IntVar(&f.ppDecode, "pp-decode", 0, "pipeline stages at decode (default as --pp)")
	flags.StringVar(&f.rank, "rank", "0:0", "rank pair whose traffic is meant, prefill:decode")
	flags.StringVar(&f.layout, "layout", "contiguous", "contiguous or paged")
	flags.IntVar(&f.blockTokens, "block-tokens", 16, "tokens of a block")
	flags.StringVar(&f.blockOrder, "block-order", "nhd", "order inside a block: nhd (tokens, heads) or hnd (heads, tokens)")
	flags.BoolVar(&f.crossLayer, "cross-layer", false, "paged: a block holds all layers")
	flags.Float64Var(&f.fragmentation, "fragmentation", 1, "paged: share of blocks that do not follow their predecessor, 0 to 1")
	if err := cmd.RegisterFlagCompletionFunc("model", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return payload.Presets(), cobra.ShellCompDirectiveDefault
	}); err != nil {
		panic(err) // the flag was registered above
	}
}

// specs returns one spec per context from the flags. Every error is the caller's mistake.
func (f *shapeFlags) specs() ([]payload.Spec, error) {
	geometry, err := payload.Load(f.model)
	if err != nil {
		return nil, asUsage(err)
	}
	f.tpDecode, f.ppDecode = cmp.Or(f.tpDecode, f.tp), cmp.Or(f.ppDecode, f.pp)
	spec := payload.Spec{Geometry: geometry, TP: f.tp, TPDecode: f.tpDecode, PP: f.pp, PPDecode: f.ppDecode}
	if spec.Format, err = payload.ParseFormat(f.dtype); err != nil {
		return nil, usagef("--kv-dtype: %w", err)
	}
	if f.layers != "" {
		if spec.Layers, err = payload.ParseLayers(f.layers); err != nil {
			return nil, usagef("--layers: %w", err)
		}
	}
	if spec.Layout, err = f.parseLayout(); err != nil {
		return nil, asUsage(err)
	}
	if len(f.context) == 0 {
		return nil, usagef("--context is empty: give the tokens of a request, such as 512,1K")
	}
	var specs []payload.Spec
	for _, c := range f.context {
		if spec.Tokens, err = units.ParseTokens(c); err != nil {
			return nil, usagef("--context: %w", err)
		}
		if spec.Tokens < 1 {
			return nil, usagef("--context %s: a request has at least one token", c)
		}
		if slices.ContainsFunc(specs, func(s payload.Spec) bool { return s.Tokens == spec.Tokens }) {
			return nil, usagef("--context names %d tokens twice", spec.Tokens)
		}
		if err := spec.Validate(); err != nil {
			return nil, asUsage(err)
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

func (f *shapeFlags) parseLayout() (payload.Layout, error) {
	y := payload.Layout{BlockTokens: f.blockTokens, CrossLayer: f.crossLayer, Seed: f.seed}
	switch f.layout {
	case "contiguous":
	case "paged":
		y.Paged, y.Fragmentation = true, f.fragmentation
	default:
		return y, fmt.Errorf("--layout %q is not known: choose contiguous or paged", f.layout)
	}
	switch f.blockOrder {
	case "nhd":
	case "hnd":
		y.HeadMajor = true
	default:
		return y, fmt.Errorf("--block-order %q is not known: choose nhd or hnd", f.blockOrder)
	}
	return y, y.Validate()
}

func (f *shapeFlags) parseRank() (bench.Rank, error) {
	p, d, ok := strings.Cut(f.rank, ":")
	prefill, errP := strconv.Atoi(p)
	decode, errD := strconv.Atoi(d)
	if !ok || errP != nil || errD != nil || prefill < 0 || decode < 0 {
		return bench.Rank{}, usagef("--rank %q is not a pair such as 0:0 (prefill:decode)", f.rank)
	}
	return bench.Rank{Prefill: prefill, Decode: decode}, nil
}
