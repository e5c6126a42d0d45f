package rounding

import (
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/vec"
)

// FractionalZeroPoints reports whether the scheme's algorithm chooses fractional zero points where
// the layout stores them. rtn does not: TorchAO's formula has integer zero points. At 8 bits
// fractional zero points would be integers.
func (s Scheme) FractionalZeroPoints() bool {
	return s.Mapping == gqf.MappingAsymmetric && s.Bits < 8 && s.Type == 0 && s.Algorithm > gqf.AlgorithmRTN
}

func (s Scheme) ZeroShift() int {
	if s.Fractions {
		return 8 - s.Bits
	}
	return 0
}

// ZeroUnit is the unit of int8 zero points: 2^-ZeroShift.
func (s Scheme) ZeroUnit() float32 { return 1 / float32(int(1)<<s.ZeroShift()) }

// storeZero rounds a zero point to a multiple of ZeroUnit and returns the multiple.
func (r *rowGroups) storeZero(z float64) int8 {
	shift := r.scheme.ZeroShift()
	least, most := float64(r.qmin<<shift), float64((r.qmax+1)<<shift-1)
	return int8(min(max(math.RoundToEven(float64(z*float64(int(1)<<shift))), least), most))
}

// fractionCodes chooses the nearest codes for stored scales and zero points; acc gets squares.
func (r *RowQuantizer) fractionCodes(codes []int8, scales []float32, zeros []int8, x []float32, acc *vec.ErrorSum) {
	unit := r.scheme.ZeroUnit()
	for g, z := range zeros {
		zero := float32(float32(z) * unit)
		whole := roundSmall(zero)
		r.whole[g], r.fraction[g] = int8(whole), zero-whole
	}
	vec.QuantizeFractions(codes, x, scales, r.inv, r.whole, r.fraction, r.group, r.qmin, r.qmax, acc)
}
