package forward_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/quantizer"
)

// TestTransposedGQF runs models with experts stored inputs x outputs from .gqf files: unquantized
// with the logits of the checkpoint, and at 8 bits with nearly its weights.
func TestTransposedGQF(t *testing.T) {
	n := 0
	for _, g := range testmodels.AllGenerated(t) {
		if c, err := arch.ParseForward(g.Config); err != nil || !c.ExpertsTransposed() {
			continue
		}
		n++
		dir := filepath.Join(t.TempDir(), g.Name)
		g.Write(t, dir)
		float, err := forward.OpenCheckpoint(dir, forward.Options{Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { float.Close() })
		tokens := g.Sequences[1].Tokens
		want := allLogits(t, float, tokens)
		skip := quantized(t, dir, quantizer.Recipe{Rules: []quantizer.Rule{{Match: "*", Skip: true}}})
		for _, packed := range []bool{false, true} {
			if got := allLogits(t, openGQF(t, skip, forward.Options{Threads: 2, Packed: packed}), tokens); !slices.Equal(got, want) {
				t.Errorf("%s, packed %t: other logits than the checkpoint's", g.Name, packed)
			}
		}
		eight := quantized(t, dir, quantizer.Recipe{Bits: 8, Group: new(16)})
		for _, a := range []forward.Activations{forward.Int8, forward.Float32} {
			m := openGQF(t, eight, forward.Options{Threads: 2, Activations: a})
			for _, name := range m.Linears() {
				r, f := m.Linear(name).(kernels.RowReader), float.Linear(name).(kernels.RowReader)
				got, want := make([]float32, r.Cols()), make([]float32, r.Cols())
				worst, largest := 0.0, 0.0
				for i := range r.Rows() {
					r.ReadRow(got, i)
					f.ReadRow(want, i)
					for k, v := range want {
						worst, largest = max(worst, math.Abs(float64(got[k]-v))), max(largest, math.Abs(float64(v)))
					}
				}
				if !(worst <= 0.01*largest) {
					t.Errorf("%s, %s: a weight is off by %v of %v", g.Name, name, worst, largest)
				}
			}
		}
	}
	if n == 0 {
		t.Error("no model stores experts so")
	}
}
