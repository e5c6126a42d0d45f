package measure

import (
	"fmt"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
)

func activationError(executed, weights *eval.Comparison) *accuracy.ActivationError {
	e := &accuracy.ActivationError{WeightsKL: weights.KL.Mean, WeightsKLStdErr: weights.KL.StdErr}
	if executed.KL.Mean > 0 {
		e.Share = min(max(1-e.WeightsKL/executed.KL.Mean, 0), 1)
	}
	return e
}

// openWeights opens the file again, with float32 activations, for ActivationError.
func (j *Job) openWeights(s *scored, f *gqf.File, o forward.Options, r *accuracy.Report) (err error) {
	if j.Activations != forward.Int8 {
		return fmt.Errorf("%s: the share of int8 activations is asked for, but the model runs with %s activations", r.File, j.Activations)
	}
	if ran, _ := s.quantized.Executed(); ran != forward.Int8 {
		return fmt.Errorf("%s: all linear layers run with float32 activations: there is no share of int8 activations", r.File)
	}
	o.Activations = forward.Float32
	if s.weights, err = forward.OpenGQF(f, o); err != nil {
		return fmt.Errorf("%s: %w", r.File, err)
	}
	return nil
}

// executed sets which activations each matrix multiplies.
func (s *scored) executed(r *accuracy.Report) {
	_, r.Executed = s.quantized.Executed()
	for i := range r.Tensors {
		t := &r.Tensors[i]
		for _, name := range append([]string{t.Name}, t.SharedWith...) {
			if name = label(name, t.Slice, t.Slices); s.quantized.Linear(name) != nil && t.Variant == 0 {
				t.Activations = s.quantized.Executes(name).String()
			}
		}
	}
}
