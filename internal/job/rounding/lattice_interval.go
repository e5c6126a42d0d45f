package rounding

import (
	"math"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

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
	return l.choose(u)
}

// choose looks for a storable scale among the units u, from the middle and from the upper end on.
// Larger units have smaller multiples, so codes may suffice that do not for smaller units.
func (l *lattice) choose(u interval) bool {
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
