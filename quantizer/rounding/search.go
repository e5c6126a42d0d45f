package rounding

import (
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// searcher is the scratch memory of scale searches.
type searcher struct {
	weights []float32 // of the row
	// first has the candidates of a group whose range is symmetric, in units of the
	// inverse of its largest weight; where both signs may be, half of them have each. wide
	// has those that cut off more, for weights that count for little. second is for the
	// groups that get a second look and for the other half of asymmetric candidates.
	first, wide, second vec.Search
	final               vec.Final
	sorted              []sizeWeight // of the half-step grid: a group
	// ulp is the distance of neighbouring scales, as bits of a float32.
	ulp uint32
}

// signed is the number of candidates for each sign where both are searched.
const signed = vec.SearchLanes / 2

// longGroup is the largest group whose candidates lie densely enough at once; longer
// ones get a coarse look and then a fine one around its best.
const longGroup = 128

// reach says up to which multiple of 2^(b-1) steps the largest weight of a group may go
// in a search, where 2^(b-1) is the last step: what is beyond is cut off. By size of the
// group (up to 32, up to longGroup, longer) and bits. Chosen for the best
// signal-to-noise ratio on normally and t-distributed (5 degrees of freedom) weights,
// where the search then is within 0.05 dB of an exhaustive one.
var reach = [3][9]float32{
	{1: 2.5, 2: 2, 3: 1.5, 4: 1 + .9/8, 5: 1 + .9/16, 6: 1 + .9/32, 7: 1 + .9/64, 8: 1 + .9/128},
	{1: 3.5, 2: 2.3, 3: 1.7, 4: 1.25, 5: 1.11, 6: 1.05, 7: 1.025, 8: 1.012},
	{1: 8, 2: 7, 3: 5, 4: 3.2, 5: 2, 6: 1.5, 7: 1.25, 8: 1.12},
}

func sizeClass(group int) int {
	switch {
	case group <= 32:
		return 0
	case group <= longGroup:
		return 1
	}
	return 2
}

func newSearcher(s Scheme, k, group int) *searcher {
	sr := &searcher{weights: make([]float32, k), ulp: 1 << 13}
	if s.ScaleDtype == packing.ScaleBF16 {
		sr.ulp = 1 << 16
	}
	for i := range sr.weights {
		sr.weights[i] = 1
	}
	qmin, qmax := codeRange(s.Bits)
	if s.Mapping == gqf.MappingHalfStep {
		sr.sorted = make([]sizeWeight, group)
		return sr
	}
	for _, l := range []*vec.Search{&sr.first, &sr.wide, &sr.second} {
		for c := range l.Lo {
			l.Lo[c], l.Hi[c] = float32(qmin), float32(qmax)
		}
	}
	for c := range sr.final.Lo {
		sr.final.Lo[c], sr.final.Hi[c] = float32(qmin), float32(qmax)
	}
	n := float32(-qmin)
	end := float32(n * reach[sizeClass(group)][s.Bits])
	most := float32(n * reach[len(reach)-1][s.Bits])
	// The largest weight goes to about qmin, or to about qmax, and beyond.
	toMin, toMax := float32(n-0.9), max(n-1.9, 0.5)
	if s.Positive() {
		spread(sr.first.Inv[:], toMax, end)
		spread(sr.wide.Inv[:], end, most)
	} else {
		spread(sr.first.Inv[:signed], -toMin, -end)
		spread(sr.first.Inv[signed:], toMax, end)
		spread(sr.wide.Inv[:signed], -end, -most)
		spread(sr.wide.Inv[signed:], end, most)
	}
	return sr
}

// spread sets dst to numbers evenly spaced from first to last.
func spread(dst []float32, first, last float32) {
	step := (last - first) / float32(len(dst)-1)
	for i := range dst {
		dst[i] = first + float32(float32(i)*step)
	}
}

// Weigh sets what the errors of a row's weights count in searches that follow: the
// square of the error of column j counts d[j] * sqrt(1 + x^2/m), where x is the weight
// and m the mean of the row's squares; with flat it counts d[j]. d is not negative and is
// not copied; nil stands for ones, which is the default, not flat.
//
// d is E[a^2] of the activations that the column is multiplied with, the diagonal of the
// Hessian, where that is known. The root is right for what is not known: of weights
// alike in all else the large ones matter more, as they were trained to be large.
func (r *RowQuantizer) Weigh(d []float32, flat bool) { r.importance, r.flat = d, flat }

// rowWeights gives the weights of the row x.
func (r *RowQuantizer) rowWeights(x []float32) []float32 {
	w := r.search.weights
	inverse := float32(float64(len(x)) / vec.SumSquares(x))
	switch normal := packing.ScaleF32.IsScale(inverse); {
	case r.flat && r.importance != nil:
		return r.importance
	case r.flat || !normal:
		for i := range w {
			w[i] = 1
		}
	default:
		vec.Importance(w, x, inverse)
	}
	for i, d := range r.importance {
		w[i] = float32(w[i] * d)
	}
	return w
}

// searchScales replaces the scales and zero points of a row, those of the mapping's
// range, where others have a smaller weighted error.
func (r *RowQuantizer) searchScales(scales []float32, zeros []int8, x []float32) {
	weights := r.rowWeights(x)
	for g := range scales {
		n := min(r.group, len(x))
		group, w := x[:n], weights[:n]
		x, weights = x[n:], weights[n:]
		// Where the inverse of a scale, or a square, is near the ends of float32 there
		// is nothing to gain and something to overflow.
		m := r.largest(g)
		if a := floats.Abs(m); !(a > 0x1p-90 && a < 0x1p60) {
			continue
		}
		var s float32
		var z int8
		var ok bool
		switch {
		case zeros != nil:
			s, z, ok = r.searchAsymmetric(g, group, w)
		default:
			s, ok = r.searchSymmetric(m, group, w)
		}
		if ok {
			r.settle(scales, zeros, g, s, z, group, w)
		}
	}
}

// largest is the weight of group g that is largest in size.
func (r *RowQuantizer) largest(g int) float32 {
	if r.hi[g] >= -r.lo[g] {
		return r.hi[g]
	}
	return r.lo[g]
}

// searchSymmetric finds a group's best scale, not yet rounded, among candidates that
// are each the best for the codes that one of r.search.first gives. m is the largest weight.
func (r *RowQuantizer) searchSymmetric(m float32, x, w []float32) (scale float32, ok bool) {
	if r.scheme.Positive() {
		m = floats.Abs(m)
	}
	sr := r.search
	unit := 1 / m
	vec.SearchScales(&sr.first, unit, x, w)
	found := &sr.first
	c, ok := bestCandidate(found)
	// look takes the best of s, if that is better.
	look := func(s *vec.Search) {
		vec.SearchScales(s, unit, x, w)
		if d, better := bestCandidate(s); better && (!ok || s.Score[d] > found.Score[c]) {
			found, c, ok = s, d, true
		}
	}
	if r.importance != nil && len(x) <= longGroup {
		look(&sr.wide)
	}
	if ok && (r.importance != nil || len(x) > longGroup) {
		half := floats.Abs(found.Inv[1] - found.Inv[0])
		spread(sr.second.Inv[:], found.Inv[c]-half, found.Inv[c]+half)
		look(&sr.second)
	}
	return found.Score[c] / found.Product[c], ok
}

// bestCandidate is the first candidate with the highest score. ok is false if no score is
// above zero.
func bestCandidate(s *vec.Search) (c int, ok bool) {
	// Scores are not negative, so their bits are in their order. The maximum of integers
	// needs no branches, which could not be predicted; four of them do not wait for each other.
	var a, b, e, d uint64
	for i := 0; i < vec.SearchLanes; i += 4 {
		r := uint64(vec.SearchLanes - 1 - i)
		a = max(a, uint64(math.Float32bits(s.Score[i]))<<8|r)
		b = max(b, uint64(math.Float32bits(s.Score[i+1]))<<8|(r-1))
		e = max(e, uint64(math.Float32bits(s.Score[i+2]))<<8|(r-2))
		d = max(d, uint64(math.Float32bits(s.Score[i+3]))<<8|(r-3))
	}
	top := max(a, b, e, d)
	return vec.SearchLanes - 1 - int(top&0xff), top >= 1<<8
}

// settle stores for group g the scale of the least weighted error: of those there, of s
// rounded to the stored dtype and of its neighbours, the first of equal ones. It measures
// what the codes and stored scales will give, and so is never worse than what was there.
func (r *RowQuantizer) settle(scales []float32, zeros []int8, g int, s float32, z int8, x, w []float32) {
	f := &r.search.final
	was, dtype := scales[g], r.scheme.ScaleDtype
	least, most := math.Float32bits(r.smallest), math.Float32bits(dtype.Max())
	bits := math.Float32bits(dtype.Round(s))
	f.Scale[0] = was
	for c, n := range neighbours {
		v := r.neighbour(bits, n)
		if size := v &^ (1 << 31); size < least || size > most { // NaN and infinities too
			v = math.Float32bits(was)
		}
		f.Scale[1+c] = math.Float32frombits(v)
	}
	if zeros != nil {
		for c := range f.Scale {
			zero := zeros[g]
			if f.Scale[c] != was || c == 1 {
				zero = z
			}
			f.Lo[c], f.Hi[c] = float32(r.qmin-int(zero)), float32(r.qmax-int(zero))
		}
	}
	vec.ScaleErrors(f, x, w)
	first := uint64(math.MaxUint64)
	for c, e := range f.Error { // without branches, as in bestCandidate; a NaN is after all numbers
		first = min(first, uint64(math.Float32bits(e))<<8|uint64(c))
	}
	best := first & 0xff
	scales[g], r.inv[g] = f.Scale[best], 1/f.Scale[best]
	if zeros != nil {
		zeros[g] = int8(r.qmin - int(f.Lo[best]))
	}
}

// neighbours are distances between a scale and those tried beside it.
var neighbours = [vec.FinalLanes - 1]uint32{0, 1, ^uint32(0), 2, ^uint32(1), 3, ^uint32(2)}

// neighbour gives the bits of the n-th number of the stored dtype from s on, away from
// zero, where s are the bits of a number of it. Past zero it gives those of a NaN.
func (r *RowQuantizer) neighbour(s, n uint32) uint32 {
	if s&^(1<<31) < f16Even && r.scheme.ScaleDtype == packing.ScaleF16 {
		h := floats.F16FromF32(math.Float32frombits(s)) + uint16(n)
		return math.Float32bits(floats.F16ToF32(h))
	}
	return s + n*r.search.ulp
}

// f16Even are the bits of 2^-13. From there down to 2^-14 and less, numbers of F16 are 2^-24
// apart: those below 2^-14 are subnormal.
const f16Even = (127 - 13) << 23

// storable tells whether s, a number of the stored dtype, can be a scale.
func (r *RowQuantizer) storable(s float32) bool {
	return r.scheme.ScaleDtype.IsScale(s) && floats.Abs(s) >= r.smallest
}
