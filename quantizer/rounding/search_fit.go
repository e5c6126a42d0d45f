package rounding

import (
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// fitSearch is the search of scales without importances, at up to 6 bits and for groups up to longGroup, in
// integers and for many groups at once, see vec.Fit. It starts from half as many scales as
// searchSymmetric, because the neighbours of the best one are tried as well. On normally and
// t-distributed weights (5 degrees of freedom) in groups of 16 to 128, this loses up to 0.014 dB.
type fitSearch struct {
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

// newFitSearch: ulp is as searcher.ulp.
func newFitSearch(s Scheme, group, groups int, ulp uint32) *fitSearch {
	var starts [vec.FitStarts]float32
	scaleStarts(starts[:], s, group)
	least, most := s.CodeRange()
	f := &fitSearch{
		Fit: *vec.NewFit(group, &starts, least, most), positive: s.Positive(),
		heaviest: make([]float32, groups),
	}
	for i := range f.distances {
		f.distances[i] = neighbours[i] * ulp
	}
	return f
}

// fitScales replaces the scales of a row if others have a smaller weighted error.
func (r *RowQuantizer) fitScales(scales, x []float32) {
	f := r.fits
	weights := r.plainWeights(f.heaviest, x)
	for first := 0; first < len(scales); first += vec.FitLanes {
		count := min(vec.FitLanes, len(scales)-first)
		from, to := first*r.group, min((first+count)*r.group, len(x))
		r.fitUnits(first, count)
		f.Load(x[from:to], weights[from:to])
		f.Search()
		r.fitChoices(scales[first:][:count])
		f.Choose()
		inv := r.inv[first:][:count]
		for i, c := range f.Choice[:count] { // choice 0 is the present scale; a branch would be unpredictable
			v := f.stored[c&(vec.FitChoices-1)][i]
			scales[first+i], inv[i] = v, 1/v
		}
	}
}

// fitUnits sets Fit's Unit and Weight for some groups. They are zeros if a search gains nothing and may
// overflow, because the inverse of a scale, or a square, is near the limits of float32.
func (r *RowQuantizer) fitUnits(first, count int) {
	f := r.fits
	clear(f.Unit[:])
	clear(f.Weight[:])
	clear(f.largest[:])
	const least, most = (127 - 90) << 23, (127 + 60) << 23 // bits of 2^-90 and 2^60
	sign := ^uint32(0)
	if f.positive {
		sign >>= 1
	}
	lo, hi := r.lo[first:][:count], r.hi[first:][:count]
	for i, heaviest := range f.heaviest[first:][:count] {
		bits := larger(hi[i], lo[i])
		if size := bits &^ (1 << 31); size <= least || size >= most || r.Recovered(first+i) {
			continue
		}
		largest := math.Float32frombits(bits & sign)
		f.Unit[i], f.largest[i] = math.MaxInt16/largest, float32(largest*(0x1p15/float32(math.MaxInt16)))
		f.Weight[i] = f.MaxWeight / heaviest
	}
}

// fitChoices sets the scales to choose from for the present scales: these, and three others that can be
// stored.
func (r *RowQuantizer) fitChoices(scales []float32) {
	f := r.fits
	copy(f.near.Present[:], scales)
	for i, s := range f.Scale {
		f.near.Unit[i] = f.Unit[i] * 0x1p-15
		found := float32(s * f.largest[i])
		f.near.From[i] = r.storedBits(found)
		if found == 0 {
			f.near.From[i] = noScale
		}
	}
	least, most := math.Float32bits(r.smallest), math.Float32bits(r.scheme.ScaleDtype.Max())
	vec.NearScales(f.stored[:], f.Stored[:], &f.near, f.distances[:], least, most)
	if r.scheme.ScaleDtype != packing.ScaleF16 {
		return
	}
	for i, found := range f.near.From {
		if found&^(1<<31) >= f16Even { // numbers of the dtype are ulp apart
			continue
		}
		for c, n := range neighbours[:len(f.distances)] {
			if bits := r.neighbour(found, n); storable(bits, least, most) {
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

// storable reports whether the magnitude of a scale's bits is within least .. most. NaN and infinities are not.
func storable(bits, least, most uint32) bool { return bits&^(1<<31)-least <= most-least }

// storedBits are the bits of s, rounded to the stored dtype.
func (r *RowQuantizer) storedBits(s float32) uint32 {
	if r.scheme.ScaleDtype == packing.ScaleBF16 { // ScaleDtype.Round without a call
		bits := math.Float32bits(s)
		return (bits + 0x7fff + bits>>16&1) &^ 0xffff
	}
	return math.Float32bits(r.scheme.ScaleDtype.Round(s))
}

// searchesFits reports whether a fitSearch finds the scales of a scheme's rows.
func (s Scheme) searchesFits(group int) bool {
	return s.Mapping != gqf.MappingAsymmetric && s.Mapping != gqf.MappingHalfStep && s.Bits <= 6 && group <= longGroup
}
