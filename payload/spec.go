package payload

import (
	"fmt"
	"slices"
)

// Spec is a request to move: model, length, format, layout, and the parallel ranks.
type Spec struct {
	Geometry Geometry
	Tokens   int64 // of the request; at least 1
	Format   Format
	Layout   Layout
	Layers   []int // layers that move, ascending; nil is all
	TP       int   // tensor parallel ranks at prefill; 0 is 1
	TPDecode int   // the same at decode; 0 is as at prefill
	PP       int   // pipeline stages at prefill; 0 is 1
	PPDecode int   // the same at decode; 0 is as at prefill
	State    bool  // also move the fixed state of linear and state-space layers
}

const (
	maxTP = 4096
	// maxBytes bounds an estimate from above of every sum in this package, far
	// enough below 2^63 that none of them can overflow.
	maxBytes = 1 << 61
)

// resolved returns the spec with its zero values replaced by their defaults.
func (s Spec) resolved() Spec {
	s.TP, s.PP = max(s.TP, 1), max(s.PP, 1)
	if s.TPDecode == 0 {
		s.TPDecode = s.TP
	}
	if s.PPDecode == 0 {
		s.PPDecode = s.PP
	}
	return s
}

// Validate returns an error that names the first invalid field and its remedy. All sizes of
// a valid spec fit an int64.
func (s Spec) Validate() error {
	if err := s.Geometry.Validate(); err != nil {
		return err
	}
	if err := s.Layout.Validate(); err != nil {
		return err
	}
	if s.Tokens < 1 || s.Tokens > maxTokens {
		return fmt.Errorf("check spec: context of %d tokens is outside 1..2^50; give the tokens of one request", s.Tokens)
	}
	if err := s.validateRanks(); err != nil {
		return err
	}
	if err := s.validateLayers(); err != nil {
		return err
	}
	return s.validateSize()
}

func (s Spec) validateRanks() error {
	for _, f := range []struct {
		name     string
		v, limit int
	}{
		{"tp", s.TP, maxTP}, {"tp-decode", s.TPDecode, maxTP},
		{"pp", s.PP, len(s.Geometry.Layers)}, {"pp-decode", s.PPDecode, len(s.Geometry.Layers)},
	} {
		if f.v < 0 || f.v > f.limit {
			return fmt.Errorf("check spec: %s %d is outside 1..%d; choose a number of ranks in it", f.name, f.v, f.limit)
		}
	}
	r := s.resolved()
	for i, l := range s.Geometry.Layers {
		for _, f := range []struct {
			name string
			tp   int
		}{{"tp", r.TP}, {"tp-decode", r.TPDecode}} {
			if h := l.KVHeads; h > 0 && (f.tp <= h && h%f.tp != 0 || f.tp > h && f.tp%h != 0) {
				return fmt.Errorf("split heads: %s %d does not divide the %d KV heads of layer %d and is no multiple of them; "+
					"choose a divisor, or a multiple to replicate them", f.name, f.tp, h, i)
			}
		}
	}
	return nil
}

func (s Spec) validateLayers() error {
	n := len(s.Geometry.Layers)
	for i, l := range s.Layers {
		if l < 0 || l >= n {
			return fmt.Errorf("check spec: layers names %d; the model has layers 0 to %d", l, n-1)
		}
		if i > 0 && l <= s.Layers[i-1] {
			return fmt.Errorf("check spec: layers names %d after %d; list each layer once, ascending", l, s.Layers[i-1])
		}
	}
	for _, runs := range [][]layerRun{s.Format.trim, s.Format.drop} {
		if len(runs) > 0 && runs[len(runs)-1].to >= n {
			return fmt.Errorf("check spec: kv-dtype %.60s names layer %d; the model has layers 0 to %d", s.Format, runs[len(runs)-1].to, n-1)
		}
	}
	if s.Layout.CrossLayer && (s.Layers != nil || s.Format.code == codePDTrim) {
		return fmt.Errorf("check spec: a cross-layer block holds every layer, and layers or pdtrim would take a part of it; drop one of the two")
	}
	return nil
}

// validateSize bounds the sum of all bytes from above in floating point: no
// format takes more than 8 bytes an element and 64 a head and token.
func (s Spec) validateSize() error {
	r := s.resolved()
	tokens := float64(s.Tokens) + 4*float64(s.Layout.blockTokens()) + 2*kiviGroup
	var sum float64
	for _, l := range s.Geometry.Layers {
		sum += tokens*(8*float64(l.Elements())+64*float64(l.KVHeads)+float64(l.IndexBytes)) + float64(l.StateBytes)
	}
	if ranks := float64(max(r.TP, r.TPDecode)); sum*ranks > maxBytes {
		return fmt.Errorf("check spec: %d tokens over %d layers and %.0f ranks may pass 2^61 bytes; lower the context or tp", s.Tokens, len(s.Geometry.Layers), ranks)
	}
	return nil
}

// moves reports whether a layer is among those kept.
func (s Spec) moves(layer int) bool {
	if s.Layers == nil {
		return true
	}
	_, found := slices.BinarySearch(s.Layers, layer)
	return found
}
