package floats

import "math"

// FMA32 returns x*y + z rounded once, to nearest with ties to even: what Arm's FMLA and x86's
// VFMADD231PS compute, for every input. Go has such a function for float64 only. NaN comes back for
// NaN, infinity times 0, and the difference of infinities; which NaN, is not said.
//
// The product of two float32 is exact in float64. Their sum with z is not, and to round it to
// float64 and that to float32 is not to round once: the first rounding may end on a tie of the
// second, and the second then not know from which side. That is all that may go wrong, so elsewhere
// the sum can be rounded as it is. On a tie it is rounded to odd first (S. Boldo and G. Melquiond,
// "Emulation of FMA and correctly rounded sums", 2008): inexact sums get the odd one of their two
// neighbours, which is no tie of float32.
//
// 2.2 ns on an EPYC (Zen 5), where a product and a sum that round apart take 0.5.
func FMA32(x, y, z float32) float32 {
	p, w := float64(float64(x)*float64(y)), float64(z)
	s := p + w
	const (
		low    = 1<<(52-23) - 1 // the bits of a fraction that a float32 does not have
		tie    = 1 << (52 - 23 - 1)
		normal = 1023 - 126 // the exponent of the smallest normal float32: below, more bits go
	)
	b := math.Float64bits(s)
	if b&low != tie && b>>52&0x7ff >= normal {
		return float32(s)
	}
	return fmaSlow(p, w, s)
}

// fmaSlow rounds s = p + z to float32 as if s were exact. Infinities and NaN do not come here: the
// low bits of theirs are 0.
func fmaSlow(p, z, s float64) float32 {
	// The error of s, exactly: D. Knuth's TwoSum.
	q := s - z
	e := float64(p-q) + float64(z-float64(s-q))
	b := math.Float64bits(s)
	if b&1 == 0 && e != 0 {
		if (e > 0) == (s > 0) { // the exact sum lies beyond s, as seen from 0
			b++
		} else {
			b--
		}
	}
	return float32(math.Float64frombits(b))
}
