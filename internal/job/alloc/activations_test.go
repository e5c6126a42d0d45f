package alloc

import (
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/togguf"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/quantizer"
)

// TestCoarser compares the stated errors of activations with the errors of int8 codes. The codes of
// small blocks err a little less than stated: the largest value of each block has no error.
func TestCoarser(t *testing.T) {
	const tokens, n, outlier = 200, 2 * coarseBlock, 37
	r := detmath.Source(4)
	x, weights := make([]float32, tokens*n), make([]float64, tokens)
	for i := range x {
		if x[i] = float32(r.Float() + r.Float() + r.Float() - 1.5); i%n == outlier {
			x[i] = 30
		}
	}
	want := make([]float64, n)
	for m := range weights {
		weights[m] = 1 + r.Float()
		for sign, block := range map[float64]int{1: coarseBlock, -1: fineBlock} {
			for at := 0; at < n; at += block {
				own, most := x[m*n+at:][:block], 0.0
				for _, v := range own {
					most = max(most, math.Abs(float64(v)))
				}
				step := most / 127
				for k, v := range own {
					e := float64(v) - step*math.RoundToEven(float64(v)/step)
					want[at+k] += sign * weights[m] * e * e
				}
			}
		}
	}
	g := &gradients{pool: kernels.NewPool(2)}
	defer g.pool.Close()
	sums := make([]float64, n)
	g.coarser(sums, x, weights)
	for at := 0; at < n; at += fineBlock {
		got, should := 0.0, 0.0
		for k := range fineBlock {
			got, should = got+sums[at+k], should+want[at+k]
		}
		if at == outlier/fineBlock*fineBlock { // both have the outlier's scale
			if got != 0 {
				t.Errorf("columns from %d on: %g, want 0", at, got)
			}
		} else if math.Abs(got/should-1) > .2 {
			t.Errorf("columns from %d on: %g, measured %g", at, got, should)
		}
	}
}

// TestCoarseErrors: coarse activations add to the errors of a type with blocks of 256, by the
// squares of its weights.
func TestCoarseErrors(t *testing.T) {
	testshared.SlowEmulated(t, "TestSameChoiceEverywhere has a hash of the choice")
	p, err := openJob(t, bundled, 1).layOut()
	if err != nil {
		t.Fatal(err)
	}
	j := p.job
	const name = "model.layers.0.mlp.gate_proj.weight"
	w, err := j.weights(name)
	if err != nil {
		t.Fatal(err)
	}
	scheme, ok := rounding.BlockScheme(gguf.Q5_1, 0)
	if !ok || w.Cols%32 != 0 {
		t.Fatal(w.Cols, ok)
	}
	im := importance{rows: ones(w.Rows), cols: ones(w.Cols), coarse: make([]float64, w.Cols)}
	for k := range im.coarse {
		im.coarse[k] = float64(k)
	}
	var sums [3]float64
	var list []roundedRows
	for i := range sums {
		q, err := rounding.NewRounder(scheme, w.Cols)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, roundedRows{Rounder: q, sum: &sums[i], coarse: float64(i)})
	}
	if err := (rows{w, 0, []*importance{&im}}).errors(list, ones(w.Rows)); err != nil {
		t.Fatal(err)
	}
	want := 0.0
	x, y := make([]float32, w.Cols), make([]float32, w.Cols)
	for row := range w.Rows {
		if err := w.Read(x, row, 1); err != nil {
			t.Fatal(err)
		}
		if err := list[0].Round(y, x); err != nil {
			t.Fatal(err)
		}
		for k, v := range y {
			want += float64(v) * float64(v) * float64(k)
		}
	}
	for i := 1; i < len(sums); i++ {
		if got := (sums[i] - sums[0]) / float64(i); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("coarse activations that count %d times add %g each, want %g", i, got, want)
		}
	}
}

// TestSolved: calibration of a GGUF file lowers the predictions of linear layers and of a tied
// embedding, not of activations.
func TestSolved(t *testing.T) {
	testshared.SlowEmulated(t, "predictions are the same natively")
	for _, algorithm := range []gqf.Algorithm{gqf.AlgorithmSearch, gqf.AlgorithmImatrix, gqf.AlgorithmGPTQFT} {
		j := openJob(t, bundled, 1)
		j.Options.Recipe = quantizer.Recipe{Targets: []quantizer.Target{quantizer.TargetGGUF}, Algorithm: algorithm}
		j.Options.GGUF = &togguf.Options{}
		p, err := j.layOut()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range p.Decisions {
			d.ProbeKL = 3
			d.predict(&tensorErrors{Options: slices.Repeat([]float64{8}, len(d.Options)), Probe: 4})
			want := 6.0
			if algorithm == gqf.AlgorithmGPTQFT && d.Name != "lm_head.weight" {
				want *= solvedShare
			}
			if got := d.Options[0].KL; got != want {
				t.Errorf("%s, %s: predicted %g, want %g", algorithm, d.Name, got, want)
			}
		}
	}
}
