package rounding

import (
	"fmt"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
)

// The block types are the grids of .gguf files that gq's own grids do not contain. Weights of a
// group share an effective scale s and a minimum m, with codes q:
//
//	Q4_1 Q5_1       q s + m        s and m are F16
//	Q2_K Q4_K Q5_K  q s - m        s = d sub, m = dmin min
//	Q3_K Q6_K       q s            s = d sub
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
	minMax int
}

var blockGrids = map[gguf.TensorType]*blockGrid{
	gguf.Q4_1: {bits: 4, group: 32, qmax: 15, subMin: 1, subMax: 1, minMax: 1},
	gguf.Q5_1: {bits: 5, group: 32, qmax: 31, subMin: 1, subMax: 1, minMax: 1},
	gguf.Q2_K: {bits: 2, group: 16, qmax: 3, subMax: 15, minMax: 15},
	gguf.Q3_K: {bits: 3, group: 16, qmin: -4, qmax: 3, subMin: -32, subMax: 31},
	gguf.Q4_K: {bits: 4, group: 32, qmax: 15, subMax: 63, minMax: 63},
	gguf.Q5_K: {bits: 5, group: 32, qmax: 31, subMax: 63, minMax: 63},
	gguf.Q6_K: {bits: 6, group: 16, qmin: -32, qmax: 31, subMin: -128, subMax: 127},
}

// super reports whether the type is a K type, with super-blocks and integer sub-scales.
func (g *blockGrid) super() bool { return g.subMax > 1 }

func (g *blockGrid) mapping() gqf.Mapping {
	if g.super() {
		return gqf.MappingKQuant
	}
	return gqf.MappingAsymmetric
}

// BlockType returns the block type of a width and a mapping: K types of 2 to 6 bits with
// MappingKQuant, Q4_1 and Q5_1 with MappingAsymmetric.
func BlockType(bits int, m gqf.Mapping) (gguf.TensorType, bool) {
	for t, g := range blockGrids {
		if g.bits == bits && g.mapping() == m {
			return t, true
		}
	}
	return 0, false
}

// BlockScheme is the scheme of a block type. ok is false for other types.
func BlockScheme(t gguf.TensorType, a gqf.Algorithm) (s Scheme, ok bool) {
	g := blockGrids[t]
	if g == nil {
		return Scheme{}, false
	}
	return Scheme{Bits: g.bits, Group: g.group, Mapping: g.mapping(), ScaleDtype: packing.ScaleF16, Algorithm: a, Type: t}, true
}

// validateBlocks is Validate for schemes with a block type.
func (s Scheme) validateBlocks() error {
	switch want, ok := BlockScheme(s.Type, s.Algorithm); {
	case !ok:
		return fmt.Errorf("type %s is not a type of blocks that can be quantized to: use Q4_1, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K or Q6_K", s.Type)
	case s.PositiveScales:
		return fmt.Errorf("positive scales are for types with neither sub-scales nor minima, not for %s: leave out positive-scales, or use 2, 4, 5 or 8 bits without a mapping", s.Type)
	case s != want:
		s.Type = 0
		return fmt.Errorf("type %s has %d bits, groups of %d, mapping %s and %s scales, not %s", want.Type, want.Bits, want.Group, want.Mapping, want.ScaleDtype, s)
	}
	return nil
}

func (s Scheme) validateColumns(k int) error {
	if n := s.Type.BlockWeights(); s.Type != 0 && k%n != 0 {
		return fmt.Errorf("rows of %d weights have no whole number of blocks of %d weights, which %s needs: use a type with smaller blocks", k, n, s.Type)
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

// Integers returns the range of a K type's sub-scales and the greatest integer minimum, or 0.
func (s Scheme) Integers() (least, most, mostMin int) {
	g := blockGrids[s.Type]
	return g.subMin, g.subMax, g.minMax
}
