package gq

import (
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/quantizer"
)

// TestTuningGuard gives the guard numbers that are worse than the untuned ones, and equal ones: it
// keeps neither.
func TestTuningGuard(t *testing.T) {
	o := QuantizeOptions{Recipe: quantizer.Recipe{Bits: 2, Tune: quantizer.TuneNorms, TuneTokens: 300}}
	out := filepath.Join(t.TempDir(), "model.gqf")
	_, err := inJob(t.Context(), testmodels.Books(t, 1), out, task{o: o}, func(run *run, j *job) (*TuningReport, error) {
		words, err := run.tuneText(j, j.tuning)
		if err != nil {
			return nil, err
		}
		if words.Seed == nil || *words.Seed == j.seed() {
			t.Error("the text is the calibration's")
		}
		for name, vectors := range map[string]map[string][]byte{
			"equal": nil,
			"worse": {"model.norm.weight": make([]byte, 2*128)},
		} {
			untuned := &plan.Codes{}
			tuned := &plan.Codes{Tuned: &plan.Tuned{Vectors: vectors}}
			r := &TuningReport{WeightsBefore: 1, WeightsAfter: .5}
			kept, err := run.better(j, j.source.plan, untuned, tuned, words, r)
			if err != nil {
				return nil, err
			}
			if kept || r.Before == nil || !(*r.After >= *r.Before) || (name == "worse") != (*r.After > *r.Before) {
				t.Errorf("%s: kept %v, %+v", name, kept, r)
			}
		}
		// A file that cannot be written is no file that cannot be executed.
		j.to.Path = filepath.Join(out, "none", "model.gqf")
		c := &plan.Codes{}
		if kept, err := run.better(j, j.source.plan, c, c, words, &TuningReport{WeightsBefore: 1, WeightsAfter: .5}); err == nil {
			t.Errorf("no directory: kept %v", kept)
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTuningGuardOfCodes: no kernel reads layout codes, so weights alone decide.
func TestTuningGuardOfCodes(t *testing.T) {
	layouts, err := quantizer.ParseLayouts("codes")
	if err != nil {
		t.Fatal(err)
	}
	o := QuantizeOptions{Recipe: quantizer.Recipe{Layouts: layouts, Tune: quantizer.TuneNorms, TuneTokens: 300}}
	_, err = inJob(t.Context(), testmodels.Books(t, 1), t.TempDir()+"/m.gqf", task{o: o}, func(run *run, j *job) (any, error) {
		words, err := run.tuneText(j, j.tuning)
		if err != nil {
			return nil, err
		}
		for after, want := range map[float64]bool{.5: true, 1: false, 2: false} {
			c := &plan.Codes{}
			kept, err := run.better(j, j.source.plan, c, c, words, &TuningReport{WeightsBefore: 1, WeightsAfter: after})
			if err != nil || kept != want {
				t.Errorf("1 -> %v: kept %v, %v", after, kept, err)
			}
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
