package forward_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/quantizer"
)

// TestTransposedExperts runs experts that are stored inputs x outputs, with biases: the logits of a
// checkpoint, packed or not, and of a .gqf without quantized experts have the same bits. With 8-bit
// experts, the logits stay near.
func TestTransposedExperts(t *testing.T) {
	all := testmodels.AllGenerated(t)
	g := all[slices.IndexFunc(all, func(g *testmodels.Generated) bool { return g.Name == "gpt-oss" })]
	dir := filepath.Join(t.TempDir(), g.Name)
	g.Write(t, dir)
	tokens := g.Sequences[1].Tokens
	checkpoint := func(o forward.Options) []float32 {
		m, err := forward.OpenCheckpoint(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return allLogits(t, m, tokens)
	}
	want := checkpoint(forward.Options{})
	if got := checkpoint(forward.Options{Packed: true}); !slices.Equal(got, want) {
		t.Error("packed weights give other logits")
	}
	skip := quantizer.Recipe{Rules: []quantizer.Rule{{Match: "*", Skip: true}}}
	for _, packed := range []bool{false, true} {
		if got := allLogits(t, openGQF(t, quantized(t, dir, skip), forward.Options{Packed: packed}), tokens); !slices.Equal(got, want) {
			t.Errorf("a .gqf without quantized tensors gives other logits, packed %v", packed)
		}
	}
	f := quantized(t, dir, quantizer.Recipe{Bits: 8, Group: new(16)})
	if e, ok := f.Lookup("model.layers.0.mlp.experts.gate_up_proj"); !ok || !e.Transposed || e.Experts != 6 {
		t.Fatalf("the experts are not quantized: %+v", e)
	}
	for _, a := range []forward.Activations{forward.Int8, forward.Float32} {
		got := allLogits(t, openGQF(t, f, forward.Options{Activations: a}), tokens)
		off, size := distance(got, want), distance(want, make([]float32, len(want)))
		t.Logf("%v: off by %.4f of %.3f", a, off, size)
		if !(off < 0.1*size) || math.IsNaN(off) {
			t.Errorf("%v activations: off by %v of %v", a, off, size)
		}
	}
}
