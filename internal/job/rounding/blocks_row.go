package rounding

import (
	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// maxGroups is the number of groups of the largest block.
const maxGroups = 16

// blockFit holds a block's stored scales and minima: code q stands for q*scale[g] + offset[g].
type blockFit struct {
	d, dmin       float32 // F16 numbers
	sub, min      [maxGroups]int32
	scale, offset [maxGroups]float32
}

// set sets a group's integers. The products are exact: 11 bits by at most 8.
func (f *blockFit) set(g int, sub, min int32) {
	f.sub[g], f.min[g] = sub, min
	f.scale[g] = float32(f.d * float32(sub))
	f.offset[g] = 0 - float32(f.dmin*float32(min))
}

// inverse is the inverse of a group's scale, or 0 for the scale 0, where every code is 0.
func (f *blockFit) inverse(g int) float32 {
	if f.scale[g] == 0 {
		return 0
	}
	return 1 / f.scale[g]
}

// blockRows is the part of a RowQuantizer for block types.
type blockRows struct {
	*blockGrid
	kind   gguf.TensorType
	groups int // of a block
	fields gguf.Fields
	search *blockSearch // nil if the algorithm needs none

	// scale and offset of each group of the row: code q stands for q*scale + offset
	scales, offsets, inverses []float32
	shifted                   []float32 // the row minus offsets; nil without minima
}

func newBlockRows(s Scheme, k int) *blockRows {
	g := blockGrids[s.Type]
	weights := s.Type.BlockWeights()
	n := k / weights
	b := &blockRows{blockGrid: g, kind: s.Type, groups: weights / g.group}
	scratch := make([]float32, 3*n*b.groups)
	b.scales, b.offsets, b.inverses = scratch[:n*b.groups], scratch[n*b.groups:2*n*b.groups], scratch[2*n*b.groups:]
	b.fields = gguf.Fields{Codes: make([]int8, k), Scales: make([]float32, n)}
	if g.minMax > 0 {
		b.shifted = make([]float32, k)
		b.fields.Mins = make([]float32, n)
	}
	if g.super() {
		b.fields.SubScales = make([]int8, n*b.groups)
		if g.minMax > 0 {
			b.fields.SubMins = make([]uint8, n*b.groups)
		}
	}
	if s.Algorithm == gqf.AlgorithmSearch {
		b.search = newBlockSearch(g)
	}
	return b
}

// QuantizeBlocks chooses the blocks of the row x of k weights for a scheme with a Type. dst has the
// size of k weights of the type. The squared errors and squared weights are added to acc unless acc
// is nil. Nothing is allocated.
//
// rtn maps a group's range, zero included, to the codes. With minima, the least weight gets code 0
// and the greatest weight the last code. Without minima, the weight of largest size gets the code
// of largest size, a negative code. The largest scale of a super-block gets the sub-scale of
// largest size, and the largest minimum the greatest integer; the others are rounded to nearest.
// blocks_search.go describes search. Both choose codes against the stored numbers. A scale too
// small for F16 becomes the smallest F16 number.
//
// The error is *NonFiniteError if x holds a NaN or an infinity, and *ScaleError if a scale or
// minimum is too large for F16. dst is then undefined.
func (r *RowQuantizer) QuantizeBlocks(dst []byte, x []float32, acc *vec.ErrorSum) error {
	if !vec.GroupRange(r.lo, r.hi, x, r.group) {
		return nonFinite(x)
	}
	if acc == nil {
		acc = &r.unused
	}
	b := r.blocks
	var weights []float32
	if b.search != nil {
		weights = r.rowWeights(x)
	}
	n := b.groups * b.group
	for i := range b.fields.Scales {
		at := i * b.groups
		lo, hi, block := r.lo[at:][:b.groups], r.hi[at:][:b.groups], x[i*n:][:n]
		var f blockFit
		if g, need := b.ideal(&f, lo, hi); g >= 0 {
			return &ScaleError{Group: at + g, Scale: need, Dtype: packing.ScaleF16}
		}
		if b.search != nil {
			b.searchBlock(&f, lo, hi, block, weights[i*n:][:n])
		}
		b.store(i, &f)
	}
	b.codes(x, acc)
	return b.kind.Encode(dst, b.fields)
}

// ideal sets f to round-to-nearest's scales and minima for groups with the ranges lo to hi. If F16
// cannot hold a number, g is the group and need the number; otherwise g is -1.
func (b *blockRows) ideal(f *blockFit, lo, hi []float32) (g int, need float32) {
	var scales, mins [maxGroups]float32
	for g := range lo {
		switch {
		case b.minMax > 0:
			scales[g], mins[g] = (hi[g]-lo[g])/float32(b.qmax), -lo[g]
		case hi[g] >= -lo[g]:
			scales[g] = hi[g] / float32(b.qmin)
		default:
			scales[g] = lo[g] / float32(b.qmin)
		}
	}
	last := b.subMax
	if b.subMin < 0 {
		last = b.subMin
	}
	top, least := largest(scales[:len(lo)]), largest(mins[:len(lo)])
	var ok bool
	if f.d, ok = storeF16(scales[top] / float32(last)); !ok {
		return top, scales[top] / float32(last)
	}
	if b.minMax > 0 {
		if f.dmin, ok = storeF16(mins[least] / float32(b.minMax)); !ok {
			return least, mins[least] / float32(b.minMax)
		}
	}
	for g := range lo {
		f.set(g, b.nearestSub(scales[g], f.d), b.nearestMin(mins[g], f.dmin))
	}
	return -1, 0
}

// largest is the index of the number of largest size.
func largest(v []float32) (at int) {
	for i := range v {
		if floats.Abs(v[i]) > floats.Abs(v[at]) {
			at = i
		}
	}
	return at
}

const smallestF16 = 0x1p-24

// storeF16 rounds a scale to F16, a scale that is too small to the smallest number of its sign.
func storeF16(v float32) (stored float32, ok bool) {
	stored = floats.F16ToF32(floats.F16FromF32(v))
	switch {
	case stored != 0 || v == 0:
	case v > 0:
		stored = smallestF16
	default:
		stored = -smallestF16
	}
	return stored, floats.Finite(stored)
}

func (b *blockGrid) nearestSub(scale, d float32) int32 {
	if d == 0 {
		return int32(max(b.subMin, min(0, b.subMax)))
	}
	return int32(min(max(roundToEven(scale/d), float32(b.subMin)), float32(b.subMax)))
}

// nearestMin is the integer minimum nearest to a group's minimum. Types without sub-scales store
// the minimum as F16, not as an integer.
func (b *blockGrid) nearestMin(m, dmin float32) int32 {
	switch {
	case !b.super():
		return int32(b.minMax)
	case dmin == 0:
		return 0
	}
	return int32(min(max(roundToEven(m/dmin), 0), float32(b.minMax)))
}

// store sets the fields of block i except the codes.
func (b *blockRows) store(i int, f *blockFit) {
	at := i * b.groups
	for g := range b.groups {
		b.scales[at+g], b.offsets[at+g], b.inverses[at+g] = f.scale[g], f.offset[g], f.inverse(g)
	}
	b.fields.Scales[i] = f.d
	if b.minMax > 0 {
		b.fields.Mins[i] = f.dmin
	}
	if !b.super() {
		if b.minMax > 0 { // these types add the minimum
			b.fields.Mins[i] = 0 - f.dmin
		}
		return
	}
	for g := range b.groups {
		b.fields.SubScales[at+g] = int8(f.sub[g])
		if b.minMax > 0 {
			b.fields.SubMins[at+g] = uint8(f.min[g])
		}
	}
}

// codes chooses the codes of a row for the stored scales and minima, and adds squares to acc:
//
//	q = clamp(rne((x - offset) * (1/scale)))
//	e = (x - offset) - q*scale
func (b *blockRows) codes(x []float32, acc *vec.ErrorSum) {
	signal := vec.SumSquares(x)
	if b.minMax > 0 {
		for g, offset := range b.offsets {
			at := g * b.group
			shifted := b.shifted[at:][:b.group]
			for i, v := range x[at:][:b.group] {
				shifted[i] = v - offset
			}
		}
		x = b.shifted
	}
	var sum vec.ErrorSum
	vec.QuantizeGroups(b.fields.Codes, x, b.scales, b.inverses, nil, b.group, b.qmin, b.qmax, &sum)
	for i, v := range sum.Noise {
		acc.Noise[i] += v
	}
	acc.Signal[0] += signal
}
