package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
)

func read(config string) (Geometry, error) { return ReadConfig(strings.NewReader(config)) }

// repeat writes n JSON strings, cycling through the given ones.
func repeat(n int, words ...string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q", words[i%len(words)])
	}
	return "[" + b.String() + "]"
}

// Each config is cut down to what matters. want counts layers by kind; perToken
// is fp16 with every layer in full; held is the bytes of 10,000 tokens.
var familyConfigs = []struct {
	name, config string
	layers       int
	perToken     float64
	held, state  int64
}{
	{"multi-head attention where num_key_value_heads is null",
		`{"model_type":"llama","hidden_size":4096,"num_hidden_layers":2,"num_attention_heads":32,"num_key_value_heads":null}`,
		2, 2 * 32 * 256 * 2, 2 * 32 * 256 * 2 * 10000, 0},
	{"falcon: multi-query beats num_kv_heads",
		`{"model_type":"falcon","hidden_size":4544,"num_hidden_layers":2,"num_attention_heads":71,"num_kv_heads":71,"multi_query":true}`,
		2, 2 * 1 * 128 * 2, 2 * 128 * 2 * 10000, 0},
	{"falcon-rw: neither",
		`{"model_type":"falcon","hidden_size":2048,"num_hidden_layers":2,"num_attention_heads":32,"multi_query":false,"new_decoder_architecture":false}`,
		2, 2 * 32 * 128 * 2, 2 * 32 * 128 * 2 * 10000, 0},
	{"old falcon-40b names",
		`{"model_type":"RefinedWeb","hidden_size":8192,"n_layer":2,"n_head":128,"n_head_kv":8}`,
		2, 2 * 8 * 128 * 2, 2 * 8 * 128 * 2 * 10000, 0},
	{"starcoder: multi-query by default",
		`{"model_type":"gpt_bigcode","n_embd":6144,"n_layer":2,"n_head":48}`,
		2, 2 * 1 * 256 * 2, 2 * 256 * 2 * 10000, 0},
	{"chatglm-6b: no multi-query",
		`{"model_type":"chatglm","hidden_size":4096,"num_layers":2,"num_attention_heads":32}`,
		2, 2 * 32 * 256 * 2, 2 * 32 * 256 * 2 * 10000, 0},
	{"mpt: heads in attn_config",
		`{"model_type":"mpt","d_model":4096,"n_layers":2,"n_heads":32,"attn_config":{"attn_type":"multihead_attention"}}`,
		2, 2 * 32 * 256 * 2, 2 * 32 * 256 * 2 * 10000, 0},
	{"bloom: n_embed",
		`{"model_type":"bloom","n_embed":14336,"n_layer":2,"num_attention_heads":112}`,
		2, 2 * 112 * 256 * 2, 2 * 112 * 256 * 2 * 10000, 0},
	{"qwen2: use_sliding_window false",
		`{"model_type":"qwen2","hidden_size":3584,"num_hidden_layers":4,"num_attention_heads":28,"num_key_value_heads":4,"sliding_window":512,"use_sliding_window":false,"max_window_layers":2}`,
		4, 4 * 4 * 256 * 2, 4 * 4 * 256 * 2 * 10000, 0},
	{"qwen2: use_sliding_window true, from max_window_layers on",
		`{"model_type":"qwen2","hidden_size":3584,"num_hidden_layers":4,"num_attention_heads":28,"num_key_value_heads":4,"sliding_window":512,"use_sliding_window":true,"max_window_layers":3}`,
		4, 4 * 4 * 256 * 2, 4 * 256 * 2 * (3*10000 + 512), 0},
	{"gemma-3-4b: heads and head_dim from the class",
		`{"model_type":"gemma3","text_config":{"model_type":"gemma3_text","hidden_size":2560,"num_hidden_layers":7,"sliding_window":1024},"vision_config":{"num_hidden_layers":27,"hidden_size":1152}}`,
		7, 7 * 4 * 512 * 2, 4 * 512 * 2 * (1*10000 + 6*1024), 0},
	{"gemma-2: every second layer, windowed first",
		`{"model_type":"gemma2","hidden_size":2304,"num_hidden_layers":3,"num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,"sliding_window":4096}`,
		3, 3 * 4 * 512 * 2, 4 * 512 * 2 * (1*10000 + 2*4096), 0},
	{"gemma-3n: the last layers share",
		`{"model_type":"gemma3n_text","num_hidden_layers":35,"hidden_size":2048,"num_attention_heads":8,"num_key_value_heads":2,"head_dim":256,"sliding_window":512,"num_kv_shared_layers":15,"layer_types":` + repeat(35, "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention") + `}`,
		20, 20 * 2 * 512 * 2, 2 * 512 * 2 * (4*10000 + 16*512), 0},
	{"gemma-4: wider and fewer heads in full layers",
		`{"model_type":"gemma4_text","num_hidden_layers":6,"hidden_size":2816,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":256,"global_head_dim":512,"num_global_key_value_heads":2,"attention_k_eq_v":true,"sliding_window":1024}`,
		6, 5*8*512*2 + 2*1024*2, 5*8*512*2*1024 + 2*1024*2*10000, 0},
	{"cohere2: sliding_window_pattern",
		`{"model_type":"cohere2","hidden_size":4096,"num_hidden_layers":8,"num_attention_heads":32,"num_key_value_heads":8,"sliding_window":4096,"sliding_window_pattern":4}`,
		8, 8 * 8 * 256 * 2, 8 * 256 * 2 * (2*10000 + 6*4096), 0},
	{"exaone-4: a pattern of letters",
		`{"model_type":"exaone4","hidden_size":5120,"num_hidden_layers":8,"num_attention_heads":40,"num_key_value_heads":8,"head_dim":128,"sliding_window":4096,"sliding_window_pattern":"LLLG"}`,
		8, 8 * 8 * 256 * 2, 8 * 256 * 2 * (2*10000 + 6*4096), 0},
	{"exaone-4-1.2b: no window",
		`{"model_type":"exaone4","hidden_size":2048,"num_hidden_layers":2,"num_attention_heads":32,"num_key_value_heads":8,"sliding_window":null,"sliding_window_pattern":null}`,
		2, 2 * 8 * 128 * 2, 2 * 8 * 128 * 2 * 10000, 0},
	{"mistral: no key is the class's window of 4096",
		`{"model_type":"mistral","hidden_size":4096,"num_hidden_layers":2,"num_attention_heads":32,"num_key_value_heads":8}`,
		2, 2 * 8 * 256 * 2, 2 * 8 * 256 * 2 * 4096, 0},
	{"mimo-v2: other heads and dimensions in windowed layers; attention_chunk_size means nothing",
		`{"model_type":"mimo_v2_flash","hidden_size":4096,"num_hidden_layers":2,"num_attention_heads":64,"num_key_value_heads":4,"head_dim":192,"v_head_dim":128,"swa_num_key_value_heads":8,"swa_head_dim":192,"swa_v_head_dim":128,"sliding_window":128,"attention_chunk_size":128,"hybrid_layer_pattern":[0,1]}`,
		2, 4*320*2 + 8*320*2, 4*320*2*10000 + 8*320*2*128, 0},
	{"step-3.5: attention_other_setting, and entries for prediction layers",
		`{"model_type":"step3p5","hidden_size":4096,"num_hidden_layers":2,"num_attention_heads":64,"num_attention_groups":8,"head_dim":128,"sliding_window":512,"num_nextn_predict_layers":1,"layer_types":["full_attention","sliding_attention","sliding_attention"],"attention_other_setting":{"attention_type":"sliding_attention","num_attention_heads":96,"num_attention_groups":4,"head_dim":64}}`,
		2, 8*256*2 + 4*128*2, 8*256*2*10000 + 4*128*2*512, 0},
	{"step-3: one KV head for all",
		`{"model_type":"step3_vl","text_config":{"model_type":"step3_text","hidden_size":7168,"num_hidden_layers":2,"num_attention_heads":64,"num_attention_groups":1,"head_dim":256}}`,
		2, 2 * 512 * 2, 2 * 512 * 2 * 10000, 0},
	{"nemotron-nas: block_configs",
		`{"model_type":"nemotron-nas","hidden_size":8192,"num_hidden_layers":4,"num_attention_heads":64,"num_key_value_heads":null,"block_configs":[
			{"attention":{"n_heads_in_group":8,"no_op":false,"replace_with_linear":false}},
			{"attention":{"n_heads_in_group":null,"no_op":true}},
			{"attention":{"n_heads_in_group":null,"no_op":false,"replace_with_linear":true}},
			{"attention":{"n_heads_in_group":16}}]}`,
		2, (8 + 4) * 256 * 2, (8 + 4) * 256 * 2 * 10000, 0},
	{"deci: KV heads a layer",
		`{"model_type":"deci","hidden_size":4096,"num_hidden_layers":3,"num_attention_heads":32,"num_key_value_heads_per_layer":[4,2,1]}`,
		3, 7 * 256 * 2, 7 * 256 * 2 * 10000, 0},
	{"openelm: names of its own",
		`{"model_type":"openelm","model_dim":1280,"num_transformer_layers":2,"head_dim":64,"num_kv_heads":[3,4],"num_query_heads":[12,16]}`,
		2, 7 * 128 * 2, 7 * 128 * 2 * 10000, 0},
	{"deepseek-v2-lite: latent, no q_lora_rank",
		`{"model_type":"deepseek_v2","hidden_size":2048,"num_hidden_layers":2,"num_attention_heads":16,"num_key_value_heads":16,"kv_lora_rank":512,"q_lora_rank":null,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128}`,
		2, 2 * 576 * 2, 2 * 576 * 2 * 10000, 0},
	{"deepseek-vl2-tiny: use_mla false",
		`{"model_type":"deepseek_vl_v2","language_config":{"model_type":"deepseek_v2","hidden_size":1280,"num_hidden_layers":2,"num_attention_heads":10,"num_key_value_heads":10,"kv_lora_rank":null,"use_mla":false,"v_head_dim":0,"qk_rope_head_dim":0}}`,
		2, 2 * 10 * 256 * 2, 2 * 10 * 256 * 2 * 10000, 0},
	{"glm-5: index keys in some layers only",
		`{"model_type":"glm_moe_dsa","hidden_size":6144,"num_hidden_layers":4,"num_attention_heads":64,"kv_lora_rank":512,"qk_rope_head_dim":64,"index_head_dim":128,"indexer_types":["full","shared","shared","full"]}`,
		4, 4*576*2 + 2*132, (4*576*2 + 2*132) * 10000, 0},
	{"longcat: two attention blocks a layer",
		`{"model_type":"longcat_flash","hidden_size":6144,"num_layers":3,"num_attention_heads":64,"kv_lora_rank":512,"qk_rope_head_dim":64}`,
		6, 6 * 576 * 2, 6 * 576 * 2 * 10000, 0},
	{"qwen3.5: nested, FP32 state",
		`{"model_type":"qwen3_5","text_config":{"model_type":"qwen3_5_text","hidden_size":4096,"num_hidden_layers":4,"num_attention_heads":16,"num_key_value_heads":4,"head_dim":256,"layer_types":["linear_attention","linear_attention","linear_attention","full_attention"],"linear_conv_kernel_dim":4,"linear_key_head_dim":128,"linear_num_key_heads":16,"linear_value_head_dim":128,"linear_num_value_heads":32,"mamba_ssm_dtype":"float32"}}`,
		1, 4 * 512 * 2, 4 * 512 * 2 * 10000, 3 * (8192*3*2 + 32*128*128*4)},
	{"jamba: period and offset",
		`{"model_type":"jamba","hidden_size":4096,"num_hidden_layers":16,"num_attention_heads":32,"num_key_value_heads":8,"attn_layer_period":8,"attn_layer_offset":4,"mamba_d_state":16,"mamba_d_conv":4,"mamba_expand":2}`,
		2, 2 * 8 * 256 * 2, 2 * 8 * 256 * 2 * 10000, 14 * (8192*3*2 + 8192*16*2)},
	{"bamba: indices; a head's width is auto",
		`{"model_type":"bamba","hidden_size":4096,"num_hidden_layers":4,"num_attention_heads":32,"num_key_value_heads":8,"attn_layer_indices":[1],"mamba_n_heads":128,"mamba_d_head":"auto","mamba_n_groups":1,"mamba_d_state":128,"mamba_d_conv":4,"mamba_expand":2}`,
		1, 8 * 256 * 2, 8 * 256 * 2 * 10000, 3 * ((8192+2*128)*3*2 + 8192*128*2)},
	{"granite-4 hybrid: layer_types of mamba and attention",
		`{"model_type":"granitemoehybrid","hidden_size":4096,"num_hidden_layers":3,"num_attention_heads":32,"num_key_value_heads":8,"layer_types":["mamba","mamba","attention"],"mamba_n_heads":128,"mamba_d_head":64,"mamba_n_groups":1,"mamba_d_state":128,"mamba_d_conv":4,"mamba_expand":2,"time_step_limit":[0.0,Infinity]}`,
		1, 8 * 256 * 2, 8 * 256 * 2 * 10000, 2 * ((8192+2*128)*3*2 + 8192*128*2)},
	{"falcon-h1: attention and state in every layer",
		`{"model_type":"falcon_h1","hidden_size":2048,"num_hidden_layers":2,"num_attention_heads":8,"num_key_value_heads":2,"head_dim":128,"mamba_d_ssm":3072,"mamba_n_heads":48,"mamba_d_head":64,"mamba_n_groups":1,"mamba_d_state":256,"mamba_d_conv":4}`,
		2, 2 * 2 * 256 * 2, 2 * 2 * 256 * 2 * 10000, 2 * ((3072+2*256)*3*2 + 3072*256*2)},
	{"nemotron-h: the pattern alone",
		`{"model_type":"nemotron_h","hidden_size":2688,"num_attention_heads":32,"num_key_value_heads":2,"head_dim":128,"hybrid_override_pattern":"M-*E","mamba_num_heads":64,"mamba_head_dim":64,"n_groups":8,"ssm_state_size":128,"conv_kernel":4,"mamba_ssm_cache_dtype":"float32"}`,
		1, 2 * 256 * 2, 2 * 256 * 2 * 10000, 6144*3*2 + 64*64*128*4},
	{"zamba2: the shared block attends beside a state",
		`{"model_type":"zamba2","hidden_size":2048,"num_hidden_layers":3,"num_attention_heads":32,"num_key_value_heads":32,"attention_head_dim":128,"layers_block_type":["mamba","hybrid","mamba"],"n_mamba_heads":64,"mamba_headdim":64,"mamba_ngroups":1,"mamba_d_state":128,"mamba_d_conv":4}`,
		1, 32 * 256 * 2, 32 * 256 * 2 * 10000, 3 * ((4096+2*128)*3*2 + 4096*128*2)},
	{"mamba2: no attention at all",
		`{"model_type":"mamba2","hidden_size":4096,"num_hidden_layers":2,"num_heads":128,"head_dim":64,"n_groups":8,"state_size":128,"conv_kernel":4}`,
		0, 0, 0, 2 * ((8192+2*8*128)*3*2 + 8192*128*2)},
	{"minimax-01: lightning attention",
		`{"model_type":"minimax_text_01","hidden_size":6144,"num_hidden_layers":4,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":128,"attn_type_list":[0,0,0,1]}`,
		1, 8 * 256 * 2, 8 * 256 * 2 * 10000, 3 * 64 * 128 * 128 * 2},
	{"ring-linear: the last of each group, and what is left over",
		`{"model_type":"bailing_moe_linear","hidden_size":2048,"num_hidden_layers":7,"num_attention_heads":16,"num_key_value_heads":4,"head_dim":128,"layer_group_size":5}`,
		3, 3 * 4 * 256 * 2, 3 * 4 * 256 * 2 * 10000, 4 * 16 * 128 * 128 * 2},
	{"lfm2: convolutions",
		`{"model_type":"lfm2","hidden_size":2048,"num_hidden_layers":3,"num_attention_heads":32,"num_key_value_heads":8,"layer_types":["conv","conv","full_attention"],"conv_L_cache":3}`,
		1, 8 * 128 * 2, 8 * 128 * 2 * 10000, 2 * 2 * 2048 * 2},
	{"kimi-linear: latent and delta attention, layers counted from 1",
		`{"model_type":"kimi_linear","hidden_size":2304,"num_hidden_layers":4,"num_attention_heads":32,"num_key_value_heads":32,"kv_lora_rank":512,"qk_rope_head_dim":64,"linear_attn_config":{"full_attn_layers":[4],"kda_layers":[1,2,3],"head_dim":128,"num_heads":32,"short_conv_kernel_size":4}}`,
		1, 576 * 2, 576 * 2 * 10000, 3 * (3*4096*3*2 + 32*128*128*4)},
	{"recurrent gemma: a cycle, attention in windows",
		`{"model_type":"recurrent_gemma","hidden_size":2560,"num_hidden_layers":5,"num_attention_heads":10,"num_key_value_heads":1,"attention_window_size":2048,"lru_width":2560,"conv1d_width":4,"block_types":["recurrent","recurrent","attention"]}`,
		1, 512 * 2, 512 * 2 * 2048, 4 * (2560*4 + 2560*3*2)},
	{"hunyuan-large: every second layer reads its neighbour's KV",
		`{"model_type":"hunyuan","hidden_size":6400,"num_hidden_layers":4,"num_attention_heads":80,"num_key_value_heads":8,"attention_head_dim":128,"use_cla":true,"cla_share_factor":2}`,
		2, 2 * 8 * 256 * 2, 2 * 8 * 256 * 2 * 10000, 0},
	{"llama-3.2-vision: cross-attention layers hold image tokens",
		`{"model_type":"mllama","text_config":{"model_type":"mllama_text_model","hidden_size":4096,"num_hidden_layers":5,"num_attention_heads":32,"num_key_value_heads":8,"cross_attention_layers":[3]}}`,
		4, 4 * 8 * 256 * 2, 4 * 8 * 256 * 2 * 10000, 0},
	{"llama-4: an explicit list, 1 is rotary and chunked",
		`{"model_type":"llama4_text","hidden_size":5120,"num_hidden_layers":4,"num_attention_heads":40,"num_key_value_heads":8,"head_dim":128,"attention_chunk_size":8192,"no_rope_layers":[1,1,0,0]}`,
		4, 4 * 8 * 256 * 2, 8 * 256 * 2 * (2*10000 + 2*8192), 0},
	{"gpt-neo: names of its own, local layers",
		`{"model_type":"gpt_neo","hidden_size":2048,"num_layers":4,"num_heads":16,"window_size":256,"attention_layers":["global","local","global","local"]}`,
		4, 4 * 16 * 256 * 2, 16 * 256 * 2 * (2*10000 + 2*256), 0},
	{"weights in 8 bits leave the KV alone",
		`{"model_type":"llama","hidden_size":4096,"num_hidden_layers":2,"num_attention_heads":32,"num_key_value_heads":8,"torch_dtype":"float8_e4m3fn","quantization_config":{"quant_method":"fp8","kv_cache_scheme":{"num_bits":8}}}`,
		2, 2 * 8 * 256 * 2, 2 * 8 * 256 * 2 * 10000, 0},
	{"omni: two levels of nesting",
		`{"model_type":"qwen3_omni_moe","thinker_config":{"text_config":{"model_type":"qwen3_omni_moe_text","hidden_size":2048,"num_hidden_layers":2,"num_attention_heads":32,"num_key_value_heads":4,"head_dim":128},"audio_config":{"num_hidden_layers":32}},"talker_config":{"num_hidden_layers":20}}`,
		2, 2 * 4 * 256 * 2, 2 * 4 * 256 * 2 * 10000, 0},
	{"per_layer_config: layers that differ",
		`{"model_type":"llama","hidden_size":4096,"num_hidden_layers":2,"num_attention_heads":32,"num_key_value_heads":8,"per_layer_config":{"1":{"num_key_value_heads":4,"head_dim":64}}}`,
		2, 8*256*2 + 4*128*2, (8*256*2 + 4*128*2) * 10000, 0},
}

func TestConfigFamilies(t *testing.T) {
	for _, want := range familyConfigs {
		g, err := read(want.config)
		if err != nil {
			t.Errorf("%s: %v", want.name, err)
			continue
		}
		if got := g.AttentionLayers(); got != want.layers {
			t.Errorf("%s: %d attention layers, want %d", want.name, got, want.layers)
		}
		if got := g.BytesPerToken(Format{}); got != want.perToken {
			t.Errorf("%s: %v bytes a token, want %v", want.name, got, want.perToken)
		}
		if got := g.StateBytes(); got != want.state {
			t.Errorf("%s: state %d, want %d", want.name, got, want.state)
		}
		if got := shape(t, Spec{Geometry: g, Tokens: 10000}).Bytes; got != want.held {
			t.Errorf("%s: %d bytes, want %d", want.name, got, want.held)
		}
	}
}

// Errors name the field.
var badConfigs = []struct{ config, names string }{
	{``, "EOF"},
	{`[]`, "no JSON object"},
	{`{} {}`, "more follows"},
	{`{"model_type":"llama"}`, "num_hidden_layers is missing"},
	{`{"model_type":"llama","num_hidden_layers":2,"hidden_size":64}`, "num_attention_heads is missing"},
	{`{"model_type":"llama","num_hidden_layers":2,"num_attention_heads":4}`, "head_dim is missing"},
	{`{"model_type":"llama","num_hidden_layers":2,"num_attention_heads":4,"hidden_size":63}`, "head_dim is missing"},
	{`{"model_type":"llama","num_hidden_layers":0,"num_attention_heads":4,"hidden_size":64}`, "num_hidden_layers is 0"},
	{`{"model_type":"llama","num_hidden_layers":-3,"num_attention_heads":4,"hidden_size":64}`, "num_hidden_layers is -3"},
	{`{"model_type":"llama","num_hidden_layers":1e18,"num_attention_heads":4,"hidden_size":64}`, "num_hidden_layers is 1e18"},
	{`{"model_type":"llama","num_hidden_layers":2.5,"num_attention_heads":4,"hidden_size":64}`, "num_hidden_layers is 2.5"},
	{`{"model_type":"llama","num_hidden_layers":"2","num_attention_heads":4,"hidden_size":64}`, `num_hidden_layers is "2"`},
	{`{"model_type":"llama","num_hidden_layers":2,"num_attention_heads":0,"hidden_size":64}`, "num_attention_heads is 0"},
	{`{"model_type":"llama","num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":0,"hidden_size":64}`, "num_key_value_heads is 0"},
	{`{"model_type":"llama","num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":8,"hidden_size":64}`, "num_key_value_heads is 8"},
	{`{"model_type":"llama","num_hidden_layers":2,"num_attention_heads":8,"num_key_value_heads":3,"hidden_size":64}`, "num_key_value_heads is 3"},
	{`{"model_type":"llama","num_hidden_layers":2,"num_attention_heads":4,"head_dim":99999999999999999999,"hidden_size":64}`, "head_dim is 9999"},
	{`{"text_config":{"model_type":"llama","num_hidden_layers":2,"hidden_size":64}}`, "text_config.num_attention_heads is missing"},
	{`{"model_type":"llava","text_config":{"model_type":"llama","vocab_size":32064}}`, "text_config.num_hidden_layers is missing"},
	{`{"model_type":"t5","is_encoder_decoder":true,"num_layers":2}`, "is_encoder_decoder"},
	{`{"model_type":"bert","num_hidden_layers":2,"num_attention_heads":4,"hidden_size":64}`, "model_type"},
	{`{"model_type":"deepseek_v3","num_hidden_layers":2,"num_attention_heads":4,"kv_lora_rank":512}`, "qk_rope_head_dim is missing"},
	{`{"model_type":"gpt_oss","num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":4,"layer_types":["full_attention"]}`, "layer_types has 1 entries"},
	{`{"model_type":"gpt_oss","num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":4,"layer_types":["warp_attention"]}`, "layer_types[0]"},
	{`{"model_type":"deepseek_v4","num_hidden_layers":1,"num_attention_heads":4,"compress_ratios":[4]}`, "compress_ratios"},
	{`{"model_type":"newhybrid","num_hidden_layers":1,"num_attention_heads":4,"hidden_size":64,"mamba_d_state":16}`, "mamba_d_state"},
	{`{"model_type":"newmodel","num_hidden_layers":1,"num_attention_heads":4,"hidden_size":64,"sliding_window":128}`, "layer_types is missing"},
	{`{"model_type":"exaone4","num_hidden_layers":1,"num_attention_heads":4,"hidden_size":64,"sliding_window":128}`, "layer_types is missing"},
	{`{"model_type":"mistral","num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":4,"hidden_size":64,"sliding_window":0}`, "sliding_window is 0"},
	{`{"model_type":"deepseek_v3","num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":4,"hidden_size":64}`, "kv_lora_rank is missing"},
	{`{"model_type":"newmodel","num_hidden_layers":2,"num_attention_heads":4,"hidden_size":64,"qk_nope_head_dim":128}`, "kv_lora_rank is missing"},
	{`{"model_type":"qwen3_moe","num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":4,"hidden_size":64}`, "head_dim is missing"},
	{`{"model_type":"qwen3_next","num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":4,"hidden_size":64}`, "linear_num_key_heads is missing"},
	{`{"model_type":"falcon","num_hidden_layers":2,"num_attention_heads":4,"hidden_size":64,"multi_query":true,"new_decoder_architecture":true}`, "num_kv_heads is missing"},
	{`{"model_type":"mixtral","num_hidden_layers":2,"num_attention_heads":4,"hidden_size":64}`, "num_key_value_heads is missing"},
	{`{"model_type":"jamba","num_hidden_layers":1,"num_attention_heads":4,"hidden_size":64}`, "attn_layer_period is missing"},
	{`{"model_type":"granitemoehybrid","num_hidden_layers":1,"num_attention_heads":4,"hidden_size":64}`, "layer_types is missing"},
	{`{"model_type":"nemotron_h","num_hidden_layers":3,"hybrid_override_pattern":"M*"}`, "hybrid_override_pattern has 2 letters for 3"},
	{`{"model_type":"nemotron_h","hybrid_override_pattern":"M?"}`, "hybrid_override_pattern has the letter"},
	{`{"model_type":"nemotron_h","hybrid_override_pattern":"M","mamba_num_heads":64,"mamba_head_dim":64,"n_groups":8,"ssm_state_size":128}`, "conv_kernel is missing"},
	{`{"model_type":"nemotron_h","hybrid_override_pattern":"M","mamba_num_heads":65536,"mamba_head_dim":65536,"n_groups":8,"ssm_state_size":65536,"conv_kernel":4}`, "mamba_num_heads"},
	{`{"model_type":"nemotron_h","hybrid_override_pattern":"M","mamba_num_heads":64,"mamba_head_dim":64,"n_groups":8,"ssm_state_size":128,"conv_kernel":4,"mamba_ssm_cache_dtype":"int3"}`, "mamba_ssm_cache_dtype"},
	{`{"model_type":"nemotron-nas","num_attention_heads":64,"hidden_size":8192,"block_configs":[{"ffn":{}}]}`, "block_configs[0].attention is missing"},
	{`{"model_type":"nemotron-nas","num_attention_heads":64,"hidden_size":8192,"block_configs":[{"attention":{"n_heads_in_group":7}}]}`, "block_configs[0].attention.n_heads_in_group is 7"},
	{`{"model_type":"chatglm","num_layers":2,"hidden_size":64,"num_attention_heads":4,"multi_query_attention":true}`, "multi_query_group_num is missing"},
	{`{"model_type":"gemma3n","num_hidden_layers":3,"hidden_size":64,"num_kv_shared_layers":3}`, "num_kv_shared_layers"},
	{`{"model_type":"deci","hidden_size":4096,"num_hidden_layers":3,"num_attention_heads":32,"num_key_value_heads_per_layer":[4,2]}`, "num_key_value_heads_per_layer has 2 entries"},
	{`{"model_type":"llama","num_hidden_layers":2,"num_attention_heads":4,"hidden_size":64,"max_position_embeddings":-1}`, "max_position_embeddings is -1"},
}

func TestConfigErrors(t *testing.T) {
	for _, bad := range badConfigs {
		g, err := read(bad.config)
		if err == nil {
			t.Errorf("%s: read as %+v", bad.config, g)
		} else if !strings.Contains(err.Error(), bad.names) || !strings.HasPrefix(err.Error(), "read config: ") {
			t.Errorf("%s: %q does not say %q", bad.config, err, bad.names)
		}
	}
}

func TestConfigLimits(t *testing.T) {
	deep := `{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`
	long := `{"model_type":"` + strings.Repeat("x", 1<<20) + `"}`
	huge := `{"a":"` + strings.Repeat("x", maxConfig) + `"}`
	for _, config := range []string{deep, long, huge} {
		_, err := read(config)
		if err == nil || len(err.Error()) > 1000 {
			t.Errorf("a config of %d bytes: %.1000v", len(config), err)
		}
	}
}

// A config that lacks a field is refused, or read with a note that says what the
// class has instead, or the field plays no part. What is left are the classes
// whose rule for the absent field is common knowledge.
func TestConfigMissingFields(t *testing.T) {
	common := func(model, field string) bool {
		switch field {
		case "num_key_value_heads": // every head, where the class has no value of its own
			return !groupedFamilies[model] && !strings.HasPrefix(model, "gemma")
		case "new_decoder_architecture", "multi_query", "multi_query_attention": // switches
			return true
		case "head_dim": // hidden_size over the heads
			return !wideFamilies[model]
		case "v_head_dim", "swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim", "sliding_window", "index_head_dim", "attn_config":
			return true // another kind of layer
		case "lru_width", "intermediate_size", "layer_types", "mamba_ssm_cache_dtype", "sliding_window_pattern", "no_rope_layers", "model_type":
			return true
		}
		return false
	}
	for _, name := range Presets() {
		m, err := presets()
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(m[name], &fields); err != nil {
			t.Fatal(err)
		}
		whole := load(t, name)
		o := fields
		if inner, ok := fields["text_config"].(map[string]any); ok {
			o = inner
		}
		for field, value := range o {
			delete(o, field)
			config, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			g, err := ReadConfig(bytes.NewReader(config))
			model, _ := o["model_type"].(string)
			o[field] = value
			if err == nil && !slices.Equal(g.Layers, whole.Layers) && slices.Equal(g.Notes, whole.Notes) && !common(strings.TrimSuffix(model, "_text"), field) {
				t.Errorf("%s without %s reads as %+v without a word", name, field, g.Layers[0])
			}
		}
	}
}

// Every field of every config is replaced in turn by what it must not be. Some
// are not read, so the result may be a geometry; it is a valid one then.
func TestConfigAbsurdValues(t *testing.T) {
	absurd := []string{`-1`, `0`, `1`, `0.5`, `1e18`, `1e308`, `9223372036854775807`, `99999999999999999999`, `1000000`, `"x"`, `"M*M*"`, `null`, `true`, `[]`, `[-1]`, `["x"]`, `{}`}
	for _, c := range familyConfigs {
		var fields map[string]any
		if err := json.Unmarshal([]byte(strings.ReplaceAll(c.config, "Infinity", "1")), &fields); err != nil {
			t.Fatal(err)
		}
		vary(fields, func() {
			config, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			checkConfig(t, config)
		}, absurd)
	}
}

// vary replaces each value under v in turn, calls check, and puts it back.
func vary(v any, check func(), absurd []string) {
	try := func(old any, set func(any)) {
		for _, a := range absurd {
			set(json.RawMessage(a))
			check()
		}
		set(old)
		vary(old, check, absurd)
	}
	switch v := v.(type) {
	case map[string]any:
		for name, old := range v {
			try(old, func(x any) { v[name] = x })
		}
	case []any:
		for i, old := range v[:min(len(v), 2)] {
			try(old, func(x any) { v[i] = x })
		}
	}
}

// checkConfig reads a config of any kind: what comes out is an error that says
// where it comes from, or a geometry whose figures are sound.
func checkConfig(t testing.TB, config []byte) {
	t.Helper()
	before := allocated()
	g, err := ReadConfig(bytes.NewReader(config))
	// The most layers take 640 kB, and lists grow by doubling.
	if n, limit := allocated()-before, uint64(16<<20+1000*len(config)); n > limit {
		t.Fatalf("%.300s took %d bytes of memory, limit %d", config, n, limit)
	}
	if err != nil {
		if !strings.HasPrefix(err.Error(), "read config: ") || len(err.Error()) > 1000 {
			t.Fatalf("%.300s: %v", config, err)
		}
		return
	}
	if err := g.Validate(); err != nil {
		t.Fatalf("%.300s: read as a geometry that is not valid: %v", config, err)
	}
	if g.Parameters < 0 || g.StateBytes() < 0 || g.BytesPerToken(Format{}) < 0 || g.MaxContext < 0 || g.Hidden < 0 || g.HeadDim < 0 || g.QueryHeads < 0 || g.MTPLayers < 0 {
		t.Fatalf("%.300s: a negative figure in %+v", config, g)
	}
	s, err := Spec{Geometry: g, Tokens: 1 << 20}.Shape()
	if err == nil && (s.Bytes < 0 || s.WireBytes < 0 || float64(s.Bytes) > g.BytesPerToken(Format{})*(1<<20)) {
		t.Fatalf("%.300s: sizes overflow: %+v", config, s)
	}
}

// allocated returns the bytes that this process has allocated so far.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func TestUnknownArchitecture(t *testing.T) {
	g, err := read(`{"architectures":["NovelForCausalLM"],"model_type":"novel","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":2048}`)
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(g.Notes, "\n"); !strings.Contains(notes, "NovelForCausalLM is not known") {
		t.Errorf("notes %q do not say that the architecture is not known", notes)
	}
	if g.Parameters != 0 || g.MaxContext != 2048 || g.HeadDim != 16 {
		t.Errorf("parameters %v, context %d, head %d", g.Parameters, g.MaxContext, g.HeadDim)
	}
}

func TestMTPLayersAreNotCounted(t *testing.T) {
	g := load(t, "deepseek-v3")
	if len(g.Layers) != 61 || g.MTPLayers != 1 || !strings.Contains(strings.Join(g.Notes, "\n"), "multi-token prediction layers are not counted: the model has 1") {
		t.Errorf("%d layers and %d prediction layers, want 61 and 1; notes %q", len(g.Layers), g.MTPLayers, g.Notes)
	}
}

func FuzzReadConfig(f *testing.F) {
	for _, c := range familyConfigs {
		f.Add([]byte(c.config))
	}
	for _, c := range badConfigs {
		f.Add([]byte(c.config))
	}
	f.Fuzz(func(t *testing.T, config []byte) { checkConfig(t, config) })
}
