package detmath

import "math"

// The constants are split into a part with few bits and the rest, by Go's exact
// constant arithmetic.
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

// logSpecial returns the logarithm if it is not a finite number.
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

// logParts returns the natural logarithm of a positive finite x as a sum of two
// numbers, lo within a unit in the last place of hi, that is good to about 58 bits.
//
// With x = 2^k (1+f), 1+f between sqrt(1/2) and sqrt(2), and s = f/(2+f):
// log x = k log 2 + 2 atanh s, and atanh s = s + s^3/3 + s^5/5 + ...
// (Abramowitz and Stegun 4.1.27). As |s| <= 0.1716, everything after the first term
// is less than a hundredth of it, so only that term is carried in two parts.
func logParts(x float64) (hi, lo float64) {
	k, f := split(x)

	d := 2 + f
	dLo := f - (d - 2)
	s := f / d
	sLo := (math.FMA(-s, d, f) - float64(s*dLo)) / d

	// The terms from s^23 on are below 2^-60 of s. (Doubling is exact: it may be fused.)
	z := float64(s * s)
	series := 1.0 / 21
	for _, c := range [...]float64{1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3} {
		series = c + float64(series*z)
	}
	small := 2*sLo + float64(2*s*float64(z*series)) + float64(k*ln2Lo)

	// Twice fast-two-sum: the first summand is never the smaller one, as k is 0 or
	// |k| log 2 is above |2s|, which is above small.
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
