package gq

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/quantizer"
)

// recorder is a Progress.
type recorder struct{ stages []Stage }

func (r *recorder) Stage(s Stage) (func(int64), func()) {
	r.stages = append(r.stages, s)
	return func(int64) {}, func() {}
}

func (r *recorder) Log(string) {}

func TestHeldOut(t *testing.T) {
	t.Parallel()
	model := testmodels.Books(t, 2)
	for _, test := range []struct {
		name, calibrate, source string
		tokens                  int
	}{
		{"the rest of the file", story, "text", 200},
		{"a file that calibration reads to its end", story, "self", 8192},
		{"text of the model", quantizer.Self, "self", 64},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &recorder{}
			r, err := Quantize(t.Context(), model, filepath.Join(t.TempDir(), "m.gqf"), QuantizeOptions{
				Recipe:   quantizer.Recipe{Bits: 3, Algorithm: gqf.AlgorithmGPTQ, Calibrate: test.calibrate, CalibrateTokens: test.tokens},
				Rules:    []quantizer.Rule{rule(t, "re:.*layers.1.*=4,64,search")},
				Progress: p,
			})
			if err != nil {
				t.Fatal(err)
			}
			h := r.HeldOut
			if h == nil || h.Source != test.source || h.KL <= 0 || h.KL > 1 || h.Tokens < heldOutLeast/2 {
				t.Errorf("held out: %+v, want text of %s", h, test.source)
			}
			if r.Seconds <= r.WriteSeconds {
				t.Errorf("%g s in all, %g s to write the file", r.Seconds, r.WriteSeconds)
			}
			// The announced stages are the stages that come.
			if last := p.stages[len(p.stages)-1]; last.Name != stageHeldOut || last.Number != last.Count {
				t.Errorf("the last stage is %+v", last)
			}
		})
	}
	r, err := Quantize(t.Context(), model, filepath.Join(t.TempDir(), "m.gqf"), QuantizeOptions{})
	if err != nil || r.HeldOut != nil || r.MeanSQNR == 0 {
		t.Errorf("without calibration: %+v, %v", r, err)
	}
}

// cancels cancels a job when a stage begins.
type cancels struct {
	recorder
	stage  string
	cancel context.CancelFunc
}

func (c *cancels) Stage(s Stage) (add func(n int64), end func()) {
	if s.Name == c.stage {
		c.cancel()
	}
	return c.recorder.Stage(s)
}

// TestHeldOutCancelled: a job that is cancelled while it measures fails. It does not only warn.
func TestHeldOutCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, err := Quantize(ctx, testmodels.Books(t, 2), filepath.Join(t.TempDir(), "m.gqf"), QuantizeOptions{
		Recipe:   quantizer.Recipe{Algorithm: gqf.AlgorithmGPTQ, Calibrate: story, CalibrateTokens: 200},
		Progress: &cancels{stage: stageHeldOut, cancel: cancel},
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestNotRunnable(t *testing.T) {
	for _, test := range []struct{ remove, config, want string }{
		{want: ""},
		{remove: "config.json", want: "has no config.json"},
		{remove: "tokenizer.json", want: "m has no tokenizer (tokenizer.json)"},
		{config: `{"model_type": "resnet"}`, want: "resnet"},
	} {
		dir := filepath.Join(t.TempDir(), "m")
		if err := os.CopyFS(dir, os.DirFS(books)); err != nil {
			t.Fatal(err)
		}
		if test.remove != "" {
			if err := os.Remove(filepath.Join(dir, test.remove)); err != nil {
				t.Fatal(err)
			}
		}
		if test.config != "" {
			if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(test.config), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Quantize(t.Context(), dir, filepath.Join(dir, "m.gqf"), QuantizeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.NotRunnable; (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%+v: %q", test, got)
		}
	}
}

// TestNotRunnableImport: the reason names the source, not the temporary checkpoint that was made of
// it.
func TestNotRunnableImport(t *testing.T) {
	dir := t.TempDir()
	model, quantized := filepath.Join(dir, "m"), filepath.Join(dir, "gptq")
	if err := os.CopyFS(model, os.DirFS(books)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(model, "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := Quantize(t.Context(), model, quantized, QuantizeOptions{Recipe: quantizer.Recipe{Targets: targets(t, "gptq")}}); err != nil {
		t.Fatal(err)
	}
	r, err := Quantize(t.Context(), quantized, filepath.Join(dir, "m.gqf"), QuantizeOptions{Requantize: true})
	if err != nil {
		t.Fatal(err)
	}
	if want := quantized + " has no tokenizer (tokenizer.json)"; r.NotRunnable != want {
		t.Errorf("%q, expected %q", r.NotRunnable, want)
	}
}

func TestInfeasible(t *testing.T) {
	t.Parallel()
	for _, b := range []Budget{{FileBytes: 10_000}, {BitsPerWeight: 1.1}} {
		p := &recorder{}
		_, err := Quantize(t.Context(), books, filepath.Join(t.TempDir(), "m.gqf"), QuantizeOptions{
			Recipe: quantizer.Recipe{Quality: quantizer.QualityGood, Fold: quantizer.Fold{Rotate: true}}, Budget: &b, Progress: p,
		})
		if err == nil || !strings.Contains(err.Error(), "the smallest has") && !strings.Contains(err.Error(), "the least that") {
			t.Errorf("%+v: %v", b, err)
		}
		if len(p.stages) > 0 {
			t.Errorf("%+v: work was done: %v", b, p.stages)
		}
	}
}

// remover is a Progress that removes a file when a stage begins.
type remover struct {
	recorder
	stage, path string
	err         error
}

func (r *remover) Stage(s Stage) (func(int64), func()) {
	if s.Name == r.stage {
		r.err = os.Remove(r.path)
	}
	return r.recorder.Stage(s)
}

// TestAssetsOnce removes a file beside the checkpoint after the job's first plan: the output, whose
// plan is made later, has it all the same.
func TestAssetsOnce(t *testing.T) {
	dir := t.TempDir()
	model, path := filepath.Join(dir, "m"), filepath.Join(dir, "m.gqf")
	if err := os.CopyFS(model, os.DirFS(testmodels.Books(t, 1))); err != nil {
		t.Fatal(err)
	}
	p := &remover{stage: stageProbe, path: filepath.Join(model, "LICENSE"), err: os.ErrInvalid}
	if err := os.WriteFile(p.path, []byte("license"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := Quantize(t.Context(), model, path, QuantizeOptions{
		Recipe: quantizer.Recipe{Calibrate: shortStory(t, dir)}, Budget: &Budget{BitsPerWeight: 5}, Progress: p,
	})
	if err != nil || p.err != nil {
		t.Fatal(err, p.err)
	}
	f, err := gqf.Open(path, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !f.HasAsset("LICENSE") {
		t.Error("the file beside the checkpoint was read again")
	}
}
