package rounding

import (
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// weighing says how much the error of each weight of a row counts in a search.
type weighing struct {
	recovery
	weights    []float32 // scratch of rowWeights
	importance []float32 // see Weigh
	flat       bool
	damped     bool // the algorithm is imatrix or awq, see Weigh
}

// Weigh weights the errors of later searches. The squared error of column j is multiplied by d[j] *
// sqrt(1 + x^2/m), where x is the weight and m the mean square of the row, or with flat by d[j]. d
// is not negative and is not copied. Default (nil): all 1, not flat.
//
// d is E[a^2] of the column's activations, the diagonal of the Hessian, if known. The root stands
// for what is unknown: among otherwise similar weights the larger weights matter more, because
// training made them large.
//
// The algorithms imatrix and awq know d, and take the fourth root instead, or at 1 and 2 bits the
// power 3/8: with a higher power scales clip less. No power is best for all models, so these
// algorithms also round each row without d and keep the better result, see package calib.
func (r *weighing) Weigh(d []float32, flat bool) { r.importance, r.flat = d, flat }

func (r *weighing) rowWeights(x []float32) []float32 {
	if r.flat && r.importance != nil {
		return r.importance
	}
	w := r.plainWeights(nil, x)
	r.damp(w)
	for i, d := range r.importance {
		w[i] = float32(w[i] * d)
	}
	return w
}

// plainWeights returns the weights of the errors of row x without importances. If heaviest is not
// nil, its elements become the greatest weight of each group: that of the group's largest value,
// because every step of vec.Importance is monotonic.
func (r *weighing) plainWeights(heaviest, x []float32) []float32 {
	w := r.weights
	inverse := float32(float64(len(x)) / vec.SumSquares(x))
	if r.flat || !packing.ScaleF32.IsScale(inverse) {
		for _, list := range [][]float32{w, heaviest} {
			for i := range list {
				list[i] = 1
			}
		}
		return w
	}
	for g := range heaviest {
		heaviest[g] = math.Float32frombits(larger(r.hi[g], r.lo[g]))
	}
	vec.Importance(heaviest, heaviest, inverse)
	vec.Importance(w, x, inverse)
	return w
}

// damp turns square roots into the roots of imatrix and awq, see Weigh.
func (r *weighing) damp(w []float32) {
	if !r.damped || r.importance == nil {
		return
	}
	for i, v := range w {
		root := math.Sqrt(float64(v))
		if r.scheme.Bits <= 2 {
			root = float64(root * math.Sqrt(root))
		}
		w[i] = float32(root)
	}
}

// newSearches returns the algorithms for rows without and with importances.
func newSearches(r *weighing) (plain, weighted algorithm) {
	var fractions *fractionSearch
	switch s := r.scheme; {
	case s.Mapping == gqf.MappingHalfStep:
		weighted = &halfStepSearch{r, make([]sizeWeight, r.group), make([]uint64, r.group)}
	case s.Fractions:
		fractions = newFractionSearch(r)
		weighted = fractions
	default:
		weighted = newScaleSearch(r)
	}
	switch {
	case r.scheme.searchesGrids(r.group):
		return newGridSearch(r, fractions), weighted
	case r.scheme.Mapping != gqf.MappingAsymmetric && r.scheme.Mapping != gqf.MappingHalfStep && r.scheme.Bits <= 6 && r.group <= longGroup:
		return newFitSearch(r), weighted
	}
	return weighted, weighted
}

// scaleSearch is the search in float32 of scales, and of integer zero points.
type scaleSearch struct {
	*weighing
	// first has the candidates of a group with a symmetric range, in units of the inverse of its
	// largest weight; if both signs are allowed, each has half of the candidates. wide has
	// candidates that clip more, for weights of small importance. second is for a second look at a
	// group, and for the other half of asymmetric candidates.
	first, wide, second vec.Search
	final               vec.Final
}

// signed is the number of candidates per sign if both are searched.
const signed = vec.SearchLanes / 2

// longGroup is the largest group with candidates dense enough for a single pass. Longer groups get
// a coarse pass and then a fine pass around its best candidate.
const longGroup = 128

// reach is how far, in steps, the largest weight of a group may lie in a search, as a multiple of
// 2^(b-1), the last step; weights beyond the last step are clipped. Rows are group sizes (up to 32,
// up to longGroup, longer), columns bits. These have the best signal-to-noise ratio on normally and
// t-distributed (5 degrees of freedom) weights, within 0.05 dB of an exhaustive search.
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

func newScaleSearch(r *weighing) *scaleSearch {
	sr, s := &scaleSearch{weighing: r}, r.scheme
	qmin, qmax := float32(r.qmin), float32(r.qmax)
	for _, l := range []*vec.Search{&sr.first, &sr.wide, &sr.second} {
		for c := range l.Lo {
			l.Lo[c], l.Hi[c] = qmin, qmax
		}
	}
	for c := range sr.final.Lo {
		sr.final.Lo[c], sr.final.Hi[c] = qmin, qmax
	}
	most := float32(-qmin * reach[len(reach)-1][s.Bits])
	end := scaleStarts(sr.first.Inv[:], s, r.group)
	if s.Positive() {
		spread(sr.wide.Inv[:], end, most)
	} else {
		spread(sr.wide.Inv[:signed], -end, -most)
		spread(sr.wide.Inv[signed:], end, most)
	}
	return sr
}

// scaleStarts sets list to the steps where a search puts the largest weight of a group: about qmin,
// or about qmax, and beyond. Negative scales have half of the list. end is the end of the list.
func scaleStarts(list []float32, s Scheme, group int) (end float32) {
	qmin, _ := codeRange(s.Bits)
	n, half := float32(-qmin), len(list)/2
	end = float32(n * reach[sizeClass(group)][s.Bits])
	toMin, toMax := float32(n-0.9), max(n-1.9, 0.5)
	if s.Positive() {
		spread(list, toMax, end)
	} else {
		spread(list[:half], -toMin, -end)
		spread(list[half:], toMax, end)
	}
	return end
}

// spread sets dst to numbers evenly spaced from first to last.
func spread(dst []float32, first, last float32) {
	step := (last - first) / float32(len(dst)-1)
	for i := range dst {
		dst[i] = first + float32(float32(i)*step)
	}
}

func (r *scaleSearch) improve(scales []float32, zeros []int8, x []float32) {
	weights := r.rowWeights(x)
	for g := range scales {
		n := min(r.group, len(x))
		group, w := x[:n], weights[:n]
		x, weights = x[n:], weights[n:]
		// Near the limits of float32, for inverses and squares, a search gains nothing and may overflow.
		m := r.largest(g)
		if a := floats.Abs(m); !(a > 0x1p-90 && a < 0x1p60) || r.Recovered(g) {
			continue
		}
		var s float32
		var z int8
		var ok bool
		if zeros != nil {
			s, z, ok = r.searchAsymmetric(g, group, w)
		} else {
			s, ok = r.searchSymmetric(m, group, w)
		}
		if ok {
			r.settle(scales, zeros, g, s, z, group, w)
		}
	}
}

func (r *rowGroups) largest(g int) float32 {
	return math.Float32frombits(larger(r.hi[g], r.lo[g]))
}

// searchSymmetric finds a group's best scale, not yet rounded. Each candidate is the least-squares
// scale for the codes of a start in r.first. m is the largest weight.
func (r *scaleSearch) searchSymmetric(m float32, x, w []float32) (scale float32, ok bool) {
	if r.scheme.Positive() {
		m = floats.Abs(m)
	}
	unit := 1 / m
	vec.SearchScales(&r.first, unit, x, w)
	found := &r.first
	c, ok := bestCandidate(&found.Score)
	look := func(s *vec.Search) {
		vec.SearchScales(s, unit, x, w)
		if d, better := bestCandidate(&s.Score); better && (!ok || s.Score[d] > found.Score[c]) {
			found, c, ok = s, d, true
		}
	}
	if r.importance != nil && len(x) <= longGroup {
		look(&r.wide)
	}
	if ok && (r.importance != nil || len(x) > longGroup) {
		half := floats.Abs(found.Inv[1] - found.Inv[0])
		spread(r.second.Inv[:], found.Inv[c]-half, found.Inv[c]+half)
		look(&r.second)
	}
	return found.Score[c] / found.Product[c], ok
}

// bestCandidate is the first candidate with the highest score. ok is false if no score is above 0.
func bestCandidate(score *[vec.SearchLanes]float32) (c int, ok bool) {
	// Scores are not negative, so their bits have the same order. An integer maximum has no
	// unpredictable branches, and four maxima run in parallel.
	var a, b, e, d uint64
	for i := 0; i < vec.SearchLanes; i += 4 {
		r := uint64(vec.SearchLanes - 1 - i)
		a = max(a, uint64(math.Float32bits(score[i]))<<8|r)
		b = max(b, uint64(math.Float32bits(score[i+1]))<<8|(r-1))
		e = max(e, uint64(math.Float32bits(score[i+2]))<<8|(r-2))
		d = max(d, uint64(math.Float32bits(score[i+3]))<<8|(r-3))
	}
	top := max(a, b, e, d)
	return vec.SearchLanes - 1 - int(top&0xff), top >= 1<<8
}

// settle stores the scale of group g with the least weighted error: the present scale, s rounded to
// the stored dtype, or a neighbour; the first if equal. Errors are those of codes and stored
// scales, so the result is never worse than before.
func (r *scaleSearch) settle(scales []float32, zeros []int8, g int, s float32, z int8, x, w []float32) {
	f := &r.final
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
	for c, e := range f.Error { // without branches, as in bestCandidate; NaN sorts after all numbers
		first = min(first, uint64(math.Float32bits(e))<<8|uint64(c))
	}
	best := first & 0xff
	scales[g], r.inv[g] = f.Scale[best], 1/f.Scale[best]
	if zeros != nil {
		zeros[g] = int8(r.qmin - int(f.Lo[best]))
	}
}

// neighbours are the distances of the neighbours that settle tries.
var neighbours = [vec.FinalLanes - 1]uint32{0, 1, ^uint32(0), 2, ^uint32(1), 3, ^uint32(2)}

// neighbour returns the bits of the n-th number of the stored dtype after the number with the bits
// s, away from zero. Past zero the result is a NaN.
func (r *rowGroups) neighbour(s, n uint32) uint32 {
	if s&^(1<<31) < f16Even && r.scheme.ScaleDtype == packing.ScaleF16 {
		h := floats.F16FromF32(math.Float32frombits(s)) + uint16(n)
		return math.Float32bits(floats.F16ToF32(h))
	}
	return s + n*r.ulp()
}

// ulp is the distance of neighbouring scales, in bits of a float32.
func (r *rowGroups) ulp() uint32 {
	if r.scheme.ScaleDtype == packing.ScaleBF16 {
		return 1 << 16
	}
	return 1 << 13
}

// f16Even are the bits of 2^-13. Numbers of F16 below are 2^-24 apart: subnormal below 2^-14.
const f16Even = (127 - 13) << 23

// storable reports whether s, a number of the stored dtype, can be a scale.
func (r *rowGroups) storable(s float32) bool {
	return r.scheme.ScaleDtype.IsScale(s) && floats.Abs(s) >= r.smallest
}

// shrink is the smallest fraction of its range to which a search may cut a group, by size of the
// group and bits, as in reach. Each end is cut separately.
var shrink = [3][9]float32{
	{1: 0.3, 2: 0.45, 3: 0.68, 4: 0.82, 5: 0.91, 6: 0.96, 7: 0.98, 8: 0.99},
	{1: 0.2, 2: 0.35, 3: 0.5, 4: 0.7, 5: 0.85, 6: 0.93, 7: 0.965, 8: 0.985},
	{1: 0.1, 2: 0.15, 3: 0.25, 4: 0.35, 5: 0.5, 6: 0.7, 7: 0.8, 8: 0.9},
}

const cuts = 8

type cutRange struct {
	score  float32
	scale  float32 // not yet rounded
	zero   int8
	lo, hi float32 // fractions of the two ends
}

// searchAsymmetric finds the best scale, not yet rounded, and zero point of group g. The ends of
// the candidate ranges are fractions of the group's range, or lie slightly outside, where a small
// group may fit the grid better by chance.
func (r *scaleSearch) searchAsymmetric(g int, x, w []float32) (scale float32, zero int8, ok bool) {
	var best cutRange
	try := func(class int) (step float32) {
		least := shrink[class][r.scheme.Bits]
		most := 1 + (1-least)*0.6
		r.searchRanges(&best, g, (most+least)/2, (most+least)/2, (most-least)/2, x, w)
		return (most - least) / (cuts - 1)
	}
	step := try(sizeClass(r.group))
	if r.importance != nil && len(x) <= longGroup {
		step = try(sizeClass(longGroup + 1))
	}
	if best.score > 0 && (r.importance != nil || len(x) > longGroup) {
		r.searchRanges(&best, g, best.lo, best.hi, step, x, w)
	}
	return best.scale, best.zero, best.score > 0
}

// searchRanges tries ranges from lo to hi times the ends of group g, each plus or minus up to by.
func (r *scaleSearch) searchRanges(best *cutRange, g int, lo, hi, by float32, x, w []float32) {
	var partLo, partHi [cuts]float32
	spread(partLo[:], lo-by, lo+by)
	spread(partHi[:], hi-by, hi+by)
	qmin, qmax := float32(r.qmin), float32(r.qmax)
	for half, s := range []*vec.Search{&r.first, &r.second} {
		for c := range s.Inv {
			low, high := float32(r.lo[g]*partLo[c%cuts]), float32(r.hi[g]*partHi[half*cuts/2+c/cuts])
			s.Inv[c] = (qmax - qmin) / (high - low)
			z := min(max(qmin-roundSmall(float32(low*s.Inv[c])), qmin), qmax)
			s.Lo[c], s.Hi[c] = qmin-z, qmax-z
		}
		vec.SearchScales(s, 1, x, w)
		if c, ok := bestCandidate(&s.Score); ok && s.Score[c] > best.score {
			*best = cutRange{
				score: s.Score[c], scale: s.Score[c] / s.Product[c], zero: int8(qmin - s.Lo[c]),
				lo: partLo[c%cuts], hi: partHi[half*cuts/2+c/cuts],
			}
		}
	}
}

// roundSmall is roundToEven for |v| < 2^22, without a call.
func roundSmall(v float32) float32 {
	const magic = 0x1.8p23
	return float32(v+magic) - magic
}
