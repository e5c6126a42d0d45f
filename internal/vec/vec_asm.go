//go:build (amd64 || arm64) && !purego

package vec

// The assembly (kernels_amd64.go, kernels_arm64.go) needs positive counts, and values in multiples
// of 16. The functions here cut calls into such pieces; the portable code does the rest.

func widenBF16(dst []float32, src []byte) {
	if n := len(dst) &^ (Lanes - 1); assembled() && n > 0 {
		widenBF16Block(&dst[0], &src[0], n)
		dst, src = dst[n:], src[2*n:]
	}
	widenBF16Generic(dst, src)
}

func widenF16(dst []float32, src []byte) {
	if n := len(dst) &^ (Lanes - 1); assembled() && n > 0 {
		widenF16Block(&dst[0], &src[0], n)
		dst, src = dst[n:], src[2*n:]
	}
	widenF16Generic(dst, src)
}

func groupRange(lo, hi, x []float32, group int) (finite bool) {
	groups, last, ok := cut(len(x), group)
	if !assembled() || !ok {
		return groupRangeGeneric(lo, hi, x, group)
	}
	var top uint32
	if groups > 0 {
		top = groupRangeBlock(&lo[0], &hi[0], &x[0], groups, group)
		lo, hi, x = lo[groups:], hi[groups:], x[groups*group:]
	}
	if last == 0 {
		return top < expMask
	}
	whole := last &^ (Lanes - 1)
	finite = groupRangeGeneric(lo, hi, x[whole:], last)
	if whole > 0 {
		var low, high float32
		top = max(top, groupRangeBlock(&low, &high, &x[0], 1, whole))
		lo[0], hi[0] = min(lo[0], low), max(hi[0], high)
	}
	return finite && top < expMask
}

func leastMagnitudes(least []uint32, x []float32, group int) {
	groups, last, ok := cut(len(x), group)
	if !assembled() || !ok {
		leastMagnitudesGeneric(least, x, group)
		return
	}
	if groups > 0 {
		leastMagnitudesBlock(&least[0], &x[0], groups, group)
	}
	least, x = least[LeastLanes*groups:], x[groups*group:]
	if last == 0 {
		return
	}
	whole := last &^ (Lanes - 1)
	leastMagnitudesGeneric(least, x[whole:], last)
	if whole > 0 {
		var m [LeastLanes]uint32
		leastMagnitudesBlock(&m[0], &x[0], 1, whole)
		for i, v := range m {
			least[i] = min(least[i], v)
		}
	}
}

func latticeGroups(mask []uint8, lo, hi []float32, least []uint32, t *LatticeTest) {
	n := len(lo)
	if !assembled() || n == 0 {
		latticeGroupsGeneric(mask, lo, hi, least, t)
		return
	}
	if n >= 8 {
		latticeGroupsBlock(&mask[0], &lo[0], &hi[0], &least[0], &t.Inverse, n/8)
	}
	if n%8 == 0 {
		return
	}
	last := &mask[n/8]
	if n > 8 { // the last 8 groups, without those that have been tested already
		latticeGroupsBlock(last, &lo[n-8], &hi[n-8], &least[LeastLanes*(n-8)], &t.Inverse, 1)
		*last >>= 8 - n%8
		return
	}
	var ends [2][8]float32
	var m [8 * LeastLanes]uint32
	copy(ends[0][:], lo)
	copy(ends[1][:], hi)
	copy(m[:], least)
	latticeGroupsBlock(last, &ends[0][0], &ends[1][0], &m[0], &t.Inverse, 1)
}

// noZero stands in for absent zero points.
var noZero int8

func quantizeGroups(q []int8, x, scale, inv []float32, zero []int8, fraction []float32, group, qmin, qmax int, acc *ErrorSum) {
	groups, last, ok := cut(len(x), group)
	if !assembled() || !ok {
		quantizeGroupsGeneric(q, x, scale, inv, zero, fraction, group, qmin, qmax, acc)
		return
	}
	block := func(q []int8, x, scale, inv []float32, z *int8, zeroStep int, fraction []float32, groups, group int) {
		if fraction != nil {
			quantizeFractionsBlock(&q[0], &x[0], &scale[0], &inv[0], z, &fraction[0], zeroStep, groups, group, qmin, qmax, &acc.Noise[0])
			return
		}
		quantizeGroupsBlock(&q[0], &x[0], &scale[0], &inv[0], z, zeroStep, groups, group, qmin, qmax, &acc.Noise[0])
	}
	z, zeroStep := &noZero, 0
	if groups > 0 {
		if zero != nil {
			z, zeroStep = &zero[0], 1
		}
		block(q, x, scale, inv, z, zeroStep, fraction, groups, group)
	}
	if last == 0 {
		return
	}
	q, x, scale, inv = q[groups*group:], x[groups*group:], scale[groups:], inv[groups:]
	if zero != nil {
		z = &zero[groups]
	}
	var f float32
	if fraction != nil {
		fraction = fraction[groups:]
		f = fraction[0]
	}
	// The sums of a group restart after every flushEvery values, so the group can only be cut there.
	whole := last
	if last%Lanes != 0 {
		whole = last &^ (flushEvery - 1)
	}
	if whole > 0 {
		block(q, x, scale, inv, z, 0, fraction, 1, whole)
	}
	quantizeRun(q[whole:], x[whole:], scale[0], inv[0], f, int(*z), qmin, qmax, acc)
}

// cut returns the number of whole groups of n values for the assembly, and the number of values
// after the groups. ok is false if a group size that is not a multiple of Lanes has several groups
// begin within a row.
func cut(n, group int) (groups, last int, ok bool) {
	if group%Lanes != 0 {
		return 0, n, group >= n
	}
	return n / group, n % group, true
}

func searchScales(s *Search, unit float32, x, w []float32) {
	if !assembled() {
		searchScalesGeneric(s, unit, x, w)
		return
	}
	searchScalesBlock(&s.Inv[0], unit, &x[0], &w[0], len(x))
}

func scaleErrors(f *Final, x, w []float32) {
	if !assembled() {
		scaleErrorsGeneric(f, x, w)
		return
	}
	scaleErrorsBlock(&f.Scale[0], &x[0], &w[0], len(x))
}

func fitRanges(s *Ranges, unit, base, inverse, most float32, x, w []float32) {
	if !assembled() {
		fitRangesGeneric(s, unit, base, inverse, most, x, w)
		return
	}
	fitRangesBlock(&s.Inv[0], unit, base, inverse, most, &x[0], &w[0], len(x))
}

func gridErrors(f *Grids, least, most float32, x, w []float32) {
	if !assembled() {
		gridErrorsGeneric(f, least, most, x, w)
		return
	}
	gridErrorsBlock(&f.Scale[0], least, most, &x[0], &w[0], len(x))
}

func sumSquares(sum *[Lanes]float64, x []float32) {
	// The lanes restart after every flushEvery values, so the values can only be cut there.
	if n := len(x) &^ (flushEvery - 1); assembled() && n > 0 {
		sumSquaresBlock(&sum[0], &x[0], n)
		x = x[n:]
	}
	sumSquaresGeneric(sum, x)
}

func importance(w, x []float32, inverse float32) {
	if n := len(x) &^ (Lanes - 1); assembled() && n > 0 {
		importanceBlock(&w[0], &x[0], n, inverse)
		w, x = w[n:], x[n:]
	}
	importanceGeneric(w, x, inverse)
}

func columnSums(sum *[ColumnLanes]float32, e, v []float32) {
	if !assembled() || len(v) == 0 {
		columnSumsGeneric(sum, e, v)
		return
	}
	columnSumsBlock(&sum[0], &e[0], &v[0], len(v))
}

func columnCodes(g *ColumnGrids, values, shifts, codes, sums *[ColumnLanes]float32) {
	if !assembled() {
		columnCodesGeneric(g, values, shifts, codes, sums)
		return
	}
	columnCodesBlock(&g.Scale[0], &values[0], &shifts[0], &codes[0], &sums[0])
}

func fitLoad(f *Fit, x, w []float32) {
	if !assembled() {
		fitLoadGeneric(f, x, w)
		return
	}
	fitLoadBlock(&f.data[0], &x[0], &w[0], &f.Unit[0], f.width)
}

func fitTotals(f *Fit, c *GridChoice) {
	if !assembled() {
		fitTotalsGeneric(f, c)
		return
	}
	fitTotalsBlock(&c.Values[0], &f.data[0], f.width)
}
