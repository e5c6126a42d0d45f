package alloc

import (
	"context"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
)

// bestOf compares an allocation with uniform fractional zero points, if these are predicted to be
// nearly as good, and else with an allocation without fractional zero points. The uniform
// allocation has to be clearly better, the other better.
func bestOf(t *testing.T, p Sensitivities) {
	isFractional := func(r Row) bool { return r.Mapping == gqf.MappingAsymmetric.String() }
	uniform := func(a *Allocation) bool {
		return !slices.ContainsFunc(a.Rows, func(r Row) bool {
			return r.Tensor != p.Decisions[0].Name && (r.Bits != a.Rows[1].Bits || r.Group != uniformGroup || !isFractional(r))
		})
	}
	plain := func(a *Allocation) bool { return !slices.ContainsFunc(a.Rows, isFractional) }
	choose := func(p *Sensitivities) (*Allocation, error) { return p.BitsPerWeight(4.7) }
	// with adds a number to all predictions, and leaves some options out.
	with := func(kl float64, out func(Option) bool) *Sensitivities {
		q := p
		q.Decisions = nil
		for _, d := range p.Decisions {
			c := *d
			c.Options = slices.DeleteFunc(slices.Clone(d.Options), out)
			for i := range c.Options {
				c.Options[i].KL += kl
			}
			c.hull = lowerHull(c.Options)
			q.Decisions = append(q.Decisions, &c)
		}
		return &q
	}
	none := func(Option) bool { return false }
	for _, c := range []struct {
		name     string
		p        *Sensitivities
		rival    func(*Allocation) bool
		measured float64 // of the rival; .5 of the other
		clear    bool
		taken    bool
	}{
		{"uniform, clear", with(10, none), uniform, .4, true, true},
		{"uniform, not clear", with(10, none), uniform, .4, false, false},
		{"plain, less", with(0, none), plain, .4, false, true},
		{"plain, more", with(0, none), plain, .6, true, false},
	} {
		a, list, err := c.p.Best(t.Context(), choose, func(_ context.Context, a *Allocation) (Measured, error) {
			m := Measured{KL: .5, ActivationKL: .125}
			if c.rival(a) {
				m.KL = c.measured
			}
			return m, nil
		}, func(a, b Measured) bool {
			if a.KL != c.measured || b.KL != .5 {
				t.Errorf("%s: compared %+v with %+v", c.name, a, b)
			}
			return c.clear
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 2 || list[0].KL != c.measured || c.rival(a) != c.taken || a.BitsPerWeight > 4.7 || a.ActivationKL != .125 {
			t.Errorf("%s: the rival is chosen: %v; %.3f bits per weight, %+v", c.name, c.rival(a), a.BitsPerWeight, list)
		}
	}
	if a, list, err := with(0, fractional).Best(t.Context(), choose, nil, nil); err != nil || a == nil || list != nil {
		t.Errorf("without fractional zero points: %v, %v, %v", a, list, err)
	}
}
