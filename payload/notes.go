package payload

import (
	"fmt"
	"slices"

	"kvbench/internal/units"
)

// notes explains surprising totals. The spec must be resolved.
func (s Spec) notes(shape Shape) []string {
	notes := slices.Clone(s.Geometry.Notes)
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if limit := s.Geometry.MaxContext; limit > 0 && s.Tokens > limit {
		add("the model takes %s tokens at most: a context of %s is arithmetic only", units.Tokens(limit), units.Tokens(s.Tokens))
	}
	if shape.Bytes != shape.PublishedBytes {
		add("%s is advertised with %d bytes; scales, maps and what stays fp16 make it %d", s.Format, shape.PublishedBytes, shape.Bytes)
	}
	if s.Format.Input() {
		add("the ratio of %s is an input: what an entropy coder reaches depends on the data", s.Format)
	}
	if d, ok := s.unevenDim(); ok {
		add("%s rounds vectors of %d elements up to whole bytes and groups", s.Format, d)
	}
	if b := s.Layout.blockTokens(); s.Layout.Paged && s.Format.code == codeKIVI2 && b%kiviGroup != 0 {
		add("kivi2 packs groups of %d tokens: its blocks hold %d tokens, not %d", kiviGroup, ceilDiv(b, kiviGroup)*kiviGroup, b)
	}
	if shape.StateBytes > 0 && !s.State {
		add("the fixed state of %d bytes a request is not among the bytes on the wire", shape.StateBytes)
	}
	return append(notes, s.replicas()...)
}

// unevenDim returns a vector length that the format cannot pack without remainder.
func (s Spec) unevenDim() (int, bool) {
	step := map[code]int{codeInt4: 2, codeInt4Group: s.Format.group, codeInt8Group: s.Format.group, codeNVFP4: 16, codeMXFP4: 32, codeKIVI2: kiviGroup}[s.Format.code]
	if s.Format.code == codeSpectrum && s.Format.share < 0.5 {
		step = 2
	}
	for _, l := range s.Geometry.Layers {
		for _, d := range []int{l.KDim, l.VDim} {
			if step > 0 && l.Attention() && d%step != 0 {
				return d, true
			}
		}
	}
	return 0, false
}

// replicas explains why the ranks together receive more than the model holds.
func (s Spec) replicas() []string {
	var notes []string
	seen := map[int]bool{}
	for _, l := range s.Geometry.Layers {
		if !l.Attention() || seen[l.KVHeads] || s.TPDecode <= l.KVHeads {
			continue
		}
		seen[l.KVHeads] = true
		if l.Kind == Latent {
			notes = append(notes, fmt.Sprintf("a latent is one vector for all heads: each of %d decode ranks receives all of it", s.TPDecode))
			continue
		}
		notes = append(notes, fmt.Sprintf("%d KV heads over %d decode ranks: each head is replicated on %d of them, so %d times its bytes are on the wire",
			l.KVHeads, s.TPDecode, s.TPDecode/l.KVHeads, s.TPDecode/l.KVHeads))
	}
	return notes
}
