package tune

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

// TestBlocks trains two layers of a trained model one after another and holds the file to a
// checksum: the same on every CPU, for any number of threads, and after interruptions in a layer
// and behind the layers.
func TestBlocks(t *testing.T) {
	testshared.SlowEmulated(t, "TestRun has the optimizer, model.TestGradientBits the gradients")
	const want = "891734f5252bbab9534e1a3f8c03acc76886e62e4382fecb343aff2b6342e259"
	p := testplan.New(t, testmodels.Books(t, 2), quantizer.Recipe{Bits: 2, Algorithm: gqf.AlgorithmRTN})
	words := ids(t, 512, 100, 100, 100, 100)
	options := Options{Kind: quantizer.TuneBlocks, Steps: 2, Threads: 1}

	var layers []TrainedLayer
	o := options
	o.Trained = func(l TrainedLayer) { layers = append(layers, l) }
	r, err := Run(context.Background(), p, nil, words, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		if !l.Kept || !(l.After < l.Before) {
			t.Errorf("layer %d of %d: mean squared error %g, then %g", l.Layer, l.Layers, l.Before, l.After)
		}
	}
	all := 2*LayerSteps(words.TrainTokens()) + Steps(p, options, words.TrainTokens())
	if len(layers) != 2 || !(r.After < r.Before) || r.Steps != all || r.Step <= all-2 {
		t.Errorf("%d layers, KL %g, then %g at step %d of %d, want %d", len(layers), r.Before, r.After, r.Step, r.Steps, all)
	}
	if got := file(t, p, r); got != want {
		t.Errorf("the file has the checksum %s", got)
	}

	work, err := workdir.Open(filepath.Join(t.TempDir(), "work"))
	if err != nil {
		t.Fatal(err)
	}
	var resumed []int
	for _, end := range []string{"layer 1", "step 1", ""} {
		ctx, cancel := context.WithCancel(context.Background())
		o := options
		o.Threads, o.Work = 3, work
		o.Resumed = func(steps, of int) { resumed = append(resumed, steps) }
		o.Trained = func(l TrainedLayer) {
			if end == "layer 1" && l.Layer == 1 { // which is stored nevertheless
				cancel()
			}
		}
		o.Evaluated = func(e Evaluation) {
			if end == "step 1" && e.Step == 1 {
				cancel()
			}
		}
		r, err = Run(ctx, p, nil, words, o)
		cancel()
		if end != "" && !errors.Is(err, context.Canceled) || end == "" && err != nil {
			t.Fatalf("%s: %v", end, err)
		}
	}
	if got := file(t, p, r); got != want {
		t.Errorf("resumed: the file has the checksum %s", got)
	}
	if n := LayerSteps(words.TrainTokens()); !slices.Equal(resumed, []int{2 * n, 2*n + 1}) {
		t.Errorf("resumed at steps %v", resumed)
	}
	if _, err := work.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLayerLoss compares the gradient of a layer's loss with its slope. Outputs of another size
// have the same loss.
func TestLayerLoss(t *testing.T) {
	want := []float32{1, -2, 3, 4e3, 5e3, -6e3, 0, 0, 0}
	out := []float32{1.5, -2, 2.5, 4.25e3, 5e3, -5e3, 1, 2, 3}
	b := &blocks{float: &states{width: 3}, want: want, before: .25}
	mean := func(out []float32) float64 { return b.loss(out) / float64(len(out)) }
	gradient := slices.Clone(out)
	if err := b.gradient(gradient); err != nil {
		t.Fatal(err)
	}
	for i, g := range gradient {
		step := float32(math.Abs(float64(want[i]))/64 + 1e-3)
		up, down := slices.Clone(out), slices.Clone(out)
		up[i] += step
		down[i] -= step
		slope := (mean(up) - mean(down)) / float64(up[i]-down[i]) / b.before
		if math.Abs(slope-float64(g)) > 1e-5*(math.Abs(slope)+1e-2) {
			t.Errorf("value %d: gradient %g, slope %g", i, g, slope)
		}
	}
	if gradient[6] != 0 {
		t.Error("a token without an output has a gradient")
	}
	before := b.loss(out)
	for i := range 3 {
		want[i], out[i] = 1024*want[i], 1024*out[i]
	}
	if after := b.loss(out); after != before || !(before > 0) {
		t.Errorf("the loss is %g, and %g after the token's values grew", before, after)
	}
}

// TestBlocksWorse: numbers that training makes no better stay as they were.
func TestBlocksWorse(t *testing.T) {
	testshared.SlowEmulated(t, "TestRun has the optimizer, model.TestGradientBits the gradients")
	p := testplan.New(t, testmodels.Books(t, 2), quantizer.Recipe{Bits: 4})
	var kept []bool
	// With this rate codes jump.
	o := Options{Kind: quantizer.TuneBlocks, Steps: 1, softRate: 30, Trained: func(l TrainedLayer) { kept = append(kept, l.Kept) }}
	r, err := Run(context.Background(), p, nil, ids(t, 512, 100, 100, 100), o)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(kept, []bool{false, false}) || r.After > r.Before {
		t.Errorf("layers kept: %v; KL %g, then %g", kept, r.Before, r.After)
	}
}
