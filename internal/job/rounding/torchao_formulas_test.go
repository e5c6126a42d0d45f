package rounding

import (
	"fmt"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// TorchAOOptions select among TorchAO's ways to choose codes.
type TorchAOOptions struct {
	// Bits of a code, 1 to 8. No default.
	Bits int
	// Group is the number of consecutive weights of a row that share a scale; it
	// divides the row's length, as TorchAO demands. Default 0: the whole row.
	Group int
	// Mapping is symmetric, symmetric-no-clip (TorchAO's SYMMETRIC_NO_CLIPPING_ERR)
	// or asymmetric. Default symmetric, as TorchAO's.
	Mapping gqf.Mapping
	// WeightDtype is the dtype of the checkpoint's weights. TorchAO computes in it:
	// with BF16 each operation's result is rounded to BF16. F32 or BF16; default F32.
	WeightDtype packing.Dtype
	// ScaleDtype is the dtype that scales are cast to after they are computed. Default: the
	// weights' dtype.
	ScaleDtype packing.ScaleDtype
	// Compat does not adjust zero points when a scale is cast, as TorchAO does not. Default false:
	// they are chosen again for the stored scale, as gq does for every code.
	Compat bool
}

// TorchAOWeights is a matrix quantized by TorchAO's formulas.
type TorchAOWeights struct {
	Rows, Cols int
	// Group is the number of weights that share a scale; it divides Cols.
	Group int
	// Codes is Rows x Cols, each in -2^(Bits-1) .. 2^(Bits-1)-1.
	Codes []int8
	// Scales is Rows x Cols/Group; every value is exact in the scale's dtype.
	Scales []float32
	// Zeros is the zero points, in the order of Scales; nil unless asymmetric.
	Zeros []int8

	weightDtype packing.Dtype
	scaleDtype  packing.ScaleDtype
}

// TorchAOAffine quantizes the row-major matrix w (rows x cols) as TorchAO's
// choose_qparams_affine and quantize_affine do (torchao/quantization/quant_primitives.py
// at pytorch/ao 36027d82), bit for bit: with lo = min(0, least weight), hi =
// max(0, greatest weight) of a group, qmin = -2^(b-1) and qmax = 2^(b-1)-1,
//
//	symmetric          s = max(-lo, hi) / ((qmax-qmin)/2)
//	symmetric-no-clip  s = the greater of lo/qmin and hi/qmax
//	asymmetric         s = (hi-lo) / (qmax-qmin), z = clamp(qmin - rne(lo/s))
//	                   s is raised to the weight dtype's smallest normal number
//	q = clamp(rne(w * (1/s)) + z)
//
// in the arithmetic of the weight dtype, or in float32 where the scale's dtype is
// another one. This is a reference for comparing with TorchAO, not the quantizer of
// gq's files (RowQuantizer), and keeps TorchAO's degenerate results: at 1 bit
// symmetric gives zeros only and symmetric-no-clip has infinite or NaN scales, which
// give the code 0.
//
// It fails on an option out of range, a group that does not divide cols, and with
// a *NonFiniteError (Column counts from the row's start) on NaN or Inf.
func TorchAOAffine(w []float32, rows, cols int, o TorchAOOptions) (*TorchAOWeights, error) {
	if o.Mapping == gqf.MappingNone {
		o.Mapping = gqf.MappingSymmetric
	}
	switch o.Mapping {
	case gqf.MappingSymmetric, gqf.MappingSymmetricNoClip, gqf.MappingAsymmetric:
	default:
		return nil, fmt.Errorf("TorchAO has no mapping %s: use symmetric, symmetric-no-clip or asymmetric", o.Mapping)
	}
	t, err := newTorchAO(w, rows, cols, &o)
	if err != nil {
		return nil, err
	}
	if o.Mapping == gqf.MappingAsymmetric {
		t.Zeros = make([]int8, len(t.Scales))
	}
	qmin, qmax := codeRange(o.Bits)
	for g := range t.Scales {
		x := w[g*t.Group : (g+1)*t.Group]
		var zero float32
		s, lo := torchAOScale(x, o.Mapping, o.WeightDtype, qmin, qmax)
		if o.Mapping == gqf.MappingAsymmetric {
			zero = torchAOZero(lo, s, o.WeightDtype, qmin, qmax)
		}
		s = o.ScaleDtype.Round(s)
		if o.Mapping == gqf.MappingAsymmetric {
			if !o.Compat {
				zero = torchAOZero(lo, s, t.arithmetic(), qmin, qmax)
			}
			t.Zeros[g] = int8(zero)
		}
		t.Scales[g] = s
		t.affineCodes(t.Codes[g*t.Group:(g+1)*t.Group], x, s, zero, qmin, qmax)
	}
	return t, nil
}

// Dequantize writes the dequantized weights, Rows x Cols, to dst as TorchAO's dequantize_affine
// does: (q-z)*s, rounded to the weight dtype.
func (t *TorchAOWeights) Dequantize(dst []float32) {
	for i, q := range t.Codes {
		g := i / t.Group
		d := float32(q)
		if t.Zeros != nil {
			d = roundTo(t.weightDtype, d-float32(t.Zeros[g]))
		}
		d = roundTo(t.arithmetic(), float32(d*t.Scales[g]))
		dst[i] = roundTo(t.weightDtype, d)
	}
}

// newTorchAO checks the arguments, sets the defaults of o and allocates the result.
func newTorchAO(w []float32, rows, cols int, o *TorchAOOptions) (*TorchAOWeights, error) {
	if o.Bits < 1 || o.Bits > 8 {
		return nil, fmt.Errorf("bits %d: use 1 to 8", o.Bits)
	}
	if rows <= 0 || cols <= 0 || len(w)/cols != rows || len(w)%cols != 0 {
		return nil, fmt.Errorf("%d weights are not a matrix of %d x %d", len(w), rows, cols)
	}
	group := o.Group
	if group == 0 {
		group = cols
	}
	if group < 0 || cols%group != 0 {
		return nil, fmt.Errorf("TorchAO needs a group that divides the row: %d does not divide %d", group, cols)
	}
	switch o.WeightDtype {
	case packing.DtypeNone:
		o.WeightDtype = packing.F32
	case packing.F32, packing.BF16:
	default:
		return nil, fmt.Errorf("weight dtype %s: TorchAO's arithmetic is reproduced for F32 and BF16", o.WeightDtype)
	}
	if o.ScaleDtype == packing.ScaleNone {
		o.ScaleDtype = scaleDtypeOf(o.WeightDtype)
	}
	for i, v := range w {
		if !floats.Finite(v) {
			return nil, &NonFiniteError{Column: i % cols, Value: v}
		}
		if roundTo(o.WeightDtype, v) != v {
			return nil, fmt.Errorf("weight %g (row %d, column %d) is not a %s", v, i/cols, i%cols, o.WeightDtype)
		}
	}
	return &TorchAOWeights{
		Rows: rows, Cols: cols, Group: group,
		Codes:       make([]int8, len(w)),
		Scales:      make([]float32, len(w)/group),
		weightDtype: o.WeightDtype,
		scaleDtype:  o.ScaleDtype,
	}, nil
}

// torchAOScale returns the scale of one group in the arithmetic of dtype, not yet
// cast, and the group's lo.
func torchAOScale(x []float32, m gqf.Mapping, dtype packing.Dtype, qmin, qmax int) (scale, lo float32) {
	var hi float32
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	switch m {
	case gqf.MappingSymmetric:
		scale = roundTo(dtype, max(-lo, hi)/(float32(qmax-qmin)/2))
	case gqf.MappingSymmetricNoClip:
		smin := roundTo(dtype, lo/float32(qmin))
		scale = roundTo(dtype, hi/float32(qmax))
		if smin > scale { // not max(): 0/0 at 1 bit must stay NaN
			scale = smin
		}
	default:
		scale = roundTo(dtype, roundTo(dtype, hi-lo)/float32(qmax-qmin))
	}
	const eps = 0x1p-126 // smallest_normal of F32 and of BF16
	if scale < eps {
		scale = eps
	}
	return scale, lo
}

// torchAOZero returns an asymmetric group's zero point for a scale, in the
// arithmetic of dtype.
func torchAOZero(lo, scale float32, dtype packing.Dtype, qmin, qmax int) float32 {
	z := roundTo(dtype, float32(qmin)-roundToEven(roundTo(dtype, lo/scale)))
	return min(max(z, float32(qmin)), float32(qmax))
}

// affineCodes chooses the codes of one group for its stored scale s.
func (t *TorchAOWeights) affineCodes(codes []int8, x []float32, s, zero float32, qmin, qmax int) {
	inv := t.scaleDtype.Round(1 / s)
	dtype := t.arithmetic()
	for i, v := range x {
		r := roundToEven(roundTo(dtype, float32(v*inv)))
		codes[i] = clampCode(roundTo(dtype, r+zero), qmin, qmax)
	}
}

// arithmetic is the dtype that PyTorch promotes a weight and a scale to.
func (t *TorchAOWeights) arithmetic() packing.Dtype {
	if t.scaleDtype == scaleDtypeOf(t.weightDtype) {
		return t.weightDtype
	}
	return packing.F32
}

// scaleDtypeOf is the scale dtype that is the weight dtype d, F32 or BF16.
func scaleDtypeOf(d packing.Dtype) packing.ScaleDtype {
	if d == packing.BF16 {
		return packing.ScaleBF16
	}
	return packing.ScaleF32
}

// clampCode converts v, an integer or NaN, to a code. NaN becomes 0, the low byte of its conversion
// on x86 and Arm.
func clampCode(v float32, qmin, qmax int) int8 {
	if v != v {
		return 0
	}
	return int8(min(max(v, float32(qmin)), float32(qmax)))
}

// roundTo rounds v to dtype, F32 or BF16. PyTorch's CPU kernels also compute BF16 operations in
// float32 and round the result.
func roundTo(dtype packing.Dtype, v float32) float32 {
	if dtype == packing.BF16 {
		return floats.BF16ToF32(floats.BF16FromF32(v))
	}
	return v
}
