package accuracy

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFittedTensors holds calibrated and tuned tensors to gates. Their weights have large errors:
// outputs and predictions judge them.
func TestFittedTensors(t *testing.T) {
	const all = "{version: 1, tensors: [{%s: {min: 15}}]}"
	calibrated := func(s *TensorStats) { s.Algorithm, s.SQNR = "gptq-ft", -5 }
	tuned := func(s *TensorStats) { s.Tuned, s.SQNR = true, -5 }
	text := func(s *TensorStats) {
		if s.Output != nil {
			s.Output.Source = "calibration"
		}
	}
	noModel := func(r *Report) { r.Text, r.Model = nil, nil }
	for _, tt := range []struct {
		name, gate string // "" is the default gate
		only       string // the role of the tensors that change
		change     []func(s *TensorStats)
		report     func(r *Report)
		left       int // of all conditions
		failures   []string
	}{
		{"default, calibrated", "", "projection", []func(*TensorStats){calibrated, text}, nil, 4, nil},
		{"default, tuned embedding", "", "embedding", []func(*TensorStats){tuned}, nil, 1, []string{
			"model.layers.0.self_attn.q_proj.weight: sqnr_db 12 dB is 0.76 below the limit 12.76"}},
		{"default, outputs worse than zeros", "", "projection", []func(*TensorStats){calibrated, text, func(s *TensorStats) {
			if s.Name == "lm_head.weight" {
				s.Output.WeightSQNR = -1
			}
		}}, nil, 4, []string{"lm_head.weight: weight_sqnr_db -1 dB is 1 below the limit 0"}},
		{"default, nothing else measured", "", "projection", []func(*TensorStats){calibrated}, noModel, 4, []string{
			"sqnr_db: is no measure of 1 calibrated or tuned tensors: limit outputs and predictions, on a text",
			"sqnr_db: is no measure of 2 calibrated or tuned tensors: limit outputs and predictions, on a text"}},
		{"sqnr_db", fmt.Sprintf(all, "sqnr_db"), "projection", []func(*TensorStats){calibrated}, nil, 4, nil},
		{"outputs are for all", fmt.Sprintf(all, "output_sqnr_db"), "projection", []func(*TensorStats){calibrated}, nil, 0, nil},
		{"a pattern of calibrated tensors", "{version: 1, tensors: [{match: '*.mlp.*', cosine: {min: 1}}]}", "projection", []func(*TensorStats){calibrated}, nil, 2, []string{
			"cosine: is no measure of 2 calibrated or tuned tensors: limit outputs and predictions, on a text"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := gateReport()
			for i := range r.Tensors {
				for _, change := range tt.change {
					if r.Tensors[i].Role == tt.only {
						change(&r.Tensors[i])
					}
				}
			}
			if tt.report != nil {
				tt.report(r)
			}
			g := DefaultGate(r)
			if tt.gate != "" {
				var err error
				if g, err = ParseGate("g.yaml", []byte(tt.gate)); err != nil {
					t.Fatal(err)
				}
			}
			res, err := g.Check(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			var failures []string
			left := 0
			for _, f := range res.Failures {
				failures = append(failures, f.String())
			}
			for i := range res.Conditions {
				c := &res.Conditions[i]
				if left += len(c.LeftOut); (len(c.LeftOut) > 0) != (c.Note != "") {
					t.Errorf("%s leaves out %v and says %q", c, c.LeftOut, c.Note)
				}
			}
			if d := cmp.Diff(tt.failures, failures); d != "" || left != tt.left {
				t.Errorf("%d left out, want %d; %s", left, tt.left, d)
			}
		})
	}
}
