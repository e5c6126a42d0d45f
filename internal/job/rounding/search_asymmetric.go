package rounding

import "github.com/lowbit-go/gq/internal/vec"

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
