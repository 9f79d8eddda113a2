package payload

import (
	"fmt"
	"slices"
	"strings"
)

// role is what a layer does, before its sizes are known.
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

// narrow bounds a layer; a latent one stays latent.
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

// index returns the bytes a token of each layer's sparse-attention key: 8-bit
// elements and an FP32 scale for each 128 of them, in vLLM and SGLang alike,
// whatever the KV dtype. A layer that takes over another's choice has none.
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

// roles finds the map of layers, and KV heads a layer where the map has them.
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

// named reads a list of layer types. RecurrentGemma's is a cycle; others have an
// entry a layer, and some checkpoints one for each multi-token prediction layer after them.
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

// mapped reads the maps of single model classes; nil where there is none.
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

// null says whether a field is there and null.
func (c *reader) null(name string) bool {
	v, there := c.o.fields[name]
	return there && v == nil
}

var windowNames = []string{"sliding_window", "sliding_window_size", "attention_window_size", "window_size"}

// unmapped applies what sliding_window means where no list says which layers have it.
func (c *reader) unmapped() []role {
	full := c.where(func(int64) bool { return true }, roleFull, roleFull)
	if p := c.o.text("sliding_window_pattern"); p != "" && c.o.hasAny(windowNames...) { // EXAONE 4: LLLG
		if strings.Trim(p, "LG") != "" {
			c.fault("sliding_window_pattern", "is %.40q; it has to be a number, or L for local and G for global layers", p)
		}
		return c.where(func(i int64) bool { return p[int(i)%len(p)] == 'G' }, roleFull, roleWindow)
	}
	if c.windowOff() {
		return full
	}
	if every := c.every(); every > 0 {
		return c.where(func(i int64) bool { return (i+1)%every == 0 }, roleFull, roleWindow)
	}
	if !c.o.hasAny(windowNames...) && c.family.defaults["sliding_window"] == 0 {
		return full
	}
	switch c.family.windows {
	case windowAll:
		return c.where(func(int64) bool { return true }, roleWindow, roleWindow)
	case windowOptIn:
		from := c.need(0, maxLayers, "max_window_layers")
		return c.where(func(i int64) bool { return i >= from }, roleWindow, roleFull)
	case windowNever:
		return full
	}
	c.fault("layer_types", "is missing: a sliding window is set, and nothing says which layers have it")
	return full
}

// windowOff says whether the config or its class rules windows out.
func (c *reader) windowOff() bool {
	switch c.family.windows {
	case windowNever:
		return true
	case windowOptIn:
		return !c.o.flag("use_sliding_window", false)
	}
	return c.null("sliding_window") || !c.o.flag("use_sliding_window", true)
}

// every returns the distance of full layers among windowed ones; 0 where the
// config and its class do not have that rule.
func (c *reader) every() int64 {
	if _, letters := c.o.fields["sliding_window_pattern"].(string); letters {
		return 0
	}
	if n, ok := c.number(1, maxLayers, "sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"); ok {
		return n
	}
	if c.family.every > 0 {
		c.note("no layer_types in the config: one layer in %d is full and the others are windowed, as in the class %s", c.family.every, c.model)
	}
	return c.family.every
}

// windows returns the sizes that roles ask for; 0 where none does.
func (c *reader) windows(roles []role) (window, chunk int64) {
	if slices.Contains(roles, roleWindow) {
		if window = c.need(1, maxTokens, windowNames...); window == 0 {
			window = 1 // c.err is set
		}
	}
	if slices.Contains(roles, roleChunk) {
		chunk = c.need(1, maxTokens, "attention_chunk_size")
	}
	return window, chunk
}

// blockConfigs reads the searched architectures of Nemotron-NAS: attention that
// is left out or replaced by a matrix keeps nothing.
func (c *reader) blockConfigs() ([]role, []int64) {
	blocks, ok := c.o.fields["block_configs"].([]any)
	if !ok || int64(len(blocks)) != c.count {
		c.fault("block_configs", "is no list of %d blocks, one for each layer", c.count)
		return nil, nil
	}
	roles, heads := make([]role, c.count), make([]int64, c.count)
	for i, b := range blocks {
		fields, _ := b.(map[string]any)
		block := object{fmt.Sprintf("%sblock_configs[%d].", c.o.path, i), fields}
		a, ok := block.child("attention")
		if !ok {
			c.fail(block.fault("attention", "is missing; without it the layer's KV heads cannot be derived"))
			return nil, nil
		}
		if a.flag("no_op", false) || a.flag("replace_with_linear", false) {
			roles[i] = roleNone
			continue
		}
		if a.hasAny("window_length", "mamba", "llama4") {
			c.fail(a.fault("window_length", "is set; blocks with windows or states are not known"))
			return nil, nil
		}
		heads[i] = c.blockHeads(a)
	}
	return roles, heads
}

func (c *reader) blockHeads(a object) int64 {
	if n, ok, err := a.number("num_key_value_heads", 1, maxHeads); ok || err != nil {
		c.keep(err)
		return n
	}
	group, ok, err := a.number("n_heads_in_group", 1, maxHeads)
	c.keep(err)
	switch {
	case err == nil && !ok:
		c.fail(a.fault("n_heads_in_group", "is missing; without it the layer's KV heads cannot be derived"))
	case err == nil && (c.heads == 0 || c.heads%group != 0):
		c.fail(a.fault("n_heads_in_group", "is %d; it has to divide num_attention_heads %d", group, c.heads))
	case err == nil:
		return c.heads / group
	}
	return 1
}
