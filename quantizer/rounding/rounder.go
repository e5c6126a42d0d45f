package rounding

import "github.com/lowbit-go/gq/formats/gqf"

// A Rounder quantizes rows and gives what their codes stand for. It is not for concurrent use.
type Rounder struct {
	// Codes, Scales and Zeros are where Quantize puts a row's: [K], [Groups] and, with zero points, [Groups]. They may be
	// set to slices of a whole matrix's.
	Codes  []int8
	Scales []float32
	Zeros  []int8

	q      *RowQuantizer
	scheme Scheme
}

// NewRounder is for rows of k columns. It fails as NewRowQuantizer does.
func NewRounder(s Scheme, k int) (*Rounder, error) {
	q, err := NewRowQuantizer(s, k)
	if err != nil {
		return nil, err
	}
	r := &Rounder{Codes: make([]int8, k), Scales: make([]float32, s.Groups(k)), q: q, scheme: s}
	if s.Mapping == gqf.MappingAsymmetric {
		r.Zeros = make([]int8, len(r.Scales))
	}
	return r, nil
}

// Weigh sets what errors count, see RowQuantizer.Weigh.
func (r *Rounder) Weigh(d []float32, flat bool) { r.q.Weigh(d, flat) }

// LimitScales sets the smallest scale, see RowQuantizer.LimitScales.
func (r *Rounder) LimitScales(smallest float32) { r.q.LimitScales(smallest) }

// Quantize chooses a row's codes. It fails as RowQuantizer.Quantize does.
func (r *Rounder) Quantize(x []float32) error {
	return r.q.Quantize(r.Codes, r.Scales, r.Zeros, x, nil)
}

// Round quantizes x and puts what its codes stand for into dst, which may be x.
func (r *Rounder) Round(dst, x []float32) error {
	if err := r.Quantize(x); err != nil {
		return err
	}
	r.scheme.Widen(dst, r.Codes, r.Scales, r.Zeros)
	return nil
}

// Widen puts what a row's codes stand for into dst: (q - z) s, or (q + 1/2) s on the half-step grid. zeros is nil for
// mappings without zero points.
func (s Scheme) Widen(dst []float32, codes []int8, scales []float32, zeros []int8) {
	group := s.GroupWidth(len(codes))
	for g, scale := range scales {
		z := s.half()
		if zeros != nil {
			z = -float32(zeros[g])
		}
		for k := g * group; k < min((g+1)*group, len(codes)); k++ {
			dst[k] = float32((float32(codes[k]) + z) * scale)
		}
	}
}

// GroupWidth returns the number of columns of a group in rows of k.
func (s Scheme) GroupWidth(k int) int {
	if s.Group == 0 || s.Group > k {
		return k
	}
	return s.Group
}

// half is what the grid adds to codes.
func (s Scheme) half() float32 {
	if s.Mapping == gqf.MappingHalfStep {
		return 0.5
	}
	return 0
}
