package gqf

import (
	"fmt"

	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/kleidiai"
	"github.com/lowbit-go/gq/packing/layouts"
	"github.com/lowbit-go/gq/packing/torchao"
)

// Rows reads the rows of a slice of a quantized tensor in any layout, from views of the file: call
// its methods inside [File.Guard]. Many goroutines may use a Rows at once.
type Rows struct {
	packing.Packer        // includes the companions, if the layout has any
	data           []byte // data of the payload
}

// Rows returns the rows of a slice of a variant. A damaged file is a [*FormatError], and so is an
// unquantized tensor (layout plain).
func (t Tensor) Rows(variant, slice int) (*Rows, error) {
	p, ok := t.Payload(variant, slice, KindWeights)
	if !ok {
		if err := t.Usable(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s: tensor %q has no variant %d of slice %d", t.f.name, t.Name, variant, slice)
	}
	data, err := t.f.Data(p)
	if err != nil {
		return nil, err
	}
	pk, err := layouts.New(p.Header)
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", t.f.name, t.Name, err)
	}
	switch c := pk.(type) {
	case *torchao.Embedding:
		pk, err = withCompanions(t, variant, slice, c.WithCompanions)
	case *packing.Codes:
		pk, err = withCompanions(t, variant, slice, c.WithCompanions)
	}
	if err != nil {
		return nil, err
	}
	return &Rows{pk, data}, nil
}

// withCompanions returns a packer with the data of its companions, empty if absent.
func withCompanions[P packing.Packer](t Tensor, variant, slice int, with func(scales, zeros []byte) (P, error)) (packing.Packer, error) {
	var parts [2][]byte
	for i, kind := range []Kind{KindScales, KindZeros} {
		p, ok := t.Payload(variant, slice, kind)
		if !ok {
			continue
		}
		var err error
		if parts[i], err = t.f.Data(p); err != nil {
			return nil, err
		}
	}
	pk, err := with(parts[0], parts[1])
	if err != nil {
		return nil, &FormatError{File: t.f.name, Section: "payloads", Msg: fmt.Sprintf("companions of tensor %q", t.Name), Err: err}
	}
	return pk, nil
}

// Codes reads the codes, scales and zero points of a row, see packing.Packer.Row. Zero points are
// in units of Header().ZeroUnit().
func (r *Rows) Codes(codes []int8, scales []float32, zeros []int8, row int) {
	r.Row(codes, scales, zeros, r.data, row)
}

// FloatZeros reads the stored zero points of a row in a layout with floating-point zero points
// (packing.ZeroF32), and panics for any other layout.
func (r *Rows) FloatZeros(dst []float32, row int) {
	r.Packer.(*kleidiai.Packer).FloatZeros(dst, r.data, row)
}

// HasNonIntegerZeros reports whether some zero point is not an integer times the scale, see
// packing.IntegerZero: only possible in a layout with floating-point zero points. Rows are read up
// to the first such zero point.
func (r *Rows) HasNonIntegerZeros() bool {
	h := r.Header()
	if h.ZeroKind != packing.ZeroF32 {
		return false
	}
	scales, zeros := make([]float32, r.Groups()), make([]float32, r.Groups())
	for row := range int(h.Rows) {
		r.Codes(nil, scales, nil, row)
		r.FloatZeros(zeros, row)
		for g, zero := range zeros {
			if _, whole := packing.IntegerZero(zero, scales[g]); !whole {
				return true
			}
		}
	}
	return false
}

// Dequantize reads the weights of a row.
func (r *Rows) Dequantize(dst []float32, row int) { r.DequantizeRow(dst, r.data, row) }

// RowBias reads the bias of a row.
func (r *Rows) RowBias(row int) float32 { return r.Bias(r.data, row) }
