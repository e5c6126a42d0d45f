package accuracy

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/eval"
)

// ActivationError divides the divergence of the quantized model, as executed, between its weights
// and its int8 activations.
type ActivationError struct {
	// WeightsKL is the mean KL divergence with float32 activations: the cost of the weights alone.
	WeightsKL       float64     `json:"weights_kl"`
	WeightsKLStdErr eval.StdErr `json:"weights_kl_std_err"`
	// Share is 1 - WeightsKL / mean KL as executed, from 0 to 1. It is 0 if the activations cost
	// nothing or, by chance, make the model better.
	Share float64 `json:"share"`
}

// activationError compares the model as executed with the same weights and float32 activations.
func activationError(executed, weights *eval.Comparison) *ActivationError {
	e := &ActivationError{WeightsKL: weights.KL.Mean, WeightsKLStdErr: weights.KL.StdErr}
	if executed.KL.Mean > 0 {
		e.Share = min(max(1-e.WeightsKL/executed.KL.Mean, 0), 1)
	}
	return e
}

// openWeights opens the file with float32 activations beside s.quantized, for ActivationError.
func (j *Job) openWeights(s *scored, f *gqf.File, o model.Options, r *Report) (err error) {
	if j.Activations != model.Int8 {
		return fmt.Errorf("%s: the share of int8 activations is asked for, but the model runs with %s activations", r.File, j.Activations)
	}
	if !slices.ContainsFunc(s.quantized.Linears(), func(name string) bool {
		_, packed := s.quantized.Linear(name).(*kernels.Linear)
		return packed
	}) {
		return fmt.Errorf("%s: all linear layers run with float32 activations: there is no share of int8 activations", r.File)
	}
	o.Activations = model.Float32
	if s.weights, err = model.OpenGQF(f, o); err != nil {
		return fmt.Errorf("%s: %w", r.File, err)
	}
	return nil
}
