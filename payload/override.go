package payload

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// override applies settings of single layers: other heads and dimensions, caches shared
// with an earlier layer, layers that attend to images.
func (c *reader) override(layers []Layer, roles []role) {
	switch c.model {
	case "mimo_v2", "mimo_v2_flash", "baichuan_m1":
		c.swapWindowed(layers, roles)
	case "step3p5":
		c.swapOther(layers, roles)
	case "gemma4":
		c.swapGlobal(layers, roles)
	}
	c.perLayer(layers)
	c.share(layers)
	if !c.o.has("cross_attention_layers") {
		return
	}
	for _, n := range c.list("cross_attention_layers", 0, c.count-1) {
		layers[n] = Layer{Kind: None}
		c.note("cross-attention layers keep K and V of image tokens, which are not counted")
	}
}

// resize sets the given figures; 0 leaves a figure unchanged.
func resize(l *Layer, heads, k, v int64) {
	if l.Kind == Latent || !l.Attention() {
		return
	}
	if heads > 0 {
		l.KVHeads = int(heads)
	}
	if k > 0 {
		l.KDim = int(k)
	}
	if v > 0 {
		l.VDim = int(v)
	}
}

// swapWindowed gives windowed layers their separate heads and dimensions.
func (c *reader) swapWindowed(layers []Layer, roles []role) {
	heads, _ := c.number(1, maxHeads, "swa_num_key_value_heads", "num_swa_key_value_heads")
	k, _ := c.number(1, maxDim, "swa_head_dim")
	v, _ := c.number(1, maxDim, "swa_v_head_dim")
	for i, r := range roles {
		if r == roleWindow {
			resize(&layers[i], heads, k, v)
		}
	}
}

// swapOther gives layers of one type the heads of attention_other_setting (Step-3.5).
func (c *reader) swapOther(layers []Layer, roles []role) {
	other, ok := c.o.child("attention_other_setting")
	if !ok {
		return
	}
	heads, _, err := other.number("num_attention_groups", 1, maxHeads)
	c.keep(err)
	dim, _, err := other.number("head_dim", 1, maxDim)
	c.keep(err)
	of, known := roleNames[other.text("attention_type")]
	for i, r := range roles {
		if known && r == of {
			resize(&layers[i], heads, dim, dim)
		}
	}
}

// swapGlobal gives full layers wider heads, and fewer of them if K doubles as V's
// projection (Gemma 4; both are cached, since only K is rotated).
func (c *reader) swapGlobal(layers []Layer, roles []role) {
	dim, _ := c.number(1, maxDim, "global_head_dim")
	var heads int64
	if c.o.flag("attention_k_eq_v", false) {
		heads, _ = c.number(1, maxHeads, "num_global_key_value_heads")
	}
	for i, r := range roles {
		if r == roleFull {
			resize(&layers[i], heads, dim, dim)
		}
	}
}

// perLayer reads per_layer_config, the form that newer transformers write for layers that
// differ: an object for each layer, keyed by its number.
func (c *reader) perLayer(layers []Layer) {
	all, ok := c.o.child("per_layer_config")
	if !ok {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(all.fields)) {
		i, err := strconv.Atoi(name)
		one, ok := all.child(name)
		if err != nil || i < 0 || i >= len(layers) || !ok {
			c.fail(fmt.Errorf("read config: %s%.30s is no object for a layer from 0 to %d", all.path, name, len(layers)-1))
			return
		}
		heads, _, err := one.number("num_key_value_heads", 1, maxHeads)
		c.keep(err)
		dim, _, err := one.number("head_dim", 1, maxDim)
		c.keep(err)
		resize(&layers[i], heads, dim, dim)
	}
}

// share empties layers that read the cache of an earlier one.
func (c *reader) share(layers []Layer) {
	if shared, _ := c.number(0, maxLayers, "num_kv_shared_layers"); shared > 0 {
		if shared >= c.count {
			c.fault("num_kv_shared_layers", "is %d of %d layers; some layer has to have a cache of its own", shared, c.count)
			return
		}
		for i := c.count - shared; i < c.count; i++ {
			layers[i] = Layer{Kind: None}
		}
		c.note("the last %d layers read the KV of earlier ones", shared)
	}
	if c.o.flag("use_cla", false) { // Hunyuan: cross-layer attention
		factor := max(1, c.need(1, maxLayers, "cla_share_factor"))
		for i := range layers {
			if int64(i)%factor != 0 {
				layers[i] = Layer{Kind: None}
			}
		}
		c.note("each run of %d layers shares one KV (cross-layer attention)", factor)
	}
}
