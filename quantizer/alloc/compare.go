package alloc

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
)

// Best chooses an allocation twice, from all options and without the options that change the mapping to
// fractional zero points, and returns the one whose measured divergence is less. choose is one of
// Sensitivities' methods with its target. measure quantizes the model with an allocation and measures
// it; it is called only if the two allocations differ. The one of all options is measured last.
//
// Divergences are predicted for codes that are rounded. Calibration gains more with some schemes than
// with others, so the allocation of less predicted divergence may have more.
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

// measured adds the measured part of activations to the prediction.
func (a *Allocation) measured(m Measured) {
	a.ActivationKL = m.ActivationKL
	a.PredictedKL += a.ActivationKL
}

// withoutFractions returns p without the options that change the mapping, or nil if there are none or
// a decision has no others.
func (p *Sensitivities) withoutFractions() *Sensitivities {
	q := *p
	q.Decisions = nil
	dropped := false
	for _, d := range p.Decisions {
		c := *d
		c.Options = slices.DeleteFunc(slices.Clone(d.Options), func(o Option) bool {
			return o.Type == 0 && o.Mapping != gqf.MappingNone
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
