package rounding

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
)

// Scheme says how to quantize the weights of a tensor. Equal schemes (==) give equal bytes.
type Scheme struct {
	// Bits of a code, 1 to 8. No default.
	Bits int
	// Group is the number of consecutive weights of a row that share a scale: a multiple of 16, or 0
	// for the whole row (per channel). The last group of a row may be short.
	Group int
	// Mapping says how a group's range becomes its scale. No default.
	Mapping gqf.Mapping
	// ScaleDtype is the format of the stored scales. No default.
	ScaleDtype packing.ScaleDtype
	// PositiveScales forbids the negative scales of the full-range mapping, so that its scales are
	// those of symmetric-no-clip. The scales of other mappings are positive. Default: false.
	PositiveScales bool
	// Algorithm chooses scales, zero points and codes. Default (AlgorithmNone): rtn.
	Algorithm gqf.Algorithm
	// Type makes a row's result blocks of a ggml type instead of codes, scales and zero points.
	// BlockScheme sets the other fields. Default (F32): codes.
	Type gguf.TensorType
	// Fractions makes the int8 zero points of the asymmetric mapping multiples of 2^(Bits-8) instead
	// of integers (packing.ZeroFraction), at up to 7 bits. A plan sets Fractions where
	// FractionalZeroPoints is true and every layout stores fractional zero points. Default: false.
	Fractions bool
	// NegativeScales says that scales may be negative with another mapping than full-range. Only codes
	// that another program chose have such scales. Default: false.
	NegativeScales bool
}

// Validate reports the first field that is out of range, or fields that contradict each other.
func (s Scheme) Validate() error {
	if s.Type != 0 {
		if err := s.validateBlocks(); err != nil {
			return err
		}
	}
	switch {
	case s.Bits < 1 || s.Bits > 8:
		return fmt.Errorf("%d bits: use 1 to 8", s.Bits)
	case s.Group < 0 || s.Group%16 != 0:
		return fmt.Errorf("group %d: use a multiple of 16, or per channel", s.Group)
	case s.ScaleDtype != packing.ScaleBF16 && s.ScaleDtype != packing.ScaleF16 && s.ScaleDtype != packing.ScaleF32:
		return fmt.Errorf("scale dtype %s: use bf16, f16 or f32", s.ScaleDtype)
	}
	switch s.Mapping {
	case gqf.MappingSymmetric, gqf.MappingSymmetricNoClip, gqf.MappingAsymmetric:
	case gqf.MappingFullRange:
		if s.Bits == 1 && s.PositiveScales {
			return fmt.Errorf("1-bit full-range has the codes -1 and 0, so positive weights need a negative scale: allow negative scales, or use asymmetric")
		}
	case gqf.MappingHalfStep:
		if s.Bits > 2 {
			return fmt.Errorf("mapping %s is for 1 and 2 bits, not %d", s.Mapping, s.Bits)
		}
	default:
		switch only := OnlyBlocks(s.Mapping); {
		case only && s.Type != 0:
		case only:
			return fmt.Errorf("mapping %s is for .gguf files only: use another mapping, or write a .gguf file", s.Mapping)
		default:
			return fmt.Errorf("mapping %s: use full-range, symmetric, symmetric-no-clip, asymmetric or half-step", s.Mapping)
		}
	}
	switch {
	case s.Fractions && (s.Mapping != gqf.MappingAsymmetric || s.Bits == 8 || s.Type != 0):
		return fmt.Errorf("fractional zero points are for mapping %s and 1 to 7 bits", gqf.MappingAsymmetric)
	case s.Algorithm > gqf.AlgorithmAWQ:
		return fmt.Errorf("algorithm %d: use search or rtn, or with calibration gptq, gptq-ft, imatrix or awq", uint8(s.Algorithm))
	case s.Algorithm == gqf.AlgorithmHQQ || s.Algorithm == gqf.AlgorithmMSE: // reserved
		return fmt.Errorf("algorithm %s is no longer offered: use search", s.Algorithm)
	}
	return nil
}

// ValidateCommand is Validate for the command line. Schemes that exist only for comparisons with
// TorchAO are refused, too: at 1 bit, TorchAO's symmetric mapping puts every weight within half a
// step of the code 0, and symmetric-no-clip divides by the greatest code, 0.
func (s Scheme) ValidateCommand() error {
	if err := s.Validate(); err != nil {
		return err
	}
	if s.Bits == 1 && (s.Mapping == gqf.MappingSymmetric || s.Mapping == gqf.MappingSymmetricNoClip) {
		return fmt.Errorf("mapping %s does not work at 1 bit: use half-step, full-range or asymmetric, or 2 bits and more", s.Mapping)
	}
	return nil
}

// ValidateONNX reports why the operators of ONNX Runtime do not hold codes of the scheme.
func (s Scheme) ValidateONNX() error {
	wider := map[int]int{1: 2, 3: 4, 5: 8, 6: 8, 7: 8}
	switch instead := wider[s.Bits]; {
	case instead != 0:
		return fmt.Errorf("onnx has 2, 4 and 8 bits, and %d would take the bytes of %d: use %d bits", s.Bits, instead, instead)
	case s.Mapping == gqf.MappingHalfStep || s.Mapping == gqf.MappingKQuant:
		return fmt.Errorf("onnx has no codes of mapping %s: use full-range or asymmetric", s.Mapping)
	case s.Bits == 4 && s.Mapping != gqf.MappingAsymmetric && s.ScaleDtype != packing.ScaleBF16:
		return fmt.Errorf("on Arm, ONNX Runtime rounds the scales of symmetric 4-bit codes to bf16, and %s scales would lose by it: use bf16 scales", s.ScaleDtype)
	}
	return nil
}

func (s Scheme) Groups(k int) int {
	if s.Group == 0 || s.Group >= k {
		return 1
	}
	return (k-1)/s.Group + 1
}

// Header is the header of a lowbit payload of rows x cols weights without bias.
func (s Scheme) Header(rows, cols int64, tile packing.Tile) packing.Header {
	h := packing.Header{
		Layout:     packing.LayoutLowbit,
		Bits:       uint8(s.Bits),
		Grid:       packing.GridInteger,
		ScaleDtype: s.ScaleDtype,
		Tile:       tile,
		Rows:       uint64(rows),
		Cols:       uint64(cols),
		Group:      uint64(s.Group),
	}
	switch s.Mapping {
	case gqf.MappingAsymmetric:
		h.ZeroKind = packing.ZeroInt8
		if s.Fractions {
			h.ZeroKind = packing.ZeroFraction
		}
	case gqf.MappingHalfStep:
		h.Grid = packing.GridHalfStep
	}
	if s.Positive() {
		h.Flags |= packing.FlagPositiveScales
	}
	return h.Canonical()
}

func (s Scheme) Positive() bool {
	return s.PositiveScales || s.Mapping != gqf.MappingFullRange && !s.NegativeScales
}

// String names the scheme: "4-bit group 32 full-range bf16", or "Q4_K search"; rtn is left out.
func (s Scheme) String() string {
	if s.Type != 0 {
		if s.Algorithm > gqf.AlgorithmRTN {
			return s.Type.String() + " " + s.Algorithm.String()
		}
		return s.Type.String()
	}
	group := "per channel"
	if s.Group != 0 {
		group = fmt.Sprintf("group %d", s.Group)
	}
	parts := []string{fmt.Sprintf("%d-bit", s.Bits), group, s.Mapping.String(), s.ScaleDtype.String()}
	if s.PositiveScales {
		parts = append(parts, "positive-scales")
	}
	if s.Algorithm > gqf.AlgorithmRTN {
		parts = append(parts, s.Algorithm.String())
	}
	return strings.Join(parts, " ")
}

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

// NonFiniteError says that a weight is NaN or infinite.
type NonFiniteError struct {
	Column int     // index within the row
	Value  float32 // NaN or an infinity
}

func (e *NonFiniteError) Error() string {
	return fmt.Sprintf("the weight in column %d is %v: only finite weights can be quantized", e.Column, e.Value)
}

// SkipAdvice always helps against a tensor that cannot be quantized.
const SkipAdvice = "leave the tensor unquantized with a rule NAME=skip"

// ScaleError says that the dtype of the stored scales, or a layout, cannot store the scale of a
// group because the scale is too large. When a file is repacked, the scale may also be too small.
type ScaleError struct {
	Group int                // index within the row
	Scale float32            // before rounding to Dtype
	Dtype packing.ScaleDtype // of the stored scales
	// Smallest magnitude that the layout stores. Default (0): the dtype's.
	Smallest float32
	// Advice says what to do. Default: SkipAdvice.
	Advice string
}

func (e *ScaleError) Error() string {
	return fmt.Sprintf("group %d needs the scale %g, outside the range of %s scales here (%g to %g): %s",
		e.Group, e.Scale, e.Dtype, cmp.Or(e.Smallest, e.Dtype.Smallest()), e.Dtype.Max(), cmp.Or(e.Advice, SkipAdvice))
}

// SumError says that the stored sum of a row's weights is not finite: the weights are too large.
type SumError struct {
	Sum float32 // NaN or an infinity
	// Advice says what to do. Default: SkipAdvice.
	Advice string
}

func (e *SumError) Error() string {
	return fmt.Sprintf("the sum of the row's quantized weights is %v, and the layout stores only finite sums: %s", e.Sum, cmp.Or(e.Advice, SkipAdvice))
}
