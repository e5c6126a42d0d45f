package gq

import (
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/internal/testmodels"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// TestTuningGuard gives the guard numbers that are worse than the untuned ones, and equal ones: it
// keeps neither.
func TestTuningGuard(t *testing.T) {
	o := QuantizeOptions{Recipe: quantizer.Recipe{Bits: 2, Tune: quantizer.TuneNorms, TuneTokens: 300}}
	out := filepath.Join(t.TempDir(), "model.gqf")
	_, err := inJob(t.Context(), testmodels.Books(t, 1), out, o, false, func(j *quantizeJob) (*TuningReport, error) {
		words, err := j.tuning.text()
		if err != nil {
			return nil, err
		}
		for name, vectors := range map[string]map[string][]byte{
			"equal": nil,
			"worse": {"model.norm.weight": make([]byte, 2*128)},
		} {
			untuned := &conversion.CalibratedCodes{}
			tuned := &conversion.CalibratedCodes{Tuned: &conversion.Tuned{Vectors: vectors}}
			r := &TuningReport{WeightsBefore: 1, WeightsAfter: .5}
			kept, err := j.tuning.better(untuned, tuned, words, r)
			if err != nil {
				return nil, err
			}
			if kept || r.Before == nil || !(*r.After >= *r.Before) || (name == "worse") != (*r.After > *r.Before) {
				t.Errorf("%s: kept %v, %+v", name, kept, r)
			}
		}
		// A file that cannot be written is no file that cannot be executed.
		j.dst = filepath.Join(out, "none", "model.gqf")
		c := &conversion.CalibratedCodes{}
		if kept, err := j.tuning.better(c, c, words, &TuningReport{WeightsBefore: 1, WeightsAfter: .5}); err == nil {
			t.Errorf("no directory: kept %v", kept)
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
