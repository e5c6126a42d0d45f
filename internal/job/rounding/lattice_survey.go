package rounding

import (
	"cmp"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
)

// LatticeSurvey finds bits and group of the lattice of a matrix's rows, for a single goroutine.
type LatticeSurvey struct {
	finder LatticeFinder
	k      int
	sizes  []latticeSize
}

// latticeSize counts the lattices of groups of a size.
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
