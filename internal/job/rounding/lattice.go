package rounding

import (
	"cmp"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// Lattice recovery. A checkpoint of a model that was trained with quantized weights, or that was
// dequantized, holds
//
// 	w = round(p s)
//
// where p are small integers, s is the scale of a group, and round rounds to the dtype of the
// checkpoint. On such a lattice, codes p + z and the scale s lose nothing, and any other choice
// does. This file finds s exactly: a group is recovered if and only if every weight comes back bit
// for bit, apart from the signs of zeros. All zeros of a group have the same sign: with negative
// zeros the scale is negative too, if the scheme and the codes permit a negative scale.
//
// With fractional zero points, in units of 2^-f, the weights are round((p 2^f - z) s/2^f): integers
// of 8 bits, in units of s/2^f, that are all congruent modulo 2^f. The half-step grid is alike: odd
// integers, in units of s/2.
//
// With F32 scales and a narrower checkpoint there are two roundings, round(float32(p s)), as every
// program computes. With BF16 and F16 scales the float32 product of a code of 8 bits is exact.
//
// Derivation. Let u be the unit of the lattice, and p the integers in this unit. Let a be the least
// magnitude of a group that is not zero, and m the largest; span bounds |p|.
//
//  1. The numbers that round to w form an interval e(w) around w. Its ends lie halfway to the
//     neighbours of w, and belong to e(w) if the last bit of w is 0, because ties go to even. The
//     intervals here are closed and a little wider, and the last step decides.
//  2. a = round(c u) with c >= 1, and m = round(p u) with p <= span. So m/a is at most span, apart
//     from roundings: a group with a smaller weight than m/span is on no lattice.
//  3. For the same reason there are few values of c: 1 <= c <= span a/m. Each gives an interval of
//     units, e(a)/c. For most, some of four small weights is no multiple of any unit there.
//     vec.LatticeGroups uses this and step 2 to reject nearly all groups of other checkpoints. The
//     values of c are tried in ascending order: the coarsest lattice needs the fewest bits.
//  4. Every other magnitude w confines u further, to the union of e(w)/p over all p. At most a
//     single p is possible as long as the interval of u is narrow against 1/p. At 7 and 8 bits,
//     BF16 weights have up to four, and the parts of the union that do not touch are tried in turn
//     (narrow). Where two parts touch, either code gives w, so only gaps divide the interval.
//  5. Any number in the interval that remains gives all weights. Of the numbers of the scale's
//     dtype, the nearest to the middle is verified with the roundings above (choose). If the true
//     scale can be stored, its own c and interval contain the scale, so a scale is found.
//
// Equal weights have equal codes, so steps 4 and 5 visit each magnitude once. A lattice has at most
// span magnitudes.

// lattice describes the lattices of a scheme, and holds the scratch memory of the search.
type lattice struct {
	precision packing.ScaleDtype // of the weights
	dtype     packing.ScaleDtype // of the stored scales
	smallest  float32            // magnitude of a scale that can be stored
	span      int                // bounds every |p|; if ranged, the difference of any two
	ranged    bool               // zero points move the range of p
	negative  bool               // scales may be negative
	odd       bool               // p is odd: the half-step grid
	modulus   int                // units of a scale, a power of two: all p are congruent modulo this
	residue   int                // of all p, while search tries a c
	// qmin is the least code: the zero point of a lattice without negative weights.
	qmin int

	test     vec.LatticeTest // rejects nearly all groups of other checkpoints
	normal   float32         // smallest normal number of the weights' dtype
	rounding float64         // largest relative error of a rounded weight that is a normal number
	slack    float64         // by which intervals are wider, relatively

	lo, hi float32   // range of the group, zero included
	sizes  []float32 // its magnitudes but 0, ascending, each once
	signs  []uint8   // of each, plus and minus
	zeros  bool
	minus  bool    // there are negative zeros
	parts  int     // that narrow may still try
	found  Lattice // by choose
}

// newLattice returns nil for schemes of blocks, and for weights of a dtype that scales cannot have.
func newLattice(s Scheme, precision packing.ScaleDtype, smallest float32) *lattice {
	if s.Type != 0 || precision == packing.ScaleNone {
		return nil
	}
	l := &lattice{
		precision: precision, dtype: s.ScaleDtype, smallest: smallest,
		span: 1 << (s.Bits - 1), modulus: 1, negative: !s.Positive(), normal: precision.SmallestNormal(), slack: 0x1p-50,
	}
	l.qmin, _ = codeRange(s.Bits)
	switch s.Mapping {
	case gqf.MappingAsymmetric:
		l.ranged, l.span = true, 1<<s.Bits-1
		if s.Fractions {
			l.span, l.qmin, l.modulus = math.MaxUint8, math.MinInt8, 1<<s.ZeroShift()
		}
	case gqf.MappingHalfStep:
		l.odd, l.span, l.modulus = true, 1<<s.Bits-1, 2
	}
	switch precision {
	case packing.ScaleBF16:
		l.rounding = 0x1p-8
	case packing.ScaleF16:
		l.rounding = 0x1p-11
	default:
		l.rounding = 0x1p-24
	}
	if s.ScaleDtype == packing.ScaleF32 && precision != packing.ScaleF32 {
		l.slack = 0x1p-23 // the product is rounded to float32 before
	}
	// Both ends are rounded, and the products are computed in float32.
	limit := float64(l.span) * (1 + 4*l.rounding + 0x1p-20)
	// In units of the power of two below: slack is relative to the ends of intervals, at most two.
	e := l.rounding + 3*l.slack
	l.test = vec.LatticeTest{
		Inverse: float32(1 / limit), Exempt: float32(limit * float64(l.normal)),
		Normal: l.normal, Error: float32(e / (1 - e) * (1 + 0x1p-20)),
	}
	if l.ranged {
		l.test.Smaller = 1
	}
	l.sizes, l.signs = make([]float32, 0, l.span), make([]uint8, 0, l.span)
	return l
}

// Lattice is a grid that holds a group of weights exactly: rounded integers times Unit.
type Lattice struct {
	Unit        float32 // positive
	Least, Most int     // integers, 0 included
	Odd         bool    // all integers are odd: the weights are on a half-step grid
	fractional  int     // bits with fractional zero points, if fewer; else 0
	scale       float32 // as stored: modulus times Unit, negative if the codes need a negative scale
}

// zero is the stored zero point of the lattice.
func (l *lattice) zero() int { return l.qmin - l.found.Least }

// find looks for a lattice of the group x and sets l.found. The range of x is lo to hi, zero
// included; vec.LeastMagnitudes found least. Only groups that pass l.test get here.
func (l *lattice) find(x []float32, lo, hi float32, least []uint32) bool {
	l.lo, l.hi = lo, hi
	var small [vec.LeastLanes]float32
	for i, v := range least[:vec.LeastLanes] {
		small[i] = vec.LeastValue(v)
	}
	a := vec.LeastValue(min(least[0], least[1], least[2], least[3]))
	return l.search(x, a, small[:])
}

// search is find for a group with the least magnitude a. small are weights.
func (l *lattice) search(x []float32, a float32, small []float32) bool {
	first := l.edges(a)
	least := l.edges(max(l.hi, -l.lo)).lo / float64(l.span) // of u
	if l.ranged {
		least = (l.edges(l.hi).lo + l.edges(-l.lo).lo) / float64(l.span)
	}
	e := max(first.hi/float64(a)-1, 1-first.lo/float64(a)) + l.rounding
	tolerance, half := float32(e/(1-e))+0x1p-20, float32(float64(l.normal)*l.rounding/(1-e)*(1+0x1p-20))
	step := 1
	if l.odd {
		step = 2
	}
	counted := false
	for c := 1; c <= l.span && first.hi >= float64(c)*least; c += step {
		// Small weights have small multiples and exclude a unit more often.
		if inverse := float32(c) / a; !l.odd && !(near(small, inverse, tolerance, half) && near(x, inverse, tolerance, half)) {
			continue
		}
		if !counted {
			if counted = l.count(x); !counted {
				return false
			}
		}
		l.parts = maxParts
		if l.settle(c) && l.narrow(interval{max(first.lo/float64(c), least), first.hi / float64(c)}, 1) {
			return true
		}
	}
	return false
}

// Bits of lattice.signs.
const plus, minus = 1, 2

func signOf(v float32) uint8 {
	if v < 0 {
		return minus
	}
	return plus
}

// settle sets the residue of all integers for the integer c of the least magnitude, and fails if a
// zero or the negative of a least weight in the group has another residue.
func (l *lattice) settle(c int) bool {
	if l.residue = c; l.signs[0] == minus {
		l.residue = -c
	}
	return l.allowed(c, l.signs[0]) && (!l.zeros || l.allowed(0, plus))
}

// allowed reports whether weights of some signs may be p units in magnitude.
func (l *lattice) allowed(p int, signs uint8) bool {
	mask := l.modulus - 1
	return (signs&plus == 0 || (p-l.residue)&mask == 0) && (signs&minus == 0 || (p+l.residue)&mask == 0)
}

// nearCount is how many weights near looks at. More weights hardly reject another group.
const nearCount = 64

// near reports whether the first weights of x are integers times c/a, apart from roundings. A
// weight w = p u + d with c u = a + e is v = p + (c d - p e)/a times a/c. With relative errors of d
// and e that add up to t, and h the largest d of a subnormal weight times c/a, |v - p| <= h + t p,
// and so |v - p| <= (h + t v)/(1 - t). tolerance is t/(1-t), half is h a/c/(1-t).
func near(x []float32, inverse, tolerance, half float32) bool {
	half = float32(half * inverse)
	for _, v := range x[:min(len(x), nearCount)] {
		v = float32(floats.Abs(v) * inverse)
		if floats.Abs(v-roundSmall(v)) > float32(v*tolerance)+half {
			return false
		}
	}
	return true
}

// count collects the magnitudes of x, and fails if there are more than a lattice has.
func (l *lattice) count(x []float32) bool {
	l.sizes, l.signs, l.zeros, l.minus = l.sizes[:0], l.signs[:0], false, false
	for _, v := range x {
		if v == 0 {
			if l.zeros = true; l.odd {
				return false
			}
			l.minus = l.minus || math.Signbit(float64(v))
			continue
		}
		sign := signOf(v)
		v = floats.Abs(v)
		from, to := 0, len(l.sizes)
		for from < to {
			if mid := (from + to) / 2; l.sizes[mid] < v {
				from = mid + 1
			} else {
				to = mid
			}
		}
		if from < len(l.sizes) && l.sizes[from] == v {
			l.signs[from] |= sign
			continue
		}
		if len(l.sizes) == l.span {
			return false
		}
		l.sizes, l.signs = slices.Insert(l.sizes, from, v), slices.Insert(l.signs, from, sign)
	}
	return true
}

// LatticeSurvey finds bits and group of the lattice of a matrix's rows, for a single goroutine.
type LatticeSurvey struct {
	finder LatticeFinder
	k      int
	sizes  []latticeSize
}

type latticeSize struct {
	group  int // 0: per channel
	groups int64
	found  int64
	// bits counts lattices by the fewest bits that suffice with scales of either sign, on the
	// half-step grid, and with zero points.
	bits [3][9]int64
}

// surveyGroups are the groups that a survey tries, the largest first.
var surveyGroups = []int{0, 1024, 512, 256, 128, 64, 32, 16}

// enoughGroups is the number of groups after which a size with few lattices is given up.
const enoughGroups = 4096

// NewLatticeSurvey returns a survey of rows of k weights of a precision, see RowQuantizer.Recover.
func NewLatticeSurvey(precision packing.ScaleDtype, k int) *LatticeSurvey {
	s := &LatticeSurvey{finder: NewLatticeFinder(precision), k: k}
	for _, g := range surveyGroups {
		if g < k {
			s.sizes = append(s.sizes, latticeSize{group: g})
		}
	}
	return s
}

func (s *LatticeSurvey) Add(x []float32) {
	for i := range s.sizes {
		size := &s.sizes[i]
		if size.groups >= enoughGroups && size.found < size.groups/4 {
			continue
		}
		width := cmp.Or(size.group, s.k)
		for at := 0; at < s.k; at += width {
			group := x[at:min(at+width, s.k)]
			if l, ok := s.finder.Find(group); ok {
				size.add(l)
			} else if slices.ContainsFunc(group, func(v float32) bool { return v != 0 }) {
				size.groups++
			}
		}
	}
}

func (z *latticeSize) add(l Lattice) {
	z.groups++
	symmetric, asymmetric, halfStep := l.Bits()
	if asymmetric == 0 { // an integer too far for a zero point of 8 bits
		return
	}
	z.found++
	for kind, b := range [...]int{symmetric, halfStep, asymmetric} {
		if b > 0 {
			z.bits[kind][b]++
		}
	}
}

// TrainedScheme is the scheme of the lattice that most groups of a matrix are on.
type TrainedScheme struct {
	Bits    int         `json:"bits"`
	Group   int         `json:"group"`   // 0: per channel
	Mapping gqf.Mapping `json:"mapping"` // full-range (scales of either sign), asymmetric or half-step
	// Exact counts the groups that Bits hold exactly, with float32 scales; Groups all but zeros.
	Exact  int64 `json:"exact"`
	Groups int64 `json:"groups"`
}

// Result returns the scheme of the rows that were added. Parts of a group are on lattices too, and
// two groups with few codes may share a lattice with more codes. So Result considers the group
// sizes where more than half of the groups are on lattices, and nearly as many as at any other
// size. The scheme has the fewest bits that all these groups need, then the largest size, without
// zero points if possible. ok is false if no size qualifies.
func (s *LatticeSurvey) Result() (t TrainedScheme, ok bool) {
	best := 0.5
	for i := range s.sizes {
		best = max(best, s.sizes[i].share())
	}
	t.Bits = 9
	for i := range s.sizes {
		size := &s.sizes[i]
		if share := size.share(); share <= 0.5 || share < 0.9*best {
			continue
		}
		for kind, m := range [...]gqf.Mapping{gqf.MappingFullRange, gqf.MappingHalfStep, gqf.MappingAsymmetric} {
			if bits, exact := size.least(kind); bits < t.Bits {
				t = TrainedScheme{Bits: bits, Group: size.group, Mapping: m, Exact: exact, Groups: size.groups}
			}
		}
	}
	return t, t.Bits <= 8
}

func (z *latticeSize) share() float64 { return float64(z.found) / float64(max(z.groups, 1)) }

// least returns the fewest bits that hold the lattices with codes of a kind, and how many lattices
// those bits hold; 9 bits if none do. Of 10,000 lattices, 1 may need more: found by chance.
func (z *latticeSize) least(kind int) (bits int, exact int64) {
	for b := 1; b <= 8; b++ {
		if exact += z.bits[kind][b]; z.found-exact <= z.found/10000 {
			return b, exact
		}
	}
	return 9, 0
}

// Plausible reports whether more than half of the smallest groups of a row are on lattices. Groups
// of zeros do not count. Rows on a lattice with larger groups are plausible too.
func (s *LatticeSurvey) Plausible(x []float32) bool {
	finest := LatticeSurvey{finder: s.finder, k: s.k, sizes: []latticeSize{{group: s.sizes[len(s.sizes)-1].group}}}
	finest.Add(x)
	return finest.sizes[0].share() > 0.5
}
