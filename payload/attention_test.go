package payload

import (
	"slices"
	"testing"
)

// TestAttention: layers by how far back they look and how wide they are, by hand from the
// configs: query heads times the mean of a head's elements of K and V.
func TestAttention(t *testing.T) {
	for name, want := range map[string][]Attention{
		"llama-2-70b":     {{Layers: 80, Width: 64 * 128}},
		"gemma-3-12b":     {{Layers: 40, Width: 16 * 256, Window: 1024}, {Layers: 8, Width: 16 * 256}},
		"mistral-7b-v0.1": {{Layers: 32, Width: 32 * 128, Window: 4096}},
		"gpt-oss-120b":    {{Layers: 18, Width: 64 * 64, Window: 128}, {Layers: 18, Width: 64 * 64}},
		"llama-4-scout":   {{Layers: 36, Width: 40 * 128, Window: 8192, Chunked: true}, {Layers: 12, Width: 40 * 128}},
		"qwen3-next-80b":  {{Layers: 12, Width: 16 * 256}}, // 36 linear layers are not there
		"deepseek-v3":     {{Layers: 61, Width: 128 * (192 + 128) / 2}},
		// 64 index heads of 128 score every token, and attention goes to 2048 of them.
		"deepseek-v3.2": {{Layers: 61, Width: 64 * 128 / 2}, {Layers: 61, Width: 128 * (192 + 128) / 2, Window: 2048}},
		// Windowed layers have 8 KV heads, full ones 4, and both 64 query heads of 192 and 128.
		"mimo-v2-flash": {{Layers: 9, Width: 64 * (192 + 128) / 2}, {Layers: 39, Width: 64 * (192 + 128) / 2, Window: 128}},
	} {
		if got := load(t, name).Attention(); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
