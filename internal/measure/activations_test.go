package measure

import (
	"context"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

func TestActivationErrorOf(t *testing.T) {
	for _, c := range []struct{ executed, weights, share float64 }{
		{0.5, 0.125, 0.75}, {0.5, 0, 1}, {0.5, 0.5, 0}, {0.5, 0.75, 0}, {0, 0, 0}, {0, 0.1, 0}, {0.5, -1e-18, 1},
	} {
		of := func(kl float64) *eval.Comparison { return &eval.Comparison{KL: eval.Distribution{Mean: kl}} }
		if got := activationError(of(c.executed), of(c.weights)); got.Share != c.share || got.WeightsKL != c.weights {
			t.Errorf("KL %g as executed, %g of the weights: %+v, want a share of %g", c.executed, c.weights, got, c.share)
		}
	}
}

// TestActivationShare holds the figure to a job with float32 activations, and checks that no other
// figure changes, with a baseline and on a second text.
func TestActivationShare(t *testing.T) {
	testshared.SlowEmulated(t, "CI compares the reports of gq accuracy on arm64 with those on amd64")
	file, baseline := bundledFile(t, quantizer.Recipe{Bits: 8}), bundledFile(t, quantizer.Recipe{Bits: 3})
	run := func(share bool, a forward.Activations) *accuracy.Report {
		cut := text.Options{MaxTokens: 300, Window: 64}
		j := &Job{
			Source: bundled, Settings: accuracy.Settings{ActivationShare: share, Activations: a, NoOutputs: true}, File: file, Name: "model.gqf", Baseline: baseline, BaselineName: "other.gqf",
			Texts: []*TextSource{{Name: "a", Data: prose(t), Options: cut}, {Name: "b", Data: prose(t)[1000:], Options: cut}},
		}
		r, err := j.Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	got, executed, weights := run(true, forward.Int8), run(false, forward.Int8), run(false, forward.Float32)
	for i, r := range got.Scored() {
		kl, alone := executed.Scored()[i].Model.KL.Mean, weights.Scored()[i].Model.KL
		switch e := r.ActivationError; {
		case e == nil:
			t.Fatalf("text %d: no share", i)
		case e.WeightsKL != alone.Mean || e.WeightsKLStdErr != alone.StdErr:
			t.Errorf("text %d: %+v, with float32 activations %g ± %g", i, e, alone.Mean, alone.StdErr)
		case math.Abs(e.Share-(kl-alone.Mean)/kl) > 1e-12 || e.Share < 0.5:
			t.Errorf("text %d: a share of %g, KL %g as executed and %g of the weights", i, e.Share, kl, alone.Mean)
		}
		if executed.Scored()[i].ActivationError != nil {
			t.Errorf("text %d: a share that nobody asked for", i)
		}
		r.ActivationError = nil
	}
	if !reflect.DeepEqual(got.Scored(), executed.Scored()) {
		t.Error("the share changes other figures")
	}
}

// TestActivationShareRefused has models without a share: it is an error, never a warning.
func TestActivationShareRefused(t *testing.T) {
	file := bundledFile(t, quantizer.Recipe{Bits: 8})
	codes := bundledFile(t, quantizer.Recipe{Layouts: []quantizer.LayoutRequest{{Family: quantizer.FamilyCodes}}})
	for _, c := range []struct {
		job  Job
		want string
	}{
		{Job{Settings: accuracy.Settings{Activations: forward.Float32}, Source: bundled, File: file}, "the model runs with float32 activations"},
		{Job{Source: bundled, File: codes}, "the share of int8 activations cannot be measured: "},
		{Job{Source: filepath.Join(bundled, "model.safetensors"), File: file}, "the share of int8 activations cannot be measured: "},
	} {
		c.job.ActivationShare, c.job.NoOutputs = true, true
		c.job.Texts = []*TextSource{{Name: "text", Data: prose(t), Options: text.Options{MaxTokens: 10}}}
		if _, err := c.job.Run(context.Background()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}
