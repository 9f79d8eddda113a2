package payload

import "kvbench/internal/units"

// Element size of a state: engines keep it in the model's 16-bit type unless the config
// sets a larger one. The config's torch_dtype does not matter, as with K and V.
const stateElement = 2

// state returns the fixed bytes a request of one layer that keeps a state. Shapes follow
// vLLM's MambaStateShapeCalculator: a convolution keeps its last kernel-1 inputs, and a
// recurrence its matrix.
func (c *reader) state() int64 {
	n, field := c.stateSize()
	if n < 0 || n > maxState {
		c.fault(field, "and the other dimensions of the state make more than %s a layer; correct them", units.BinaryBytes(maxState))
		return 0
	}
	return n
}

// stateSize returns the bytes of a state and, for errors, the field that mainly determines
// them. A negative size stands for one above maxState.
func (c *reader) stateSize() (int64, string) {
	switch c.model {
	case "qwen3_next", "qwen3_5", "qwen3_5_moe":
		return c.deltaNet(), "linear_num_value_heads"
	case "kimi_linear":
		return c.kimiDelta(), "linear_attn_config"
	case "lfm2", "lfm2_moe":
		return (c.need(1, maxDim, "conv_L_cache") - 1) * c.need(1, maxDim, "hidden_size") * stateElement, "conv_L_cache"
	case "minimax", "minimax_text_01", "minimax_m1", "bailing_moe_linear":
		return c.lightning(), "head_dim"
	case "recurrent_gemma":
		return c.recurrence(), "lru_width"
	case "jamba":
		return c.mamba1("mamba_d_state", "mamba_d_conv"), "mamba_d_state"
	case "mamba", "falcon_mamba":
		return c.mamba1("state_size", "conv_kernel"), "state_size"
	}
	if names, ok := mamba2Names[c.model]; ok {
		return c.mamba2(names), names.heads
	}
	c.fault("layer_types", "names layers with a state, and how large it is in model_type %.40q is not known", c.model)
	return 0, ""
}

// mamba2Fields are a class's names for the dimensions of its Mamba-2 layers.
type mamba2Fields struct{ heads, dim, groups, state, kernel string }

var mamba2Names = map[string]mamba2Fields{
	"nemotron_h":       {"mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"},
	"zamba2":           {"n_mamba_heads", "mamba_headdim", "mamba_ngroups", "mamba_d_state", "mamba_d_conv"},
	"mamba2":           {"num_heads", "head_dim", "n_groups", "state_size", "conv_kernel"},
	"bamba":            {"mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"},
	"granitemoehybrid": {"mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"},
	"falcon_h1":        {"mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"},
}

// stateDim reads a dimension of a state: small enough that products of four fit an int64.
func (c *reader) stateDim(name string) int64 { return c.need(1, maxHeads, name) }

// ssmElement returns the bytes of an element of a recurrent matrix.
func (c *reader) ssmElement() int64 {
	for _, name := range []string{"mamba_ssm_cache_dtype", "mamba_ssm_dtype"} {
		switch v := c.o.text(name); v {
		case "":
		case "float32":
			return 4
		case "float16", "bfloat16", "auto":
			return stateElement
		default:
			c.fault(name, "is %.40q; float32, float16, bfloat16 and auto are known", v)
		}
	}
	c.note("the recurrent state is taken as 16-bit: no field says otherwise")
	return stateElement
}

// deltaNet is Gated DeltaNet: a convolution over q, k and v, and a matrix of
// value by key elements for each value head.
func (c *reader) deltaNet() int64 {
	kh, vh := c.stateDim("linear_num_key_heads"), c.stateDim("linear_num_value_heads")
	kd, vd := c.stateDim("linear_key_head_dim"), c.stateDim("linear_value_head_dim")
	conv := (2*kh*kd + vh*vd) * (c.stateDim("linear_conv_kernel_dim") - 1) * stateElement
	return add(conv, product(vh, vd, kd, c.ssmElement()))
}

// kimiDelta is Kimi Delta Attention; engines keep its matrix in FP32.
func (c *reader) kimiDelta() int64 {
	outer := c.o
	defer func() { c.o = outer }()
	c.o, _ = outer.child("linear_attn_config")
	heads, dim := c.stateDim("num_heads"), c.stateDim("head_dim")
	conv := product(3, heads, dim, c.stateDim("short_conv_kernel_size")-1, stateElement)
	return add(conv, product(heads, dim, dim, 4))
}

// lightning is MiniMax's linear attention: a square matrix a query head.
func (c *reader) lightning() int64 {
	k, _ := c.dims()
	c.note("the recurrent state is taken as 16-bit: no field says otherwise")
	return product(c.allHeads(), k, k, stateElement)
}

// recurrence is the RG-LRU of Griffin: one FP32 vector, and a convolution.
func (c *reader) recurrence() int64 {
	width, ok := c.number(1, maxDim, "lru_width")
	if !ok {
		width = c.need(1, maxDim, "hidden_size")
	}
	return add(width*4, product(width, c.need(1, maxHeads, "conv1d_width")-1, stateElement))
}

// mamba2 is a state-space layer with heads: a convolution over the inner width
// and the groups' B and C, and a matrix a head.
func (c *reader) mamba2(names mamba2Fields) int64 {
	heads := c.stateDim(names.heads)
	d := c.stateDim(names.state)
	inner := product(heads, c.stateHeadDim(names, heads))
	conv := product(add(inner, product(2, c.stateDim(names.groups), d)), c.stateDim(names.kernel)-1, stateElement)
	return add(conv, product(inner, d, c.ssmElement()))
}

// stateHeadDim returns the width of a state-space head. In Bamba and similar classes it may
// be "auto": the inner width divided by the heads.
func (c *reader) stateHeadDim(names mamba2Fields, heads int64) int64 {
	if names.dim != "mamba_d_head" || c.o.has(names.dim) && c.o.text(names.dim) != "auto" {
		return c.stateDim(names.dim)
	}
	inner, ok := c.number(1, maxDim, "mamba_d_ssm")
	if !ok {
		inner = c.need(1, maxHeads, "mamba_expand") * c.need(1, maxDim, "hidden_size")
	}
	if heads > 0 && inner%heads != 0 {
		c.fault(names.dim, "is not given, and the inner width %d is no multiple of %d heads", inner, heads)
	}
	return inner / max(1, heads)
}

// mamba1 is a state-space layer without heads.
func (c *reader) mamba1(state, kernel string) int64 {
	inner, ok := int64(0), false
	if c.model != "jamba" { // in jamba, intermediate_size belongs to the feed-forward block
		inner, ok = c.number(1, maxDim, "intermediate_size")
	}
	if !ok {
		inner = c.need(1, maxHeads, "mamba_expand", "expand") * c.need(1, maxDim, "hidden_size")
	}
	conv := product(inner, c.stateDim(kernel)-1, stateElement)
	return add(conv, product(inner, c.stateDim(state), c.ssmElement()))
}

// product multiplies sizes; it is -1 if a factor is negative or the result is above
// maxState.
func product(factors ...int64) int64 {
	n := int64(1)
	for _, f := range factors {
		if f < 0 || f > 0 && n > maxState/f {
			return -1
		}
		n *= f
	}
	return n
}

// add adds sizes; it is -1 if either is negative.
func add(a, b int64) int64 {
	if a < 0 || b < 0 {
		return -1
	}
	return a + b
}
