package payload

// parameters counts the weights that one token passes through, without embeddings, the
// output head, norms and biases. It is 0 if the class is unknown or the config does not
// give all matrices of a block.
func (c *reader) parameters(layers []Layer) float64 {
	if c.family.mlp == 0 || c.hidden == 0 || c.heads == 0 || c.o.has("block_configs") {
		return 0
	}
	var sum float64
	for i, l := range layers {
		mix, ok := c.mixer(l)
		if !ok {
			return 0
		}
		forward, ok := c.forward(int64(i), l)
		if !ok {
			return 0
		}
		sum += mix + forward
	}
	return sum
}

var expertNames = []string{"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}

// value is a dimension as a float; 0 if it is absent or no number.
func (c *reader) value(names ...string) float64 {
	for _, name := range names {
		if n, ok, err := c.o.number(name, 0, maxDim); ok && err == nil {
			return float64(n)
		}
	}
	return 0
}

// mixer counts a layer's attention or state-space weights.
func (c *reader) mixer(l Layer) (float64, bool) {
	h, heads := float64(c.hidden), float64(c.heads)
	var sum float64
	if l.StateBytes > 0 {
		s, ok := c.stateWeights()
		if !ok {
			return 0, false
		}
		sum += s
	}
	switch {
	case l.Kind == Latent:
		rank, rope := c.value("kv_lora_rank"), c.value("qk_rope_head_dim")
		nope, v, q := c.value("qk_nope_head_dim"), c.value("v_head_dim"), c.value("q_lora_rank")
		query := h * heads * (nope + rope)
		if q > 0 {
			query = h*q + q*heads*(nope+rope)
		}
		sum += query + h*(rank+rope) + rank*heads*(nope+v) + heads*v*h
	case l.Attention():
		query := h * heads * float64(l.KDim)
		if c.family.gate {
			query *= 2
		}
		sum += query + h*float64(l.Elements()) + heads*float64(l.VDim)*h
	case l.Kind == None && c.model != "nemotron_h":
		return 0, false // shared or left-out attention: some queries remain, and the config does not list which
	}
	return sum, true
}

// stateWeights counts the projections of a linear-attention or Mamba-2 block.
func (c *reader) stateWeights() (float64, bool) {
	h := float64(c.hidden)
	if vh := c.value("linear_num_value_heads"); vh > 0 {
		key := c.value("linear_num_key_heads") * c.value("linear_key_head_dim")
		value := vh * c.value("linear_value_head_dim")
		return h*(2*key+2*value+2*vh) + value*h, true
	}
	if names, ok := mamba2Names[c.model]; ok {
		heads := c.value(names.heads)
		inner := heads * float64(c.stateHeadDim(names, int64(heads)))
		return h*(2*inner+2*c.value(names.groups)*c.value(names.state)+heads) + inner*h, true
	}
	return 0, false
}

// forward counts a layer's feed-forward weights.
func (c *reader) forward(i int64, l Layer) (float64, bool) {
	h, m := float64(c.hidden), c.family.mlp
	moe := c.value("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts")
	if c.model == "nemotron_h" { // a block is a mixer or a feed-forward one
		pattern := c.o.text("hybrid_override_pattern")
		switch {
		case l.Kind != None:
			return 0, true
		case i < int64(len(pattern)) && pattern[i] == 'E':
			return m * h * (moe*c.value("moe_intermediate_size") + c.value("moe_shared_expert_intermediate_size")), true
		}
	}
	if f, ok := c.o.child("ffn_config"); ok { // DBRX
		width, _, err1 := f.number("ffn_hidden_size", 1, maxDim)
		top, _, err2 := f.number("moe_top_k", 1, maxDim)
		return m * h * float64(width) * float64(max(1, top)), err1 == nil && err2 == nil && width > 0
	}
	if moe > 0 && c.sparse(i) {
		return c.experts(moe)
	}
	if moe == 0 && c.value(expertNames...) > 0 {
		return 0, false // experts, but no number of experts a token
	}
	width := c.value("intermediate_size_mlp", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "block_ff_dim")
	if width == 0 && m == 2 {
		width = 4 * h // GPT-2, BLOOM, Falcon: four times the hidden size by default
	}
	return m * h * width, width > 0
}

// experts counts the weights of a token's experts, the shared experts and the router.
func (c *reader) experts(moe float64) (float64, bool) {
	h := float64(c.hidden)
	width := c.value("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
	shared := c.value("shared_expert_intermediate_size", "share_expert_dim", "shared_intermediate_size")
	if shared == 0 {
		shared = c.value("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts") * width
	}
	if c.model == "llama4" {
		shared = width // one, of the experts' width
	}
	router := h * c.value(expertNames...)
	return c.family.mlp*h*(moe*width+shared) + router, width > 0
}

// sparse reports whether layer i of a mixture-of-experts model has experts.
func (c *reader) sparse(i int64) bool {
	if i < int64(c.value("first_k_dense_replace", "moe_layer_start_index")) {
		return false
	}
	if step := int64(c.value("decoder_sparse_step", "interleave_moe_layer_step")); step > 1 && (i+1)%step != 0 {
		return false
	}
	dense, err := c.o.numbers("mlp_only_layers", 0, maxLayers)
	if err == nil {
		for _, n := range dense {
			if n == i {
				return false
			}
		}
	}
	return true
}
