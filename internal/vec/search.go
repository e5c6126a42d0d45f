package vec

import (
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/floats"
)

// SearchLanes is the number of scales that a call of SearchScales tries.
const SearchLanes = 32

// Search holds the scales that SearchScales tries and its results.
type Search struct {
	// For candidate c: the inverse of its scale in units of the call's unit, and the least and
	// greatest steps, qmin-z and qmax-z, within -256 .. 255.
	Inv, Lo, Hi [SearchLanes]float32
	// Product is the sum of w*x*q; Score is the square of Product over the sum of w*q*q.
	Product, Score [SearchLanes]float32
}

// SearchScales finds for each candidate of s the steps q nearest to the values of a group x. Score
// is the reduction of the group's squared error, weighted by w, with the best scale for these
// steps: Product/sum(w*q*q) = Score/Product. In float32, with every step rounded, for candidate c
// and the values in order:
//
//	t = min(max(x*(Inv[c]*unit), Lo[c]), Hi[c])
//	q = t rounded to the nearest integer, ties to even
//	v = w*q
//	a += v*x
//	b += v*q
//
// a and b start at zero and are added to their totals A and B after each 256 values and at the end.
// Then Product[c] = A and Score[c] = A*A/B, or 0 where that is NaN.
//
// The lengths of x and w are the same, at least 1. All arguments and each product Inv[c]*unit must
// be finite, and weights not negative; otherwise the results are undefined.
func SearchScales(s *Search, unit float32, x, w []float32) {
	checkWeights(x, w)
	if !assembled() {
		searchScalesGeneric(s, unit, x, w)
		return
	}
	searchScalesBlock(&s.Inv[0], unit, &x[0], &w[0], len(x))
}

// FinalLanes is the number of scales that a call of ScaleErrors measures.
const FinalLanes = 8

// Final holds the scales that ScaleErrors measures and its results.
type Final struct {
	// For candidate c: the scale, not zero, its inverse finite, and the least and greatest steps.
	Scale, Lo, Hi [FinalLanes]float32
	// Error is the weighted squared error.
	Error [FinalLanes]float32
}

// ScaleErrors sums for each candidate of f the weighted squared errors of a group x with the
// candidate's scale. In float32, with every step rounded, for candidate c and value i:
//
//	t = min(max(x*(1/Scale[c]), Lo[c]), Hi[c])
//	q = t rounded to the nearest integer, ties to even
//	e = x - q*Scale[c]
//	sum[i%2] += (w*e)*e
//
// sum[0] and sum[1] start at zero; their sum is added to Error[c] after each 256 values and at the
// end.
//
// The conditions of SearchScales hold.
func ScaleErrors(f *Final, x, w []float32) {
	checkWeights(x, w)
	if !assembled() {
		scaleErrorsGeneric(f, x, w)
		return
	}
	scaleErrorsBlock(&f.Scale[0], &x[0], &w[0], len(x))
}

func checkWeights(x, w []float32) {
	if len(x) != len(w) || len(x) == 0 {
		panic(fmt.Sprintf("vec: %d weights of %d values", len(w), len(x)))
	}
}

// SumSquares returns the sum of the squares of x, added as QuantizeGroups adds a group's signal.
func SumSquares(x []float32) float64 {
	var sum [Lanes]float64
	// The lanes restart after every flushEvery values, so the values can only be cut there.
	if n := len(x) &^ (flushEvery - 1); assembled() && n > 0 {
		sumSquaresBlock(&sum[0], &x[0], n)
		x = x[n:]
	}
	sumSquaresGeneric(&sum, x)
	return tree(sum)
}

// Importance sets w to the weights of errors of x: w[i] = sqrt(1 + (x[i]*x[i])*inverse), with every
// step rounded to float32. len(w) is len(x).
func Importance(w, x []float32, inverse float32) {
	if len(w) != len(x) {
		panic(fmt.Sprintf("vec: %d weights of %d values", len(w), len(x)))
	}
	if n := len(x) &^ (Lanes - 1); assembled() && n > 0 {
		importanceBlock(&w[0], &x[0], n, inverse)
		w, x = w[n:], x[n:]
	}
	importanceGeneric(w, x, inverse)
}

func searchScalesGeneric(s *Search, unit float32, x, w []float32) {
	for c := range SearchLanes {
		inv, lo, hi := float32(s.Inv[c]*unit), s.Lo[c], s.Hi[c]
		var sumA, sumB float32
		for start := 0; start < len(x); start += flushEvery {
			end := min(len(x), start+flushEvery)
			var a, b float32
			for i, v := range x[start:end] {
				q := nearest(float32(v*inv), lo, hi)
				p := float32(w[start+i] * q)
				a += float32(p * v)
				b += float32(p * q)
			}
			sumA += a
			sumB += b
		}
		score := float32(sumA*sumA) / sumB
		if score != score {
			score = 0
		}
		s.Product[c], s.Score[c] = sumA, score
	}
}

func scaleErrorsGeneric(f *Final, x, w []float32) {
	for c := range FinalLanes {
		scale, lo, hi := f.Scale[c], f.Lo[c], f.Hi[c]
		inv := 1 / scale
		var total float32
		for start := 0; start < len(x); start += flushEvery {
			end := min(len(x), start+flushEvery)
			var sum [2]float32
			for i, v := range x[start:end] {
				e := v - float32(nearest(float32(v*inv), lo, hi)*scale)
				sum[i%2] += float32(float32(w[start+i]*e) * e)
			}
			total += sum[0] + sum[1]
		}
		f.Error[c] = total
	}
}

func nearest(t, lo, hi float32) float32 {
	return float32(min(max(t, lo), hi)+roundMagic) - roundMagic
}

// sumSquaresGeneric adds to sum; x begins at lane 0.
func sumSquaresGeneric(sum *[Lanes]float64, x []float32) {
	for len(x) > 0 {
		n := min(len(x), flushEvery)
		var run [Lanes]float32
		for i, v := range x[:n] {
			run[i%Lanes] += float32(v * v)
		}
		for i := range Lanes {
			sum[i] += float64(run[i])
		}
		x = x[n:]
	}
}

func importanceGeneric(w, x []float32, inverse float32) {
	for i, v := range x {
		w[i] = float32(math.Sqrt(float64(1 + float32(float32(v*v)*inverse))))
	}
}

// Near has a scale of each of FitLanes groups. NearScales looks for scales next to these.
type Near struct {
	From [FitLanes]uint32 // bits of the scales
	// Present are the groups' present scales, and Unit the factors of scaled.
	Present, Unit [FitLanes]float32
}

// NearScales sets stored to scales that a group may have, and scaled to their products with Unit:
// at index 0 the present scales, and at index 1+i the scales with the bits From + distances[i].
// Where the bits of a magnitude are not within least .. most, the present scale stands instead.
func NearScales(stored, scaled [][FitLanes]float32, n *Near, distances []uint32, least, most uint32) {
	if len(distances) == 0 || len(stored) != 1+len(distances) || len(scaled) != len(stored) || most > math.MaxInt32 || least > most {
		panic(fmt.Sprintf("vec: %d scales for %d distances, within %#x .. %#x", len(stored), len(distances), least, most))
	}
	if !onX86() {
		nearScalesGeneric(stored, scaled, n, distances, least, most)
		return
	}
	nearScalesBlock(&stored[0][0], &scaled[0][0], &n.From[0], &distances[0], len(distances), least, most)
}

func nearScalesGeneric(stored, scaled [][FitLanes]float32, n *Near, distances []uint32, least, most uint32) {
	stored[0] = n.Present
	for i, v := range n.Present {
		scaled[0][i] = float32(v * n.Unit[i])
	}
	for c, d := range distances {
		stored, scaled := &stored[1+c], &scaled[1+c]
		for i, from := range n.From {
			bits := from + d
			if bits&^(1<<31)-least > most-least {
				bits = math.Float32bits(n.Present[i])
			}
			v := math.Float32frombits(bits)
			stored[i], scaled[i] = v, float32(v*n.Unit[i])
		}
	}
}

// LatticeTest describes the lattices of LatticeGroups: groups of values w = round(p u), where p are
// integers, u is the unit of a group, and round rounds to a dtype.
type LatticeTest struct {
	// Inverse is a group's least ratio of least magnitude to extent, if the extent exceeds Exempt.
	Inverse, Exempt float32
	Smaller         float32 // 1: the extent is the range; 0: the greater magnitude of its ends
	Normal          float32 // smallest normal number of the dtype
	// Error bounds the rounding error of a value, divided by the value's power of two, or by Normal if
	// greater. Error includes the factor 1/(1-t) and the error of T below.
	Error float32
}

// latticeSlop bounds the relative error of c x below: 1/a may be a subnormal number.
const latticeSlop float32 = 0x1p-20

// LatticeGroups finds the groups that may be on a lattice. lo and hi are the ranges of the groups,
// see GroupRange, and least are their least magnitudes, see LeastMagnitudes. Bit g%8 of mask[g/8]
// says whether group g may be. Let a be the least magnitude. In float32, with every step rounded:
//
//	e = max(hi, -lo) + Smaller*min(hi, -lo)
//
// If e is 0 the group is not; nor if a < e*Inverse and e > Exempt. Otherwise a group with a <
// Normal is. In other groups the values s of all lanes are tested with c = 1, 2 ... while
// c*(e*Inverse) <= a:
//
//	x = s*(1/a)
//	T = x*(h(a)+2^-20) + h(s)   h(v) = max(2^floor(log2(v)), Normal)*(1/a)*Error
//	|c*x - rne(c*x)| <= c*T
//
// A c for which all lanes pass ends the test: the group may be on a lattice. For a group on a
// lattice this c exists: a is c units, and s is p. If E(w) is the error of a value w, c u = a +
// E(a) and s = p u + E(s), so that s c/a - p = (p E(a) + c E(s))/a. With t = |E(a)|/a, and p at
// most s c/a and its distance to p, that distance is at most (s c/a t + c |E(s)|/a)/(1-t).
//
// Lengths of mask and least are Groups(len(lo), 8) and LeastLanes*len(lo); x and c*x of tested
// groups must be below 2^22. An Inverse above 2^-20 ensures this.
func LatticeGroups(mask []uint8, lo, hi []float32, least []uint32, t *LatticeTest) {
	if n := len(lo); len(hi) != n || len(least) != LeastLanes*n || len(mask) != Groups(n, 8) {
		panic(fmt.Sprintf("vec: %d and %d ends of ranges, %d least magnitudes and a mask of %d bytes contradict each other",
			n, len(hi), len(least), len(mask)))
	}
	n := len(lo)
	if !assembled() || n == 0 {
		latticeGroupsGeneric(mask, lo, hi, least, t)
		return
	}
	if n >= 8 {
		latticeGroupsBlock(&mask[0], &lo[0], &hi[0], &least[0], &t.Inverse, n/8)
	}
	if n%8 == 0 {
		return
	}
	last := &mask[n/8]
	if n > 8 { // the last 8 groups, without those that have been tested already
		latticeGroupsBlock(last, &lo[n-8], &hi[n-8], &least[LeastLanes*(n-8)], &t.Inverse, 1)
		*last >>= 8 - n%8
		return
	}
	var ends [2][8]float32
	var m [8 * LeastLanes]uint32
	copy(ends[0][:], lo)
	copy(ends[1][:], hi)
	copy(m[:], least)
	latticeGroupsBlock(last, &ends[0][0], &ends[1][0], &m[0], &t.Inverse, 1)
}

func latticeGroupsGeneric(mask []uint8, lo, hi []float32, least []uint32, t *LatticeTest) {
	clear(mask)
	for g := range lo {
		if t.plausible(0-lo[g], hi[g], least[LeastLanes*g:]) {
			mask[g/8] |= 1 << (g % 8)
		}
	}
}

func (t *LatticeTest) plausible(lo, hi float32, least []uint32) bool {
	e := max(hi, lo) + float32(t.Smaller*min(hi, lo))
	a := LeastValue(min(least[0], least[1], least[2], least[3]))
	bound := float32(e * t.Inverse)
	if a < bound && e > t.Exempt || e == 0 {
		return false
	}
	if a < t.Normal {
		return true
	}
	inverse := 1 / a
	slope := t.relative(a, inverse) + latticeSlop
	var x, tolerance [LeastLanes]float32
	for i := range x {
		s := LeastValue(least[i])
		x[i] = float32(s * inverse)
		tolerance[i] = float32(x[i]*slope) + t.relative(s, inverse)
	}
	for c := float32(1); ; {
		near := true
		for i := range x {
			v := float32(c * x[i])
			r := float32(v+roundMagic) - roundMagic
			near = near && floats.Abs(v-r) <= float32(c*tolerance[i])
		}
		if near {
			return true
		}
		if c++; float32(c*bound) > a {
			return false
		}
	}
}

func (t *LatticeTest) relative(v, inverse float32) float32 {
	power := math.Float32frombits(math.Float32bits(v) & expMask)
	return float32(float32(max(power, t.Normal)*inverse) * t.Error)
}

// LeastValue is the magnitude behind a result of LeastMagnitudes; 0 if all values are zeros.
func LeastValue(v uint32) float32 { return math.Float32frombits((v + 1) >> 1) }
