package rounding

import (
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// The search for the scales and minima of a block:
//
//  1. Each group gets the grid of the least weighted error, as if any scale and minimum could be
//     stored: candidates are ranges, each with the least-squares scale and minimum for its codes.
//  2. d is the F16 number with the integer multiples that fit the groups' scales best, by the error
//     of the weights. Minima follow from the rounded scales, dmin from the minima.
//  3. Each group tries the integers around those of step 2 and takes the least error. From 4 bits
//     on, errors have many local minima, and most of the gain comes from this step.
//
// A block keeps round-to-nearest's result unless the search has less error. llama.cpp's
// quantize_row_q4_K_impl and its siblings have steps 1 and 2, and round sub-scales and minima
// independently.

type blockSearch struct {
	ranges     vec.Ranges // of a group, with minima
	scales     vec.Search // of a group, without minima
	subs, mins vec.Search // of a block, for d and dmin
	grids      vec.Grids

	fits   [maxGroups]groupFit
	centre []float32 // a group minus its mean
	values [maxGroups]float32
	curves [maxGroups]float32

	// reach is how far from its start a group's sub-scale may move in step 3, and minTries how many
	// minima are tried for each. Up to 3 bits more gain nothing.
	reach, minTries int32
	tried           [vec.FinalLanes]struct{ sub, min int32 }
}

// groupFit is the best grid of a group if any scale and minimum could be stored.
type groupFit struct {
	scale float32
	mean  float32 // of the weights
	code  float32 // mean code
	// curve and weight are the costs of squared deviations from the best scale and minimum.
	curve, weight float32
}

// minimum is the best minimum for a scale: the mean code then stands for the mean weight.
func (f *groupFit) minimum(scale float32) float32 { return float32(f.code*scale) - f.mean }

// Each end of a group's range moves inwards by lowCuts and highCuts, in steps of 2^b in the range.
var (
	lowCuts  = [...]float32{-0.4, 0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.4}
	highCuts = [...]float32{-0.2, 0.4, 1.0, 1.6}
)

// commonRange is where a search for d puts a block's largest scale, as parts of the largest
// sub-scale.
var commonRange = [2]float32{0.8, 1.1}

func newBlockSearch(b *blockGrid) *blockSearch {
	if b.points != nil {
		return &blockSearch{}
	}
	s := &blockSearch{centre: make([]float32, b.group)}
	multiples(&s.subs, b.subMin, b.subMax)
	if b.minMax == 0 {
		own := Scheme{Bits: b.bits, Group: b.group, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF16}
		for c := range s.scales.Lo {
			s.scales.Lo[c], s.scales.Hi[c] = float32(b.qmin), float32(b.qmax)
		}
		s.reach, s.minTries = 7, 1
		switch {
		case b.table != nil:
			copy(s.scales.Inv[:], b.table.steps[:])
			s.reach = 2
			return s
		case b.bits < 4:
			s.reach = 3
		}
		scaleStarts(s.scales.Inv[:], own, b.group)
		return s
	}
	multiples(&s.mins, 0, b.minMax)
	s.reach, s.minTries = 5, 4
	if b.bits < 4 {
		s.reach = 1
	}
	steps := float32(b.qmax)
	for c := range s.ranges.Inv {
		low, high := lowCuts[c%len(lowCuts)], highCuts[c/len(lowCuts)]
		s.ranges.Inv[c] = steps / max(steps+1-low-high, 0.3*steps)
		s.ranges.Cut[c] = float32(low * s.ranges.Inv[c])
	}
	return s
}

// multiples makes s search for a number with multiples, least to most, that fit values.
func multiples(s *vec.Search, least, most int) {
	for c := range s.Inv {
		s.Lo[c], s.Hi[c] = float32(least), float32(most)
	}
	inv := s.Inv[:]
	if least < 0 {
		inv = s.Inv[signed:]
		spread(s.Inv[:signed], float32(float32(least)*commonRange[0]), float32(float32(least)*commonRange[1]))
	}
	spread(inv, float32(float32(most)*commonRange[0]), float32(float32(most)*commonRange[1]))
}

// searchBlock replaces round-to-nearest's scales and minima of a block if others have a smaller
// weighted error. lo and hi are the groups' ranges.
func (b *blockRows) searchBlock(f *blockFit, lo, hi, x, w []float32) {
	// Beyond these limits a search gains nothing and may overflow.
	size := float32(0)
	for g := range lo {
		size = max(size, -lo[g], hi[g])
	}
	if !(size > 0x1p-40 && size < 0x1p60) {
		return
	}
	switch {
	case b.power:
		b.searchPower(f, x, w)
		return
	case b.points != nil:
		b.searchPoints(f, x, w)
		return
	case b.minMax > 0:
		b.fitRanges(lo, hi, x, w)
	default:
		b.fitScales(lo, hi, x, w)
	}
	var found blockFit
	b.common(&found)
	if b.refine(&found, f, x, w) {
		*f = found
	}
}

// searchPower replaces a scale that is a power of two by its double or its half.
func (b *blockRows) searchPower(f *blockFit, x, w []float32) {
	grids := &b.search.grids
	list := []float32{f.d, 2 * f.d, max(f.d/2, powerScale(0))}
	copy(grids.Scale[:], list)
	b.table.errors(grids, len(list), x, w)
	best := 0
	for c, e := range grids.Error[:len(list)] {
		if e < grids.Error[best] {
			best = c
		}
	}
	f.d = grids.Scale[best]
	f.set(0, 1, 0)
}

func (b *blockGrid) groupOf(v []float32, g int) []float32 { return v[g*b.group:][:b.group] }

func (b *blockRows) fitScales(lo, hi, x, w []float32) {
	s := b.search
	for g := range b.groups {
		fit := &s.fits[g]
		*fit = groupFit{}
		m := hi[g]
		if m < -lo[g] {
			m = lo[g]
		}
		if m == 0 {
			continue
		}
		if b.bits > 4 { // step 3 finds as good a scale from any start
			fit.scale, fit.curve = m/(float32(b.qmin)+1.5), 1
			continue
		}
		if b.table != nil {
			b.table.search(&s.scales, 1/m, b.groupOf(x, g), b.groupOf(w, g))
		} else {
			vec.SearchScales(&s.scales, 1/m, b.groupOf(x, g), b.groupOf(w, g))
		}
		if c, ok := bestCandidate(&s.scales.Score); ok {
			fit.scale = s.scales.Score[c] / s.scales.Product[c]
			fit.curve = s.scales.Product[c] / fit.scale
		}
	}
}

func (b *blockRows) fitRanges(lo, hi, x, w []float32) {
	s := b.search
	steps := float32(b.qmax)
	for g := range b.groups {
		x, w, fit := b.groupOf(x, g), b.groupOf(w, g), &s.fits[g]
		*fit = groupFit{}
		var sum, weight float32
		for i, v := range x {
			sum += float32(w[i] * v)
			weight += w[i]
		}
		if !(weight > 0) {
			continue
		}
		fit.mean, fit.weight = sum/weight, weight
		low, high := b.rangeOf(x, lo[g], hi[g])
		if !(low < high) {
			continue
		}
		for i, v := range x {
			s.centre[i] = v - fit.mean
		}
		vec.FitRanges(&s.ranges, (steps+1)/(high-low), fit.mean-low, 1/weight, steps, s.centre, w)
		if c, ok := bestGrid(&s.ranges); ok {
			fit.scale = s.ranges.Score[c] / s.ranges.Product[c]
			fit.code = s.ranges.Sum[c] / weight
			fit.curve = s.ranges.Product[c] / fit.scale
		}
	}
}

// bestGrid is bestCandidate without the infinite scores of grids with equal codes for all weights.
func bestGrid(s *vec.Ranges) (c int, ok bool) {
	for {
		if c, ok = bestCandidate(&s.Score); !ok || !math.IsInf(float64(s.Score[c]), 0) {
			return c, ok
		}
		s.Score[c] = 0
	}
}

// rangeOf is the range of a group's weights; lo to hi includes zero. K types' minima are at most 0.
func (b *blockGrid) rangeOf(x []float32, lo, hi float32) (low, high float32) {
	if lo < 0 && hi > 0 {
		return lo, hi
	}
	if low, high = bounds(x); b.super() {
		low = min(low, 0)
	}
	return low, high
}

// common chooses d and dmin for the groups' scales and minima, and rounds these to multiples.
func (b *blockRows) common(f *blockFit) {
	s := b.search
	if !b.super() {
		f.d, _ = storeF16(s.fits[0].scale)
		f.dmin, _ = storeF16(s.fits[0].minimum(f.d))
		f.set(0, 1, 1)
		return
	}
	n := b.groups
	for g := range n {
		s.values[g], s.curves[g] = s.fits[g].scale, s.fits[g].curve
	}
	f.d = commonScale(&s.subs, s.values[:n], s.curves[:n])
	for g := range n {
		f.set(g, b.nearestSub(s.values[g], f.d), 0)
	}
	if b.minMax == 0 {
		return
	}
	for g := range n {
		s.values[g], s.curves[g] = max(0, s.fits[g].minimum(f.scale[g])), s.fits[g].weight
	}
	f.dmin = commonScale(&s.mins, s.values[:n], s.curves[:n])
	for g := range n {
		f.set(g, f.sub[g], b.nearestMin(s.values[g], f.dmin))
	}
}

// commonScale is the F16 number with the multiples that fit the values best. multiples prepared s.
func commonScale(s *vec.Search, values, weights []float32) float32 {
	top := values[largest(values)]
	if top == 0 {
		return 0
	}
	d := top / s.Hi[0]
	vec.SearchScales(s, 1/top, values, weights)
	if c, ok := bestCandidate(&s.Score); ok {
		d = s.Score[c] / s.Product[c]
	}
	d, _ = storeF16(d)
	return d
}

// refine moves each group of f to the nearby integers of the least error. better reports whether
// the block's error is smaller than with was.
func (b *blockRows) refine(f, was *blockFit, x, w []float32) (better bool) {
	s := b.search
	grids := &s.grids
	var sum, sumWas float64
	for g := range b.groups {
		x, w := b.groupOf(x, g), b.groupOf(w, g)
		grids.Scale[0], grids.Offset[0] = usable(was.scale[g]), was.offset[g]
		lane, errorWas, least := 1, float32(math.NaN()), float32(math.Inf(1))
		best := s.tried[0]
		measure := func() {
			if b.table != nil {
				b.table.errors(grids, lane, x, w)
			} else {
				vec.GridErrors(grids, float32(b.qmin), float32(b.qmax), x, w)
			}
			from := 0
			if errorWas != errorWas { // the first call
				errorWas, from = grids.Error[0], 1
			}
			for c, e := range grids.Error[from:lane] {
				if e < least {
					best, least = s.tried[from+c], e
				}
			}
			lane = 0
		}
		last := min(f.sub[g]+s.reach, int32(b.subMax))
		for sub := max(f.sub[g]-s.reach, int32(b.subMin)); sub <= last; sub++ {
			scale := float32(f.d * float32(sub))
			m := b.firstMin(&s.fits[g], scale, f.dmin)
			for end := m + s.minTries; m < end; m++ {
				s.tried[lane].sub, s.tried[lane].min = sub, min(max(m, 0), int32(b.minMax))
				grids.Scale[lane] = usable(scale)
				grids.Offset[lane] = 0 - float32(f.dmin*float32(s.tried[lane].min))
				if lane++; lane == len(s.tried) {
					measure()
				}
			}
		}
		if lane > 0 {
			measure()
		}
		f.set(g, best.sub, best.min)
		sum += float64(least)
		sumWas += float64(errorWas)
	}
	return sum < sumWas
}

// firstMin is the first integer minimum to try with a scale.
func (b *blockRows) firstMin(fit *groupFit, scale, dmin float32) int32 {
	switch {
	case !b.super():
		return int32(b.minMax)
	case dmin == 0:
		return 0
	}
	m := min(max(fit.minimum(scale)/dmin, 0), float32(b.minMax))
	return int32(m) - (b.search.minTries/2 - 1)
}

// usable replaces the scale 0 by a scale so small that all codes stand for the offset.
func usable(scale float32) float32 {
	if scale == 0 {
		return 0x1p-100
	}
	return scale
}
