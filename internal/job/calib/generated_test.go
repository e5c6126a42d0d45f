package calib_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/calib"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/quantizer"
)

// generatedTokens are the tokens of calibration of models for which 1,024 tokens are too few: there
// the KL divergence on 512 tokens is 0.80 to 1.06 of the search's.
var generatedTokens = map[string]int{
	"gemma4": calib.DefaultTokens / 2, "gemma4-moe": calib.DefaultTokens, "phimoe": calib.DefaultTokens / 2,
	"qwen3-5-moe": calib.DefaultTokens / 2, "mixtral": 2048, "kimi-linear": 2048, "minimax-m2": 2048, "granitemoehybrid": 2048,
}

// TestGenerated calibrates a random model of each architecture as --quality good does, on an eighth
// of the text that the model writes there: the KL divergence on other text of its own is at least a
// fifth below the search's, at equal bytes.
func TestGenerated(t *testing.T) {
	if testing.Short() {
		t.Skip("takes its time")
	}
	var dirs []string
	for _, g := range testmodels.AllGenerated(t) {
		dirs = append(dirs, filepath.Join(t.TempDir(), g.Name))
		g.Write(t, dirs[len(dirs)-1])
	}
	generated := len(dirs)
	torch, err := filepath.Glob("../../lm/forward/testdata/torch/*/config.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range torch {
		dirs = append(dirs, filepath.Dir(file))
	}
	seen := map[string]bool{}
	for i, dir := range dirs {
		config, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := arch.ParseForward(config)
		if err != nil {
			t.Fatal(err)
		}
		if i >= generated && seen[c.Architecture] {
			continue
		}
		seen[c.Architecture] = true
		tokens, measured := 1024, 512
		if more, ok := generatedTokens[filepath.Base(dir)]; ok {
			tokens, measured = more, 1024
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			float, err := forward.OpenCheckpoint(dir, forward.Options{Threads: 1, Packed: true})
			if err != nil {
				t.Fatal(err)
			}
			defer float.Close()
			own := func(seed uint64, tokens int) *text.Text {
				// No token ends a document: a random model has no ends.
				s, err := text.Write(context.Background(), float, text.WriteOptions{Start: 1, Tokens: tokens, Window: 128, Seed: seed})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			calibration := own(1, tokens)
			var windows []text.Window
			for _, ids := range own(2, measured).Sequences {
				windows = append(windows, text.Window{Tokens: ids, First: 1})
			}
			var models []*forward.Model
			kl, sizes := [2]float64{}, [2]int64{}
			for i, algorithm := range []gqf.Algorithm{gqf.AlgorithmSearch, gqf.AlgorithmGPTQFT} {
				r := quantizer.Recipe{Bits: 4, Group: new(16), EmbeddingBits: 8, Algorithm: algorithm}
				p := testplan.New(t, dir, r)
				var o write.Options
				if algorithm.Calibrated() {
					result, err := calib.Run(context.Background(), p, calibration, calib.Options{Threads: 1})
					if err != nil {
						t.Fatal(err)
					}
					defer result.Close()
					o.Codes = result.Codes()
				}
				path := filepath.Join(t.TempDir(), "model.gqf")
				if _, err := p.WriteWith(context.Background(), path, o); err != nil {
					t.Fatal(err)
				}
				models = append(models, openResult(t, path))
				info, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				// The file of a calibration also says what was calibrated on.
				sizes[i] = info.Size()
			}
			c, err := eval.Compare(context.Background(), float, models, windows, eval.CompareOptions{Sessions: 1, Worst: -1})
			if err != nil {
				t.Fatal(err)
			}
			for i := range c {
				kl[i] = c[i].KL.Mean
			}
			t.Logf("%d tokens: KL %.5f by search, %.5f by gptq-ft, %.3f", tokens, kl[0], kl[1], kl[1]/kl[0])
			if !(kl[1] <= 0.8*kl[0]) || math.IsNaN(kl[0]) || sizes[1]-sizes[0] > 4096 {
				t.Errorf("KL %.5f and %d bytes by search, %.5f and %d by gptq-ft", kl[0], sizes[0], kl[1], sizes[1])
			}
		})
	}
	testmodels.All(t, seen)
}
