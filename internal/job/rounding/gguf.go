package rounding

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
)

// ggufGrid is a type of GGUF files whose codes and scales are a grid of gq's own.
type ggufGrid struct {
	bits int
	kind gguf.TensorType
}

// ggufGrids are gq's grids with F16 scales and one group per block. The types of 3 and 6 bits have
// sub-scales, see BlockType.
var ggufGrids = []ggufGrid{{1, gguf.Q1_0}, {2, gguf.Q2_0}, {4, gguf.Q4_0}, {5, gguf.Q5_0}, {8, gguf.Q8_0}}

// GGUFType returns the type of GGUF files that holds codes and scales of scheme s, in rows of any
// length. The error says what to state instead.
func GGUFType(s Scheme) (gguf.TensorType, error) {
	if s.Type != 0 {
		return s.Type, s.Validate()
	}
	t, ok := GGUFGrid(s.Bits, s.Mapping)
	switch {
	case s.Bits == 7 && !OnlyBlocks(s.Mapping):
		return 0, fmt.Errorf("a GGUF file has no type of 7 bits: use 6 (Q6_K) or 8 (Q8_0)")
	case !ok && s.Mapping == gqf.MappingAsymmetric:
		return 0, fmt.Errorf("a GGUF file has asymmetric types of 4 and 5 bits (Q4_1, Q5_1), not of %d: use one of them, or mapping %s at 2 to 6 bits", s.Bits, gqf.MappingKQuant)
	case !ok && s.Mapping == gqf.MappingKQuant:
		return 0, fmt.Errorf("a GGUF file has K types of 2 to 6 bits, not of %d: use one of them, or leave out the mapping", s.Bits)
	case !ok && OnlyBlocks(s.Mapping):
		list := typesOf(s.Mapping)
		return 0, fmt.Errorf("a GGUF file has %s with mapping %s, no type of %d bits: use %d bits, or leave out the mapping", list[0], s.Mapping, s.Bits, blockGrids[list[0]].bits)
	case !ok && s.Bits == 1:
		return 0, fmt.Errorf("the codes of Q1_0, the type of 1 bit, are a half-step grid, not %s: use mapping %s, or leave it out", s.Mapping, gqf.MappingHalfStep)
	case !ok:
		return 0, fmt.Errorf("a GGUF file has no type of %d bits with mapping %s: leave out the mapping", s.Bits, s.Mapping)
	case s.Group == 0:
		return 0, fmt.Errorf("%d bits are %s in a GGUF file, whose groups are %d weights, not a channel: state group %[3]d, or none", s.Bits, t, t.BlockWeights())
	case s.Group != t.BlockWeights():
		return 0, fmt.Errorf("%d bits are %s in a GGUF file, whose groups are %d weights, not %d: state group %[3]d, or none", s.Bits, t, t.BlockWeights(), s.Group)
	case s.ScaleDtype != packing.ScaleF16:
		return 0, fmt.Errorf("the scales of %s, as of all types of GGUF files, are f16, not %s: state f16, or none", t, s.ScaleDtype)
	}
	return t, nil
}

// GGUFGrid returns the type with gq's grid of these bits and this mapping.
func GGUFGrid(bits int, m gqf.Mapping) (gguf.TensorType, bool) {
	halfStep := m == gqf.MappingHalfStep
	if m == gqf.MappingAsymmetric || OnlyBlocks(m) || halfStep != (bits == 1) {
		return 0, false
	}
	i := slices.IndexFunc(ggufGrids, func(g ggufGrid) bool { return g.bits == bits })
	if i < 0 {
		return 0, false
	}
	return ggufGrids[i].kind, true
}

// GGUFScheme is the scheme whose rows are the blocks of a type, with the algorithm and the sign of
// scales of s. ok is false for a type that gq does not write.
func GGUFScheme(t gguf.TensorType, s Scheme) (scheme Scheme, ok bool) {
	if b, ok := BlockScheme(t, s.Algorithm); ok {
		return b, true
	}
	for _, g := range ggufGrids {
		if g.kind != t {
			continue
		}
		m := s.Mapping
		if _, ok := GGUFGrid(g.bits, m); !ok {
			m = GGUFMapping(g.bits)
		}
		return Scheme{Bits: g.bits, Group: t.BlockWeights(), Mapping: m, ScaleDtype: packing.ScaleF16, PositiveScales: s.PositiveScales, Algorithm: s.Algorithm}, true
	}
	return Scheme{}, false
}

// GGUFMapping is the mapping of the default type of a width.
func GGUFMapping(bits int) gqf.Mapping {
	switch bits {
	case 1:
		return gqf.MappingHalfStep
	case 3, 6:
		return gqf.MappingKQuant
	}
	return gqf.MappingFullRange
}

// wider names, for types whose blocks may not divide a row, a type of smaller blocks that is at
// least as accurate: the types that llama-quantize takes, but IQ4_NL in place of Q4_0.
var wider = map[gguf.TensorType]gguf.TensorType{
	gguf.Q1_0: gguf.Q2_0, gguf.Q2_0: gguf.Q4_0,
	gguf.Q2_K: iq4NL, gguf.Q3_K: iq4NL, gguf.Q4_K: gguf.Q5_0, gguf.Q5_K: gguf.Q5_1, gguf.Q6_K: gguf.Q8_0,
	iq4XS: iq4NL, tq1: gguf.Q2_0, tq2: gguf.Q2_0,
	iq2XXS: iq4NL, iq2XS: iq4NL, iq2S: iq4NL, iq3XXS: iq4NL, iq3S: iq4NL,
}

// FitGGUF adapts a scheme to rows of k weights, which need a whole number of blocks: it returns a
// scheme of no fewer bits if the type's blocks do not divide k. ok is false if no type's do.
func FitGGUF(s Scheme, k int64) (fit Scheme, ok bool) {
	t, err := GGUFType(s)
	if err != nil {
		return s, false
	}
	kind := t
	for k%int64(kind.BlockWeights()) != 0 {
		if kind, ok = wider[kind]; !ok {
			return s, false
		}
	}
	if kind == t {
		return s, true
	}
	return GGUFScheme(kind, s)
}

// SmallestGGUFScale is the smallest magnitude of a scale of a type. Q1_0 stores half of gq's scale,
// which is exact in F16 if the half is a normal number.
func SmallestGGUFScale(t gguf.TensorType) float32 {
	if t == gguf.Q1_0 {
		return 2 * packing.ScaleF16.SmallestNormal()
	}
	return packing.ScaleF16.Smallest()
}

// GGUFCodes returns the type of GGUF files that holds codes as a payload with packed header h has
// them. The error says what to quantize with instead.
func GGUFCodes(h packing.Header) (gguf.TensorType, error) {
	const again = "quantize the checkpoint again"
	halfStep := h.Grid == packing.GridHalfStep
	switch {
	case h.ZeroKind != packing.ZeroNone:
		return 0, fmt.Errorf("a GGUF type has an F16 minimum, which a zero point times a scale is not: %s, to a .gguf file (gq quantize SRC --mapping asymmetric -o NAME.gguf)", again)
	case h.Bits == 3 || h.Bits == 6:
		return 0, fmt.Errorf("GGUF's type of %d bits is Q%[1]d_K, whose scales have another form: %s, to a .gguf file (gq quantize SRC --bits %[1]d -o NAME.gguf) or with --target gguf and 2, 4, 5 or 8 bits", h.Bits, again)
	case h.Bits == 7:
		return 0, fmt.Errorf("a GGUF file has no type of 7 bits: %s with --target gguf --bits 8", again)
	case halfStep != (h.Bits == 1):
		return 0, fmt.Errorf("a GGUF file has no type for this grid of %d bits: %s with --target gguf", h.Bits, again)
	}
	i := slices.IndexFunc(ggufGrids, func(g ggufGrid) bool { return g.bits == int(h.Bits) })
	return ggufGrids[i].kind, nil
}
