package alloc

import (
	"context"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
)

// bestOf wants uniform fractional zero points if they are clearly better, else mixed bits.
func bestOf(t *testing.T, p Sensitivities) {
	uniform := func(a *Allocation) bool {
		return !slices.ContainsFunc(a.Rows, func(r Row) bool {
			return r.Tensor != p.Decisions[0].Name && (r.Bits != a.Rows[1].Bits || r.Group != uniformGroup || r.Mapping != gqf.MappingAsymmetric.String())
		})
	}
	choose := func(p *Sensitivities) (*Allocation, error) { return p.BitsPerWeight(4.7) }
	for _, better := range []bool{true, false} {
		a, list, err := p.Best(t.Context(), choose, func(_ context.Context, a *Allocation) (Measured, error) {
			m := Measured{KL: .5, ActivationKL: .125}
			if uniform(a) {
				m.KL = .25
			}
			return m, nil
		}, func(a, b Measured) bool {
			if a.KL != .25 || b.KL != .5 {
				t.Errorf("compared %+v with %+v", a, b)
			}
			return better
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 2 || uniform(a) != better || a.BitsPerWeight > 4.7 || a.ActivationKL != .125 {
			t.Errorf("uniform is better: %v; chosen: %v, %.3f bits per weight, %+v", better, uniform(a), a.BitsPerWeight, list)
		}
	}
	var plain []*Decision
	for _, d := range p.Decisions {
		c := *d
		c.Options = slices.DeleteFunc(slices.Clone(d.Options), func(o Option) bool { return o.Mapping == gqf.MappingAsymmetric })
		c.hull = lowerHull(c.Options)
		plain = append(plain, &c)
	}
	p.Decisions = plain
	if a, list, err := p.Best(t.Context(), choose, nil, nil); err != nil || a == nil || list != nil {
		t.Errorf("without fractional zero points: %v, %v, %v", a, list, err)
	}
}
