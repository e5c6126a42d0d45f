package vec

import (
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/floats"
)

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
	latticeGroups(mask, lo, hi, least, t)
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
