package rounding

import (
	"math"

	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// fitSearch is the search of scales without importances, at up to 6 bits and for groups up to
// longGroup, in integers and for many groups at once, see vec.Fit. There are half as many starts as
// in searchSymmetric, because the neighbours of the best start are tried as well. On normally and
// t-distributed weights (5 degrees of freedom) in groups of 16 to 128, this loses up to 0.014 dB.
type fitSearch struct {
	*weighing
	vec.Fit
	positive bool
	heaviest []float32 // weight of each group
	near     vec.Near
	// distances are the first neighbours, as bits of a float32.
	distances [vec.FitChoices - 1]uint32
	// largest are 2^15/Unit.
	largest [vec.FitLanes]float32
	// stored are the scales of Fit.Stored, in units of weights.
	stored [vec.FitChoices][vec.FitLanes]float32
}

func newFitSearch(r *weighing) *fitSearch {
	var starts [vec.FitStarts]float32
	scaleStarts(starts[:], r.scheme, r.group)
	f := &fitSearch{
		weighing: r, Fit: *vec.NewFit(r.group, &starts, r.qmin, r.qmax), positive: r.scheme.Positive(),
		heaviest: make([]float32, len(r.lo)),
	}
	for i := range f.distances {
		f.distances[i] = neighbours[i] * r.ulp()
	}
	return f
}

func (f *fitSearch) improve(scales []float32, _ []int8, x []float32) {
	weights := f.plainWeights(f.heaviest, x)
	for first := 0; first < len(scales); first += vec.FitLanes {
		count := min(vec.FitLanes, len(scales)-first)
		from, to := first*f.group, min((first+count)*f.group, len(x))
		f.fitUnits(first, count)
		f.Load(x[from:to], weights[from:to])
		f.Search()
		f.fitChoices(scales[first:][:count])
		f.Choose()
		inv := f.inv[first:][:count]
		for i, c := range f.Choice[:count] { // choice 0 is the present scale; a branch is unpredictable
			v := f.stored[c&(vec.FitChoices-1)][i]
			scales[first+i], inv[i] = v, 1/v
		}
	}
}

// fitUnits sets Fit's Unit and Weight for some groups: zeros if the inverse of a scale, or a
// square, is near the limits of float32. A search then gains nothing and may overflow.
func (f *fitSearch) fitUnits(first, count int) {
	clear(f.Unit[:])
	clear(f.Weight[:])
	clear(f.largest[:])
	const least, most = (127 - 90) << 23, (127 + 60) << 23 // bits of 2^-90 and 2^60
	sign := ^uint32(0)
	if f.positive {
		sign >>= 1
	}
	lo, hi := f.lo[first:][:count], f.hi[first:][:count]
	for i, heaviest := range f.heaviest[first:][:count] {
		bits := larger(hi[i], lo[i])
		if size := bits &^ (1 << 31); size <= least || size >= most || f.Recovered(first+i) {
			continue
		}
		largest := math.Float32frombits(bits & sign)
		f.Unit[i], f.largest[i] = math.MaxInt16/largest, float32(largest*(0x1p15/float32(math.MaxInt16)))
		f.Weight[i] = f.MaxWeight / heaviest
	}
}

// fitChoices sets the scales to choose from: the present scale and three that can be stored.
func (f *fitSearch) fitChoices(scales []float32) {
	copy(f.near.Present[:], scales)
	for i, s := range f.Scale {
		f.near.Unit[i] = f.Unit[i] * 0x1p-15
		found := float32(s * f.largest[i])
		f.near.From[i] = f.storedBits(found)
		if found == 0 {
			f.near.From[i] = noScale
		}
	}
	least, most := math.Float32bits(f.smallest), math.Float32bits(f.scheme.ScaleDtype.Max())
	vec.NearScales(f.stored[:], f.Stored[:], &f.near, f.distances[:], least, most)
	if f.scheme.ScaleDtype != packing.ScaleF16 {
		return
	}
	for i, found := range f.near.From {
		if found&^(1<<31) >= f16Even { // numbers of the dtype are ulp apart
			continue
		}
		for c, n := range neighbours[:len(f.distances)] {
			if bits := f.neighbour(found, n); storable(bits, least, most) {
				v := math.Float32frombits(bits)
				f.stored[1+c][i], f.Stored[1+c][i] = v, float32(v*f.near.Unit[i])
			} else {
				f.stored[1+c][i], f.Stored[1+c][i] = f.stored[0][i], f.Stored[0][i]
			}
		}
	}
}

// noScale are the bits of a NaN. Its neighbours are no numbers either.
const noScale = 0x7fc00000

// storable reports whether the magnitude of a scale's bits is within least .. most, and finite.
func storable(bits, least, most uint32) bool { return bits&^(1<<31)-least <= most-least }

func (r *rowGroups) storedBits(s float32) uint32 {
	if r.scheme.ScaleDtype == packing.ScaleBF16 { // ScaleDtype.Round without a call
		bits := math.Float32bits(s)
		return (bits + 0x7fff + bits>>16&1) &^ 0xffff
	}
	return math.Float32bits(r.scheme.ScaleDtype.Round(s))
}
