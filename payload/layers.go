package payload

import "slices"

// layers derives every layer.
func (c *reader) layers() []Layer {
	roles, heads := c.roles()
	if c.err != nil {
		return nil
	}
	layers := make([]Layer, c.count)
	attends := slices.ContainsFunc(roles, role.attends)
	var base []Layer
	if attends {
		base = c.attention(heads)
	}
	window, chunk := c.windows(roles)
	var state int64
	if slices.ContainsFunc(roles, role.keeps) {
		state = c.state()
	}
	if c.err != nil {
		return nil
	}
	for i, r := range roles {
		l := Layer{Kind: None}
		if r.attends() {
			l = base[i]
		}
		switch r {
		case roleWindow:
			c.narrow(&l, Window, window)
		case roleChunk:
			c.narrow(&l, Chunked, chunk)
		case roleState:
			l.Kind = Linear
		}
		if r.keeps() {
			l.StateBytes = state
		}
		layers[i] = l
	}
	c.override(layers, roles)
	return layers
}

// narrow limits a layer to a window; a latent layer keeps its kind.
func (c *reader) narrow(l *Layer, kind Kind, tokens int64) {
	if l.Window = tokens; l.Kind == Full {
		l.Kind = kind
	}
}

// attention returns every layer as if it attended to all tokens.
func (c *reader) attention(heads []int64) []Layer {
	layers := make([]Layer, c.count)
	if c.latent() {
		rank := c.need(1, maxDim/2, "kv_lora_rank")
		rope := c.need(0, maxDim/2, "qk_rope_head_dim")
		index := c.index()
		for i := range layers {
			layers[i] = Layer{Kind: Latent, KVHeads: 1, KDim: int(rank + rope), IndexBytes: index[i]}
		}
		return layers
	}
	if heads == nil {
		heads = c.kvHeads()
	}
	k, v := c.dims()
	for i := range layers {
		layers[i] = Layer{Kind: Full, KVHeads: int(heads[i]), KDim: int(k), VDim: int(v)}
	}
	return layers
}

// index returns the bytes a token of each layer's sparse-attention key: 8-bit elements and
// an FP32 scale for each 128 of them, in vLLM and SGLang alike, for any KV dtype. A layer
// that reuses another layer's choice of tokens has none.
func (c *reader) index() []int64 {
	bytes := make([]int64, c.count)
	dim, ok := c.number(1, maxDim/2, "index_head_dim")
	if !ok {
		return bytes
	}
	every, _ := c.number(1, maxLayers, "index_topk_freq")
	offset, given := c.number(0, maxLayers, "index_skip_topk_offset")
	if !given {
		offset = 2 // vLLM's and SGLang's default
	}
	types, err := c.o.words("indexer_types")
	c.keep(err)
	pattern := c.o.text("index_topk_pattern")
	for i := range bytes {
		shared := every > 1 && max(int64(i)-offset+1, 0)%every != 0
		switch {
		case i < len(types):
			shared = types[i] == "shared"
		case i < len(pattern):
			shared = pattern[i] == 'S'
		}
		if !shared {
			bytes[i] = dim + 4*ceilDiv(dim, 128)
		}
	}
	return bytes
}
