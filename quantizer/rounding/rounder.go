package rounding

import "github.com/lowbit-go/gq/packing"

// A Rounder quantizes rows and dequantizes the codes. It is not for concurrent use.
type Rounder struct {
	q     *RowQuantizer
	shape Shape
	row   Row // of Round
	// zeros are the zero points of row with UseFloatZeros; else nil.
	zeros []float32
}

// NewRounder returns a Rounder for rows of k columns. Its errors are NewRowQuantizer's.
func NewRounder(s Scheme, k int) (*Rounder, error) {
	q, err := NewRowQuantizer(s, k)
	if err != nil {
		return nil, err
	}
	shape := s.Shape(1, k)
	return &Rounder{q: q, shape: shape, row: NewCodes(shape).Row(0)}, nil
}

// Weigh weights errors, see RowQuantizer.Weigh.
func (r *Rounder) Weigh(d []float32, flat bool) { r.q.Weigh(d, flat) }

// LimitScales sets the smallest scale, see RowQuantizer.LimitScales.
func (r *Rounder) LimitScales(smallest float32) { r.q.LimitScales(smallest) }

// Recover keeps groups that are on a lattice already, see RowQuantizer.Recover.
func (r *Rounder) Recover(precision packing.ScaleDtype) { r.q.Recover(precision) }

// Recovered reports whether a group was, see RowQuantizer.Recovered.
func (r *Rounder) Recovered(g int) bool { return r.q.Recovered(g) }

// Quantize chooses a row's codes. Its errors are RowQuantizer.Quantize's.
func (r *Rounder) Quantize(dst Row, x []float32) error {
	if r.shape.Type != 0 {
		return r.q.QuantizeBlocks(dst.Blocks, x, nil)
	}
	return r.q.Quantize(dst.Codes, dst.Scales, dst.Zeros, x, nil)
}

// UseFloatZeros makes Round quantize with floating-point zero points, for schemes that have them, see
// FloatZeroPoints.
func (r *Rounder) UseFloatZeros() { r.zeros = make([]float32, len(r.row.Scales)) }

// Round quantizes x and puts the dequantized weights into dst, which may be x.
func (r *Rounder) Round(dst, x []float32) error {
	if r.zeros != nil {
		if err := r.q.QuantizeFloatZeros(r.row.Codes, r.row.Scales, r.zeros, x, nil); err != nil {
			return err
		}
		for k, q := range r.row.Codes {
			g := k / r.shape.Group
			dst[k] = float32(float32(q)*r.row.Scales[g]) + r.zeros[g]
		}
		return nil
	}
	if err := r.Quantize(r.row, x); err != nil {
		return err
	}
	r.shape.Dequantize(dst, r.row)
	return nil
}

// GroupWidth returns the number of columns of a group in rows of k columns.
func (s Scheme) GroupWidth(k int) int {
	if s.Group == 0 || s.Group > k {
		return k
	}
	return s.Group
}
