//go:build purego || !(amd64 || arm64)

package vec

func widenBF16(dst []float32, src []byte) { widenBF16Generic(dst, src) }

func widenF16(dst []float32, src []byte) { widenF16Generic(dst, src) }

func groupRange(lo, hi, x []float32, group int) (finite bool) {
	return groupRangeGeneric(lo, hi, x, group)
}

func leastMagnitudes(least []uint32, x []float32, group int) {
	leastMagnitudesGeneric(least, x, group)
}

func latticeGroups(mask []uint8, lo, hi []float32, least []uint32, t *LatticeTest) {
	latticeGroupsGeneric(mask, lo, hi, least, t)
}

func quantizeGroups(q []int8, x, scale, inv []float32, zero []int8, fraction []float32, group, qmin, qmax int, acc *ErrorSum) {
	quantizeGroupsGeneric(q, x, scale, inv, zero, fraction, group, qmin, qmax, acc)
}

func searchScales(s *Search, unit float32, x, w []float32) { searchScalesGeneric(s, unit, x, w) }

func scaleErrors(f *Final, x, w []float32) { scaleErrorsGeneric(f, x, w) }

func fitRanges(s *Ranges, unit, base, inverse, most float32, x, w []float32) {
	fitRangesGeneric(s, unit, base, inverse, most, x, w)
}

func gridErrors(f *Grids, least, most float32, x, w []float32) {
	gridErrorsGeneric(f, least, most, x, w)
}

func sumSquares(sum *[Lanes]float64, x []float32) { sumSquaresGeneric(sum, x) }

func importance(w, x []float32, inverse float32) { importanceGeneric(w, x, inverse) }

func fitLoad(f *Fit, x, w []float32) { fitLoadGeneric(f, x, w) }

func fitSearch(f *Fit) { fitSearchGeneric(f) }

func fitChoose(f *Fit) { fitChooseGeneric(f) }

func columnSums(sum *[ColumnLanes]float32, e, v []float32) { columnSumsGeneric(sum, e, v) }

func columnCodes(g *ColumnGrids, values, shifts, codes, sums *[ColumnLanes]float32) {
	columnCodesGeneric(g, values, shifts, codes, sums)
}

func fitTotals(f *Fit, c *GridChoice) { fitTotalsGeneric(f, c) }

func searchGrids(f *Fit, s *GridSearch, list []GridStart) { searchGridsGeneric(f, s, list) }

func chooseGrids(f *Fit, c *GridChoice, count int) { chooseGridsGeneric(f, c, count) }

func nearScales(stored, scaled [][FitLanes]float32, n *Near, distances []uint32, least, most uint32) {
	nearScalesGeneric(stored, scaled, n, distances, least, most)
}
