package alloc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// Best chooses an allocation twice, from all options and without the options that change the
// mapping to fractional zero points, and returns the allocation with the smaller measured
// divergence. choose is a method of Sensitivities with its target. measure quantizes the model with
// an allocation and measures the result. If the two allocations are equal, measure is not called;
// otherwise the allocation from all options is measured last.
//
// Predictions are for rounded codes. Calibration gains more with some schemes than with others, so
// the allocation with the smaller prediction may be worse.
func (p *Sensitivities) Best(ctx context.Context, choose func(*Sensitivities) (*Allocation, error),
	measure func(context.Context, *Allocation) (Measured, error)) (*Allocation, []Evaluation, error) {
	all, err := choose(p)
	if err != nil {
		return nil, nil, err
	}
	plain := p.withoutFractions()
	if plain == nil {
		return all, nil, nil
	}
	other, err := choose(plain)
	if _, short := errors.AsType[*TargetError](err); short {
		return all, nil, nil
	}
	if err != nil || slices.Equal(all.Rows, other.Rows) {
		return all, nil, err
	}
	var list []Evaluation
	for _, a := range []*Allocation{other, all} {
		m, err := measure(ctx, a)
		if err != nil {
			return nil, list, err
		}
		a.measured(m)
		list = append(list, Evaluation{BitsPerWeight: a.BitsPerWeight, PredictedKL: a.PredictedKL, KL: m.KL})
	}
	if cmp.Less(list[0].KL, list[1].KL) {
		return other, list, nil
	}
	return all, list, nil
}

func (a *Allocation) measured(m Measured) {
	a.ActivationKL = m.ActivationKL
	a.PredictedKL += a.ActivationKL
}

// withoutFractions returns p without the options that change the mapping to fractional zero points,
// or nil if all or none do.
func (p *Sensitivities) withoutFractions() *Sensitivities {
	q := *p
	q.Decisions = nil
	dropped := false
	for _, d := range p.Decisions {
		c := *d
		c.Options = slices.DeleteFunc(slices.Clone(d.Options), func(o Option) bool {
			return o.Type == 0 && o.Mapping == gqf.MappingAsymmetric
		})
		if len(c.Options) == 0 {
			return nil
		}
		dropped = dropped || len(c.Options) < len(d.Options)
		c.hull = lowerHull(c.Options)
		q.Decisions = append(q.Decisions, &c)
	}
	if !dropped {
		return nil
	}
	return &q
}

func (j *Job) weights(name string) (*safetensors.Weights, error) {
	t, ok := j.Checkpoint.Lookup(name)
	if !ok || len(t.Shape) < 2 {
		return nil, fmt.Errorf("tensor %q is not a matrix of the checkpoint", name)
	}
	return j.Checkpoint.Weights(t, safetensors.WeightsOptions{Block: j.facts.WeightBlockSize, Transposed: arch.Classify(j.facts, name, t.Shape).Transposed})
}

func round(ctx context.Context, w *safetensors.Weights, s rounding.Scheme, threads int) (*rounding.Codes, error) {
	rows := w.Slices * w.Rows
	codes := rounding.NewCodes(s.Shape(rows, w.Cols))
	err := cpu.Parallel(ctx, threads, rows, func() func(row int) error {
		c, err := rounding.NewRounder(s, w.Cols)
		if err == nil {
			c.Recover(w.Tensor.Precision())
		}
		x := make([]float32, w.Cols)
		return func(row int) error {
			if err == nil {
				err = w.Read(x, row, 1)
			}
			if err != nil {
				return err
			}
			if err = c.Quantize(codes.Row(row), x); err != nil {
				err = fmt.Errorf("tensor %q, row %d: %w", w.Tensor.Name, row, err)
			}
			return err
		}
	})
	return codes, err
}

type roundedEmbedding struct{ *rounding.Codes }

func (t roundedEmbedding) Lookup(dst []float32, row int) error {
	t.DequantizeRow(dst, row)
	return nil
}
