package detmath

import "math"

const (
	// Adding and subtracting it rounds a float64 below 2^51 to an integer, ties to even.
	rounder = 0x1.8p52

	expMax = 709.782712893384  // Exp of a larger number is +Inf
	expMin = -745.133219101941 // Exp of a smaller number is 0
)

// Exp returns e^x with an error below 1 unit in the last place if the result is a normal number
// (measured: 0.82). Special cases are as in math.Exp.
func Exp(x float64) float64 {
	switch {
	case x != x:
		return math.NaN()
	case x > expMax:
		return math.Inf(1)
	case x < expMin:
		return 0
	}
	k, r, c := expReduce(x)
	y := 1 + (r + (c + expTail(r)))
	if k < -1021 || k > 1022 {
		return math.Ldexp(y, k) // rounds subnormals once more
	}
	return float64(y * math.Float64frombits(uint64(1023+k)<<52))
}

// expReduce returns k and r+c = x - k log 2 with |r| <= log(2)/2 or little more; c is below a unit
// in the last place of r.
func expReduce(x float64) (k int, r, c float64) {
	n := float64(float64(x*math.Log2E)+rounder) - rounder
	hi := x - float64(n*ln2Hi) // exact
	lo := float64(n * ln2Lo)
	r = hi - lo
	return int(n), r, (hi - r) - lo
}

// expTail returns e^r - 1 - r = r^2/2! + r^3/3! + ...; the first omitted term is below 2^-57.
func expTail(r float64) float64 {
	series := 1.0 / 6227020800
	for _, c := range [...]float64{1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2} {
		series = c + float64(series*r)
	}
	return float64(float64(r*r) * series)
}

// ExpNarrow returns e^x with an error below 2^-32 of the result, which suffices for results that
// are rounded to float32. Results below 2^-1000 may be 0, and results above 2^1000 may be +Inf. It
// takes a third of the time of Exp.
func ExpNarrow(x float64) float64 {
	switch {
	case x != x:
		return math.NaN()
	case x > 693:
		return math.Inf(1)
	case x < -693:
		return 0
	}
	n := float64(float64(x*math.Log2E)+rounder) - rounder
	r := x - float64(n*ln2Hi) - float64(n*ln2Lo)
	// Taylor's series up to r^8/8!; the first omitted term is below 2^-32. Terms are paired, so
	// that few steps wait for each other.
	r2 := float64(r * r)
	r4 := float64(r2 * r2)
	p01 := 1 + r
	p23 := 1.0/2 + float64(r*(1.0/6))
	p45 := 1.0/24 + float64(r*(1.0/120))
	p67 := 1.0/720 + float64(r*(1.0/5040))
	high := p45 + float64(r2*p67) + float64(r4*(1.0/40320))
	y := p01 + float64(r2*p23) + float64(r4*high)
	return float64(y * math.Float64frombits(uint64(1023+int64(n))<<52))
}

// Tanh32 returns the hyperbolic tangent of a float32, rounded from a result with a relative error
// below 2^-28.
func Tanh32(x float32) float32 {
	a := float64(x)
	if math.Abs(a) < 1.0/16 { // x - x^3/3 + 2x^5/15 - 17x^7/315
		z := float64(a * a)
		s := 2.0/15 - float64(z*(17.0/315))
		s = -1.0/3 + float64(z*s)
		return float32(a + float64(float64(a*z)*s))
	}
	e := ExpNarrow(2 * min(a, 40))
	return float32((e - 1) / (e + 1))
}

// Pow returns x^y for x > 0 with an error below 1 + |y log x| / 32 units in the last place if the
// result is a normal number. A negative x always gives NaN; other special cases are as in math.Pow.
func Pow(x, y float64) float64 {
	switch {
	case y == 0 || x == 1:
		return 1
	case x != x || y != y || x < 0:
		return math.NaN()
	case x == 0 || x > math.MaxFloat64:
		if (x == 0) == (y > 0) {
			return 0
		}
		return math.Inf(1)
	}
	hi, lo := logParts(x)
	p := float64(hi * y)
	if !(math.Abs(p) < 750) { // also an infinite y
		return Exp(p)
	}
	rest := math.FMA(hi, y, -p) + float64(lo*y)
	k, r, c := expReduce(p)
	c += rest
	e := 1 + (r + (c + float64(c*r) + expTail(r)))
	return math.Ldexp(e, k)
}
