package rounding

import (
	"iter"
	"math/bits"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// Recover makes every algorithm keep groups that are on a lattice already: where (q - z) s, or (q +
// 1/2) s, rounded to the precision of the weights, is the weight for a whole group, these codes,
// this scale and this zero point are taken. The precision is the dtype of the checkpoint: BF16, F16
// or F32. Default: ScaleNone, which recovers nothing. Schemes with a Type recover nothing.
func (r *RowQuantizer) Recover(precision packing.ScaleDtype) {
	r.lattice = newLattice(r.scheme, precision, r.smallest)
	r.recovered, r.least, r.plausible = nil, nil, nil
	if n := len(r.lo); r.lattice != nil {
		r.recovered, r.least, r.plausible = make([]bool, n), make([]uint32, vec.LeastLanes*n), make([]uint8, vec.Groups(n, 8))
	}
	r.anyRecovered = false
}

// Recovered reports whether group g of the row that was quantized last was recovered. A group of
// zeros never is.
func (r *RowQuantizer) Recovered(g int) bool { return r.anyRecovered && r.recovered[g] }

// AnyRecovered reports whether a group of the row that was quantized last was recovered.
func (r *RowQuantizer) AnyRecovered() bool { return r.anyRecovered }

// recover looks for lattices of the groups of x, whose ranges are in r.lo and r.hi, and sets their
// scales and zero points.
func (r *RowQuantizer) recover(scales []float32, zeros []int8, x []float32) {
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
			zeros[g] = int8(l.zero() << r.scheme.ZeroShift())
		}
	}
}

// lattices iterates over the groups of x that are on a lattice, which is in r.lattice.found. The ranges
// of the groups are in r.lo and r.hi.
func (r *RowQuantizer) lattices(x []float32) iter.Seq[int] {
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
// weight. A weight that is a power of two has two neighbours at different distances, and among codes
// of 8 bits the nearest may be the wrong one. weight is the weight of a code of group g.
func (r *RowQuantizer) recoverCodes(codes []int8, x []float32, weight func(g int, q float32) float32) {
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

// recoverFloat is recover for floating-point zero points, which are the weights of code 0. Their sum
// with float32(q s) is rounded once more, so that a lattice whose scale has 24 bits may be lost.
func (r *RowQuantizer) recoverFloat(scales, zeros, x []float32) {
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

// floatZero is the floating-point zero point of the lattice that was found.
func (l *lattice) floatZero() float32 { return 0 - float32(float32(l.zero())*l.found.scale) }

// survives reports whether the lattice that was found gives the weights x with a floating-point zero
// point.
func (l *lattice) survives(x []float32) bool {
	zero, s := l.floatZero(), l.found.scale
	for _, w := range x {
		p, _ := l.multiple(floats.Abs(w), s)
		if w < 0 {
			p = -p
		}
		if l.precision.Round(float32(float32(p+l.zero())*s)+zero) != w {
			return false
		}
	}
	return true
}

// LatticeFinder looks for lattices of groups whatever the scheme: with any scale that float32 holds,
// and integers that fit in 8 bits with a zero point.
type LatticeFinder struct{ *lattice }

// NewLatticeFinder returns a finder for weights of a precision, see RowQuantizer.Recover. It is not
// for concurrent use.
func NewLatticeFinder(precision packing.ScaleDtype) LatticeFinder {
	s := Scheme{Bits: 8, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32}
	return LatticeFinder{newLattice(s, precision, packing.ScaleF32.Smallest())}
}

// Find returns the lattice of a group. ok is false if there is none, or if all weights are zero. The
// weights are finite.
func (f LatticeFinder) Find(group []float32) (l Lattice, ok bool) {
	var lo, hi [1]float32
	var least [vec.LeastLanes]uint32
	var plausible [1]uint8
	vec.GroupRange(lo[:], hi[:], group, len(group))
	vec.LeastMagnitudes(least[:], group, len(group))
	vec.LatticeGroups(plausible[:], lo[:], hi[:], least[:], &f.test)
	ok = plausible[0] != 0 && f.find(group, lo[0], hi[0], least[:])
	return f.found, ok
}

// Bits returns the bits of codes that hold the lattice with scales of either sign, with zero points,
// and on the half-step grid; 0 if 8 bits do not, or if half-step does not.
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
	return symmetric, asymmetric, halfStep
}
