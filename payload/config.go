package payload

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// ReadConfig reads the config.json of a Hugging Face model and derives the geometry of
// its KV cache. It returns an error that names the field if a figure cannot be derived.
// The dtype of the weights and their quantization play no part, and Layers does not
// include multi-token prediction layers (see Geometry.MTPLayers). An unknown model
// class is read by its field names, with a note.
func ReadConfig(r io.Reader) (Geometry, error) {
	top, err := decodeObject(r)
	if err != nil {
		return Geometry{}, err
	}
	c := newReader(top)
	g := c.geometry()
	if c.err != nil {
		return Geometry{}, c.err
	}
	if err := g.Validate(); err != nil {
		return Geometry{}, fmt.Errorf("read config: %w", err)
	}
	return g, nil
}

// reader derives a geometry from a config. It keeps the first error; after an error the
// results of its methods are meaningless.
type reader struct {
	o      object // of the language model: the config, or an object nested in it
	top    object
	model  string // model_type, without a final _text
	family family
	known  bool
	count  int64 // layers
	heads  int64 // query heads; 0 if unknown
	hidden int64 // 0 if unknown
	notes  []string
	err    error
}

var layerNames = []string{"num_hidden_layers", "n_layer", "num_layers", "n_layers", "num_transformer_layers"}

// maxNesting is the deepest nesting searched for a language model: Qwen-Omni's is two
// objects down.
const maxNesting = 4

// nestedNames are the objects that hold the language model of a multimodal one.
var nestedNames = []string{"text_config", "llm_config", "language_config", "thinker_config", "language_model_config", "llm"}

func newReader(top object) *reader {
	c := &reader{o: top, top: top}
	for range maxNesting {
		inner, ok := nested(c.o)
		if !ok {
			break
		}
		c.o = inner
	}
	c.model = modelType(c.o)
	if c.model == "" {
		c.model = modelType(top)
	}
	c.family, c.known = families[c.model]
	return c
}

// nested returns the language model inside o, unless o is the language model.
func nested(o object) (object, bool) {
	for _, name := range nestedNames {
		if inner, ok := o.child(name); ok && (inner.hasAny(layerNames...) || inner.hasAny(nestedNames...) || !o.hasAny(layerNames...)) {
			return inner, true
		}
	}
	return object{}, false
}

func (c *reader) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

func (c *reader) fault(name, why string, args ...any) { c.fail(c.o.fault(name, why, args...)) }

func (c *reader) note(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(c.notes, s) {
		c.notes = append(c.notes, s)
	}
}

// number returns the first of several names for one whole number, or the model class's
// default for the first name. It returns false if neither exists.
func (c *reader) number(low, high int64, names ...string) (int64, bool) {
	for _, name := range names {
		n, ok, err := c.o.number(name, low, high)
		if err != nil {
			c.fail(err)
			return 0, false
		}
		if ok {
			return n, true
		}
	}
	name := names[0]
	if _, null := c.o.fields[name]; null {
		return 0, false
	}
	n, ok := c.family.defaults[name]
	if ok {
		c.note("%s is not in the config: %d is what the class %s has", name, n, c.model)
	}
	return n, ok
}

// need is number for a required field: it fails if the field is missing.
func (c *reader) need(low, high int64, names ...string) int64 {
	n, ok := c.number(low, high, names...)
	if !ok && c.err == nil {
		others := ""
		if len(names) > 1 {
			others = ", and so is every other name for it (" + strings.Join(names[1:], ", ") + ")"
		}
		c.fault(names[0], "is missing%s; without it the KV cache of model_type %.40q cannot be derived", others, c.model)
	}
	return n
}

func (c *reader) list(name string, low, high int64) []int64 {
	n, err := c.o.numbers(name, low, high)
	if err != nil {
		c.fail(err)
	}
	return n
}

func (c *reader) geometry() Geometry {
	c.refuse()
	c.count = c.layerCount()
	c.heads, _ = c.number(1, maxHeads, "num_attention_heads", "n_head", "n_heads", "num_heads")
	c.hidden, _ = c.number(1, maxDim, "hidden_size", "n_embd", "d_model", "n_embed", "model_dim")
	if c.err != nil {
		return Geometry{}
	}
	layers := c.layers()
	if c.err != nil {
		return Geometry{}
	}
	g := Geometry{
		Model: c.model, Architecture: c.architecture(), Layers: layers,
		Hidden: int(c.hidden), QueryHeads: int(c.heads), HeadDim: int(c.queryDim(layers)), ValueDim: int(c.valueDim()), Index: c.choice(),
		MaxContext: c.context(), MTPLayers: int(c.mtp()),
	}
	g.Parameters = c.parameters(layers)
	if g.HeadDim == 0 {
		g.QueryHeads = 0
	}
	if g.MTPLayers > 0 {
		c.note("multi-token prediction layers are not counted: the model has %d", g.MTPLayers)
	}
	if !c.known && c.err == nil {
		c.note("the architecture %.60s is not known: its config was read by the usual field names", g.Architecture)
	}
	g.Notes = c.notes
	return g
}

// refuse fails for configs with familiar field names but without a KV cache that can
// move.
func (c *reader) refuse() {
	if c.o.flag("is_encoder_decoder", false) || c.top.flag("is_encoder_decoder", false) {
		c.fault("is_encoder_decoder", "is true; cross attention is not modelled: give a decoder-only model")
	}
	if notDecoders[c.model] {
		c.fault("model_type", "is %q, which has no KV cache to move; give a decoder-only model", c.model)
	}
	if c.known {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.o.fields)) {
		for _, begin := range unknownState {
			if strings.HasPrefix(name, begin) && c.o.has(name) && name != "hybrid_override_pattern" {
				c.fault(name, "speaks of layers without a plain KV cache, and model_type %.40q is not known; "+
					"write its geometry with layer_types of a known class", c.model)
				return
			}
		}
	}
}

func (c *reader) layerCount() int64 {
	for _, name := range layerNames {
		if c.o.has(name) {
			n := c.need(1, maxLayers, name)
			if c.model == "longcat_flash" && name == "num_layers" {
				c.note("each of the %d layers has two attention blocks", n)
				n *= 2
			}
			return n
		}
	}
	if p := c.o.text("hybrid_override_pattern"); p != "" {
		return int64(min(len(p), maxLayers+1))
	}
	if blocks, ok := c.o.fields["block_configs"].([]any); ok {
		return int64(min(len(blocks), maxLayers+1))
	}
	return c.need(1, maxLayers, layerNames...)
}

func (c *reader) architecture() string {
	for _, o := range []object{c.top, c.o} {
		if names, err := o.words("architectures"); err == nil && len(names) > 0 {
			return fmt.Sprintf("%.80s", names[0])
		}
	}
	return fmt.Sprintf("%.80s", c.model)
}

func (c *reader) context() int64 {
	n, _ := c.number(1, maxTokens, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
		"max_sequence_length", "max_seq_length", "n_ctx")
	return n
}

// mtp returns the number of multi-token prediction layers: a speculative head that some
// checkpoints carry beside the layers.
func (c *reader) mtp() int64 {
	n, _ := c.number(0, maxLayers, "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers")
	return n
}

// kvHeads returns the number of heads with K and V in each layer that has any.
func (c *reader) kvHeads() []int64 {
	perLayer := make([]int64, c.count)
	fill := func(n int64) []int64 {
		for i := range perLayer {
			perLayer[i] = n
		}
		return perLayer
	}
	for _, name := range []string{"num_key_value_heads_per_layer", "num_key_value_heads", "num_kv_heads"} {
		if _, isList := c.o.fields[name].([]any); isList {
			heads := c.list(name, 1, maxHeads)
			if int64(len(heads)) != c.count {
				c.fault(name, "has %d entries for %d layers; it has to have one for each", len(heads), c.count)
				return perLayer
			}
			return heads
		}
	}
	n, name := c.oneKVHeads()
	if c.err == nil && c.heads > 0 && c.heads%n != 0 {
		c.fault(name, "is %d; it has to divide the %d query heads", n, c.heads)
	}
	return fill(n)
}

var kvNames = []string{"num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "num_attention_groups", "multi_query_group_num", "num_query_groups"}

// oneKVHeads returns the KV heads of a layer and the field they come from. It reads
// multi-query switches first: if set, other figures in Falcon's and ChatGLM's configs
// do not hold.
func (c *reader) oneKVHeads() (int64, string) {
	switch c.model {
	case "falcon", "refinedweb", "refinedwebmodel":
		grouped := c.o.flag("new_decoder_architecture", c.model == "refinedweb")
		if !grouped && c.o.flag("multi_query", c.family.multi) {
			return 1, "multi_query"
		}
		if grouped {
			return max(1, c.need(1, maxHeads, "num_kv_heads", "n_head_kv")), "num_kv_heads"
		}
		return c.allHeads(), "num_attention_heads"
	case "gpt_bigcode":
		if c.o.flag("multi_query", c.family.multi) {
			return 1, "multi_query"
		}
		return c.allHeads(), "num_attention_heads"
	case "chatglm":
		if c.o.flag("multi_query_attention", false) {
			return max(1, c.need(1, maxHeads, "multi_query_group_num")), "multi_query_group_num"
		}
		return c.allHeads(), "num_attention_heads"
	}
	for _, name := range kvNames {
		if n, ok := c.number(1, maxHeads, name); ok || c.err != nil {
			return max(1, n), name
		}
	}
	if a, ok := c.o.child("attn_config"); ok { // MPT, DBRX
		if n, ok, err := a.number("kv_n_heads", 1, maxHeads); ok || err != nil {
			c.keep(err)
			return max(1, n), "attn_config.kv_n_heads"
		}
		if a.text("attn_type") == "multiquery_attention" {
			return 1, "attn_config.attn_type"
		}
	}
	if c.o.flag("multi_query", false) {
		return 1, "multi_query"
	}
	if groupedFamilies[c.model] && !c.null("num_key_value_heads") {
		return max(1, c.need(1, maxHeads, kvNames...)), kvNames[0]
	}
	if !c.known {
		c.note("num_key_value_heads is not in the config: every query head is taken to have its own K and V")
	}
	return c.allHeads(), "num_attention_heads"
}

// keep is fail for an error that may be nil.
func (c *reader) keep(err error) {
	if err != nil {
		c.fail(err)
	}
}

// allHeads returns the number of query heads, for attention with one K and V a query
// head.
func (c *reader) allHeads() int64 {
	if c.heads == 0 {
		c.fault("num_attention_heads", "is missing; without it or num_key_value_heads the KV heads cannot be derived")
		return 1
	}
	return c.heads
}

// dims returns the elements of K and V a head.
func (c *reader) dims() (k, v int64) {
	k, ok := c.number(1, maxDim, "head_dim", "kv_channels", "attention_head_dim", "hidden_size_per_head", "attention_head_size")
	if !ok && c.err == nil {
		switch {
		case wideFamilies[c.model]:
			c.fault("head_dim", "is missing; in model_type %q it is not hidden_size over the heads", c.model)
			return 1, 1
		case c.heads == 0:
			c.fault("head_dim", "is missing, and without num_attention_heads it cannot be derived")
			return 1, 1
		case c.hidden == 0:
			c.fault("head_dim", "is missing, and without hidden_size it cannot be derived")
			return 1, 1
		case c.hidden%c.heads != 0:
			c.fault("head_dim", "is missing, and hidden_size %d is no multiple of the %d heads", c.hidden, c.heads)
			return 1, 1
		}
		k = c.hidden / c.heads
	}
	if v, ok := c.number(0, maxDim, "v_head_dim"); ok && v > 0 {
		return k, v
	}
	return k, k
}

// queryDim returns the elements of a query head, for the cost of attention.
func (c *reader) queryDim(layers []Layer) int64 {
	if !slices.ContainsFunc(layers, Layer.Attention) {
		return 0
	}
	if c.latent() {
		nope, _ := c.number(0, maxDim, "qk_nope_head_dim")
		rope, _ := c.number(0, maxDim, "qk_rope_head_dim")
		return nope + rope
	}
	if c.heads == 0 {
		return 0
	}
	k, _ := c.dims()
	return k
}

// valueDim returns the elements of V a head after unfolding a latent; 0 without
// latents.
func (c *reader) valueDim() int64 {
	if !c.latent() {
		return 0
	}
	v, ok := c.number(0, maxDim, "v_head_dim")
	if !ok {
		v, _ = c.number(0, maxDim, "qk_nope_head_dim")
	}
	return v
}

// choice returns the index that sparse attention over latents uses to choose tokens.
func (c *reader) choice() Index {
	dim, ok := c.number(1, maxDim/2, "index_head_dim")
	if !ok || !c.latent() {
		return Index{}
	}
	tokens, _ := c.number(0, maxTokens, "index_topk")
	heads, _ := c.number(0, maxHeads, "index_n_heads")
	return Index{Tokens: tokens, Heads: int(heads), Dim: int(dim)}
}

// latent reports whether attention keeps one compressed vector a token (MLA).
func (c *reader) latent() bool {
	if !c.o.flag("use_mla", true) {
		return false
	}
	if n, ok := c.number(0, maxDim, "kv_lora_rank"); ok && n > 0 {
		return true
	}
	if split, _ := c.number(0, maxDim, "qk_nope_head_dim"); c.family.latent || split > 0 {
		c.fault("kv_lora_rank", "is missing; without it the latent of multi-head latent attention cannot be derived")
	}
	return false
}
