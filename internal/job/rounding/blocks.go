package rounding

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// The block types are the grids of .gguf files that gq's own grids do not contain. Weights of a
// group share an effective scale s and a minimum m, with codes q:
//
//	Q4_1 Q5_1       q s + m        s and m are F16
//	Q2_K Q4_K Q5_K  q s - m        s = d sub, m = dmin min
//	Q3_K Q6_K       q s            s = d sub
//	IQ4_NL TQ MXFP4 q s            s is F16, or a power of two; q is of a table
//	IQ4_XS          q s            s = d sub; q is of a table
//	IQ2 IQ3         q s            s = d sub part; 8 or 4 q are a point of a lattice
//
// d and dmin are F16 numbers of a super-block of 256 weights; sub and min are integers of a group.

type blockGrid struct {
	bits       int
	group      int // weights that share an effective scale
	qmin, qmax int // codes
	// subs are the least and the greatest sub-scale, both 1 without sub-scales.
	subMin, subMax int
	// minMax is the greatest integer minimum, 0 without minima. Types without sub-scales store a
	// single minimum per group, of either sign.
	minMax  int
	mapping gqf.Mapping
	table   *Table // the codes where they are no range of integers; else nil
	power   bool   // scales are powers of two
	// points are the codes where several weights are a point of a lattice; else nil. Sub-scales are
	// then odd. part is the part of the stored scale that sub-scales multiply; 0: all, see unit.
	points *Points
	part   float32
}

// The searches' steps are those that are best for normally distributed weights. With twice as many
// for points, errors are at most .3 % less.
var (
	nonlinear = newTable([2]float32{-101, -141}, [2]float32{89, 128}, -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
	ternary   = newTable([2]float32{}, [2]float32{1.2, 4}, -1, 0, 1)
	e2m1      = newTable([2]float32{}, [2]float32{}, -12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12)
)

var blockGrids = map[gguf.TensorType]*blockGrid{
	gguf.Q4_1: {bits: 4, group: 32, qmax: 15, subMin: 1, subMax: 1, minMax: 1, mapping: gqf.MappingAsymmetric},
	gguf.Q5_1: {bits: 5, group: 32, qmax: 31, subMin: 1, subMax: 1, minMax: 1, mapping: gqf.MappingAsymmetric},
	gguf.Q2_K: {bits: 2, group: 16, qmax: 3, subMax: 15, minMax: 15, mapping: gqf.MappingKQuant},
	gguf.Q3_K: {bits: 3, group: 16, qmin: -4, qmax: 3, subMin: -32, subMax: 31, mapping: gqf.MappingKQuant},
	gguf.Q4_K: {bits: 4, group: 32, qmax: 15, subMax: 63, minMax: 63, mapping: gqf.MappingKQuant},
	gguf.Q5_K: {bits: 5, group: 32, qmax: 31, subMax: 63, minMax: 63, mapping: gqf.MappingKQuant},
	gguf.Q6_K: {bits: 6, group: 16, qmin: -32, qmax: 31, subMin: -128, subMax: 127, mapping: gqf.MappingKQuant},

	iq4NL: {bits: 4, group: 32, qmin: -127, qmax: 113, subMin: 1, subMax: 1, mapping: MappingNonlinear, table: nonlinear},
	iq4XS: {bits: 4, group: 32, qmin: -127, qmax: 113, subMin: -32, subMax: 31, mapping: MappingNonlinearK, table: nonlinear},
	tq1:   {bits: 1, group: 256, qmin: -1, qmax: 1, subMin: 1, subMax: 1, mapping: MappingTernary, table: ternary},
	tq2:   {bits: 2, group: 256, qmin: -1, qmax: 1, subMin: 1, subMax: 1, mapping: MappingTernary, table: ternary},
	mxfp4: {bits: 4, group: 32, qmin: -12, qmax: 12, subMin: 1, subMax: 1, mapping: MappingMXFP4, table: e2m1, power: true},

	iq2XXS: pointsGrid(iq2XXS, 2, 32, MappingLatticeXXS, 1./8, true, 34, 40, 46, 53, 60),
	iq2XS:  pointsGrid(iq2XS, 2, 16, MappingLatticeXS, 1./8, true, 34, 40, 46, 53, 60),
	iq2S:   pointsGrid(iq2S, 2, 16, MappingLattice, 1./8, false, 34, 40, 46, 53, 60),
	iq3XXS: pointsGrid(iq3XXS, 3, 32, MappingLatticeXXS, 1./4, true, 47, 53, 59, 65, 71),
	iq3S:   pointsGrid(iq3S, 3, 32, MappingLattice, 1, false, 11.5, 13, 14.5, 16, 17.5),
}

func (g *blockGrid) unit() float32 { return cmp.Or(g.part, 1) }

// super reports whether the type has super-blocks with integer sub-scales.
func (g *blockGrid) super() bool { return g.subMax > 1 }

// BlockType returns the block type of a width and a mapping.
func BlockType(bits int, m gqf.Mapping) (gguf.TensorType, bool) {
	for t, g := range blockGrids {
		if g.bits == bits && g.mapping == m {
			return t, true
		}
	}
	return 0, false
}

// OnlyBlocks reports whether a mapping is of block types alone.
func OnlyBlocks(m gqf.Mapping) bool {
	return m != gqf.MappingAsymmetric && len(typesOf(m)) > 0
}

// typesOf lists the block types of a mapping.
func typesOf(m gqf.Mapping) (list []gguf.TensorType) {
	for t, g := range blockGrids {
		if g.mapping == m {
			list = append(list, t)
		}
	}
	slices.Sort(list)
	return list
}

// BlockScheme is the scheme of a block type. ok is false for other types.
func BlockScheme(t gguf.TensorType, a gqf.Algorithm) (s Scheme, ok bool) {
	g := blockGrids[t]
	if g == nil {
		return Scheme{}, false
	}
	return Scheme{Bits: g.bits, Group: g.group, Mapping: g.mapping, ScaleDtype: packing.ScaleF16, Algorithm: a, Type: t}, true
}

func (s Scheme) validateBlocks() error {
	switch want, ok := BlockScheme(s.Type, s.Algorithm); {
	case !ok:
		return fmt.Errorf("type %s is not a type of blocks that can be quantized to: use another type, see docs/GGUF.md", s.Type)
	case s.PositiveScales:
		return fmt.Errorf("positive scales are for types with neither sub-scales nor minima, not for %s: leave out positive-scales, or use 2, 4, 5 or 8 bits without a mapping", s.Type)
	case s != want:
		s.Type = 0
		return fmt.Errorf("type %s has %d bits, groups of %d, mapping %s and %s scales, not %s", want.Type, want.Bits, want.Group, want.Mapping, want.ScaleDtype, s)
	}
	return nil
}

// CodeRange returns the least and the greatest code.
func (s Scheme) CodeRange() (least, most int) {
	if g := blockGrids[s.Type]; g != nil {
		return g.qmin, g.qmax
	}
	return codeRange(s.Bits)
}

// GroupGrids sets the scale and the offset of each group of a row of blocks: code q stands for
// float32(q*scale) + offset. Without minima, offsets are zero. f holds the scales and minima.
func (s Scheme) GroupGrids(scales, offsets []float32, f *gguf.Fields) {
	grid := blockGrids[s.Type]
	perBlock := len(scales) / len(f.Scales)
	for g := range scales {
		fit := blockFit{d: f.Scales[g/perBlock]}
		sub, least := int32(grid.subMax), int32(grid.minMax)
		if grid.super() {
			sub = int32(f.SubScales[g])
		}
		fit.d *= grid.unit()
		if grid.minMax > 0 {
			fit.dmin = f.Mins[g/perBlock]
			if grid.super() {
				least = int32(f.SubMins[g])
			} else { // these types add the minimum
				fit.dmin = 0 - fit.dmin
			}
		}
		fit.set(0, sub, least)
		scales[g], offsets[g] = fit.scale[0], fit.offset[0]
	}
}

// Integers returns the range of a type's sub-scales, their step, and the greatest integer minimum,
// or 0.
func (s Scheme) Integers() (least, most, step, mostMin int) {
	g := blockGrids[s.Type]
	if step = 1; g.points != nil {
		step = 2
	}
	return g.subMin, g.subMax, step, g.minMax
}

// SubScales reports whether blocks have integer sub-scales.
func (s Scheme) SubScales() bool {
	g := blockGrids[s.Type]
	return g != nil && g.super()
}

// SubUnit is what a sub-scale of 1 multiplies the scale by: 1, or 1/8 or 1/4 in IQ types.
func (s Scheme) SubUnit() float32 {
	if g := blockGrids[s.Type]; g != nil {
		return g.unit()
	}
	return 1
}

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
		if b.power {
			f.d = powerScale(max(hi[0], -lo[0]))
			f.set(0, 1, 0)
		} else if g, need := b.ideal(&f, lo, hi); g >= 0 {
			return &ScaleError{Group: at + g, Scale: need, Dtype: packing.ScaleF16}
		}
		if b.search != nil {
			b.searchBlock(&f, lo, hi, block, weights[i*n:][:n])
		}
		b.store(i, &f)
	}
	b.codes(x, weights, acc)
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
		case b.points != nil:
			scales[g] = max(-lo[g], hi[g]) / float32(b.qmax)
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
	if f.d, ok = b.storeScale(scales[top] / float32(last)); !ok {
		return top, scales[top] / float32(last)
	}
	if f.d == 0 {
		f.d = 0 // without a sign
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

// powerScale is half of the scale that the OCP Microscaling Formats specification gives a group of
// MXFP4 with a weight of largest size m: 2^2 is the exponent of E2M1's largest numbers. Scales from
// 2^-125 on have finite inverses, also if halved.
func powerScale(m float32) float32 {
	exponent := int(math.Float32bits(m)>>23) - 127 - 2
	return float32(math.Ldexp(1, max(exponent, -125)-1))
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

// storeScale is storeF16 for a scale that sub-scales multiply.
func (b *blockGrid) storeScale(v float32) (float32, bool) {
	v, ok := storeF16(v / b.unit())
	return v * b.unit(), ok
}

func (b *blockGrid) nearestSub(scale, d float32) int32 {
	if d == 0 {
		return int32(max(b.subMin, min(0, b.subMax)))
	}
	if b.points != nil { // odd numbers
		return int32(min(max(2*roundToEven((scale/d-1)/2)+1, float32(b.subMin)), float32(b.subMax)))
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

func (b *blockRows) store(i int, f *blockFit) {
	at := i * b.groups
	for g := range b.groups {
		b.scales[at+g], b.offsets[at+g], b.inverses[at+g] = f.scale[g], f.offset[g], 0
		if f.scale[g] != 0 {
			b.inverses[at+g] = 1 / f.scale[g]
		}
	}
	b.fields.Scales[i] = f.d / b.unit()
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
//
// A type with a table takes the nearest code of the table, and a type with points the nearest point
// with weights w. No w weighs all alike.
func (b *blockRows) codes(x, w []float32, acc *vec.ErrorSum) {
	signal := vec.SumSquares(x)
	if b.points != nil {
		b.pointCodes(x, w, acc)
		acc.Signal[0] += signal
		return
	}
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
	if b.table != nil {
		b.table.quantize(b.fields.Codes, x, b.scales, b.inverses, b.group, acc)
		acc.Signal[0] += signal
		return
	}
	vec.QuantizeGroups(b.fields.Codes, x, b.scales, b.inverses, nil, b.group, b.qmin, b.qmax, &sum)
	for i, v := range sum.Noise {
		acc.Noise[i] += v
	}
	acc.Signal[0] += signal
}
