package payload

import "kvbench/internal/units"

// Element sizes of a state: engines keep it in the model's 16-bit type unless the
// config asks for more. The config's torch_dtype plays no part, as with K and V.
const stateElement = 2

// state returns the fixed bytes a request of one layer that keeps a state. Shapes
// are those of vLLM's MambaStateShapeCalculator: a convolution keeps its last
// kernel-1 inputs, and a recurrence its matrix.
func (c *reader) state() int64 {
	n, field := c.stateSize()
	if n < 0 || n > maxState {
		c.fault(field, "and the other dimensions of the state make more than %s a layer; correct them", units.BinaryBytes(maxState))
		return 0
	}
	return n
}

// stateSize returns the bytes of a state, and the field that tells its kind; a
// negative size is one above maxState.
func (c *reader) stateSize() (int64, string) {
	switch {
	case c.o.has("linear_num_value_heads"):
		return c.deltaNet(), "linear_num_value_heads"
	case c.o.has("linear_attn_config"):
		return c.kimiDelta(), "linear_attn_config"
	case c.o.has("conv_L_cache"):
		return (c.need(1, maxDim, "conv_L_cache") - 1) * c.need(1, maxDim, "hidden_size") * stateElement, "conv_L_cache"
	case c.model == "minimax", c.model == "minimax_text_01", c.model == "minimax_m1", c.model == "bailing_moe_linear":
		return c.lightning(), "head_dim"
	case c.model == "recurrent_gemma":
		return c.recurrence(), "lru_width"
	case c.o.hasAny(stateHeadNames...), c.model == "mamba2":
		return c.mamba2(), stateHeadNames[0]
	case c.o.hasAny("mamba_d_state", "state_size"):
		return c.mamba1(), "mamba_d_state"
	}
	c.fault("layer_types", "names layers with a state, and no field that is known says how large it is")
	return 0, ""
}

var stateHeadNames = []string{"mamba_num_heads", "mamba_n_heads", "n_mamba_heads"}

// stateDim reads a dimension of a state: small enough that products of four fit an int64.
func (c *reader) stateDim(names ...string) int64 { return c.need(1, maxHeads, names...) }

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
func (c *reader) mamba2() int64 {
	heads := c.stateDim(append(stateHeadNames, "num_heads")...)
	d := c.stateDim("ssm_state_size", "mamba_d_state", "state_size")
	groups := c.stateDim("mamba_n_groups", "mamba_ngroups", "n_groups")
	kernel := c.stateDim("mamba_d_conv", "conv_kernel")
	dim := c.stateHeadDim(heads)
	inner := product(heads, dim)
	conv := product(add(inner, product(2, groups, d)), kernel-1, stateElement)
	return add(conv, product(inner, d, c.ssmElement()))
}

// stateHeadDim returns the width of a state-space head, which may be "auto": the
// inner width shared out.
func (c *reader) stateHeadDim(heads int64) int64 {
	names := []string{"mamba_head_dim", "mamba_d_head", "mamba_headdim"}
	if c.model == "mamba2" {
		names = append(names, "head_dim")
	}
	for _, name := range names {
		if c.o.has(name) && c.o.text(name) != "auto" {
			return c.stateDim(name)
		}
	}
	inner, ok := c.number(1, maxDim, "mamba_d_ssm")
	if !ok {
		inner = c.need(1, maxHeads, "mamba_expand", "expand") * c.need(1, maxDim, "hidden_size")
	}
	if heads > 0 && inner%heads != 0 {
		c.fault(names[1], "is not given, and the inner width %d is no multiple of %d heads", inner, heads)
	}
	return inner / max(1, heads)
}

// mamba1 is a state-space layer without heads.
func (c *reader) mamba1() int64 {
	inner, ok := c.number(1, maxDim, "mamba_intermediate_size", "intermediate_size_mamba")
	if !ok && c.model != "jamba" {
		inner, ok = c.number(1, maxDim, "intermediate_size") // Mamba's own configs
	}
	if !ok {
		inner = c.need(1, maxHeads, "mamba_expand", "expand") * c.need(1, maxDim, "hidden_size")
	}
	d := c.stateDim("mamba_d_state", "state_size")
	conv := product(inner, c.stateDim("mamba_d_conv", "conv_kernel")-1, stateElement)
	return add(conv, product(inner, d, c.ssmElement()))
}

// product multiplies sizes; -1 where the result is above maxState.
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

// add adds sizes; -1 where one of them is.
func add(a, b int64) int64 {
	if a < 0 || b < 0 {
		return -1
	}
	return a + b
}
