package alloc

import (
	"context"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
)

// bestOf wants the allocation with the least measured divergence, whatever was predicted.
func bestOf(t *testing.T, p Sensitivities) {
	fractional := func(a *Allocation) bool {
		return slices.ContainsFunc(a.Rows, func(r Row) bool { return r.Mapping == gqf.MappingAsymmetric.String() })
	}
	choose := func(p *Sensitivities) (*Allocation, error) { return p.BitsPerWeight(4.5) }
	for _, better := range []bool{true, false} {
		a, list, err := p.Best(t.Context(), choose, func(_ context.Context, a *Allocation) (Measured, error) {
			m := Measured{KL: .5, ActivationKL: .125}
			if fractional(a) == better {
				m.KL = .25
			}
			return m, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 2 || fractional(a) != better || a.BitsPerWeight > 4.5 || a.ActivationKL != .125 {
			t.Errorf("fractions better: %v; chosen: %v, %.3f bits per weight, %+v", better, fractional(a), a.BitsPerWeight, list)
		}
	}
	p.Decisions = p.withoutFractions().Decisions
	if _, list, err := p.Best(t.Context(), choose, nil); err != nil || list != nil {
		t.Errorf("one kind of options: %v, %v", list, err)
	}
}
