package forward

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testmodels"
)

// TestUnread opens a checkpoint with tensors that no pass reads, as published: keys and values of
// layers that read another layer's, and a multimodal model with its other parts. Logits are the
// same, and other tensors are refused.
func TestUnread(t *testing.T) {
	var g *testmodels.Generated
	for _, all := range testmodels.AllGenerated(t) {
		if all.Name == "gemma3n" {
			g = all
		}
	}
	tokens := g.Sequences[1].Tokens
	want := logitsOf(t, openCase(t, generatedCase(t, g).dir, Options{Threads: 1}), tokens, len(tokens))
	own := maps.Clone(g.Tensors)
	at := "model.layers.5.self_attn."
	g.Tensors[at+"k_proj.weight"], g.Tensors[at+"v_proj.weight"], g.Tensors[at+"k_norm.weight"] = []int64{32, 64}, []int64{32, 64}, []int64{16}
	sameBits(t, "with keys", logitsOf(t, openCase(t, generatedCase(t, g).dir, Options{Threads: 1}), tokens, len(tokens)), want)
	g.Tensors[at+"v_norm.weight"] = []int64{16}
	dir := filepath.Join(t.TempDir(), "norm")
	g.Write(t, dir)
	if _, err := OpenCheckpoint(dir, Options{}); err == nil || !strings.Contains(err.Error(), "v_norm.weight") || !strings.Contains(err.Error(), "has no place") {
		t.Errorf("a norm of values: %v", err)
	}

	// Weights follow from names: the multimodal model has other weights.
	g.Tensors = map[string][]int64{"model.vision_tower.timm_model.conv_stem.weight": {8, 3, 3, 3}, "model.embed_audio.embedding.weight": {4, 64}}
	for name, shape := range own {
		g.Tensors["model.language_model."+strings.TrimPrefix(name, "model.")] = shape
	}
	config, err := json.Marshal(map[string]any{
		"model_type": "gemma3n", "architectures": []string{"Gemma3nForConditionalGeneration"}, "text_config": json.RawMessage(g.Config),
		"vision_config": map[string]any{}, "audio_config": map[string]any{}, "audio_token_id": 1, "image_token_id": 2, "vision_soft_tokens_per_image": 256,
	})
	if err != nil {
		t.Fatal(err)
	}
	g.Config = config
	m := openCase(t, generatedCase(t, g).dir, Options{Threads: 1})
	logitsOf(t, m, tokens, len(tokens))
	if m.Config().Architecture != "gemma3n_text" || m.LayerOf("model.language_model.layers.3.mlp.up_proj.weight") != 3 {
		t.Errorf("architecture %s", m.Config().Architecture)
	}
}
