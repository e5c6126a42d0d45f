package rounding

import (
	"iter"
	"math"
	"math/bits"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// recovery finds the groups of a row that are on a lattice.
type recovery struct {
	rowGroups
	lattice      *lattice // nil: see Recover
	recovered    []bool   // groups of the row
	least        []uint32 // see vec.LeastMagnitudes
	plausible    []uint8  // see vec.LatticeGroups
	anyRecovered bool     // otherwise recovered is not looked at
}

// Recover makes every algorithm keep groups that are on a lattice already. If (q - z) s, or (q +
// 1/2) s, rounded to the precision of the weights, is the weight for a whole group, the group gets
// these codes, this scale and this zero point. The precision is the dtype of the checkpoint: BF16,
// F16 or F32. Default: ScaleNone, no recovery. Schemes with a Type recover nothing.
func (r *recovery) Recover(precision packing.ScaleDtype) {
	r.lattice = newLattice(r.scheme, precision, r.smallest)
	r.recovered, r.least, r.plausible = nil, nil, nil
	if n := len(r.lo); r.lattice != nil {
		r.recovered, r.least, r.plausible = make([]bool, n), make([]uint32, vec.LeastLanes*n), make([]uint8, vec.Groups(n, 8))
	}
	r.anyRecovered = false
}

// Recovered reports whether group g of the last row was recovered. A group of zeros never is.
func (r *recovery) Recovered(g int) bool { return r.anyRecovered && r.recovered[g] }

// recover looks for lattices of groups with ranges r.lo and r.hi, and sets scales and zero points.
func (r *recovery) recover(scales []float32, zeros []int8, x []float32) {
	l := r.lattice
	if l == nil {
		return
	}
	if r.anyRecovered {
		clear(r.recovered)
		r.anyRecovered = false
	}
	for g := range r.lattices(x) {
		r.recovered[g], r.anyRecovered = true, true
		scales[g], r.inv[g] = l.found.scale, 1/l.found.scale
		if zeros != nil {
			zeros[g] = int8(l.zero())
		}
	}
}

// lattices iterates over the groups of x that are on a lattice and sets r.lattice.found. The ranges
// of the groups are in r.lo and r.hi.
func (r *recovery) lattices(x []float32) iter.Seq[int] {
	return func(yield func(int) bool) {
		vec.LeastMagnitudes(r.least, x, r.group)
		vec.LatticeGroups(r.plausible, r.lo, r.hi, r.least, &r.lattice.test)
		for i, mask := range r.plausible {
			for ; mask != 0; mask &= mask - 1 {
				g := 8*i + bits.TrailingZeros8(mask)
				if r.lattice.find(r.GroupOf(x, g), r.lo[g], r.hi[g], r.least[vec.LeastLanes*g:]) && !yield(g) {
					return
				}
			}
		}
	}
}

// recoverCodes replaces codes of recovered groups that are the nearest but do not round to their
// weight. A power of two has neighbours at two different distances, and among codes of 8 bits the
// nearest may be wrong. weight is the weight of a code of group g.
func (r *recovery) recoverCodes(codes []int8, x []float32, weight func(g int, q float32) float32) {
	if !r.anyRecovered {
		return
	}
	l := r.lattice
	for g, recovered := range r.recovered {
		if !recovered {
			continue
		}
		at := g * r.group
		for i, w := range r.GroupOf(x, g) {
			q := float32(codes[at+i])
			if l.precision.Round(weight(g, q)) == w {
				continue
			}
			for _, other := range [...]float32{q - 1, q + 1} {
				if other >= float32(r.qmin) && other <= float32(r.qmax) && l.precision.Round(weight(g, other)) == w {
					codes[at+i] = int8(other)
				}
			}
		}
	}
}

// recoverFloat is recover for floating-point zero points, the weights of code 0. Adding the zero
// point to float32(q s) rounds again, so a lattice with a scale of 24 bits may be lost.
func (r *recovery) recoverFloat(scales, zeros, x []float32) {
	l := r.lattice
	if l == nil {
		return
	}
	vec.GroupRange(r.lo, r.hi, x, r.group)
	clear(r.recovered)
	r.anyRecovered = false
	for g := range r.lattices(x) {
		if !l.survives(r.GroupOf(x, g)) {
			continue
		}
		r.recovered[g], r.anyRecovered = true, true
		scales[g], zeros[g] = l.found.scale, l.floatZero()
	}
}

func (l *lattice) floatZero() float32 { return 0 - float32(float32(l.zero())*l.found.scale) }

// survives reports whether l.found gives the weights x with a floating-point zero point.
func (l *lattice) survives(x []float32) bool {
	zero, s := l.floatZero(), l.found.scale
	for _, w := range x {
		p, _ := l.multiple(floats.Abs(w), s, signOf(w))
		if w < 0 {
			p = -p
		}
		if l.precision.Round(float32(float32(p+l.zero())*s)+zero) != w {
			return false
		}
	}
	return true
}

// LatticeFinder looks for lattices of groups whatever the scheme: with any float32 scale, and
// integers that fit in 8 bits with a zero point.
type LatticeFinder struct {
	*lattice
	fractional [8]*lattice // by bits
}

// NewLatticeFinder returns a finder for weights of a precision, for a single goroutine.
func NewLatticeFinder(precision packing.ScaleDtype) LatticeFinder {
	s := Scheme{Bits: 8, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32}
	f := LatticeFinder{lattice: newLattice(s, precision, packing.ScaleF32.Smallest())}
	s.Fractions = true
	for s.Bits = 1; s.Bits < len(f.fractional); s.Bits++ {
		f.fractional[s.Bits] = newLattice(s, precision, packing.ScaleF32.Smallest())
	}
	return f
}

// Find returns the lattice of a group of finite weights, if there is one and a weight is not zero.
func (f LatticeFinder) Find(group []float32) (l Lattice, ok bool) {
	var lo, hi [1]float32
	var least [vec.LeastLanes]uint32
	var plausible [1]uint8
	vec.GroupRange(lo[:], hi[:], group, len(group))
	vec.LeastMagnitudes(least[:], group, len(group))
	vec.LatticeGroups(plausible[:], lo[:], hi[:], least[:], &f.test)
	ok = plausible[0] != 0 && f.find(group, lo[0], hi[0], least[:])
	l = f.found
	_, integer, _ := l.Bits()
	for b := 1; ok && b < integer && l.fractional == 0; b++ {
		if f.fractional[b].find(group, lo[0], hi[0], least[:]) {
			l.fractional = b
		}
	}
	return l, ok
}

// Bits returns the bits of codes that hold the lattice with scales of either sign, with zero
// points, and on the half-step grid; 0 where 8 bits do not, or half-step does not.
func (l Lattice) Bits() (symmetric, asymmetric, halfStep int) {
	for b := 8; b >= 1; b-- {
		n := 1 << b
		if size := max(-l.Least, l.Most); size < n/2 || size == n/2 && min(-l.Least, l.Most) < n/2 {
			symmetric = b
		}
		if l.Most-l.Least < n {
			asymmetric = b
		}
		if l.Odd && b <= 2 && max(-l.Least, l.Most) < n {
			halfStep = b
		}
	}
	if l.fractional > 0 {
		asymmetric = l.fractional
	}
	return symmetric, asymmetric, halfStep
}

// maxParts bounds how many parts of an interval are tried with each code of the least magnitude. On
// a lattice, some part has the true unit; other weights fail within a few parts.
const maxParts = 256

type interval struct{ lo, hi float64 }

func (a interval) and(b interval) interval { return interval{max(a.lo, b.lo), min(a.hi, b.hi)} }

// over is the interval of units with multiples by p in a.
func (a interval) over(p int) interval { return interval{a.lo / float64(p), a.hi / float64(p)} }

// edges returns the interval of numbers that round to w >= 0.
func (l *lattice) edges(w float32) interval {
	if w == 0 {
		return interval{}
	}
	below, v := float64(nth(l.precision, w, -1)), float64(w)
	above := 2*v - below // of the largest number
	if next := nth(l.precision, w, 1); floats.Finite(next) {
		above = float64(next)
	}
	return interval{(below + v) / 2 * (1 - l.slack), (v + above) / 2 * (1 + l.slack)}
}

// nth returns the n-th number of the dtype d after v, a positive number of d.
func nth(d packing.ScaleDtype, v float32, n int) float32 {
	switch d {
	case packing.ScaleBF16:
		return math.Float32frombits(math.Float32bits(v) + uint32(n)<<16)
	case packing.ScaleF16:
		return floats.F16ToF32(floats.F16FromF32(v) + uint16(n))
	}
	return math.Float32frombits(math.Float32bits(v) + uint32(n))
}

// narrow looks for a unit in u with all magnitudes from number i on as multiples, and sets l.found.
func (l *lattice) narrow(u interval, i int) bool {
	if l.parts--; l.parts < 0 {
		return false
	}
	for ; i < len(l.sizes); i++ {
		e := l.edges(l.sizes[i])
		p, last := int(math.Ceil(e.lo/u.hi)), min(int(math.Floor(e.hi/u.lo)), l.span)
		for p <= last && !l.allowed(p, l.signs[i]) {
			p++
		}
		if p > last {
			return false
		}
		part := u.and(e.over(p))
		for p++; p <= last; p++ {
			if !l.allowed(p, l.signs[i]) {
				continue
			}
			next := u.and(e.over(p))
			if next.hi >= part.lo { // no gap
				part.lo = min(part.lo, next.lo)
				continue
			}
			if l.narrow(part, i+1) {
				return true
			}
			part = next
		}
		if u = part; u.lo > u.hi {
			return false
		}
	}
	// Larger units have smaller multiples, so codes may suffice that do not for smaller units.
	return l.chooseNear(u, (u.lo+u.hi)/2) || l.chooseNear(u, u.hi)
}

// chooseNear looks for a storable scale among the units u, nearest to v first.
func (l *lattice) chooseNear(u interval, v float64) bool {
	units := float32(l.modulus)
	start := l.dtype.Round(float32(v * float64(units)))
	if !floats.Finite(start) {
		return false
	}
	start = max(start, l.smallest)
	// u is at most 2^-6 of itself wide, or a few steps of the weights' subnormal numbers: F16 has at
	// most 16 numbers there. F32 has many, and all but the outermost are right.
	const most = 16
	for n := range most {
		for _, n := range [...]int{n, -n} {
			s := nth(l.dtype, start, n)
			if v := float64(s / units); v < u.lo*(1-l.slack) || v > u.hi*(1+l.slack) || s < l.smallest || !l.dtype.IsScale(s) || !packing.ScaleF32.IsScale(s/units) {
				continue
			}
			if l.verify(s / units) {
				l.found.scale = float32(l.found.scale * units)
				return true
			}
		}
	}
	return false
}

// verify sets l.found if all magnitudes are multiples of a unit, with codes that exist.
func (l *lattice) verify(unit float32) bool {
	odd := !l.zeros
	for i, w := range l.sizes {
		p, ok := l.multiple(w, unit, l.signs[i])
		if !ok {
			return false
		}
		odd = odd && p%2 == 1
	}
	least, _ := l.multiple(-l.lo, unit, minus)
	most, _ := l.multiple(l.hi, unit, plus)
	if l.lo == 0 { // the integer of the least code, not positive
		least = -l.residue & (l.modulus - 1)
	}
	l.found = Lattice{Unit: unit, Least: -least, Most: most, Odd: odd, scale: unit}
	switch {
	case l.ranged:
		return most == 0 && least <= l.span || least+most <= l.span+1-l.modulus
	case l.odd:
		return true
	}
	positive, negative := most < l.span, l.negative && least < l.span
	if negative && (l.minus || !positive) {
		l.found.scale = -unit
	}
	return positive || negative
}

// multiple returns the integer p with p units rounding to w, the magnitude of weights of some
// signs: the lesser of two for large p and subnormal w, because codes exclude this last.
func (l *lattice) multiple(w, unit float32, signs uint8) (p int, ok bool) {
	if w == 0 {
		return 0, true
	}
	nearest := int(math.RoundToEven(float64(w) / float64(unit)))
	for p := max(nearest-1, 1); p <= min(nearest+1, l.span); p++ {
		if l.allowed(p, signs) && l.precision.Round(float32(float32(p)*unit)) == w {
			return p, true
		}
	}
	return 0, false
}
