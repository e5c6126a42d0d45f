package measure

import "math"

// parityInputs returns the rows of activations, the same on any machine: a dozen difficult rows,
// then random rows of all magnitudes.
func parityInputs(k int) []float32 {
	x := RandomInputs("parity", parityRows, k)
	n := newNormals("parity rows")
	row := func(i int) []float32 { return x[i*k:][:k] }
	each := func(i int, f func(v float32, c int) float32) {
		for c, v := range row(i) {
			row(i)[c] = f(v, c)
		}
	}
	abs := func(v float32, _ int) float32 { return float32(math.Abs(float64(v))) }
	each(1, func(float32, int) float32 { return 0 })
	each(2, abs)
	each(3, func(v float32, c int) float32 { return -abs(v, c) })
	each(4, func(v float32, _ int) float32 { return float32(v * 0x1p100) })
	// No scale, then subnormal.
	each(5, func(_ float32, c int) float32 { return [2]float32{math.MaxFloat32, -math.MaxFloat32}[c%2] })
	each(6, func(v float32, _ int) float32 { return float32(v * 0x1p-130) })
	row(7)[n.below(k)] = float32(math.NaN())
	row(8)[n.below(k)] = float32(math.Inf(-1))
	each(9, func(float32, int) float32 { return -3 })
	row(10)[n.below(k)] = 1e4
	each(11, func(v float32, _ int) float32 { return [2]float32{float32(math.Copysign(0, -1)), v}[n.below(2)] })
	// Codes at the ends of the range.
	each(12, func(v float32, _ int) float32 { return [2]float32{-1, 1}[n.below(2)] })
	each(13, func(v float32, c int) float32 { return [2]float32{-1, 1}[c/2%2] })
	for i := 14; i < parityRows; i += 2 {
		scale := float32(math.Ldexp(1, 6*(i-18)))
		each(i, func(v float32, _ int) float32 { return float32(v * scale) })
	}
	return x
}
