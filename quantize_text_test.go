package gq

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/quantizer"
)

// TestCompletedText: best and max read a whole text that has fewer tokens than they calibrate on,
// but for the held-out end, and the model writes the rest.
func TestCompletedText(t *testing.T) {
	t.Parallel()
	model, dir := testmodels.Books(t, 1), t.TempDir()
	const tokens = 2600
	job := func(name string, threads int, r quantizer.Recipe) ([]byte, provenance.Calibration, *QuantizeReport) {
		t.Helper()
		p := &recorder{}
		r.Calibrate, r.CalibrateTokens, r.Refine = story, tokens, new(false)
		path := filepath.Join(dir, name)
		report, err := Quantize(t.Context(), model, path+".gqf", QuantizeOptions{Recipe: r, Threads: threads, Progress: p, CalibrateOut: path + ".ids"})
		if err != nil {
			t.Fatal(err)
		}
		if last := p.stages[len(p.stages)-1]; last.Number != last.Count {
			t.Errorf("%s: the last stage is %+v", name, last)
		}
		f, err := gqf.Open(path+".gqf", gqf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		text, err := f.Asset(gqf.ProvenanceName)
		if err != nil {
			t.Fatal(err)
		}
		of, err := provenance.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path + ".gqf")
		if err != nil {
			t.Fatal(err)
		}
		return data, *of.Calibration, report
	}
	good, c, _ := job("good", 1, quantizer.Recipe{Quality: quantizer.QualityGood})
	file := c.Tokens
	if c.Written != 0 || file >= tokens {
		t.Fatalf("good: %+v", c)
	}
	best, c, report := job("best", 1, quantizer.Recipe{Quality: quantizer.QualityBest})
	own := file * 8 / 9
	if c.Source != "text" || c.Seed == nil || c.Tokens-c.Written != own || c.Tokens < tokens || c.Tokens > tokens+16 {
		t.Errorf("best, with %d tokens of a file with %d: %+v", own, file, c)
	}
	if h := report.HeldOut; h == nil || h.Source != "text" || h.Tokens < (file-own)/2 {
		t.Errorf("best: held out %+v, want the end of the file", h)
	}
	again, _, _ := job("again", 3, quantizer.Recipe{Quality: quantizer.QualityBest})
	other, _, _ := job("other", 1, quantizer.Recipe{Quality: quantizer.QualityBest, Seed: 2})
	if !bytes.Equal(best, again) || bytes.Equal(best, other) || bytes.Equal(best, good) {
		t.Errorf("same bytes with 3 threads: %t; with another seed: %t; as good: %t", bytes.Equal(best, again), bytes.Equal(best, other), bytes.Equal(best, good))
	}
	ids := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name+".ids"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if of := ids("good"); !bytes.HasPrefix(ids("best"), of[:len(of)/2]) {
		t.Error("best does not begin with the file")
	}
	plan, err := Plan(t.Context(), model, filepath.Join(dir, "plan.gqf"), QuantizeOptions{Recipe: quantizer.Recipe{Quality: quantizer.QualityBest, Calibrate: story}})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := Plan(t.Context(), model, filepath.Join(dir, "plan.gqf"), QuantizeOptions{Recipe: quantizer.Recipe{Quality: quantizer.QualityBest, Calibrate: story, CalibrateTokens: file}})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Estimate.Seconds < 2*whole.Estimate.Seconds {
		t.Errorf("estimates: %g s with text of the model, %g s without", plan.Estimate.Seconds, whole.Estimate.Seconds)
	}
}
