package alloc

import (
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

// Best chooses an allocation, and a second with the same fractional zero points for all linear
// layers, and measures both. The second is better only if it is clearly better: mixed bits were
// better on all models so far, and a short text often says otherwise. choose is a method of
// Sensitivities with its target. measure quantizes the model with an allocation and measures the
// result. clearly reports whether a diverges clearly less than b. measure is not called if the
// second allocation does not exist; otherwise the first allocation is measured last.
//
// Predictions are for rows that are rounded one by one. Calibration gains more with some schemes
// than with others, so the allocation with the smaller prediction may be worse.
func (p *Sensitivities) Best(ctx context.Context, choose func(*Sensitivities) (*Allocation, error),
	measure func(context.Context, *Allocation) (Measured, error), clearly func(a, b Measured) bool) (*Allocation, []Evaluation, error) {
	mixed, err := choose(p)
	if err != nil {
		return nil, nil, err
	}
	uniform, err := p.uniform(choose)
	if uniform == nil || err != nil || slices.Equal(mixed.Rows, uniform.Rows) {
		return mixed, nil, err
	}
	var list []Evaluation
	var both [2]Measured
	for i, a := range []*Allocation{uniform, mixed} {
		if both[i], err = measure(ctx, a); err != nil {
			return nil, list, err
		}
		a.measured(both[i])
		list = append(list, Evaluation{BitsPerWeight: a.BitsPerWeight, PredictedKL: a.PredictedKL, KL: both[i].KL})
	}
	if clearly(both[0], both[1]) {
		return uniform, list, nil
	}
	return mixed, list, nil
}

func (a *Allocation) measured(m Measured) {
	a.ActivationKL = m.ActivationKL
	a.PredictedKL += a.ActivationKL
}

// uniformGroup is the group of uniform bits: with fractional zero points it has the bytes of groups
// of 32 without zero points.
const uniformGroup = 48

// uniform chooses the allocation with the least predicted divergence of those with equal bits,
// uniformGroup and fractional zero points in all linear layers with such an option. nil: there is
// none that meets the target.
func (p *Sensitivities) uniform(choose func(*Sensitivities) (*Allocation, error)) (best *Allocation, err error) {
	for bits := p.job.MinBits; bits <= p.job.MaxBits; bits++ {
		q := *p
		q.Decisions = nil
		found := false
		for _, d := range p.Decisions {
			i := slices.IndexFunc(d.Options, func(o Option) bool {
				return o.Type == 0 && o.Mapping == gqf.MappingAsymmetric && o.Bits == bits && o.Group == uniformGroup
			})
			if i >= 0 && !d.Embedding {
				c := *d
				c.Options, c.hull = d.Options[i:i+1], []int{0}
				d, found = &c, true
			}
			q.Decisions = append(q.Decisions, d)
		}
		if !found {
			continue
		}
		a, err := choose(&q)
		if _, short := errors.AsType[*TargetError](err); short {
			continue
		}
		if err != nil {
			return nil, err
		}
		if best == nil || a.PredictedKL < best.PredictedKL {
			best = a
		}
	}
	return best, nil
}

func (j *Job) weights(name string) (*safetensors.Weights, error) {
	t, ok := j.Checkpoint.Lookup(name)
	if !ok || len(t.Shape) < 2 {
		return nil, fmt.Errorf("tensor %q is not a matrix of the checkpoint", name)
	}
	return j.Checkpoint.Weights(t, safetensors.WeightsOptions{Block: j.facts.WeightBlockSize, Transposed: arch.Classify(j.facts, name, t.Shape).Transposed})
}

// round rounds a tensor. columns has each slice's weights of columns, nil for none.
func round(ctx context.Context, w *safetensors.Weights, s rounding.Scheme, columns [][]float32, threads int) (*rounding.Codes, error) {
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
			c.Weigh(columns[row/w.Rows], false)
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
