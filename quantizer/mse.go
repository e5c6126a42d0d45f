package quantizer

import (
	"math"
	"sync"

	"github.com/lowbit-go/gq/internal/detmath"
)

// The grid of GPTQ's quantizer (IST-DASLab/gptq quant.py, mse=True): the range of a group
// is tried in 80 sizes, from whole down by hundredths, and the one with the least sum of
// |error|^2.4 is taken.
const (
	mseSteps = 80
	mseGrid  = 100
	mseNorm  = 2.4
)

// shrinkRanges replaces scales and zero points of a row by those of the best part of each
// group's range.
func (r *RowQuantizer) shrinkRanges(scales []float32, zeros []int8, x []float32) {
	norm := errorNorm()
	qmin, qmax := float32(r.qmin), float32(r.qmax)
	for g, whole := range scales {
		n := min(r.group, len(x))
		group := x[:n]
		x = x[n:]
		if r.lo[g] == 0 && r.hi[g] == 0 {
			continue
		}
		best := math.Inf(1)
		for i := range mseSteps {
			part := 1 - float32(i)/mseGrid
			s := r.scheme.ScaleDtype.Round(float32(whole * part))
			if !r.storable(s) {
				break
			}
			var z float32
			if zeros != nil {
				z = min(max(qmin-roundToEven(float32(r.lo[g]*part)/s), qmin), qmax)
			}
			inv, lo, hi := 1/s, qmin-z, qmax-z
			var sum float64
			for _, v := range group {
				sum += norm.of(v - float32(roundSmall(min(max(float32(v*inv), lo), hi))*s))
			}
			if sum < best {
				best, scales[g], r.inv[g] = sum, s, inv
				if zeros != nil {
					zeros[g] = int8(z)
				}
			}
		}
	}
}

// powerTable computes |v|^2.4 for float32 by linear interpolation between 128 numbers to
// a power of two: 2e-5 of the result at most, and the same on every platform.
type powerTable struct {
	exponent [256]float64 // 2^(2.4 (e-127)); 0 for denormals
	mantissa [129]float64
}

var errorNorm = sync.OnceValue(func() *powerTable {
	t := &powerTable{}
	for e := 1; e < len(t.exponent); e++ {
		t.exponent[e] = detmath.Pow(2, mseNorm*float64(e-127))
	}
	for i := range t.mantissa {
		t.mantissa[i] = detmath.Pow(1+float64(i)/128, mseNorm)
	}
	return t
})

func (t *powerTable) of(v float32) float64 {
	u := math.Float32bits(v) &^ (1 << 31)
	i := u >> 16 & 127
	low := t.mantissa[i]
	m := low + float64((t.mantissa[i+1]-low)*(float64(u&0xffff)*0x1p-16))
	return float64(t.exponent[u>>23] * m)
}
