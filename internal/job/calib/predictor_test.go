package calib_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/calib"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

// TestPredictor calibrates a checkpoint with a layer that predicts further tokens. No pass runs the
// layer, so that its matrices get their codes from the search.
func TestPredictor(t *testing.T) {
	testshared.SlowEmulated(t, "warnings are the same natively")
	for _, g := range testmodels.AllGenerated(t) {
		if g.Name != "deepseek-v3" {
			continue
		}
		g.Tensors["model.layers.3.eh_proj.weight"] = []int64{64, 128}
		g.Tensors["model.layers.3.self_attn.q_b_proj.weight"] = []int64{96, 20}
		dir := filepath.Join(t.TempDir(), g.Name)
		g.Write(t, dir)
		r := quantizer.Recipe{Bits: 4, Group: new(16), EmbeddingBits: 8, Algorithm: gqf.AlgorithmGPTQFT}
		_, warnings := file(t, testplan.New(t, dir, r), testplan.Text(128, 60, 61), calib.Options{})
		if len(warnings) != 1 || !strings.Contains(warnings[0], "model.layers.3.eh_proj.weight") {
			t.Errorf("warnings %q", warnings)
		}
		return
	}
	t.Fatal("no deepseek-v3")
}
