package rounding

// A Rounder quantizes rows and dequantizes the codes, for a single goroutine.
type Rounder struct {
	*RowQuantizer
	shape Shape
	row   Row // of Round
	// zeros are the zero points of row with UseFloatZeros; else nil.
	zeros []float32
}

func NewRounder(s Scheme, k int) (*Rounder, error) {
	q, err := NewRowQuantizer(s, k)
	if err != nil {
		return nil, err
	}
	shape := s.Shape(1, k)
	return &Rounder{RowQuantizer: q, shape: shape, row: NewCodes(shape).Row(0)}, nil
}

func (r *Rounder) Quantize(dst Row, x []float32) error {
	if r.shape.Type != 0 {
		return r.QuantizeBlocks(dst.Blocks, x, nil)
	}
	return r.RowQuantizer.Quantize(dst.Codes, dst.Scales, dst.Zeros, x, nil)
}

// UseFloatZeros makes Round use floating-point zero points; see FloatZeroPoints for the schemes.
func (r *Rounder) UseFloatZeros() { r.zeros = make([]float32, len(r.row.Scales)) }

// Round quantizes x and puts the dequantized weights into dst; dst may be x.
func (r *Rounder) Round(dst, x []float32) error {
	if r.zeros != nil {
		if err := r.QuantizeFloatZeros(r.row.Codes, r.row.Scales, r.zeros, x, nil); err != nil {
			return err
		}
		r.shape.DequantizeFloats(dst, r.row.Codes, r.row.Scales, r.zeros)
		return nil
	}
	if err := r.Quantize(r.row, x); err != nil {
		return err
	}
	r.shape.Dequantize(dst, r.row)
	return nil
}

func (s Scheme) GroupWidth(k int) int {
	if s.Group == 0 || s.Group > k {
		return k
	}
	return s.Group
}
