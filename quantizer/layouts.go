package quantizer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/suggest"
	"github.com/lowbit-go/gq/packing"
)

// Family is the consumer whose layouts a tensor is packed in. The scheme selects one of the
// family's layouts.
type Family uint8

const (
	FamilyLowbit   Family = iota // gq's own layout, which holds every scheme
	FamilyKleidiAI               // qsi4c32p, qsi4cxp, qsi8cxp, qai4c32p, qsu2cxp
	// packed weights of types 1 (universal), 2 (embedding) and 3 (KleidiAI)
	FamilyTorchAO
	FamilyCodes // row-major int8 codes, with separate scales and zero points
)

var familyNames = []string{"lowbit", "kleidiai", "torchao", "codes"}

// String returns the name that ParseLayouts reads.
func (f Family) String() string { return familyNames[f] }

// LayoutRequest asks for a layout by its family and tile. The scheme of a tensor then selects the
// layout (see Header).
type LayoutRequest struct {
	Family Family
	// Tile. Default (zero): the tile that the layout's kernels for CPUs with i8mm read.
	Tile packing.Tile
}

// String spells the request as ParseLayouts reads it.
func (f LayoutRequest) String() string {
	if f.Tile == (packing.Tile{}) {
		return f.Family.String()
	}
	return f.Family.String() + ":" + f.Tile.String()
}

// ParseLayouts reads a list of layouts, "kleidiai", "kleidiai:4x16x2,lowbit". Each tensor is stored
// once in every layout, with the same codes.
func ParseLayouts(s string) ([]LayoutRequest, error) {
	var list []LayoutRequest
	for _, word := range strings.Split(s, ",") {
		name, tile, tiled := strings.Cut(word, ":")
		i := slices.Index(familyNames, name)
		if i < 0 {
			return nil, suggest.Unknown("layout", name, familyNames)
		}
		f := LayoutRequest{Family: Family(i)}
		if tiled {
			var err error
			if f.Tile, err = packing.ParseTile(tile); err != nil {
				return nil, err
			}
		}
		if slices.Contains(list, f) {
			return nil, fmt.Errorf("layout %q is there twice", word)
		}
		list = append(list, f)
	}
	return list, nil
}

// Header is the packed header, without bias, of rows x cols weights of scheme s in this layout.
// embedding says that the matrix is an embedding that is not multiplied with. If the layout cannot
// store the scheme or the shape, the error says what would fit.
func (f LayoutRequest) Header(s rounding.Scheme, rows, cols int64, embedding bool) (packing.Header, error) {
	h := s.Header(rows, cols, f.Tile)
	h.Flags &^= packing.FlagQSI4C32P
	if h.Group >= h.Cols {
		h.Group = 0 // one group covers the row, whatever its stated size
	}
	var tile packing.Tile
	h.Layout, tile = f.layout(s, h.Group == 0, embedding)
	if h.Layout == 0 {
		return h, fmt.Errorf("KleidiAI has no layout for %s: it holds 4-bit codes with bf16 or f16 scales (symmetric) or f32 scales (asymmetric) in groups of 32, and 2-, 4- and 8-bit symmetric codes with an f32 scale per channel", s)
	}
	if f.Tile == (packing.Tile{}) {
		h.Tile = tile
	}
	switch {
	case h.Layout == packing.LayoutQAI4C32P:
		h.ZeroKind = packing.ZeroF32
	case h.Layout == packing.LayoutTorchAOEmbedding || h.Layout.IsTorchAO() && s.Fractions:
		h.ZeroKind = packing.ZeroInt8
	}
	h = h.Canonical()
	if err := h.Validate(); err != nil {
		return h, err
	}
	if f.Family == FamilyKleidiAI && h.Layout == packing.LayoutLowbit && h.Flags&packing.FlagQSI4C32P == 0 {
		return h, fmt.Errorf("qsi4c32p holds symmetric 4-bit codes with bf16 scales in groups of a multiple of 32 that divide K, not %s of K %d", s, cols)
	}
	return h, nil
}

// layout is the family's layout for a scheme and its default tile; 0 if there is none.
func (f LayoutRequest) layout(s rounding.Scheme, perChannel, embedding bool) (packing.Layout, packing.Tile) {
	asymmetric := s.Mapping == gqf.MappingAsymmetric
	float32Scales := s.ScaleDtype == packing.ScaleF32
	switch f.Family {
	case FamilyKleidiAI:
		switch {
		case s.Bits == 4 && asymmetric:
			return packing.LayoutQAI4C32P, packing.Tile{NR: 4, KR: 16, SR: 2}
		case s.Bits == 4 && s.ScaleDtype == packing.ScaleF16:
			return packing.LayoutQSI4C32PF16, packing.Tile{NR: 4, KR: 16, SR: 2}
		case s.Bits == 4 && s.ScaleDtype == packing.ScaleBF16:
			return packing.LayoutLowbit, packing.DefaultTile
		case s.Bits == 4 && perChannel:
			return packing.LayoutQSI4CXP, packing.DefaultTile
		case s.Bits == 8 && perChannel && float32Scales && !asymmetric:
			return packing.LayoutQSI8CXP, packing.Tile{NR: 4, KR: 8, SR: 1}
		case s.Bits == 2 && perChannel && float32Scales && !asymmetric:
			return packing.LayoutQSU2CXP, packing.Tile{NR: 4, KR: 4, SR: 1}
		}
		return 0, packing.Tile{}
	case FamilyTorchAO:
		switch {
		case embedding:
			return packing.LayoutTorchAOEmbedding, packing.Tile{}
		case s.Bits == 4 && s.ScaleDtype == packing.ScaleBF16 && !asymmetric:
			return packing.LayoutTorchAOKleidiAI, packing.DefaultTile
		}
		return packing.LayoutTorchAOLinear, packing.DefaultTile
	case FamilyCodes:
		return packing.LayoutCodes, packing.Tile{}
	}
	return packing.LayoutLowbit, packing.DefaultTile
}

// FitsSomeShape checks whether the layout can store the scheme in any matrix, such as one whose K
// is a multiple of every group size.
func (f LayoutRequest) FitsSomeShape(s rounding.Scheme, embedding bool) error {
	k := int64(max(s.Group, 32)) * 32
	_, err := f.Header(s, 32, k, embedding)
	return err
}
