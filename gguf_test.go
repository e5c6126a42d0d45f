package gq

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/testmodels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/quantizer"
)

// TestImportedLogits writes every architecture as an unquantized .gguf file: the model that is read
// back gives the logits of the checkpoint.
func TestImportedLogits(t *testing.T) {
	ctx := context.Background()
	for _, v := range testmodels.ForLlamaCpp(t) {
		t.Run(v.Name, func(t *testing.T) {
			dir := t.TempDir()
			v.Write(t, dir)
			out := filepath.Join(dir, "model.gguf")
			_, err := Quantize(ctx, dir, out, QuantizeOptions{
				Rules: []quantizer.Rule{{Match: "*", Skip: true}}, Pre: v.Tokenizer.Pre(),
			})
			if err != nil {
				t.Fatal(err)
			}
			want := logitsOf(t, func() (*model.Model, error) { return model.OpenCheckpoint(dir, model.Options{Threads: 1}) })
			err = withGQF(ctx, out, 1, stages{}, func(file string, f *accuracy.Imported) error {
				if f == nil || filepath.Dir(file) != dir {
					t.Errorf("%s: not a temporary file beside %s", file, out)
				}
				g, err := gqf.Open(file, gqf.Options{})
				if err != nil {
					return err
				}
				defer g.Close()
				got := logitsOf(t, func() (*model.Model, error) { return model.OpenGQF(g, model.Options{Threads: 1}) })
				largest, difference := 0.0, 0.0
				for i := range want {
					largest = max(largest, math.Abs(float64(want[i])))
					difference = max(difference, math.Abs(float64(got[i]-want[i])))
				}
				if !(difference <= 1e-5*largest) {
					t.Errorf("logits differ by %v of %v", difference, largest)
				}
				t.Logf("logits differ by %.2g of %.2g", difference, largest)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if strings.Contains(e.Name(), ".gqf") {
					t.Errorf("%s is left", e.Name())
				}
			}
		})
	}
}

// logits are the logits of a model after a few tokens, fewer than any sliding window has.
func logitsOf(t *testing.T, open func() (*model.Model, error)) []float32 {
	t.Helper()
	m, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tokens := []int32{1, 5, 9, 40, 7, 3}
	out := make([]float32, len(tokens)*m.VocabSize())
	if err := m.NewSession(len(tokens)).Forward(tokens, out, true); err != nil {
		t.Fatal(err)
	}
	return out
}

// A killed job of a temporary leaves a temporary that the next job for the same target removes.
func TestTemporaryPathOfTemporary(t *testing.T) {
	dir := t.TempDir()
	f, err := atomicfile.Create(filepath.Join(dir, "model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abort()
	for _, path := range []string{f.Temp(), filepath.Join(dir, "model.gguf")} {
		if got, want := temporaryPath(path, 1), filepath.Join(dir, "model.gguf.gqf"); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
