package rounding

import (
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
)

// fractionSearch is the scratch memory of searches of fractional zero points in float32: with
// importances, in long groups, and where the weights of a group have one sign (otherwise
// gridSearch). A search has three steps:
//
//  1. Candidates are ranges whose ends lie a few steps inside or outside the group's range. The
//     score is that of the least-squares scale and zero point for the codes, as if any could be
//     stored.
//  2. The same with ranges close to the best range.
//  3. Storable scales around the best scale are tried with the zero points around their best zero
//     point. The least error wins, for stored numbers. From 5 bits on, errors have many local
//     minima, and more scales and zero points are tried.
//
// On normally and t-distributed weights (5 degrees of freedom) in groups of 32 to 96, this is
// within 0.09 dB of trying every scale with every zero point at 2 to 4 bits, and within 0.15 dB at
// 6 bits.
type fractionSearch struct {
	*weighing
	integers *scaleSearch // for groups of one sign

	wide   [2]vec.Ranges // step 1
	wider  [2]vec.Ranges // step 1 for weights of little importance: may clip much
	gap    float32       // between the cuts of wider
	close  vec.Ranges    // step 2
	grids  vec.Grids     // step 3
	zeros  [vec.FinalLanes]int8
	reach  int       // scales tried on either side of the best scale
	each   int       // zero points of a scale
	centre []float32 // a group minus its mean
	steps  float32   // between the least and the greatest code
	least  float32   // error in step 3
}

type fractionFit struct {
	score     float32
	scale     float32
	code      float32 // mean code, counted from 0
	low, high float32 // the ends of the range, in steps inside the group's
}

// extend is how far, in steps, a range may lie outside the group's range.
const extend = 0.4

// closeBy is how far, in steps, step 2 moves the ends of the best range of step 1 at most.
const closeBy = 0.35

func newFractionSearch(r *weighing) *fractionSearch {
	s, group := r.scheme, r.group
	f := &fractionSearch{
		weighing: r, integers: newScaleSearch(r), centre: make([]float32, group), steps: float32(int(1)<<s.Bits - 1), reach: 3, each: 2,
	}
	if s.Bits > 4 {
		f.reach, f.each = 8, 4
	}
	f.spreadRanges(&f.wide, float32((1-shrink[sizeClass(group)][s.Bits])*(f.steps+1))/2)
	// At one end, for a single large weight.
	most := float32((1 - shrink[len(shrink)-1][s.Bits]) * (f.steps + 1))
	f.spreadRanges(&f.wider, most)
	f.gap = (most + extend) / (cuts - 1)
	return f
}

// spreadRanges sets list to ranges with cuts of up to so many steps at each end.
func (f *fractionSearch) spreadRanges(list *[2]vec.Ranges, most float32) {
	var cut [cuts]float32
	spread(cut[:], -extend, most)
	for half := range list {
		for c := range list[half].Inv {
			f.cut(&list[half], c, cut[c%cuts], cut[half*cuts/2+c/cuts])
		}
	}
}

// cut makes candidate c of s a group's range without low and high steps of its ends.
func (f *fractionSearch) cut(s *vec.Ranges, c int, low, high float32) {
	s.Inv[c] = f.steps / max(f.steps+1-low-high, float32(0.25*f.steps))
	s.Cut[c] = float32(low * s.Inv[c])
}

func (f *fractionSearch) improve(scales []float32, zeros []int8, x []float32) {
	weights := f.rowWeights(x)
	for g := range scales {
		// Beyond these limits a search gains nothing and may overflow.
		if a := floats.Abs(f.largest(g)); !(a > 0x1p-40 && a < 0x1p60) || f.Recovered(g) {
			continue
		}
		f.searchFraction(&scales[g], &zeros[g], g, f.GroupOf(x, g), f.GroupOf(weights, g))
		f.inv[g] = 1 / scales[g]
	}
}

type fractionGroup struct {
	x, w         []float32
	centre       []float32 // x minus its mean
	mean, weight float32   // weight is the sum of w
	low          float32   // the range, with 0, begins here
	unit         float32   // steps in a weight of 1, if the range has steps+1
}

func (f *fractionSearch) searchFraction(scale *float32, zero *int8, index int, x, w []float32) {
	lo, hi := f.lo[index], f.hi[index]
	var sum, weight float64
	for i, v := range x {
		sum += float64(float64(w[i]) * float64(v))
		weight += float64(w[i])
	}
	if !(weight > 0) {
		return
	}
	g := fractionGroup{x: x, w: w, centre: f.centre[:len(x)], mean: float32(sum / weight), weight: float32(weight), low: lo, unit: (f.steps + 1) / (hi - lo)}
	for i, v := range x {
		g.centre[i] = v - g.mean
	}
	var best fractionFit
	f.tryRanges(&best, &f.wide[0], &g)
	f.tryRanges(&best, &f.wide[1], &g)
	if f.importance != nil {
		f.tryRanges(&best, &f.wider[0], &g)
		f.tryRanges(&best, &f.wider[1], &g)
		f.tryClose(&best, f.gap/2, &g)
	}
	if best.score == 0 {
		return
	}
	f.tryClose(&best, closeBy, &g)
	f.least = float32(math.Inf(1))
	f.settleFraction(scale, zero, &best, &g)
	// All weights have the same sign, and the best grid would not hold 0.
	if z := f.bestZero(&best, best.scale, &g); z < float32(f.qmin) || z > float32(f.qmax) {
		if s, z, ok := f.integers.searchAsymmetric(index, x, w); ok {
			best, g.mean = fractionFit{scale: s, code: float32(int(z) - f.qmin)}, 0 // z with every scale
			f.settleFraction(scale, zero, &best, &g)
		}
	}
}

func (f *fractionSearch) bestZero(fit *fractionFit, scale float32, g *fractionGroup) float32 {
	return fit.code + float32(f.qmin) - g.mean/scale
}

func (f *fractionSearch) tryRanges(best *fractionFit, s *vec.Ranges, g *fractionGroup) {
	vec.FitRanges(s, g.unit, g.mean-g.low, 1/g.weight, f.steps, g.centre, g.w)
	if c, ok := bestGrid(s); ok && s.Score[c] > best.score {
		low := s.Cut[c] / s.Inv[c]
		*best = fractionFit{
			score: s.Score[c], scale: s.Score[c] / s.Product[c], code: s.Sum[c] / g.weight,
			low: low, high: f.steps + 1 - low - f.steps/s.Inv[c],
		}
	}
}

func (f *fractionSearch) tryClose(best *fractionFit, by float32, g *fractionGroup) {
	var low [8]float32
	var high [4]float32
	spread(low[:], best.low-by, best.low+by)
	spread(high[:], best.high-by, best.high+by)
	for c := range f.close.Inv {
		f.cut(&f.close, c, low[c%8], high[c/8])
	}
	f.tryRanges(best, &f.close, g)
}

// settleFraction stores the present scale and zero point, or a pair around best with less error.
func (f *fractionSearch) settleFraction(scale *float32, zero *int8, best *fractionFit, g *fractionGroup) {
	lane := 0
	shift, unit := float32(int(1)<<f.scheme.ZeroShift()), f.scheme.ZeroUnit()
	measure := func() {
		vec.GridErrors(&f.grids, float32(f.qmin), float32(f.qmax), g.x, g.w)
		for c, e := range f.grids.Error[:lane] {
			if e < f.least {
				f.least, *scale, *zero = e, f.grids.Scale[c], f.zeros[c]
			}
		}
		lane = 0
	}
	try := func(v float32, z int8) {
		f.grids.Scale[lane], f.grids.Offset[lane], f.zeros[lane] = v, 0-float32(float32(float32(z)*unit)*v), z
		if lane++; lane == len(f.zeros) {
			measure()
		}
	}
	for c := range f.grids.Scale { // lanes that are not used stay finite
		f.grids.Scale[c], f.grids.Offset[c] = *scale, 0
	}
	try(*scale, *zero)
	stored := math.Float32bits(f.scheme.ScaleDtype.Round(best.scale))
	for n := -f.reach; n <= f.reach; n++ {
		v := math.Float32frombits(f.neighbour(stored, uint32(n)))
		if !f.storable(v) || v < 0 {
			continue
		}
		z := math.Floor(float64(float32(f.bestZero(best, v, g)*shift))) - float64(f.each/2-1)
		for range f.each {
			try(v, int8(min(max(z, math.MinInt8), math.MaxInt8)))
			z++
		}
	}
	if lane > 0 {
		measure()
	}
}

// FractionalZeroPoints reports whether the scheme's algorithm chooses fractional zero points where
// the layout stores them. rtn does not: TorchAO's formula has integer zero points. At 8 bits
// fractional zero points would be integers.
func (s Scheme) FractionalZeroPoints() bool {
	return s.Mapping == gqf.MappingAsymmetric && s.Bits < 8 && s.Type == 0 && s.Algorithm > gqf.AlgorithmRTN
}

func (s Scheme) ZeroShift() int {
	if s.Fractions {
		return 8 - s.Bits
	}
	return 0
}

// ZeroUnit is the unit of int8 zero points: 2^-ZeroShift.
func (s Scheme) ZeroUnit() float32 { return 1 / float32(int(1)<<s.ZeroShift()) }

// fractionCodes chooses the nearest codes for stored scales and zero points; acc gets squares.
func (r *RowQuantizer) fractionCodes(codes []int8, scales []float32, zeros []int8, x []float32, acc *vec.ErrorSum) {
	unit := r.scheme.ZeroUnit()
	for g, z := range zeros {
		zero := float32(float32(z) * unit)
		whole := roundSmall(zero)
		r.whole[g], r.fraction[g] = int8(whole), zero-whole
	}
	vec.QuantizeFractions(codes, x, scales, r.inv, r.whole, r.fraction, r.group, r.qmin, r.qmax, acc)
}
