package kleidiai

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/floats"
)

// LHSKind is a layout of quantized activations. All quantize rows to int8 as
// they pack.
type LHSKind uint8

// The kinds. The packers named make them, each kai_run_lhs_quant_pack_...
const (
	// QAI8DXP: a scale and a zero point per row. qai8dxp_f32.
	QAI8DXP LHSKind = iota + 1
	// QSI8D32P: an F16 scale per block. qsi8d32p_f32.
	QSI8D32P
	// QSI8D32P4X8SB: the same, but ties are rounded to even.
	// qsi8d32p4x8sb_f32_neon.
	QSI8D32P4X8SB
	// QSI8D32PNeon: QSI8D32P's numbers, with the scales behind all of a panel's
	// codes, for SME. qsi8d32p_f32_neon.
	QSI8D32PNeon
	// QSI8D32PScaleF32: an F32 scale and the sum per block.
	// qsi8d32pscalef32_f32_neon.
	QSI8D32PScaleF32
)

var lhsNames = map[LHSKind]string{
	QAI8DXP: "qai8dxp", QSI8D32P: "qsi8d32p", QSI8D32P4X8SB: "qsi8d32p4x8sb", QSI8D32PNeon: "qsi8d32p_neon",
	QSI8D32PScaleF32: "qsi8d32pscalef32",
}

// String gives KleidiAI's name, "qai8dxp"; "unknown(0)" for other values.
func (k LHSKind) String() string {
	if name := lhsNames[k]; name != "" {
		return name
	}
	return fmt.Sprintf("unknown(%d)", uint8(k))
}

// LHSConfig describes a packed matrix of activations.
type LHSConfig struct {
	Kind LHSKind // no default
	// M is the number of rows, K of columns. No defaults.
	M, K int
	// BL is the number of columns that share a scale, a multiple of 32 that
	// divides K. Default: K. QAI8DXP has no blocks.
	BL int
	// MR is the number of rows of a panel. KR and SR are KleidiAI's packing
	// parameters. No defaults.
	MR, KR, SR int
}

// LHS quantizes and packs activations of one configuration. It does not change
// and may be used by many goroutines at once.
type LHS struct {
	c      LHSConfig
	cols   int // columns stored
	groups int // blocks in a row
	run    int // bytes of a row that stay together

	// Offsets in a panel: codes of block b at b*step + data0, its scales at
	// b*scaleStep + scale0, and its sums (QAI8DXP: its negative zero points) at
	// b*step + sum0.
	step, data0, scaleStep, scale0, sum0, panelBytes int
}

// NewLHS prepares packing. It fails when c has a field that KleidiAI's packer
// would not take.
func NewLHS(c LHSConfig) (*LHS, error) {
	fail := func(format string, args ...any) (*LHS, error) {
		return nil, fmt.Errorf("kleidiai: %s: "+format, append([]any{c.Kind}, args...)...)
	}
	if c.BL == 0 {
		c.BL = c.K
	}
	switch {
	case lhsNames[c.Kind] == "":
		return fail("no such kind")
	case c.M < 1 || c.K < 1 || c.MR < 1 || c.KR < 1 || c.SR < 1:
		return fail("%d x %d activations, mr %d, kr %d, sr %d: all must be above 0", c.M, c.K, c.MR, c.KR, c.SR)
	case c.KR%c.SR != 0 || 32%(c.KR/c.SR) != 0:
		return fail("kr %d / sr %d: want a divisor of 32", c.KR, c.SR)
	case c.K > math.MaxInt32-32 || c.MR > 1<<16 || int64(c.MR)*(2*int64(c.K)+64) > math.MaxInt/8/(int64(c.M-1)/int64(c.MR)+1):
		return fail("%d x %d activations, mr %d: more than this machine can address", c.M, c.K, c.MR)
	}
	l := &LHS{c: c, cols: c.K, groups: 1, run: c.KR / c.SR, sum0: -1}
	if c.Kind == QAI8DXP {
		if c.BL != c.K {
			return fail("bl is %d: there is one scale per row", c.BL)
		}
		l.cols = (c.K + 31) / 32 * 32
		l.sum0 = c.MR * l.cols
		l.scale0 = l.sum0 + 4*c.MR
		l.panelBytes = l.scale0 + 4*c.MR
		return l, nil
	}
	if c.BL%32 != 0 || c.K%c.BL != 0 {
		return fail("bl is %d, want a multiple of 32 that divides the %d columns", c.BL, c.K)
	}
	l.groups = c.K / c.BL
	codes := c.MR * c.BL
	switch c.Kind {
	case QSI8D32P, QSI8D32P4X8SB: // scales, codes
		l.data0 = 2 * c.MR
		l.step = l.data0 + codes
		l.scaleStep = l.step
	case QSI8D32PNeon: // all codes, all scales
		l.step, l.scaleStep = codes, 2*c.MR
		l.scale0 = l.groups * codes
	case QSI8D32PScaleF32: // codes, sums, scales
		l.sum0, l.scale0 = codes, codes+4*c.MR
		l.step = codes + 8*c.MR
		l.scaleStep = l.step
	}
	l.panelBytes = l.groups * l.step
	if c.Kind == QSI8D32PNeon {
		l.panelBytes += l.groups * l.scaleStep
	}
	return l, nil
}

// PackedSize is the number of bytes of the packed matrix.
func (l *LHS) PackedSize() int { return ((l.c.M-1)/l.c.MR + 1) * l.panelBytes }

// ActivationError reports a row that cannot be quantized.
type ActivationError struct {
	Row, Column int // Column: the first of the block
	Msg         string
}

func (e *ActivationError) Error() string {
	return fmt.Sprintf("activations: row %d, column %d: %s", e.Row, e.Column, e.Msg)
}

// Pack quantizes src, M x K row-major, into dst, PackedSize() bytes. As in
// KleidiAI, nothing is written where rows past the last one would be. It fails
// with *ActivationError for a row or block that has no finite scale, or none
// that F16 can hold where the kind stores that: one with NaN or an infinity in
// it, or all but 0, or too large. It panics when a slice has the wrong length.
func (l *LHS) Pack(dst []byte, src []float32) error {
	if len(dst) != l.PackedSize() || len(src) != l.c.M*l.c.K {
		panic(fmt.Sprintf("kleidiai: %d bytes for %d activations, want %d and %d", len(dst), len(src), l.PackedSize(), l.c.M*l.c.K))
	}
	q := make([]int8, l.cols)
	for row := range l.c.M {
		panel, i := dst[row/l.c.MR*l.panelBytes:][:l.panelBytes], row%l.c.MR
		x := src[row*l.c.K:][:l.c.K]
		for g := range l.groups {
			x, q := x[g*l.c.BL:][:l.c.BL], q[:l.cols/l.groups]
			if err := l.packBlock(panel, i, g, q, x); err != nil {
				return &ActivationError{row, g * l.c.BL, err.Error()}
			}
			for o, code := range q {
				panel[l.data0+g*l.step+l.c.MR*l.run*(o/l.run)+l.run*i+o%l.run] = byte(code)
			}
		}
	}
	return nil
}

// packBlock quantizes x, block g of row i of a panel, to q, and stores what
// goes with the codes.
func (l *LHS) packBlock(panel []byte, i, g int, q []int8, x []float32) error {
	scaleAt := l.scale0 + g*l.scaleStep
	switch l.c.Kind {
	case QAI8DXP:
		zero, scale, err := quantizeAsymmetric(q, x)
		if err != nil {
			return err
		}
		put32(panel, l.sum0+4*i, uint32(-zero))
		put32(panel, scaleAt+4*i, math.Float32bits(scale))
		return nil
	case QSI8D32PScaleF32:
		// The factor is computed first and the scale from it: the other way
		// round than below.
		factor, scale := float32(0), float32(0)
		if m := absMax(x); m != 0 {
			factor = 127 / m
			scale = 1 / factor
		}
		if !finite(factor) || !finite(scale) {
			return errNoScale
		}
		sum := quantizeSymmetric(q, x, factor, math.RoundToEven)
		put32(panel, l.sum0+g*l.step+4*i, math.Float32bits(float32(float32(sum)*scale)))
		put32(panel, scaleAt+4*i, math.Float32bits(scale))
		return nil
	}
	scale, factor := absMax(x)/127, float32(0)
	if scale != 0 {
		factor = 1 / scale
	}
	stored := floats.F16FromF32(scale)
	if !finite(factor) || !finite(floats.F16ToF32(stored)) {
		return errNoScale
	}
	round := math.Round
	if l.c.Kind == QSI8D32P4X8SB {
		round = math.RoundToEven
	}
	quantizeSymmetric(q, x, factor, round)
	binary.LittleEndian.PutUint16(panel[scaleAt+2*i:], stored)
	return nil
}

var errNoScale = fmt.Errorf("no finite scale")

// absMax is the largest magnitude in x, NaN or an infinity if x has one.
func absMax(x []float32) float32 {
	m := float32(0)
	for _, v := range x {
		m = max(m, float32(math.Abs(float64(v))))
	}
	return m
}

func finite(x float32) bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }

// quantizeSymmetric quantizes x to round(x * factor), at most 127 in magnitude
// as factor is 127 / absMax, and returns the sum of the codes.
func quantizeSymmetric(q []int8, x []float32, factor float32, round func(float64) float64) (sum int32) {
	for k, v := range x {
		q[k] = int8(max(-128, min(round(float64(float32(v*factor))), 127)))
		sum += int32(q[k])
	}
	return sum
}

// quantizeAsymmetric quantizes a row to int8 with a zero point: the value of a
// code is (q - zero) * scale. Zero is in the range, its code is exact, and the
// zero point is one of the codes. Codes past the end of x repeat the last one.
func quantizeAsymmetric(q []int8, x []float32) (zero int32, scale float32, err error) {
	lo, hi := float32(0), float32(0)
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v) // NaN if there is one
	}
	factor := float32(1)
	if lo != hi {
		factor = 255 / (hi - lo)
	}
	scale = 1 / factor
	if !finite(factor) || !finite(scale) || !finite(lo) {
		return 0, 0, errNoScale
	}
	a, c := float32(lo*factor), float32(hi*factor)
	point := float32(127 - c)
	if float32(-128+a)+float32(127+c) > 0 {
		point = -128 - a
	}
	point = max(-128, min(point, 127))
	zero = int32(math.RoundToEven(float64(point)))
	for k := range q {
		v := x[min(k, len(x)-1)]
		r := int32(math.Round(float64(float32(v * factor))))
		q[k] = int8(max(-128, min(r+zero, 127)))
	}
	return zero, scale, nil
}
