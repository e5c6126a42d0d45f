package packing

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// torchAOHeaderSize is the size of TorchAO's own header, 16 int32, at the
// start of the data of its layouts.
const torchAOHeaderSize = 64

// foreign states the limits and sizes of a layout of KleidiAI or TorchAO.
type foreign struct {
	layout Layout
	name   string
	bits   uint8 // the only width, or 0 for 1 to 8
	scale  ScaleDtype
	zeros  []ZeroKind
	tiles  []Tile // nil: not tiled
	flags  Flags  // flags that may be set
	perRow bool   // a scale per row and no groups
	group  uint64 // a group must be a multiple of this, and divide Cols
	cols   uint64 // Cols must be a multiple of this
	prefix uint64 // bytes before the first panel
	// stores each group's sum of codes as an int32 that must not overflow
	sums     bool
	rowBytes func(h Header) (constant, perGroup uint64)
	padded   bool // columns are padded to a multiple of 32
}

// foreigns lists the layouts as docs/FORMAT.md specifies them. Sizes are bytes of a row of a panel
// in addition to its codes: KleidiAI's tile stride divided by nr, and TorchAO's bytes per row.
var foreigns = []foreign{
	{
		layout: LayoutQSI4CXP, name: "qsi4cxp", bits: 4, scale: ScaleF32, zeros: []ZeroKind{ZeroNone}, tiles: lowbitTiles,
		flags: FlagBias | FlagPositiveScales, perRow: true, cols: 1, padded: true,
		rowBytes: func(Header) (uint64, uint64) { return 4 + 4 + 4, 0 }, // sum, scale, bias
	},
	{
		layout: LayoutQSI4C32PF16, name: "qsi4c32p-f16", bits: 4, scale: ScaleF16, zeros: []ZeroKind{ZeroNone}, tiles: lowbitTiles,
		flags: FlagPositiveScales, group: 32, cols: 32,
		rowBytes: func(Header) (uint64, uint64) { return 0, 2 }, // scales
	},
	{
		layout: LayoutQSI8CXP, name: "qsi8cxp", bits: 8, scale: ScaleF32, zeros: []ZeroKind{ZeroNone}, tiles: []Tile{{4, 4, 1}, {4, 8, 1}},
		flags: FlagBias | FlagPositiveScales, perRow: true, cols: 1, padded: true,
		rowBytes: func(Header) (uint64, uint64) { return 4 + 4 + 4, 0 }, // sum, scale, bias
	},
	{
		layout: LayoutQAI4C32P, name: "qai4c32p", bits: 4, scale: ScaleF32, zeros: []ZeroKind{ZeroF32}, tiles: []Tile{{4, 8, 2}, {4, 16, 2}},
		flags: FlagBias | FlagPositiveScales, group: 32, cols: 32,
		rowBytes: func(Header) (uint64, uint64) { return 4, 4 + 4 }, // bias; zero, scale
	},
	{
		layout: LayoutQSU2CXP, name: "qsu2cxp", bits: 2, scale: ScaleF32, zeros: []ZeroKind{ZeroNone}, tiles: []Tile{{4, 4, 1}},
		flags: FlagBias | FlagPositiveScales, perRow: true, cols: 32,
		rowBytes: func(Header) (uint64, uint64) { return 4 + 4 + 4, 0 }, // sum, scale, bias
	},
	{
		layout: LayoutTorchAOLinear, name: "torchao-linear", scale: ScaleF32, zeros: []ZeroKind{ZeroNone, ZeroInt8}, tiles: []Tile{{8, 16, 2}},
		flags: FlagBias | FlagPositiveScales, group: 16, cols: 16, prefix: torchAOHeaderSize, sums: true,
		rowBytes: func(h Header) (constant, perGroup uint64) {
			perGroup = 4 + 4 // scale, sum
			if h.ZeroKind == ZeroInt8 {
				perGroup += 4
			}
			if h.Flags&FlagBias != 0 {
				constant = 4
			}
			return constant, perGroup
		},
	},
	{
		layout: LayoutTorchAOEmbedding, name: "torchao-embedding", scale: ScaleF32, zeros: []ZeroKind{ZeroInt8},
		flags: FlagPositiveScales, group: 32, cols: 32, prefix: torchAOHeaderSize,
		rowBytes: func(Header) (uint64, uint64) { return 0, 0 },
	},
	{
		layout: LayoutTorchAOKleidiAI, name: "torchao-kleidiai", bits: 4, scale: ScaleBF16, zeros: []ZeroKind{ZeroNone}, tiles: []Tile{{8, 8, 2}, {8, 16, 2}},
		flags: FlagBias | FlagPositiveScales, group: 32, cols: 32, prefix: torchAOHeaderSize,
		rowBytes: func(Header) (uint64, uint64) { return 4 + 4, 2 }, // sum, bias; scale
	},
}

// foreign returns the limits of l, or nil if l is not a layout of KleidiAI or TorchAO.
func (l Layout) foreign() *foreign {
	for i := range foreigns {
		if foreigns[i].layout == l {
			return &foreigns[i]
		}
	}
	return nil
}

func (f *foreign) rowSize(h Header) checked {
	constant, perGroup := f.rowBytes(h)
	codes := newChecked(h.Cols / 8).mul(uint64(h.Bits))
	if f.padded {
		codes = h.blocks32().mul(4 * uint64(h.Bits))
	}
	return newChecked(h.Groups()).mul(perGroup).addChecked(codes).add(constant)
}

// validateForeign is Validate for foreign layouts. Its messages state what the layout accepts.
func (h Header) validateForeign(f *foreign) error {
	fail := func(field string, off int, format string, args ...any) error {
		return &HeaderError{field, off, fmt.Sprintf(f.name+" holds "+format, args...)}
	}
	perGroup := "or 0 for one scale per row"
	switch {
	case h.Flags&FlagBias&^f.flags != 0:
		return fail("flags", offFlags, "no bias")
	case h.Flags&^f.flags != 0:
		return fail("flags", offFlags, "no payload flagged %q", h.Flags&^f.flags)
	case f.bits != 0 && h.Bits != f.bits:
		return fail("bits", offBits, "codes of %d bits, not %d", f.bits, h.Bits)
	case h.Bits < 1 || h.Bits > 8:
		return fail("bits", offBits, "codes of 1 to 8 bits, not %d", h.Bits)
	case h.Grid != GridInteger:
		return fail("grid", offGrid, "codes of the integer grid (0), not grid %d", uint8(h.Grid))
	case h.ScaleDtype != f.scale:
		return fail("scale dtype", offScaleDtype, "%s scales, not %s", f.scale, h.ScaleDtype)
	case !slices.Contains(f.zeros, h.ZeroKind):
		return fail("zero kind", offZeroKind, "zero points of kind %s, not %s", orList(f.zeros), h.ZeroKind)
	case h.Dtype != DtypeNone:
		return fail("dtype", offDtype, "no elements of a dtype, this header has %d", uint8(h.Dtype))
	case h.Rows == 0 || h.Cols == 0:
		return fail("rows", offRows, "at least one weight, not %d x %d", h.Rows, h.Cols)
	case h.Cols%f.cols != 0:
		return fail("cols", offCols, "rows of a multiple of %d columns, not %d", f.cols, h.Cols)
	case f.perRow && h.Group != 0:
		return fail("group", offGroup, "one scale per row (group 0), not group %d", h.Group)
	case !f.perRow && h.Group%f.group != 0:
		return fail("group", offGroup, "groups of a multiple of %d, %s, not %d", f.group, perGroup, h.Group)
	case h.Group != 0 && h.Cols%h.Group != 0:
		return fail("group", offGroup, "groups that divide the %d columns, %s, not %d", h.Cols, perGroup, h.Group)
	case f.sums && h.Cols/h.Groups() > math.MaxInt32>>(h.Bits-1):
		return fail("group", offGroup, "the sum of each group's codes as an int32, which %d codes of %d bits may exceed", h.Cols/h.Groups(), h.Bits)
	}
	return nil
}

func orList[T fmt.Stringer](list []T) string {
	names := make([]string, len(list))
	for i, x := range list {
		names[i] = x.String()
	}
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " or " + names[n]
	}
	return names[0]
}

// SmallestScale is the smallest magnitude of a scale that the payload can hold: the smallest scale
// of the dtype, or 16 times as much where the layout stores scales divided by 16.
func (h Header) SmallestScale() float32 {
	s := h.ScaleDtype.Smallest()
	if h.Layout == LayoutQSI4CXP || h.Layout == LayoutQAI4C32P {
		s *= 16
	}
	return s
}
