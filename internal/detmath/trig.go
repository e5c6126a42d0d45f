package detmath

import "math"

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
