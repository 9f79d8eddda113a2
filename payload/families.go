package payload

import "strings"

// family is what a model class adds to its config.json: values for fields that
// the JSON may lack, and rules that no field spells out.
type family struct {
	defaults map[string]int64 // what the class has for a field that is absent (not for one that is null)
	every    int64            // without a map of layers, every every-th layer is full and the others windowed
	windows  windowRule       // what sliding_window means without a map of layers
	mlp      float64          // matrices of a feed-forward block: 3 gated, 2 plain
	multi    bool             // multi_query where the field is absent
	gate     bool             // queries carry an output gate of their own width
}

type windowRule uint8

const (
	windowUnknown windowRule = iota // nothing says which layers have it
	windowAll                       // every layer has it
	windowOptIn                     // layers from max_window_layers on, where use_sliding_window is true
	windowNever                     // the class has no windows, whatever the field says
)

// gated and plain are the families without rules of their own.
var (
	gated = family{mlp: 3, windows: windowNever}
	plain = family{mlp: 2, windows: windowNever}
)

// families holds the model classes that this reader knows, by model_type without
// a final _text. The figures are those of the configuration classes in Hugging
// Face transformers (models/NAME/configuration_NAME.py) and vLLM
// (transformers_utils/configs), or of the modeling code published with a model.
var families = map[string]family{
	"llama": gated, "yi": gated, "internlm": gated, "internlm2": gated, "internlm3": gated, "baichuan": gated,
	"aquila": gated, "orion": gated, "xverse": gated, "tinyllama": gated, "stablelm": gated, "olmo": gated, "olmo2": gated,
	"granite": gated, "granitemoe": gated, "arcee": plain, "apertus": plain, "exaone": gated, "ernie4_5": gated, "ernie4_5_moe": gated,
	"cohere": gated, "deci": gated, "nemotron-nas": gated, "minicpm": gated, "mllama": gated,
	"mllama_text_model": gated, "chatglm": gated, "glm4_moe": gated, "glm4v_moe": gated, "seed_oss": withDefaults(gated, "head_dim", 128),
	"glm": withDefaults(gated, "head_dim", 128), "glm4": withDefaults(gated, "head_dim", 128), "glm4v": gated, "qwen": {windows: windowNever},
	"hunyuan": gated, "hunyuan_v1_dense": gated, "hunyuan_v1_moe": gated, "dbrx": gated, "mixtral": {mlp: 3, windows: windowAll},
	"deepseek": gated, "deepseek_v2": gated, "deepseek_v3": gated, "deepseek_v32": gated, "kimi_k2": gated, "kimi_k25": gated,
	"deepseek_vl_v2": gated, "minicpm3": gated, "glm4_moe_lite": gated, "glm_moe_dsa": gated, "longcat_flash": {windows: windowNever},
	"step3": gated, "dots1": {mlp: 3, windows: windowOptIn}, "bailing_moe": gated, "bailing_moe_v2": gated, "minimax_m2": gated,
	"openelm": gated, "olmoe": gated, "solar": gated, "phi3small": gated,

	"gpt2": plain, "gptj": plain, "gpt_neox": plain, "gpt_neo": {mlp: 2, windows: windowUnknown}, "codegen": plain, "opt": plain, "bloom": plain,
	"mpt": plain, "falcon": {mlp: 2, windows: windowNever, multi: true}, "refinedweb": {mlp: 2, windows: windowNever, multi: true},
	"refinedwebmodel": {mlp: 2, windows: windowNever, multi: true}, "phi": plain, "nemotron": plain,
	"gpt_bigcode": {mlp: 2, windows: windowNever, multi: true}, "starcoder2": {mlp: 2, windows: windowAll},

	"mistral": {mlp: 3, windows: windowAll, defaults: map[string]int64{"sliding_window": 4096}}, "ministral": {mlp: 3, windows: windowAll}, "mistral3": {mlp: 3, windows: windowAll}, "ministral3": {mlp: 3, windows: windowAll}, "phi3": {mlp: 3, windows: windowAll},
	"phi4mm": {mlp: 3, windows: windowAll}, "phimoe": {mlp: 3, windows: windowAll},
	"qwen2": optIn(), "qwen2_moe": optIn(), "qwen2_vl": optIn(), "qwen2_5_vl": optIn(), "qwen2_5_omni": optIn(),
	"qwen3": withDefaults(optIn(), "head_dim", 128), "qwen3_moe": optIn(), "qwen3_vl": withDefaults(optIn(), "head_dim", 128),
	"qwen3_vl_moe": optIn(), "qwen3_omni_moe": optIn(), "smollm3": optIn(), "mimo": optIn(),

	"gemma":       withDefaults(gated, "head_dim", 256),
	"gemma2":      {mlp: 3, every: 2, defaults: map[string]int64{"head_dim": 256, "sliding_window": 4096}},
	"gemma3":      {mlp: 3, every: 6, defaults: map[string]int64{"head_dim": 256, "sliding_window": 4096, "num_attention_heads": 8, "num_key_value_heads": 4}},
	"gemma3n":     {every: 5, defaults: map[string]int64{"head_dim": 256, "sliding_window": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "num_kv_shared_layers": 15}},
	"gemma4":      {every: 6, defaults: map[string]int64{"head_dim": 256, "sliding_window": 512, "num_attention_heads": 8, "num_key_value_heads": 4, "global_head_dim": 512}},
	"cohere2":     {mlp: 3, every: 4, defaults: map[string]int64{"sliding_window": 4096}},
	"olmo3":       {mlp: 3, every: 4, defaults: map[string]int64{"sliding_window": 4096}},
	"gpt_oss":     {mlp: 3, every: 2, defaults: map[string]int64{"head_dim": 64, "sliding_window": 128}},
	"exaone4":     {mlp: 3},
	"exaone_moe":  {mlp: 3},
	"afmoe":       {mlp: 3},
	"step3p5":     {mlp: 3},
	"llama4":      {mlp: 3, defaults: map[string]int64{"attention_chunk_size": 8192}},
	"baichuan_m1": {mlp: 3},
	"mimo_v2":     {mlp: 3}, "mimo_v2_flash": {mlp: 3},

	"qwen3_next":  {mlp: 3, gate: true, windows: windowNever, defaults: map[string]int64{"head_dim": 256, "full_attention_interval": 4}},
	"qwen3_5":     {mlp: 3, gate: true, windows: windowNever, defaults: map[string]int64{"head_dim": 256, "full_attention_interval": 4}},
	"qwen3_5_moe": {mlp: 3, gate: true, windows: windowNever, defaults: map[string]int64{"head_dim": 256, "full_attention_interval": 4}},
	"jamba":       gated, "bamba": gated, "granitemoehybrid": gated, "falcon_h1": gated, "nemotron_h": plain,
	"zamba2": {windows: windowNever}, "mamba": {windows: windowNever}, "mamba2": {windows: windowNever}, "falcon_mamba": {windows: windowNever},
	"minimax": {windows: windowNever}, "minimax_text_01": {windows: windowNever}, "minimax_m1": {windows: windowNever},
	"bailing_moe_linear": {windows: windowNever}, "lfm2": {windows: windowNever}, "lfm2_moe": {windows: windowNever},
	"kimi_linear":     {windows: windowNever},
	"recurrent_gemma": {windows: windowAll, defaults: map[string]int64{"attention_window_size": 2048}},
}

func optIn() family {
	return family{mlp: 3, windows: windowOptIn, defaults: map[string]int64{"max_window_layers": 28}}
}

func withDefaults(f family, name string, v int64) family {
	defaults := map[string]int64{name: v}
	for k, v := range f.defaults {
		defaults[k] = v
	}
	f.defaults = defaults
	return f
}

// notDecoders are model types whose configs have the same field names but no
// cache that a decoder could take over.
var notDecoders = map[string]bool{
	"bert": true, "roberta": true, "xlm-roberta": true, "distilbert": true, "electra": true, "deberta": true, "deberta-v2": true,
	"modernbert": true, "nomic_bert": true, "vit": true, "clip": true, "siglip": true, "t5": true, "mt5": true, "bart": true, "mbart": true,
	"whisper": true, "pegasus": true, "encoder-decoder": true,
}

// unknownState are beginnings of field names that speak of layers without a plain
// KV cache. In a model class that is not known they make the reader refuse.
var unknownState = []string{
	"mamba", "ssm_", "linear_", "lru_", "rwkv", "conv_L_cache", "time_mix", "wkv", "attn_layer_", "attn_type_list", "full_attn_",
	"full_attention_interval", "layer_group_size", "layers_block_type", "compress_ratios", "indexer_compress_ratio", "kv_source_layer_ids",
	"cla_share_factor", "num_kv_shared_layers", "local_layer_ids", "hybrid", "shared_kv",
}

// modelType returns the name that families are kept by.
func modelType(o object) string {
	return strings.TrimSuffix(strings.ToLower(o.text("model_type")), "_text")
}
