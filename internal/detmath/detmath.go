package detmath

import "math"

const (
	// Adding and subtracting rounder rounds a float64 below 2^51 to an integer, ties to even.
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
		return math.Ldexp(y, k) // rounds subnormals again
	}
	return float64(y * math.Float64frombits(uint64(1023+k)<<52))
}

// expReduce returns k and r+c = x - k log 2, |r| <= log(2)/2 or little more, c below an ulp of r.
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

// ExpNarrow returns e^x with an error below 2^-32 of the result, enough for results that are
// rounded to float32. Results below 2^-1000 may be 0, and results above 2^1000 may be +Inf.
// ExpNarrow takes a third of the time of Exp.
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

// Tanh32 returns the hyperbolic tangent of x, rounded from a relative error below 2^-28.
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

// Constants are split into a part with few bits and the rest, by Go's exact arithmetic.
const (
	// 33 bits, so that its product with any exponent (11 bits) is exact.
	ln2Hi = 0x1.62e42fefp-1
	ln2Lo = math.Ln2 - ln2Hi

	log10eHi = 0x1.bcb7b1526e50ep-2 // all 53 bits
	log10eLo = math.Log10E - log10eHi
)

// Log returns the natural logarithm of x with an error below 0.55 units in the last place
// (measured: 0.528). Special cases are as in math.Log: -Inf for ±0, NaN for x < 0, +Inf for +Inf.
func Log(x float64) float64 {
	if y, ok := logSpecial(x); ok {
		return y
	}
	hi, lo := logParts(x)
	return hi + lo
}

// Log10 returns the decimal logarithm of x with an error below 0.55 units in the last place
// (measured: 0.533). The results for 10^0 to 10^22, the powers of ten that are float64s, are exact.
// Special cases are as in Log.
func Log10(x float64) float64 {
	if y, ok := logSpecial(x); ok {
		return y
	}
	hi, lo := logParts(x)
	// (hi + lo) * (log10eHi + log10eLo) without the product of the two small parts.
	p := float64(hi * log10eHi)
	rest := math.FMA(hi, log10eHi, -p)
	rest += float64(hi*log10eLo) + float64(lo*log10eHi)
	return p + rest
}

// logSpecial returns the logarithm of 0, of a negative or infinite number, and of NaN.
func logSpecial(x float64) (y float64, ok bool) {
	switch {
	case x != x || x < 0:
		return math.NaN(), true
	case x == 0:
		return math.Inf(-1), true
	case x > math.MaxFloat64:
		return x, true
	}
	return 0, false
}

// logParts returns the natural logarithm of a positive finite x as a sum of two numbers, lo within
// a unit in the last place of hi, good to about 58 bits.
//
// With x = 2^k (1+f), 1+f between sqrt(1/2) and sqrt(2), and s = f/(2+f): log x = k log 2 + 2 atanh
// s, and atanh s = s + s^3/3 + s^5/5 + ... (Abramowitz and Stegun 4.1.27). As |s| <= 0.1716,
// everything after the first term is less than a hundredth of the first term, so only the first
// term is carried in two parts.
func logParts(x float64) (hi, lo float64) {
	k, f := split(x)

	d := 2 + f
	dLo := f - (d - 2)
	s := f / d
	sLo := (math.FMA(-s, d, f) - float64(s*dLo)) / d

	// The terms from s^23 on are below 2^-60 of s. (Doubling is exact and may be fused.)
	z := float64(s * s)
	series := 1.0 / 21
	for _, c := range [...]float64{1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3} {
		series = c + float64(series*z)
	}
	small := 2*sLo + float64(2*s*float64(z*series)) + float64(k*ln2Lo)

	// Twice fast-two-sum: the first summand is never smaller, as k is 0 or |k| log 2 > |2s| > small.
	big := float64(k * ln2Hi)
	sum := big + 2*s
	rest := 2*s - (sum - big)
	if k == 0 {
		sum, rest = 2*s, 0
	}
	rest += small
	hi = sum + rest
	return hi, rest - (hi - sum)
}

// split returns k and f of x = 2^k (1+f), x positive and finite, f from
// sqrt(1/2)-1 to sqrt(2)-1. f is exact.
func split(x float64) (k, f float64) {
	exp := 0
	if x < 0x1p-1022 { // subnormal
		x = float64(x * 0x1p54)
		exp = -54
	}
	u := math.Float64bits(x)
	exp += int(u>>52) - 1023
	m := math.Float64frombits(u&(1<<52-1) | 1023<<52)
	if m > math.Sqrt2 {
		m = float64(m * 0.5)
		exp++
	}
	return float64(exp), m - 1
}

// Half of pi in two parts: the nearest float64 and the float64 nearest to the rest.
const (
	halfPiHi = 0x1.921fb54442d18p0
	halfPiLo = math.Pi/2 - halfPiHi

	trigMax = 1 << 30
)

// Sin returns the sine of x radians, |x| <= 2^30, with an error below 1 ulp; NaN for other x.
func Sin(x float64) float64 {
	if !(math.Abs(x) <= trigMax) {
		return math.NaN()
	}
	if math.Abs(x) < 0x1p-28 { // keeps the sign of zero
		return x
	}
	q, r, c := trigReduce(x)
	return trig(q, r, c)
}

// Cos returns the cosine of x radians, |x| <= 2^30, with an error below 1 ulp; NaN for other x.
func Cos(x float64) float64 {
	if !(math.Abs(x) <= trigMax) {
		return math.NaN()
	}
	q, r, c := trigReduce(x)
	return trig(q+1, r, c)
}

// trigReduce returns q and r+c = x - q pi/2, |r| <= pi/4 or little more, c below a unit in the last
// place of r. The products with the parts of pi/2 are rounded only after the difference, so nothing
// is lost as x comes near a multiple of pi/2. The part of pi/2 beyond the two parts changes the
// result by less than 2^-108 times x.
func trigReduce(x float64) (q int64, r, c float64) {
	n := float64(float64(x*(2/math.Pi))+rounder) - rounder
	// x - n halfPiHi = a + b exactly: the product is p + pe.
	p := float64(n * halfPiHi)
	pe := math.FMA(n, halfPiHi, -p)
	d := x - p // exact, since p is within a factor of 2 of x, or 0
	a := d - pe
	b := (d - a) - pe
	lo := float64(n * halfPiLo)
	r = a - lo
	c = ((a - r) - lo) + b
	return int64(n), r, c
}

func trig(q int64, r, c float64) float64 {
	z := float64(r * r)
	y := 0.0
	if q&1 == 0 { // r - r^3/3! + r^5/5! - ...; the term with r^19 is below 2^-63
		s := 1.0 / 355687428096000
		for _, k := range [...]float64{-1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6} {
			s = k + float64(s*z)
		}
		y = r + (float64(float64(r*z)*s) + c)
	} else { // 1 - r^2/2! + r^4/4! - ...; the term with r^20 is below 2^-67
		s := -1.0 / 6402373705728000
		for _, k := range [...]float64{1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24} {
			s = k + float64(s*z)
		}
		half := float64(0.5 * z)
		w := 1 - half
		y = w + (((1 - w) - half) + (float64(float64(z*z)*s) - float64(r*c)))
	}
	if q&2 != 0 {
		return -y
	}
	return y
}

// Source is SplitMix64 (G. Steele, D. Lea, C. Flood: Fast Splittable Pseudorandom Number
// Generators, 2014): the same numbers in every version of Go, unlike math/rand's. Its value is the
// seed.
type Source uint64

// Next gives 64 random bits.
func (s *Source) Next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Float is a number from 0 up to, not including, 1: a multiple of 2^-53.
func (s *Source) Float() float64 { return float64(s.Next()>>11) * 0x1p-53 }
