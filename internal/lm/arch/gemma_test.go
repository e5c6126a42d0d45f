package arch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGemmaRefusals changes keys of the configurations of Gemma 3n and Gemma 4 to values that the
// forward pass cannot honour. The error names the key.
func TestGemmaRefusals(t *testing.T) {
	for _, c := range []struct {
		model, key string
		value      any
		says       string
	}{
		{"gemma3n", "altup_active_idx", 1, "altup_active_idx"},
		{"gemma3n", "num_kv_shared_layers", 6, "no layer before"},
		{"gemma3n", "num_kv_shared_layers", 8, "is 8 of 7 layers"},
		{"gemma3n", "intermediate_size", []int{96, 96}, "has 2 entries for 7 layers"},
		{"gemma3n", "activation_sparsity_pattern", []float64{1, 0, 0, 0, 0, 0, 0}, "has 1: numbers from 0 to below 1"},
		{"gemma3n", "activation_sparsity_pattern", []float64{0.5}, "has 1 entries for 7 layers"},
		{"gemma3n", "rope_scaling", map[string]any{"rope_type": "proportional"}, "does not know"},
		{"gemma4-dense", "use_bidirectional_attention", "all", "knows only vision"},
		{"gemma4-dense", "num_global_key_value_heads", 3, "does not divide"},
		{"gemma4-dense", "hidden_size_per_layer_input", 16, ""},
		{"gemma4-dense", "per_layer_config", map[string]any{"3": map[string]any{"head_dim": 48}}, ""},
		{"gemma4-dense", "per_layer_config", map[string]any{"1": map[string]any{"head_dim": 48}}, "as in the other layers of its kind"},
		{"gemma4-dense", "per_layer_config", map[string]any{"1": map[string]any{"window": 48}}, "window"},
		{"gemma4-moe", "use_double_wide_mlp", true, "either of the two"},
		{"gemma4-moe", "top_k_experts", nil, "top_k_experts"},
	} {
		raw, err := os.ReadFile(filepath.Join("..", "forward", "testdata", "transformers", c.model, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		config := map[string]any{}
		if err := json.Unmarshal(raw, &config); err != nil {
			t.Fatal(err)
		}
		config[c.key] = c.value
		if raw, err = json.Marshal(config); err != nil {
			t.Fatal(err)
		}
		_, err = ParseForward(raw)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s with %s = %v: %v, want %q", c.model, c.key, c.value, err, c.says)
		}
	}
}
