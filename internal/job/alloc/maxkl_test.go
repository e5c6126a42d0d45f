package alloc

import (
	"context"
	"errors"
	"math"
	"testing"
)

func maxKL(t *testing.T, p *Sensitivities) {
	const margin = 1.25 // bound over divergence
	// The bound differs from the predicted divergence by this factor.
	for _, off := range []float64{.3, 1, 1.3, 4} {
		for _, target := range []float64{.5, .05, .01} {
			measured := func(a *Allocation) float64 { return off*(a.PredictedKL-a.ActivationKL) + 1e-3 }
			a, list, err := p.MaxKL(t.Context(), target, func(_ context.Context, a *Allocation) (Measured, error) {
				return Measured{KL: measured(a) / margin, Bound: measured(a), ActivationKL: 1e-3}, nil
			})
			if err != nil {
				var e *TargetError
				if off == 4 && target == .01 && errors.As(err, &e) { // out of reach with 8 bits
					continue
				}
				t.Fatalf("%gx, target %g: %v %+v", off, target, err, list)
			}
			if kl := measured(a); kl > target || len(list) > MostEvaluations || kl < .8*target && a.PayloadBytes > p.fixed+1000 && target < .5 {
				t.Errorf("%gx, target %g: KL %g after %+v", off, target, kl, list)
			}
			// Predictions are of the model as executed.
			sum := a.ActivationKL
			for _, row := range a.Rows {
				sum += row.KL
			}
			if a.ActivationKL != 1e-3 || math.Abs(a.PredictedKL-sum) > 1e-12 {
				t.Errorf("%gx, target %g: predicted KL %g, activations %g, sum %g", off, target, a.PredictedKL, a.ActivationKL, sum)
			}
			for _, e := range list {
				if off == 1 && math.Abs(e.PredictedKL-e.Bound) > 1e-12 || e.KL != e.Bound/margin {
					t.Errorf("target %g: predicted KL %g, measured %g", target, e.PredictedKL, e.Bound)
				}
			}
		}
	}
	_, _, err := p.MaxKL(t.Context(), 1e-9, func(context.Context, *Allocation) (Measured, error) { return Measured{Bound: 1}, nil })
	var e *TargetError
	if !errors.As(err, &e) {
		t.Errorf("an impossible target: %v", err)
	}
}

// maxKLNear searches where the divergence jumps from above the target to below closeEnough of
// it. The search ends near the jump, and does not use up its evaluations.
func maxKLNear(t *testing.T, p *Sensitivities) {
	const target = .05
	edge := int64(0)
	a, list, err := p.MaxKL(t.Context(), target, func(_ context.Context, a *Allocation) (Measured, error) {
		if edge == 0 {
			edge = a.PayloadBytes * 99 / 100
		}
		if a.PayloadBytes >= edge {
			return Measured{Bound: .9 * target}, nil
		}
		return Measured{Bound: 1.1 * target}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) >= MostEvaluations || a.PayloadBytes < edge || a.PayloadBytes > edge+edge/nearEnough+1 {
		t.Errorf("%d bytes for a jump at %d, after %+v", a.PayloadBytes, edge, list)
	}
}
