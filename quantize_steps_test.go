package gq

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/quantizer"
)

// canceller is a Progress that cancels a job in a stage.
type canceller struct {
	stage  string
	cancel func()
}

func (c canceller) Stage(s Stage) (add func(int64), end func()) {
	return func(int64) {
		if s.Name == c.stage {
			c.cancel()
		}
	}, func() {}
}

func (c canceller) Log(string) {}

// TestStepsKeep interrupts jobs and looks for entries in their working directories: the table of
// steps has the names of all of them, and each step of the jobs keeps what the table says.
func TestStepsKeep(t *testing.T) {
	t.Parallel()
	model := testmodels.Books(t, 1)
	for _, tt := range []struct {
		stage string
		o     QuantizeOptions
		kept  []string // by all steps of the job
	}{
		{stageQuantize, QuantizeOptions{
			Recipe: quantizer.Recipe{Algorithm: gqf.AlgorithmGPTQ, Calibrate: quantizer.Self, CalibrateTokens: 100, Fold: quantizer.Fold{Rotate: true}},
			Budget: &Budget{BitsPerWeight: 5.8, Groups: []int{64}, EmbeddingFixed: true},
		}, []string{"text", "held-out-text", "fold", "bits", "measured", "probes", "layer"}},
		{stageQuantize, QuantizeOptions{
			Recipe: quantizer.Recipe{Bits: 2, Algorithm: gqf.AlgorithmImatrix, Calibrate: quantizer.Self, CalibrateTokens: 64, Tune: quantizer.TuneNorms, TuneTokens: 300},
		}, []string{"text", "held-out-text", "moments", "tune-text", "tuning"}},
		{stageQuantize, QuantizeOptions{Recipe: quantizer.Recipe{Fold: quantizer.Fold{Auto: true}}}, []string{"text", "choice", "fold"}},
		{stageText, QuantizeOptions{Recipe: quantizer.Recipe{Algorithm: gqf.AlgorithmAWQ, Calibrate: quantizer.Self}}, []string{"draft", "held-out-draft"}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		tt.o.Progress = canceller{tt.stage, cancel}
		dir := t.TempDir()
		if _, err := Quantize(ctx, model, filepath.Join(dir, "m.gqf"), tt.o); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		found := map[string]bool{}
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if e.IsDir() || !strings.HasSuffix(path, ".work") {
				return err
			}
			name := strings.TrimSuffix(e.Name(), ".work")
			known := false
			for _, s := range steps() {
				for _, keep := range s.keeps {
					if filepath.Base(filepath.Dir(path)) == "m.gqf"+s.dir && (name == keep || strings.HasPrefix(name, keep+"-")) {
						known, found[keep] = true, true
					}
				}
			}
			if !known {
				t.Errorf("no step keeps %s", path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, keep := range tt.kept {
			if !found[keep] {
				t.Errorf("nothing is kept as %s", keep)
			}
		}
	}
}
