package payload

import "fmt"

// Kind is the cache that a layer keeps for a request.
type Kind string

// The kinds of layer. A layer of any kind may also carry a fixed state.
const (
	Full    Kind = "full"    // K and V of every token
	Window  Kind = "window"  // K and V of the last Window tokens
	Chunked Kind = "chunked" // K and V of the current chunk: at most Window tokens
	Latent  Kind = "latent"  // one compressed vector a token, shared by all heads (MLA)
	Linear  Kind = "linear"  // a fixed state a request, independent of its length
	None    Kind = "none"    // nothing
)

// Layer is the cache geometry of one layer.
type Layer struct {
	Kind       Kind
	KVHeads    int   // heads that hold K and V; 1 for Latent, 0 for Linear and None
	KDim       int   // elements of K a head and token; Latent: kv_lora_rank + qk_rope_head_dim
	VDim       int   // elements of V a head and token; 0 for Latent
	Window     int64 // limit on the tokens that Window and Chunked layers hold; 0 is unbounded
	StateBytes int64 // fixed bytes a request
	IndexBytes int64 // bytes a token, in every format, of a sparse-attention index key; Latent only
}

// Tokens returns the number of a request's n tokens that the layer holds.
func (l Layer) Tokens(n int64) int64 {
	if l.Window > 0 && n > l.Window {
		return l.Window
	}
	return n
}

// Elements returns the elements of K and V together of one token.
func (l Layer) Elements() int64 { return int64(l.KVHeads) * int64(l.KDim+l.VDim) }

// Attention reports whether the layer holds a cache that grows with the tokens.
func (l Layer) Attention() bool { return l.KVHeads > 0 }

// Geometry is the cache geometry of a model, and the other figures of its config that
// the cost of a prefill needs.
type Geometry struct {
	Model        string   // name of the preset, or of the file or its directory; from ReadConfig the model_type
	Architecture string   // the config's first architecture, else its model_type
	Layers       []Layer  // in the order of the forward pass, without multi-token prediction layers
	Hidden       int      // width of the residual stream, elements
	QueryHeads   int      // query heads a layer
	HeadDim      int      // elements a query head
	ValueDim     int      // elements of V a head after unfolding a latent; 0 if K and V are not latents
	Index        Index    // of sparse attention
	Parameters   float64  // active for one token, without embeddings; 0 if unknown
	MaxContext   int64    // tokens the config allows; 0 if unknown
	MTPLayers    int      // multi-token prediction layers beside Layers
	Notes        []string // assumptions and omissions, with the reason
}

// Index is the choice of tokens in sparse attention over latents. Its zero value is no
// index.
type Index struct {
	Tokens     int64 // tokens that a token attends to; 0 is all
	Heads, Dim int   // of the index's queries
}

// The largest geometry accepted: far above any model, far below an overflow.
const (
	maxLayers = 10_000
	maxHeads  = 1 << 16
	maxDim    = 1 << 20
	maxState  = 1 << 40
	maxTokens = 1 << 50
)

// AttentionLayers counts the layers with a cache for each token.
func (g Geometry) AttentionLayers() int {
	n := 0
	for _, l := range g.Layers {
		if l.Attention() {
			n++
		}
	}
	return n
}

// StateBytes returns the fixed bytes a request takes, independent of its length.
func (g Geometry) StateBytes() int64 {
	var n int64
	for _, l := range g.Layers {
		n += l.StateBytes
	}
	return n
}

// BytesPerToken returns the bytes of one more token in format f with its scales,
// counting every attention layer as unbounded. It is a whole number if the format's
// scales belong to one token.
func (g Geometry) BytesPerToken(f Format) float64 {
	var n float64
	for i, l := range g.Layers {
		n += f.bytesPerToken(l, i)
	}
	return n
}

// Validate returns an error for the first layer with an invalid figure, by field.
func (g Geometry) Validate() error {
	if len(g.Layers) == 0 {
		return fmt.Errorf("check geometry: Layers is empty; load a preset or a config")
	}
	if len(g.Layers) > maxLayers {
		return fmt.Errorf("check geometry: %d Layers; at most %d are taken", len(g.Layers), maxLayers)
	}
	for i, l := range g.Layers {
		if err := l.validate(); err != nil {
			return fmt.Errorf("check geometry: layer %d: %w", i, err)
		}
	}
	return nil
}

func (l Layer) validate() error {
	for _, f := range []struct {
		name     string
		v, limit int64
	}{
		{"KVHeads", int64(l.KVHeads), maxHeads}, {"KDim", int64(l.KDim), maxDim}, {"VDim", int64(l.VDim), maxDim},
		{"Window", l.Window, maxTokens}, {"StateBytes", l.StateBytes, maxState}, {"IndexBytes", l.IndexBytes, maxDim},
	} {
		if f.v < 0 || f.v > f.limit {
			return fmt.Errorf("%s %d is outside 0..%d; correct it", f.name, f.v, f.limit)
		}
	}
	switch l.Kind {
	case Full, Window, Chunked, Latent:
		if l.KVHeads == 0 || l.KDim+l.VDim == 0 {
			return fmt.Errorf("KVHeads %d and KDim+VDim %d hold nothing; a %s layer needs both", l.KVHeads, l.KDim+l.VDim, l.Kind)
		}
	case Linear, None:
		if l.KVHeads != 0 {
			return fmt.Errorf("KVHeads %d; a %s layer has none", l.KVHeads, l.Kind)
		}
	default:
		return fmt.Errorf("Kind %.40q is unknown; use full, window, chunked, latent, linear or none", string(l.Kind))
	}
	if l.Kind == Latent && l.KVHeads != 1 {
		return fmt.Errorf("KVHeads %d; a latent is one vector for all heads: use 1", l.KVHeads)
	}
	if l.Kind != Latent && l.IndexBytes != 0 {
		return fmt.Errorf("IndexBytes %d; only a latent layer has an index key", l.IndexBytes)
	}
	return nil
}
