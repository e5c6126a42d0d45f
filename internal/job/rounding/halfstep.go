package rounding

import (
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/floats"
)

// The half-step grid: the weight of code q is (q + 1/2) * s, so 1 bit represents two weights of
// opposite sign and 2 bits represent four. Zero has no code. The grid is for 1 and 2 bits and has
// positive scales. The search sorts a group and finds the optimum exactly, in portable code.

// sizeWeight is the magnitude of a weight and the weight of its error.
type sizeWeight struct{ size, weight float32 }

// halfStepSearch finds the best scale. At 1 bit that is twice the weighted mean magnitude. At 2
// bits the larger weights of a group are 3 half steps and the others 1; the search tries the border
// between any two weights.
type halfStepSearch struct {
	*weighing
	sorted []sizeWeight // a group
	keys   []uint64     // of sorted
}

func (r *halfStepSearch) improve(scales []float32, _ []int8, x []float32) {
	weights := r.rowWeights(x)
	for g := range scales {
		n := min(r.group, len(x))
		sorted := r.sorted[:n]
		for i := range sorted {
			sorted[i] = sizeWeight{floats.Abs(x[i]), weights[i]}
		}
		x, weights = x[n:], weights[n:]
		if m := floats.Abs(r.largest(g)); m < 0x1p-90 || m > 0x1p60 || r.Recovered(g) {
			continue
		}
		if r.scheme.Bits > 1 {
			r.sortDescending(sorted)
		}
		r.settleHalfSteps(scales, g, bestHalfStep(sorted, r.scheme.Bits), sorted)
	}
}

// sortDescending sorts by size and then weight, as integers: neither is negative, so the bits have
// the numbers' order. Comparing structs takes 57 ns a weight of a row instead of 40 (Zen 4).
func (r *halfStepSearch) sortDescending(list []sizeWeight) {
	keys := r.keys[:len(list)]
	for i, v := range list {
		keys[i] = ^(uint64(math.Float32bits(v.size))<<32 | uint64(math.Float32bits(v.weight)))
	}
	slices.Sort(keys)
	for i, k := range keys {
		list[i] = sizeWeight{math.Float32frombits(^uint32(k >> 32)), math.Float32frombits(^uint32(k))}
	}
}

// bestHalfStep is the best scale, not yet rounded, for descending magnitudes, or 0 for zeros.
func bestHalfStep(sorted []sizeWeight, bits int) float32 {
	// First all weights are at 1 half step; then weights move to 3 half steps in turn.
	var a, b float64
	for _, v := range sorted {
		a += float64(v.size) * float64(v.weight) / 2
		b += float64(v.weight) / 4
	}
	if b == 0 {
		return 0
	}
	scale, best := a/b, a*a/b
	if bits == 1 {
		return float32(scale)
	}
	for _, v := range sorted {
		a += float64(v.size) * float64(v.weight)
		b += 2 * float64(v.weight)
		if score := a * a / b; score > best {
			scale, best = a/b, score
		}
	}
	return float32(scale)
}

func (r *halfStepSearch) settleHalfSteps(scales []float32, g int, s float32, group []sizeWeight) {
	found, best := scales[g], r.halfStepError(scales[g], group)
	bits := math.Float32bits(r.scheme.ScaleDtype.Round(s))
	for _, c := range neighbours {
		v := math.Float32frombits(r.neighbour(bits, c))
		if !r.storable(v) || v < 0 {
			continue
		}
		if e := r.halfStepError(v, group); e < best {
			found, best = v, e
		}
	}
	scales[g], r.inv[g] = found, 1/found
}

func (r *halfStepSearch) halfStepError(scale float32, group []sizeWeight) float64 {
	inv, last := 1/scale, float32(r.qmax)
	var sum float64
	for _, v := range group {
		q := roundSmall(min(max(float32(v.size*inv)-0.5, 0), last))
		e := float64(v.size - float32((q+0.5)*scale))
		sum += float64(float64(e*e) * float64(v.weight))
	}
	return sum
}
