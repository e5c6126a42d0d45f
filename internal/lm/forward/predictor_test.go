package forward

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testmodels"
)

// TestPredictors opens a checkpoint with tensors of a layer that predicts further tokens: logits
// are the same, and a layer more than config.json says is refused.
func TestPredictors(t *testing.T) {
	for _, g := range testmodels.AllGenerated(t) {
		if g.Name != "deepseek-v3" {
			continue
		}
		tokens := g.Sequences[0].Tokens
		want := logitsOf(t, openCase(t, generatedCase(t, g).dir, Options{Threads: 1}), tokens, len(tokens))
		own := maps.Clone(g.Tensors)
		g.Tensors["model.layers.3.eh_proj.weight"] = []int64{64, 128}
		sameBits(t, "with a predictor", logitsOf(t, openCase(t, generatedCase(t, g).dir, Options{Threads: 1}), tokens, len(tokens)), want)
		g.Tensors = own
		g.Tensors["model.layers.4.eh_proj.weight"] = []int64{64, 128}
		dir := filepath.Join(t.TempDir(), "two")
		g.Write(t, dir)
		if _, err := OpenCheckpoint(dir, Options{}); err == nil || !strings.Contains(err.Error(), "has no place") {
			t.Errorf("a second predictor: %v", err)
		}
		return
	}
	t.Fatal("no deepseek-v3")
}
