package rounding

import (
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/testrows"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// oddRow returns k weights as in the worst rows of checkpoints: outliers, groups of one sign, of
// equal weights, of zeros, of exact halves, and some denormal weights.
func oddRow(seed uint64, k int) []float32 {
	r := detmath.Source(seed)
	x := testrows.Gaussian(seed+1, k)
	for i := range x {
		x[i] *= 0.02
		switch i / 16 % 9 {
		case 1:
			x[i] = floats.Abs(x[i])
		case 2:
			x[i] = -floats.Abs(x[i])
		case 3:
			x[i] = 0.0131
		case 4:
			x[i] = 0
		case 5:
			x[i] = float32(int(r.Next()%33)-16) / 32
		case 6:
			if i%16 == 5 {
				x[i] = 1e-41
			}
		}
		if r.Next()%97 == 0 {
			x[i] *= 40
		}
	}
	return x
}

var allMappings = []gqf.Mapping{gqf.MappingFullRange, gqf.MappingSymmetric, gqf.MappingSymmetricNoClip, gqf.MappingAsymmetric}

var allScaleDtypes = []packing.ScaleDtype{packing.ScaleBF16, packing.ScaleF16, packing.ScaleF32}

// eachScheme runs f on every kind of scheme that ValidateCommand accepts.
func eachScheme(t *testing.T, groups []int, f func(t *testing.T, s Scheme)) {
	for bits := 1; bits <= 8; bits++ {
		for _, group := range groups {
			for _, m := range append(slices.Clone(allMappings), gqf.MappingHalfStep) {
				for _, d := range allScaleDtypes {
					for _, positive := range []bool{false, true} {
						s := Scheme{Bits: bits, Group: group, Mapping: m, ScaleDtype: d, PositiveScales: positive}
						if s.ValidateCommand() != nil {
							continue
						}
						t.Run(s.String(), func(t *testing.T) { f(t, s) })
						if s.Fractions = true; s.Validate() == nil {
							t.Run(s.String()+" fractions", func(t *testing.T) { f(t, s) })
						}
					}
				}
			}
		}
	}
}

// quantizedRow is the result of Quantize.
type quantizedRow struct {
	codes  []int8
	scales []float32
	zeros  []int8  // nil unless asymmetric
	half   bool    // the half-step grid
	unit   float32 // of zeros
	sum    vec.ErrorSum
}

func quantizeRow(s Scheme, x []float32) (*quantizedRow, error) {
	rq, err := NewRowQuantizer(s, len(x))
	if err != nil {
		return nil, err
	}
	r := &quantizedRow{codes: make([]int8, len(x)), scales: make([]float32, s.Groups(len(x))), half: s.Mapping == gqf.MappingHalfStep, unit: s.ZeroUnit()}
	if s.Mapping == gqf.MappingAsymmetric {
		r.zeros = make([]int8, len(r.scales))
	}
	return r, rq.Quantize(r.codes, r.scales, r.zeros, x, &r.sum)
}

func mustQuantizeRow(t testing.TB, s Scheme, x []float32) *quantizedRow {
	t.Helper()
	r, err := quantizeRow(s, x)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// zero is the zero point of group g.
func (r *quantizedRow) zero(g int) float32 {
	if r.half {
		return -0.5
	}
	if r.zeros == nil {
		return 0
	}
	return float32(r.zeros[g]) * r.unit
}

// size is the number of weights of a full group in a row of k.
func (s Scheme) size(k int) int {
	if s.Group == 0 {
		return k
	}
	return s.Group
}

// referenceRow implements RowQuantizer's doc comment, one group and one step at a time.
func referenceRow(s Scheme, x []float32) *quantizedRow {
	r := &quantizedRow{codes: make([]int8, len(x)), half: s.Mapping == gqf.MappingHalfStep, unit: s.ZeroUnit()}
	qmin, qmax := float32(-math.Exp2(float64(s.Bits-1))), float32(math.Exp2(float64(s.Bits-1))-1)
	for start := 0; start < len(x); start += s.size(len(x)) {
		group := x[start:min(start+s.size(len(x)), len(x))]
		var lo, hi float32
		for _, w := range group {
			lo, hi = min(lo, w), max(hi, w)
		}
		var scale float32
		switch {
		case s.Mapping == gqf.MappingFullRange && !s.PositiveScales:
			if scale = lo / qmin; hi >= -lo {
				scale = hi / qmin
			}
		case s.Mapping == gqf.MappingSymmetric:
			scale = max(-lo, hi) / ((qmax - qmin) / 2)
		case s.Mapping == gqf.MappingAsymmetric:
			scale = (hi - lo) / (qmax - qmin)
		default:
			scale = max(lo/qmin, hi/qmax)
		}
		scale = s.ScaleDtype.Round(scale)
		if r.half {
			scale = s.ScaleDtype.Round(max(-lo, hi) / (qmax + 0.5))
		}
		if least := s.ScaleDtype.Smallest(); floats.Abs(scale) < least {
			scale = float32(math.Copysign(float64(least), float64(scale)))
		}
		if lo == 0 && hi == 0 && !r.half {
			scale = 1
		}
		var zero float32
		if s.Mapping == gqf.MappingAsymmetric {
			if lo != 0 || hi != 0 {
				u := float64(r.unit)
				zero = max(qmin, min(qmax+1-r.unit, qmin-float32(u*math.RoundToEven(float64(lo/scale)/u))))
			}
			r.zeros = append(r.zeros, int8(zero/r.unit))
		}
		r.scales = append(r.scales, scale)
		r.roundGroup(start, group, scale, zero, qmin, qmax)
	}
	return r
}

// roundGroup sets the codes of the group that begins at start.
func (r *quantizedRow) roundGroup(start int, group []float32, scale, zero, qmin, qmax float32) {
	inv := 1 / scale
	for i, w := range group {
		t := float32(w * inv)
		if r.half {
			t -= 0.5
		}
		n := float32(math.RoundToEven(float64(zero)))
		t = float32(math.RoundToEven(float64(t + (zero - n))))
		r.codes[start+i] = int8(max(qmin, min(qmax, t+n)))
	}
}
