package rounding

import (
	"fmt"
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// RowQuantizer turns rows of weights into codes of a scheme, for a single goroutine, because it
// holds scratch memory. Results depend only on the row, the scheme and the arguments of Weigh. The
// formulas below are round-to-nearest (RTN). The other algorithms start from these scales and zero
// points, improve both, and choose codes by the same formula.
//
// In float32, every step rounded, with lo = min(0, least weight) and hi = max(0, greatest weight)
// of a group of weights, qmin = -2^(b-1), qmax = 2^(b-1)-1:
//
//	full-range         s = m / qmin, m = hi if hi >= -lo, else lo: the weight of largest
//	                   size gets the code qmin; s is negative where that weight is positive
//	 with PositiveScales as symmetric-no-clip
//	symmetric          s = max(-lo, hi) / ((qmax-qmin)/2)
//	symmetric-no-clip  s = the greater of lo/qmin and hi/qmax
//	asymmetric         s = (hi-lo) / (qmax-qmin)
//	half-step          s = max(-lo, hi) / (qmax+1/2)
//
// s is then rounded to the scale's dtype, to nearest with ties to even. The rounded s determines
// the rest:
//
//	z = clamp(qmin - rne(lo/s)) if asymmetric, else 0
//	q = clamp(rne(w * (1/s)) + z), or clamp(rne(w * (1/s) - 1/2)) if half-step
//
// or, with fractional zero points (Scheme.Fractions), in units u = 2^(bits-8),
//
//	z = clamp(qmin - u*rne(lo/s/u)), to qmin .. qmax+1-u
//	q = clamp(rne(w * (1/s) + (z - n)) + n), n = rne(z)
//
// where clamp is to qmin .. qmax and rne rounds to the nearest integer, ties to even. A group of
// zeros has s = 1, z = 0. A code dequantizes to (q - z) * s, or to (q + 1/2) * s if half-step.
// Half-step has no code for zero, so a group of zeros has the smallest scale that can be stored. A
// smaller scale is raised to the smallest, see LimitScales, with its sign. Groups on a lattice have
// the lattice's scale and zero point if Recover was called. Without Recover, and with float32
// scales, the mappings symmetric to asymmetric give TorchAO's codes for F32 weights, except that
// TorchAO gives a group of zeros the scale 2^-126.
type RowQuantizer struct {
	weighing
	// plain improves a row without importances and weighted a row with importances; nil with rtn.
	plain, weighted algorithm
	whole           []int8     // rounded zero points, where zero points may be fractions
	fraction        []float32  // the rest of the zero points: -1/2 for the half-step grid
	blocks          *blockRows // nil without a Type
	unused          vec.ErrorSum
}

// algorithm is a search that starts from round-to-nearest.
type algorithm interface {
	// improve replaces scales and zero points of the row x where others have less weighted error.
	improve(scales []float32, zeros []int8, x []float32)
}

// rowGroups are the groups of a row, on the grid of a scheme.
type rowGroups struct {
	scheme      Scheme
	group       int // <= k
	qmin, qmax  int
	lo, hi, inv []float32 // per group
	smallest    float32   // magnitude of a scale that can be stored
}

// NewRowQuantizer returns a quantizer for rows of k weights.
func NewRowQuantizer(s Scheme, k int) (*RowQuantizer, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if k <= 0 {
		return nil, fmt.Errorf("rows of %d weights cannot be quantized", k)
	}
	if n := s.Type.BlockWeights(); s.Type != 0 && k%n != 0 {
		return nil, fmt.Errorf("rows of %d weights have no whole number of blocks of %d weights, which %s needs: use a type with smaller blocks", k, n, s.Type)
	}
	r := &RowQuantizer{}
	r.damped = s.Algorithm == gqf.AlgorithmImatrix || s.Algorithm == gqf.AlgorithmAWQ
	// A calibrated algorithm searches with its weights, and where calibration did not reach.
	if s.Algorithm.Calibrated() {
		s.Algorithm = gqf.AlgorithmSearch
	}
	n := s.Groups(k)
	scratch := make([]float32, 3*n)
	r.rowGroups = rowGroups{
		scheme: s, group: s.GroupWidth(k), lo: scratch[:n:n], hi: scratch[n : 2*n : 2*n], inv: scratch[2*n:], smallest: s.ScaleDtype.Smallest(),
	}
	r.qmin, r.qmax = s.CodeRange()
	if s.Algorithm == gqf.AlgorithmSearch {
		r.weights = make([]float32, k)
	}
	if s.Type != 0 {
		r.blocks = newBlockRows(s, k)
		return r, nil
	}
	if s.Fractions || s.Mapping == gqf.MappingHalfStep {
		r.whole, r.fraction = make([]int8, n), make([]float32, n)
		for g := range r.fraction {
			r.fraction[g] = -0.5
		}
	}
	if s.Algorithm == gqf.AlgorithmSearch {
		r.plain, r.weighted = newSearches(&r.weighing)
	}
	return r, nil
}

// Quantize chooses scales, zero points and codes of the row x of k weights. codes has k elements
// and scales has Groups(k). zeros has Groups(k) elements if the mapping is asymmetric; otherwise
// zeros is nil. The squared errors and squared weights are added to acc unless acc is nil. Nothing
// is allocated.
//
// The error is *NonFiniteError if x holds a NaN or an infinity, and *ScaleError if a scale is too
// large for its dtype. The outputs are then undefined.
func (r *RowQuantizer) Quantize(codes []int8, scales []float32, zeros []int8, x []float32, acc *vec.ErrorSum) error {
	if !vec.GroupRange(r.lo, r.hi, x, r.group) {
		return nonFinite(x)
	}
	r.idealScales(scales)
	if g := r.storeScales(scales); g >= 0 {
		r.idealScales(scales) // storeScales changed scales
		return &ScaleError{Group: g, Scale: scales[g], Dtype: r.scheme.ScaleDtype}
	}
	if r.scheme.Mapping == gqf.MappingAsymmetric {
		r.zeroPoints(zeros, scales)
	} else {
		zeros = nil
	}
	r.recover(scales, zeros, x)
	if acc == nil {
		acc = &r.unused
	}
	a := r.plain
	if r.importance != nil {
		a = r.weighted
	}
	if a != nil {
		a.improve(scales, zeros, x)
	}
	if r.scheme.Mapping == gqf.MappingHalfStep {
		vec.QuantizeFractions(codes, x, scales, r.inv, nil, r.fraction, r.group, r.qmin, r.qmax, acc)
		r.recoverCodes(codes, x, func(g int, q float32) float32 { return float32((q + 0.5) * scales[g]) })
		return nil
	}
	if r.scheme.Fractions {
		r.fractionCodes(codes, scales, zeros, x, acc)
	} else {
		vec.QuantizeGroups(codes, x, scales, r.inv, zeros, r.group, r.qmin, r.qmax, acc)
	}
	unit := r.scheme.ZeroUnit()
	r.recoverCodes(codes, x, func(g int, q float32) float32 {
		if zeros != nil {
			q -= float32(float32(zeros[g]) * unit)
		}
		return float32(q * scales[g])
	})
	return nil
}

// idealScales sets scales from the groups' ranges, not yet rounded to the stored dtype. With
// storeScales, each group of the default scheme takes 2.0 ns on an AMD EPYC (amd64, single core);
// package vec takes 9.4 ns for the 32 weights.
func (r *rowGroups) idealScales(scales []float32) {
	lo, hi := r.lo[:len(scales)], r.hi[:len(scales)]
	mapping := r.scheme.Mapping
	if mapping == gqf.MappingFullRange && r.scheme.PositiveScales {
		mapping = gqf.MappingSymmetricNoClip
	}
	qmin, qmax := float32(r.qmin), float32(r.qmax)
	switch mapping {
	case gqf.MappingFullRange:
		unit := 1 / qmin // a power of two: the product is the quotient
		for g := range scales {
			scales[g] = float32(math.Float32frombits(larger(hi[g], lo[g])) * unit)
		}
	case gqf.MappingSymmetric:
		half := (qmax - qmin) / 2
		for g := range scales {
			scales[g] = max(-lo[g], hi[g]) / half
		}
	case gqf.MappingSymmetricNoClip:
		for g := range scales {
			scales[g] = max(lo[g]/qmin, hi[g]/qmax)
		}
	case gqf.MappingHalfStep:
		for g := range scales { // a group of zeros, or nearly, gets the smallest scale
			scales[g] = max(max(-lo[g], hi[g])/(qmax+0.5), r.smallest)
		}
	default: // asymmetric
		for g := range scales {
			scales[g] = (hi[g] - lo[g]) / (qmax - qmin)
		}
	}
}

// larger are the bits of hi if hi >= -lo, else of lo. Bits order non-negative floats as integers. A
// branch would be unpredictable and cost 4 ns.
func larger(hi, lo float32) uint32 {
	h, l := math.Float32bits(hi), math.Float32bits(lo)
	less := uint32(int32(h-l&^(1<<31)) >> 31) // all bits set if hi < -lo
	return h ^ (h^l)&less
}

// storeScales rounds scales to the stored dtype, raises scales that are too small, sets the scales
// of all-zero groups to 1, and sets r.inv. bad is the first group with too large a scale, or -1.
func (r *rowGroups) storeScales(scales []float32) (bad int) {
	inv := r.inv[:len(scales)]
	dtype := r.scheme.ScaleDtype
	least, most := r.smallest, dtype.Max()
	for g, s := range scales {
		if dtype == packing.ScaleBF16 {
			// ScaleDtype.Round without a call. NaN and infinities fail the check.
			u := math.Float32bits(s)
			s = math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff)
		} else {
			s = dtype.Round(s)
		}
		if size := floats.Abs(s); !(size >= least && size <= most) {
			switch {
			case r.lo[g] == 0 && r.hi[g] == 0:
				s = 1
			case size < least:
				s = float32(math.Copysign(float64(least), float64(s)))
			default:
				return g
			}
		}
		scales[g] = s
		inv[g] = 1 / s
	}
	return -1
}

func (r *rowGroups) zeroPoints(zeros []int8, scales []float32) {
	qmin, unit, shift := float32(r.qmin), r.scheme.ZeroUnit(), r.scheme.ZeroShift()
	least, most := float64(r.qmin<<shift), float64((r.qmax+1)<<shift-1)
	for g, s := range scales {
		z := qmin - float32(roundToEven(r.lo[g]/s/unit)*unit)
		if r.lo[g] == 0 && r.hi[g] == 0 {
			z = 0
		}
		zeros[g] = int8(min(max(math.RoundToEven(float64(float64(z)*float64(int(1)<<shift))), least), most))
	}
}

// LimitScales sets the smallest magnitude of a scale that the row's layouts can store, see
// packing.Header.SmallestScale. Default, and least allowed value: the smallest scale of the dtype.
func (r *recovery) LimitScales(smallest float32) {
	r.smallest = max(smallest, r.scheme.ScaleDtype.Smallest())
	if r.lattice != nil {
		r.lattice.smallest = r.smallest
	}
}

// nonFinite names the first weight of x that is not finite, or returns nil.
func nonFinite(x []float32) error {
	for i, v := range x {
		if !floats.Finite(v) {
			return &NonFiniteError{Column: i, Value: v}
		}
	}
	return nil
}

func roundToEven(v float32) float32 { return float32(math.RoundToEven(float64(v))) }

// codeRange returns the least and the greatest code of a width.
func codeRange(bits int) (qmin, qmax int) { return -1 << (bits - 1), 1<<(bits-1) - 1 }
