package rounding

import (
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// gridSearch is the search of grids with a zero point, and of the half-step grid, in integers and
// for many groups at once, see vec.GridSearch: without importances, for the schemes of
// searchesGrids.
//
//  1. starts are scored with the least-squares scale for their codes, and with the least-squares
//     zero point where zero points are fractional.
//  2. With fractional zero points, the grids around the best grid are scored in the same way.
//  3. The present grid and storable grids around the best grid are compared.
type gridSearch struct {
	*weighing
	fractions *fractionSearch // for groups of one sign; nil without fractional zero points
	*vec.Fit
	vec.GridSearch
	choice         vec.GridChoice
	starts, around []vec.GridStart
	stored         []storedGrid // what step 3 tries apart from the present grid
	heaviest       []float32    // weight of each group
	found          [vec.FitLanes]bool
	oneSided       [vec.FitLanes]bool // the best grid does not hold 0: all weights have the same sign
	// scale, zero and mean are the result of steps 1 and 2, see estimates.
	scale, zero, mean [vec.FitLanes]float32
	fixed             float32 // zero point that is not stored
	near              vec.Near
	distances         []uint32 // of the scales of stored, as bits of a float32
	// scales and zeros are the grids of choice, in units of weights and as stored.
	scales [vec.GridChoices][vec.FitLanes]float32
	zeros  [vec.GridChoices][vec.FitLanes]int8
}

// storedGrid is a grid around the best grid: the scale is so many numbers of its dtype away, and
// the zero point, before rounding, so many units.
type storedGrid struct {
	scale uint32
	zero  float32
}

func newGridSearch(r *weighing, fractions *fractionSearch) *gridSearch {
	s, group := r.scheme, r.group
	f := &gridSearch{weighing: r, fractions: fractions, Fit: vec.NewGridFit(group, s.Bits), heaviest: make([]float32, len(r.lo))}
	switch {
	case s.Mapping == gqf.MappingHalfStep:
		f.halfStepStarts(s.Bits)
		f.fixed = -0.5
	case s.Fractions:
		f.fractionStarts(s.Bits, group)
	case s.Mapping == gqf.MappingAsymmetric:
		f.zeroStarts(s.Bits, group)
	default:
		f.signedStarts(s, group)
	}
	switch f.stored = nearGrids[:3]; {
	case s.Bits > 4 && s.Fractions:
		f.stored = wideGrids()
	case s.Bits > 1 && s.Fractions && group > 96:
		f.stored = besideGrids
	case s.Bits == 8 && s.Mapping == gqf.MappingAsymmetric:
		f.stored = nearGrids
	case s.Bits > 6:
		f.stored = nearGrids[:7]
	}
	for _, g := range f.stored {
		f.distances = append(f.distances, g.scale*r.ulp())
	}
	return f
}

const below = ^uint32(0) // the next smaller scale

// nearGrids are the grids of step 3 with the next scales. At up to 6 bits, the first three are
// enough. At 8 bits nearGrids gain more than starts do: a scale is rounded to 8 bits there, and
// moves the largest codes by half a step.
var nearGrids = []storedGrid{
	{scale: 0}, {scale: 1}, {scale: below}, {scale: 2}, {scale: below - 1}, {scale: 3}, {scale: below - 2}, {scale: 4}, {scale: below - 3}, {scale: 5},
}

// besideGrids are the grids of step 3 with the next scales and the zero points on both sides of the
// best: errors of long groups depend little on the scale, and more on the zero point.
var besideGrids = []storedGrid{
	{below, -0.5}, {below, 0.5}, {0, -0.5}, {0, 0.5}, {1, -0.5}, {1, 0.5}, {0, 0},
}

// wideGrids are the grids of step 3 where errors have many local minima.
func wideGrids() (list []storedGrid) {
	for n := range uint32(17) {
		for z := range 4 {
			list = append(list, storedGrid{scale: n - 8, zero: float32(z) - 1.5})
		}
	}
	return list
}

// fractionStarts sets the grids of steps 1 and 2 for fractional zero points. Step 1 tries ranges
// with ends up to outside steps outside the group's range and up to most steps inside: every other
// pair of cuts. In short groups, three pairs are added near the most frequent pair, and from 4 bits
// on pairs that clip much at both ends are left out. A value at the range's end is 32767.
func (f *gridSearch) fractionStarts(bits, group int) {
	const outside = 0.35
	steps := float32(int(1)<<bits - 1)
	most := float32((1 - shrink[sizeClass(group)][bits]) * (steps + 1) * 0.375)
	cut := make([]float32, 5)
	if group > 32 {
		cut = make([]float32, 7)
	}
	spread(cut, -outside, most)
	middle := float32((steps + 1) / 2 * (0x1p15 / math.MaxInt16))
	for i, low := range cut {
		for j, high := range cut {
			var take bool
			switch even := (i+j)%2 == 0; {
			case group > 32:
				take = !even
			case even:
				take = bits <= 3 || low+high <= float32(1.3*most)
			default:
				take = i+j == 3 && i*j == 2 || i+j == 1 && i == 1
			}
			if take {
				narrow := steps / (steps + 1 - low - high)
				f.starts = append(f.starts, vec.GridStart{Factor: narrow * middle * f.Power(), Shift: (high - low) / 2 * narrow * f.Power()})
			}
		}
	}
	const wider, shift = 0.3, 0.15 // steps
	for _, p := range [][2]float32{{1, 0}, {-1, 0}, {0, 1}, {0, -1}, {1, 1}, {-1, 1}, {1, -1}, {-1, -1}} {
		f.around = append(f.around, vec.GridStart{Factor: steps / (steps + float32(p[0]*wider)), Shift: p[1] * shift * f.Power()})
	}
}

// halfStepStarts sets the steps of the largest weight, 32767. At 1 bit all scales have equal codes.
func (f *gridSearch) halfStepStarts(bits int) {
	f.starts = make([]vec.GridStart, 4)
	least, ratio := float32(1.03), float32(1)
	if bits > 1 {
		f.starts, ratio = make([]vec.GridStart, 16), 1.1
	}
	for i := range f.starts {
		f.starts[i] = vec.GridStart{Factor: least * f.Power()}
		least *= ratio
	}
}

// signedStarts sets the steps of the largest weight, 32767, for grids without zero points.
func (f *gridSearch) signedStarts(s Scheme, group int) {
	list := make([]float32, signedStarts)
	if s.Bits == 8 {
		list = list[:signedStarts/4]
	}
	scaleStarts(list, s, group)
	for _, v := range list {
		f.starts = append(f.starts, vec.GridStart{Factor: v * f.Power()})
	}
}

// signedStarts is the number of starts without zero points at up to 7 bits; a quarter at 8 bits.
const signedStarts = 16

// zeroCandidates are the integer zero points that a search tries, relative to the integer below the
// zero point of the group's range. At more bits, zero points further away need much larger scales.
func zeroCandidates(bits int) (from, to float32) {
	switch {
	case bits > 7:
		return 0, 1
	case bits > 4:
		return -1, 2
	}
	return -1, 1
}

// zeroOutside is the distance, in steps, by which the largest scale of zeroStarts is too large. At
// many bits, and in short groups at 4 bits, a larger scale may fit better by chance. In groups of
// 32 with F32 scales, 0.35 everywhere loses .02 dB at 4 bits, .1 dB at 6 bits and .3 dB at 8 bits.
func zeroOutside(bits, group int) float32 {
	switch {
	case bits == 8:
		return 4
	case bits >= 6:
		return 2
	case bits == 5:
		return 1.5
	case bits == 4 && group <= 32:
		return 1
	}
	return 0.35
}

// zeroStarts sets inverses of scales, relative to a range that ends half a step outside the codes.
func (f *gridSearch) zeroStarts(bits, group int) {
	list := make([]float32, 8)
	if bits == 8 {
		list = list[:4]
	}
	f.starts = make([]vec.GridStart, len(list))
	steps := float32(int(1)<<bits - 1)
	spread(list, 1-zeroOutside(bits, group)/steps, 1+float32((1-shrink[sizeClass(group)][bits])*0.9))
	for i, v := range list {
		f.starts[i].Factor = v
	}
}

func (f *gridSearch) improve(scales []float32, zeros []int8, x []float32) {
	weights := f.plainWeights(f.heaviest, x)
	for first := 0; first < len(scales); first += vec.FitLanes {
		end := min(first+vec.FitLanes, len(scales))
		from, to := first*f.group, min(end*f.group, len(x))
		f.gridUnits(first, end)
		f.Load(x[from:to], weights[from:to])
		f.Totals(&f.choice)
		f.GridSearch = vec.GridSearch{}
		switch {
		case f.scheme.Mapping == gqf.MappingHalfStep:
			f.searchHalfSteps()
		case f.scheme.Fractions:
			f.searchFractions()
		case f.scheme.Mapping == gqf.MappingAsymmetric:
			f.searchZeros(first, end)
		default:
			f.searchSigned()
		}
		f.oneSided = [vec.FitLanes]bool{}
		f.estimates()
		var z []int8
		if zeros != nil {
			z = zeros[first:end]
		}
		f.chooseGrids(scales[first:end], z, f.inv[first:end])
		for g := first; g < end; g++ {
			if f.oneSided[g-first] {
				f.fractions.searchFraction(&scales[g], &zeros[g], g, f.GroupOf(x, g), f.GroupOf(weights, g))
				f.inv[g] = 1 / scales[g]
			}
		}
	}
}

// gridUnits sets the Fit's Unit, Offset and Weight for some groups, and found where a search may
// gain without overflow. With fractional zero points, the middle of the range becomes 0.
func (f *gridSearch) gridUnits(first, end int) {
	f.Unit, f.Offset, f.Weight, f.found = [vec.FitLanes]float32{}, [vec.FitLanes]float32{}, [vec.FitLanes]float32{}, [vec.FitLanes]bool{}
	const least, most = (127 - 40) << 23, (127 + 60) << 23 // bits of 2^-40 and 2^60
	// All bits of negative are set if scales may be negative: the largest weight becomes positive.
	var negative uint32
	if !f.scheme.Positive() {
		negative = math.MaxUint32
	}
	for g := first; g < end; g++ {
		lo, hi, i := f.lo[g], f.hi[g], g-first
		bits := larger(hi, lo)
		sign := bits & (1 << 31) & negative
		bits &^= 1 << 31
		if bits <= least || bits >= most || f.Recovered(g) {
			continue
		}
		if f.scheme.Fractions {
			f.Unit[i] = 2 * math.MaxInt16 / (hi - lo)
			f.Offset[i] = float32((lo + hi) * -0.5 * f.Unit[i])
		} else {
			f.Unit[i] = math.MaxInt16 / math.Float32frombits(bits|sign)
		}
		f.Weight[i], f.found[i] = f.MaxWeight/f.heaviest[g], true
	}
}

// searchSigned: the zero point is 0. The starts are multiples of the code of the largest weight.
func (f *gridSearch) searchSigned() {
	for i := range f.Inverse {
		f.Inverse[i], f.Start[i] = 0x1p15/math.MaxInt16, f.Power()/2
	}
	f.SearchGrids(&f.GridSearch, f.starts)
}

// searchHalfSteps: the zero point is -1/2, so a value's step is its code plus 1/2.
func (f *gridSearch) searchHalfSteps() {
	for i, w := range f.choice.Weights {
		f.A0[i], f.B0[i], f.B1[i] = f.choice.Values[i]/2, w/4, 1
		f.Inverse[i] = 0x1p15 / math.MaxInt16
	}
	f.SearchGrids(&f.GridSearch, f.starts)
}

// searchFractions does steps 1 and 2. The least-squares zero point for any scale is the code's mean
// minus the values' mean divided by the scale.
func (f *gridSearch) searchFractions() {
	for i, w := range f.choice.Weights {
		f.Inverse[i] = 1
		if f.found[i] {
			f.A1[i], f.B2[i] = -f.choice.Values[i]/w, -1/w
		}
	}
	f.SearchGrids(&f.GridSearch, f.starts)
	power := f.Power()
	for i, score := range f.Score {
		f.Inverse[i], f.Start[i] = 0, 0
		if score > 0 {
			inverse := f.B[i] / f.A[i]
			zero := float32(f.N[i]*-f.B2[i]) + float32(f.A1[i]*inverse)
			f.Inverse[i], f.Start[i] = float32(inverse*power), float32(zero*power)+power/2
		}
	}
	f.SearchGrids(&f.GridSearch, f.around)
}

// searchZeros tries integer zero points around the zero point of the group's range.
func (f *gridSearch) searchZeros(first, end int) {
	power := f.Power()
	qmin, qmax := float32(f.qmin), float32(f.qmax)
	var best, nominal [vec.FitLanes]float32
	for i := range end - first {
		if lo, hi := f.lo[first+i], f.hi[first+i]; f.found[i] {
			nominal[i] = roundSmall(qmin - float32(float32(lo/(hi-lo))*(qmax-qmin)) - 0.5)
		}
	}
	from, to := zeroCandidates(f.scheme.Bits)
	for n := from; n <= to; n++ {
		for i := range end - first {
			if !f.found[i] {
				continue
			}
			z := min(max(nominal[i]+n, qmin), qmax)
			v, w, unit := f.choice.Values[i], f.choice.Weights[i], f.Unit[i]*0x1p-15
			f.A0[i], f.B0[i], f.B1[i] = -float32(z*v), float32(float32(z*z)*w), -2*z
			scale := max(f.hi[first+i]/(qmax-z+0.5), f.lo[first+i]/(qmin-z-0.5))
			f.Inverse[i], f.Start[i] = power/float32(scale*unit), float32(z*power)+power/2
			best[i] = f.Score[i]
		}
		f.SearchGrids(&f.GridSearch, f.starts)
		for i, score := range f.Score {
			if score > best[i] {
				f.zero[i] = min(max(nominal[i]+n, qmin), qmax)
			}
		}
	}
}

// estimates sets the best grids, not rounded: scale, and code - mean/scale as zero point.
func (f *gridSearch) estimates() {
	for i := range f.found {
		// Of a group that is not found, too: a branch would be unpredictable.
		f.scale[i] = f.A[i] / f.B[i] / (f.Unit[i] * 0x1p-15)
		f.found[i] = f.found[i] && f.Score[i] > 0
	}
	if f.scheme.Fractions {
		for i := range f.found {
			if !f.found[i] {
				continue
			}
			f.zero[i], f.mean[i] = float32(f.N[i]*-f.B2[i]), (-f.A1[i]-float32(f.Offset[i]*0x1p-15))/(f.Unit[i]*0x1p-15)
			z := f.zero[i] - f.mean[i]/f.scale[i]
			f.oneSided[i] = z < float32(f.qmin) || z > float32(f.qmax)
			f.found[i] = !f.oneSided[i]
		}
	}
	if f.scheme.Positive() {
		for i, s := range f.scale {
			f.found[i] = f.found[i] && s > 0
		}
	}
}

// chooseGrids is step 3.
func (f *gridSearch) chooseGrids(scales []float32, zeros []int8, inv []float32) {
	for rest := f.stored; len(rest) > 0; {
		n := min(len(rest), vec.GridChoices-1)
		count := (n + 4) &^ 3
		if zeros == nil && n+1 == count && f.scheme.ScaleDtype != packing.ScaleF16 {
			f.setScales(scales, f.distances[len(f.stored)-len(rest):][:n])
		} else {
			f.setChoices(scales, zeros, rest[:n], count)
		}
		rest = rest[n:]
		f.ChooseGrids(&f.choice, count)
		for i := range scales {
			if c := f.choice.Choice[i]; c > 0 && f.found[i] {
				scales[i], inv[i] = f.scales[c][i], 1/f.scales[c][i]
				if zeros != nil {
					zeros[i] = f.zeros[c][i]
				}
			}
		}
	}
}

// setScales is setChoices without zero points, for dtypes with equally spaced bits of scales.
func (f *gridSearch) setScales(scales []float32, distances []uint32) {
	copy(f.near.Present[:], scales)
	for i, s := range f.scale {
		f.near.Unit[i], f.near.From[i] = f.Unit[i]*0x1p-15, f.storedBits(s)
		if !f.found[i] {
			f.near.Present[i], f.near.Unit[i], f.near.From[i] = 1, 1, noScale
		}
	}
	count := 1 + len(distances)
	least, most := math.Float32bits(f.smallest), math.Float32bits(f.scheme.ScaleDtype.Max())
	vec.NearScales(f.scales[:count], f.choice.Scale[:count], &f.near, distances, least, most)
	for c := range count {
		for i := range f.choice.Zero[c] {
			f.choice.Zero[c][i] = f.fixed
		}
	}
}

// setChoices sets the count grids to choose from: the present grid and list around the best grid.
func (f *gridSearch) setChoices(scales []float32, zeros []int8, list []storedGrid, count int) {
	var units, offsets, present [vec.FitLanes]float32 // offset is the value 0's distance in weights
	var bits [vec.FitLanes]uint32
	var zero [vec.FitLanes]int8
	fractions := f.scheme.Fractions // otherwise mean and offsets are 0: no divisions
	for i := range units {
		units[i], present[i], bits[i] = 1, 1, math.Float32bits(1)
		if f.found[i] {
			units[i], present[i], bits[i] = f.Unit[i]*0x1p-15, scales[i], f.storedBits(f.scale[i])
			if fractions {
				offsets[i] = f.Offset[i] * 0x1p-15 / units[i]
			}
		}
	}
	copy(zero[:], zeros)
	least, most := math.Float32bits(f.smallest), math.Float32bits(f.scheme.ScaleDtype.Max())
	toStored, toCode := float32(int(1)<<f.scheme.ZeroShift()), f.scheme.ZeroUnit()
	lowest, highest := float32(f.qmin)*toStored, float32(f.qmax+1)*toStored-1
	steady, ulp := f.scheme.ScaleDtype != packing.ScaleF16, f.ulp()
	for c := range count {
		s, z := &f.scales[c], &f.zeros[c]
		*s, *z = present, zero
		if c > 0 && c <= len(list) {
			l := list[c-1]
			for i, from := range bits {
				next := from + l.scale*ulp
				if !steady {
					next = f.neighbour(from, l.scale)
				}
				if !storable(next, least, most) {
					continue
				}
				s[i] = math.Float32frombits(next)
				if zeros != nil {
					best := f.zero[i]
					if fractions {
						best -= f.mean[i] / s[i]
					}
					best = float32(best*toStored) + l.zero
					z[i] = int8(roundSmall(min(max(best, lowest), highest)))
				}
			}
		}
		scale, stored := &f.choice.Scale[c], &f.choice.Zero[c]
		for i, v := range s {
			scale[i] = float32(v * units[i])
			stored[i] = float32(float32(z[i])*toCode) + f.fixed
		}
		if fractions { // and fixed is 0
			for i, v := range s {
				stored[i] -= offsets[i] / v
			}
		}
	}
}

// searchesGrids reports whether a gridSearch finds the scales of a scheme's rows. Its sums lack
// precision for long groups of 8 bits, and at 1 bit its starts miss the best integer zero points.
func (s Scheme) searchesGrids(group int) bool {
	switch {
	case group > longGroup || s.Bits == 8 && group > 32:
		return false
	case s.Mapping == gqf.MappingHalfStep:
		return true
	case s.Mapping == gqf.MappingAsymmetric:
		return s.Fractions || s.Bits > 1
	}
	return s.Bits >= 7
}
