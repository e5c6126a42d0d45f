package tune

import (
	"context"
	"errors"
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
	const want = "a825c6daf017f59010b2306e198c08108f026b7547978a4cafb1143ffc0699bd"
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
	if all := Work(p, options, words, 2); len(layers) != 2 || !(r.After < r.Before) || r.Steps != all || r.Step <= all-2 {
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
