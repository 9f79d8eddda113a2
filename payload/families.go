package payload

import (
	"maps"
	"strings"
)

// family is the rules of a model class that its config.json omits: defaults of fields that
// the JSON may lack, and rules without a field.
type family struct {
	defaults map[string]int64 // defaults of absent fields (not of null ones)
	every    int64            // without a map of layers, every every-th layer is full and the others windowed
	windows  windowRule       // meaning of sliding_window without a map of layers
	mlp      float64          // matrices of a feed-forward block: 3 gated, 2 plain
	multi    bool             // multi_query if the field is absent
	latent   bool             // attention is MLA, unless use_mla is false
	gate     bool             // queries carry an output gate as wide as themselves
}

type windowRule uint8

const (
	windowUnknown windowRule = iota // no rule maps windows to layers
	windowAll                       // every layer has it
	windowOptIn                     // layers from max_window_layers on, if use_sliding_window is true
	windowNever                     // the class has no windows, even if the field is set
)

// families holds the supported model classes, by model_type without a final _text. The
// figures come from the configuration classes in Hugging Face transformers
// (models/NAME/configuration_NAME.py) and vLLM (transformers_utils/configs), or from the
// modeling code published with a model.
var families = func() map[string]family {
	all := map[string]family{}
	alike := func(f family, names ...string) {
		for _, name := range names {
			all[name] = f
		}
	}
	with := func(f family, name string, v int64) family {
		f.defaults = maps.Clone(f.defaults)
		if f.defaults == nil {
			f.defaults = map[string]int64{}
		}
		f.defaults[name] = v
		return f
	}
	gated := family{mlp: 3, windows: windowNever}
	plain := family{mlp: 2, windows: windowNever}
	latent := family{mlp: 3, windows: windowNever, latent: true}
	multi := family{mlp: 2, windows: windowNever, multi: true}
	windowed := family{mlp: 3, windows: windowAll}
	mapped := family{mlp: 3} // a list names the windowed layers
	optIn := family{mlp: 3, windows: windowOptIn, defaults: map[string]int64{"max_window_layers": 28}}
	delta := family{mlp: 3, windows: windowNever, gate: true, defaults: map[string]int64{"head_dim": 256, "full_attention_interval": 4}}
	uncounted := family{windows: windowNever} // parameters are not counted

	alike(gated, "llama", "yi", "internlm", "internlm2", "internlm3", "baichuan", "aquila", "orion", "xverse", "stablelm", "olmo", "olmo2", "olmoe",
		"granite", "granitemoe", "exaone", "ernie4_5", "ernie4_5_moe", "cohere", "deci", "nemotron-nas", "minicpm", "mllama", "mllama_text_model",
		"chatglm", "glm4_moe", "glm4v", "glm4v_moe", "hunyuan", "hunyuan_v1_dense", "hunyuan_v1_moe", "dbrx", "deepseek", "step3", "bailing_moe",
		"bailing_moe_v2", "minimax_m2", "openelm", "solar", "phi3small", "jamba", "bamba", "granitemoehybrid", "falcon_h1")
	alike(with(gated, "head_dim", 128), "seed_oss", "glm", "glm4")
	alike(with(gated, "head_dim", 256), "gemma")
	alike(plain, "gpt2", "gptj", "gpt_neox", "codegen", "opt", "bloom", "mpt", "phi", "nemotron", "arcee", "apertus")
	alike(family{mlp: 2}, "gpt_neo")
	alike(with(plain, "head_dim", 128), "nemotron_h")
	alike(multi, "falcon", "refinedweb", "refinedwebmodel", "gpt_bigcode")
	alike(latent, "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "deepseek_vl_v2", "minicpm3", "glm4_moe_lite", "glm_moe_dsa")
	alike(family{windows: windowNever, latent: true}, "longcat_flash", "kimi_linear")
	alike(uncounted, "qwen", "zamba2", "mamba", "mamba2", "falcon_mamba", "minimax", "minimax_text_01", "minimax_m1", "bailing_moe_linear", "lfm2", "lfm2_moe")

	alike(windowed, "ministral", "mistral3", "ministral3", "mixtral", "phi3", "phi4mm", "phimoe")
	alike(with(windowed, "sliding_window", 4096), "mistral")
	alike(family{mlp: 2, windows: windowAll}, "starcoder2")
	alike(family{windows: windowAll, defaults: map[string]int64{"attention_window_size": 2048}}, "recurrent_gemma")
	alike(optIn, "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_5_omni", "qwen3_moe", "qwen3_vl_moe", "qwen3_omni_moe", "smollm3", "mimo", "dots1")
	alike(with(optIn, "head_dim", 128), "qwen3", "qwen3_vl")
	alike(mapped, "exaone4", "exaone_moe", "afmoe", "step3p5", "baichuan_m1", "mimo_v2", "mimo_v2_flash")
	alike(with(mapped, "attention_chunk_size", 8192), "llama4")
	alike(delta, "qwen3_next", "qwen3_5", "qwen3_5_moe")

	alike(family{mlp: 3, every: 2, defaults: map[string]int64{"head_dim": 256, "sliding_window": 4096}}, "gemma2")
	alike(family{mlp: 3, every: 6, defaults: map[string]int64{"head_dim": 256, "sliding_window": 4096, "num_attention_heads": 8, "num_key_value_heads": 4}}, "gemma3")
	alike(family{every: 5, defaults: map[string]int64{"head_dim": 256, "sliding_window": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "num_kv_shared_layers": 15}}, "gemma3n")
	alike(family{every: 6, defaults: map[string]int64{"head_dim": 256, "sliding_window": 512, "num_attention_heads": 8, "num_key_value_heads": 4, "global_head_dim": 512}}, "gemma4")
	alike(family{mlp: 3, every: 4, defaults: map[string]int64{"sliding_window": 4096}}, "cohere2", "olmo3")
	alike(family{mlp: 3, every: 2, defaults: map[string]int64{"head_dim": 64, "sliding_window": 128}}, "gpt_oss")
	return all
}()

// groupedFamilies are the classes with a default for num_key_value_heads other than the
// number of query heads. Checkpoints set the field; a config without it is rejected.
var groupedFamilies = set("mistral", "ministral", "mistral3", "ministral3", "mixtral", "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_5_omni",
	"qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe", "qwen3_omni_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe", "gpt_oss", "llama4", "nemotron_h",
	"starcoder2", "exaone4", "exaone_moe", "jamba", "bamba", "glm4", "glm4_moe", "glm4v_moe", "minimax", "minimax_text_01", "minimax_m1", "minimax_m2",
	"mimo_v2", "mimo_v2_flash", "step3", "step3p5", "lfm2", "lfm2_moe", "smollm3", "phimoe", "ernie4_5", "ernie4_5_moe", "seed_oss", "gemma2")

// wideFamilies are the classes with heads wider or narrower than hidden_size over the
// heads, and a head_dim that is not a constant of the class.
var wideFamilies = set("qwen3_moe", "qwen3_vl_moe", "qwen3_omni_moe", "minimax", "minimax_text_01", "minimax_m1", "minimax_m2", "glm4_moe", "glm4v_moe",
	"mimo_v2", "mimo_v2_flash", "step3", "step3p5")

func set(names ...string) map[string]bool {
	s := make(map[string]bool, len(names))
	for _, n := range names {
		s[n] = true
	}
	return s
}

// notDecoders are model types with the same field names but no cache that a decoder could
// take over.
var notDecoders = set("bert", "roberta", "xlm-roberta", "distilbert", "electra", "deberta", "deberta-v2", "modernbert", "nomic_bert",
	"vit", "clip", "siglip", "t5", "mt5", "bart", "mbart", "whisper", "pegasus", "encoder-decoder")

// unknownState are prefixes of field names for layers without a plain KV cache. In an
// unknown model class they make the reader fail.
var unknownState = []string{
	"mamba", "ssm_", "linear_", "lru_", "rwkv", "conv_L_cache", "time_mix", "wkv", "attn_layer_", "attn_type_list", "full_attn_",
	"full_attention_interval", "layer_group_size", "layers_block_type", "compress_ratios", "indexer_compress_ratio", "kv_source_layer_ids",
	"cla_share_factor", "num_kv_shared_layers", "local_layer_ids", "hybrid", "shared_kv",
}

// modelType returns the key of a config's class in families.
func modelType(o object) string {
	return strings.TrimSuffix(strings.ToLower(o.text("model_type")), "_text")
}
