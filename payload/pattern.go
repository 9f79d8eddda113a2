package payload

import (
	"fmt"
	"strings"
)

// role is the function of a layer, before its sizes are read.
type role uint8

const (
	roleFull   role = iota // attention over every token
	roleWindow             // attention over the last tokens
	roleChunk              // attention over the current chunk
	roleState              // a fixed state: linear attention, state space, convolution, recurrence
	roleBoth               // full attention and a fixed state side by side
	roleNone               // no cache: a feed-forward block
)

func (r role) attends() bool { return r != roleState && r != roleNone }
func (r role) keeps() bool   { return r == roleState || r == roleBoth }

// roleNames are the spellings in layer_types, layers_block_type, block_types and attention_layers.
var roleNames = map[string]role{
	"full_attention": roleFull, "attention": roleFull, "full": roleFull, "global": roleFull, "global_attention": roleFull,
	"deepseek_sparse_attention": roleFull, "indexed_attention": roleFull,
	"sliding_attention": roleWindow, "sliding_window": roleWindow, "sliding_window_attention": roleWindow, "sliding": roleWindow,
	"local": roleWindow, "local_attention": roleWindow,
	"chunked_attention": roleChunk,
	"linear_attention":  roleState, "linear": roleState, "mamba": roleState, "mamba2": roleState, "recurrent": roleState, "conv": roleState, "kda": roleState,
	"hybrid": roleBoth,
	"moe":    roleNone, "mlp": roleNone,
}

// roles finds the map of layers, and the KV heads of each layer if the map has them.
func (c *reader) roles() (roles []role, heads []int64) {
	if c.o.has("block_configs") {
		return c.blockConfigs()
	}
	for _, name := range []string{"layer_types", "layers_block_type", "block_types", "_block_types", "attention_layers"} {
		if words, err := c.o.words(name); err != nil || len(words) > 0 {
			c.keep(err)
			return c.named(name, words), nil
		}
	}
	if p := c.o.text("hybrid_override_pattern"); p != "" {
		return c.lettered("hybrid_override_pattern", p), nil
	}
	if r := c.mapped(); r != nil || c.err != nil {
		return r, nil
	}
	return c.unmapped(), nil
}

// named reads a list of layer types. RecurrentGemma's list is a cycle. Others have an entry
// for each layer; some checkpoints append one for each multi-token prediction layer.
func (c *reader) named(name string, words []string) []role {
	roles := make([]role, c.count)
	cycle := c.model == "recurrent_gemma"
	if n := int64(len(words)); c.err == nil && !cycle && n != c.count && n != c.count+c.mtp() {
		c.fault(name, "has %d entries for %d layers; it has to have one for each", n, c.count)
	}
	if c.err != nil {
		return roles
	}
	for i := range roles {
		at := i % len(words)
		r, ok := roleNames[strings.ToLower(words[at])]
		if !ok {
			c.fault(fmt.Sprintf("%s[%d]", name, at), "is %.40q, a kind of layer that is not known", words[at])
			return roles
		}
		if cycle && r == roleFull {
			r = roleWindow
		}
		if r == roleWindow && c.family.windows == windowOptIn && !c.o.flag("use_sliding_window", true) {
			r = roleFull
		}
		roles[i] = r
	}
	return roles
}

// lettered reads Nemotron-H's pattern with a letter a layer: M for Mamba-2, * for
// attention, - and E for feed-forward blocks.
func (c *reader) lettered(name, pattern string) []role {
	letters := map[byte]role{'M': roleState, '*': roleFull, '-': roleNone, 'E': roleNone}
	if int64(len(pattern)) != c.count {
		c.fault(name, "has %d letters for %d layers; it has to have one for each", len(pattern), c.count)
		return nil
	}
	roles := make([]role, c.count)
	for i := range roles {
		r, ok := letters[pattern[i]]
		if !ok {
			c.fault(name, "has the letter %q, a kind of layer that is not known", pattern[i])
			return nil
		}
		roles[i] = r
	}
	return roles
}

// where returns roles by a rule for each layer.
func (c *reader) where(rule func(i int64) bool, yes, no role) []role {
	roles := make([]role, c.count)
	for i := range roles {
		if roles[i] = no; rule(int64(i)) {
			roles[i] = yes
		}
	}
	return roles
}

// mapped reads the maps of single model classes; nil if the class has none.
func (c *reader) mapped() []role {
	switch c.model {
	case "qwen3_next", "qwen3_5", "qwen3_5_moe":
		every := max(1, c.need(1, maxLayers, "full_attention_interval"))
		return c.where(func(i int64) bool { return (i+1)%every == 0 }, roleFull, roleState)
	case "jamba":
		period := max(1, c.need(1, maxLayers, "attn_layer_period"))
		offset := c.need(0, maxLayers, "attn_layer_offset")
		return c.where(func(i int64) bool { return i%period == offset }, roleFull, roleState)
	case "bamba":
		return c.listed("attn_layer_indices", 0, roleFull, roleState)
	case "lfm2", "lfm2_moe":
		return c.listed("full_attn_idxs", 0, roleFull, roleState)
	case "kimi_linear":
		return c.kimiLinear()
	case "zamba2":
		return c.listed("hybrid_layer_ids", 0, roleBoth, roleState)
	case "falcon_h1":
		return c.where(func(int64) bool { return true }, roleBoth, roleBoth)
	case "mamba", "mamba2", "falcon_mamba":
		return c.where(func(int64) bool { return true }, roleState, roleState)
	case "bailing_moe_linear":
		group := max(1, c.need(1, maxLayers, "layer_group_size"))
		return c.where(func(i int64) bool { return (i+1)%group == 0 || i >= c.count/group*group }, roleFull, roleState)
	case "minimax", "minimax_text_01", "minimax_m1", "minimax_m2":
		if c.model != "minimax_m2" || c.o.has("attn_type_list") {
			return c.coded("attn_type_list", roleState, roleFull)
		}
	case "mimo_v2", "mimo_v2_flash":
		return c.coded("hybrid_layer_pattern", roleFull, roleWindow)
	case "baichuan_m1":
		return c.listed("sliding_window_layers", 0, roleWindow, roleFull)
	case "granitemoehybrid", "nemotron_h", "recurrent_gemma":
		name := map[string]string{"granitemoehybrid": "layer_types", "nemotron_h": "hybrid_override_pattern", "recurrent_gemma": "block_types"}[c.model]
		c.fault(name, "is missing; without it the attention layers of model_type %q cannot be told", c.model)
	case "llama4":
		return c.llama4()
	}
	return nil
}

// listed reads a list of layer numbers, counted from base.
func (c *reader) listed(name string, base int64, in, out role) []role {
	if !c.o.has(name) {
		c.fault(name, "is missing; without it the kinds of the layers cannot be told")
		return nil
	}
	picked := map[int64]bool{}
	for _, n := range c.list(name, base, c.count-1+base) {
		picked[n-base] = true
	}
	return c.where(func(i int64) bool { return picked[i] }, in, out)
}

// coded reads a list with a number a layer, 0 or 1.
func (c *reader) coded(name string, zero, one role) []role {
	if !c.o.has(name) {
		c.fault(name, "is missing; without it the kinds of the layers cannot be told")
		return nil
	}
	codes := c.list(name, 0, 1)
	if n := int64(len(codes)); c.err == nil && n != c.count && n != c.count+c.mtp() {
		c.fault(name, "has %d entries for %d layers; it has to have one for each", n, c.count)
	}
	if c.err != nil {
		return nil
	}
	return c.where(func(i int64) bool { return codes[i] == 1 }, one, zero)
}

func (c *reader) kimiLinear() []role {
	inner, ok := c.o.child("linear_attn_config")
	if !ok {
		c.fault("linear_attn_config", "is missing; without it the attention layers cannot be told")
		return nil
	}
	outer := c.o
	c.o = inner
	defer func() { c.o = outer }()
	return c.listed("full_attn_layers", 1, roleFull, roleState) // counted from 1
}

// llama4 alternates chunked layers and full ones without rotary embedding. An
// empty or absent no_rope_layers is filled in by the class from its interval, 4.
func (c *reader) llama4() []role {
	if c.o.has("attention_chunk_size") || c.family.defaults["attention_chunk_size"] > 0 && !c.null("attention_chunk_size") {
		if rope := c.list("no_rope_layers", 0, 1); len(rope) > 0 {
			return c.coded("no_rope_layers", roleFull, roleChunk)
		}
		every, ok := c.number(1, maxLayers, "no_rope_layer_interval")
		if !ok {
			every = 4
		}
		c.note("chunked layers are taken as a window of the chunk's size: an upper bound")
		return c.where(func(i int64) bool { return c.err == nil && (i+1)%every == 0 }, roleFull, roleChunk)
	}
	return nil
}

// null reports whether a field is present and null.
func (c *reader) null(name string) bool {
	v, there := c.o.fields[name]
	return there && v == nil
}
