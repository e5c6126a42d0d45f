package packing

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// foreignHeaders has a valid header of every layout of KleidiAI and TorchAO.
var foreignHeaders = []Header{
	{Layout: LayoutQSI4CXP, Flags: FlagBias, Bits: 4, ScaleDtype: ScaleF32, Tile: DefaultTile, Rows: 11, Cols: 45},
	{Layout: LayoutQSI4C32PF16, Bits: 4, ScaleDtype: ScaleF16, Tile: Tile{4, 8, 2}, Rows: 11, Cols: 128, Group: 32},
	{Layout: LayoutQSI8CXP, Flags: FlagPositiveScales, Bits: 8, ScaleDtype: ScaleF32, Tile: Tile{4, 8, 1}, Rows: 11, Cols: 33},
	{Layout: LayoutQAI4C32P, Bits: 4, ScaleDtype: ScaleF32, ZeroKind: ZeroF32, Tile: Tile{4, 16, 2}, Rows: 11, Cols: 128, Group: 64},
	{Layout: LayoutQSU2CXP, Bits: 2, ScaleDtype: ScaleF32, Tile: Tile{4, 4, 1}, Rows: 11, Cols: 64},
	{Layout: LayoutTorchAOLinear, Flags: FlagBias, Bits: 3, ScaleDtype: ScaleF32, ZeroKind: ZeroInt8, Tile: DefaultTile, Rows: 17, Cols: 96, Group: 48},
	{Layout: LayoutTorchAOEmbedding, Bits: 5, ScaleDtype: ScaleF32, ZeroKind: ZeroInt8, Rows: 3, Cols: 160, Group: 32},
	{Layout: LayoutTorchAOKleidiAI, Bits: 4, ScaleDtype: ScaleBF16, Tile: Tile{8, 8, 2}, Rows: 13, Cols: 64, Group: 32},
}

func TestForeignSizes(t *testing.T) {
	if len(foreignHeaders) != len(foreigns) {
		t.Fatalf("%d headers for %d layouts", len(foreignHeaders), len(foreigns))
	}
	// The panel sizes are worked out by hand from shared/reference/kleidiai.md section 2 and
	// torchao.md sections 4, 6 and 7.
	for i, want := range []struct {
		size   int64
		groups uint64
	}{
		{2 * 8 * (64/2 + 12), 1},
		{3 * 4 * 4 * (16 + 2), 4},
		{3 * 4 * (64 + 12), 1},
		{3 * 4 * (2*(32+8) + 4), 2},
		{3 * 4 * (64/4 + 12), 1},
		{64 + 24*(96/8*3+4*2+4*2+4*2+4), 2},
		{64 + 3*160*5/8, 5},
		{64 + 2*8*((16+2)*2+8), 2},
	} {
		h := foreignHeaders[i]
		size, err := h.DataSize()
		if err != nil || size != want.size || h.Groups() != want.groups {
			t.Errorf("%s: %d bytes, %d groups (%v), want %d, %d", h.Layout, size, h.Groups(), err, want.size, want.groups)
		}
	}
}

func TestForeignValidate(t *testing.T) {
	for _, h := range foreignHeaders {
		if err := h.Validate(); err != nil {
			t.Errorf("%s: %v", h.Layout, err)
		}
		checkHeaderRoundTrip(t, h.Layout.String(), h)
		if h.Canonical() != h {
			t.Errorf("%s: not canonical", h.Layout)
		}
		if h.Layout.IsKleidiAI() == h.Layout.IsTorchAO() {
			t.Errorf("%s is both KleidiAI's and TorchAO's, or neither", h.Layout)
		}
		small := h.ScaleDtype.Smallest()
		if h.Layout == LayoutQSI4CXP || h.Layout == LayoutQAI4C32P { // stored divided by 16
			small = 0x1p-122
		}
		if h.SmallestScale() != small {
			t.Errorf("%s: smallest scale %v, want %v", h.Layout, h.SmallestScale(), small)
		}
		// One group that is the whole row is allowed unless the layout has no groups.
		whole := h
		whole.Group = h.Cols
		if err := whole.Validate(); (err == nil) == slices.Contains([]Layout{LayoutQSI4CXP, LayoutQSI8CXP, LayoutQSU2CXP}, h.Layout) {
			t.Errorf("%s with group = columns: error %v", h.Layout, err)
		}
	}
	at := func(l Layout) Header {
		return foreignHeaders[slices.IndexFunc(foreignHeaders, func(h Header) bool { return h.Layout == l })]
	}
	type edit func(h *Header)
	for _, c := range []struct {
		layout Layout
		edit   edit
		field  string
		msg    string
	}{
		{LayoutQSI4CXP, func(h *Header) { h.Bits = 8 }, "bits", "qsi4cxp holds codes of 4 bits, not 8"},
		{LayoutTorchAOLinear, func(h *Header) { h.Bits = 9 }, "bits", "torchao-linear holds codes of 1 to 8 bits, not 9"},
		{LayoutQSI4CXP, func(h *Header) { h.Group = 32 }, "group", "qsi4cxp holds one scale per row (group 0), not group 32"},
		{LayoutQSI4CXP, func(h *Header) { h.Flags = FlagQSI4C32P }, "flags", `qsi4cxp holds no payload flagged "qsi4c32p"`},
		{LayoutQSI4CXP, func(h *Header) { h.Dtype = F32 }, "dtype", "qsi4cxp holds no elements of a dtype, this header has 2"},
		{LayoutQSI4CXP, func(h *Header) { h.Tile = Tile{} }, "tile", `qsi4cxp holds tiles of 4x8x2, 4x16x2, 8x8x2 or 8x16x2, not ""`},
		{LayoutQSI4C32PF16, func(h *Header) { h.Flags = FlagBias }, "flags", "qsi4c32p-f16 holds no bias"},
		{LayoutQSI4C32PF16, func(h *Header) { h.ScaleDtype = ScaleBF16 }, "scale dtype", "qsi4c32p-f16 holds f16 scales, not bf16"},
		{LayoutQSI4C32PF16, func(h *Header) { h.Group = 48 }, "group", "qsi4c32p-f16 holds groups of a multiple of 32, or 0 for one scale per row, not 48"},
		{LayoutQSI4C32PF16, func(h *Header) { h.Group = 96 }, "group", "qsi4c32p-f16 holds groups that divide the 128 columns, or 0 for one scale per row, not 96"},
		{LayoutQSI4C32PF16, func(h *Header) { h.Cols = 172 }, "cols", "qsi4c32p-f16 holds rows of a multiple of 32 columns, not 172"},
		{LayoutQSI8CXP, func(h *Header) { h.Tile = DefaultTile }, "tile", `qsi8cxp holds tiles of 4x4x1 or 4x8x1, not "8x16x2"`},
		{LayoutQSI8CXP, func(h *Header) { h.ZeroKind = ZeroInt8 }, "zero kind", "qsi8cxp holds zero points of kind none, not int8"},
		{LayoutQAI4C32P, func(h *Header) { h.ZeroKind = ZeroInt8 }, "zero kind", "qai4c32p holds zero points of kind f32, not int8"},
		{LayoutQSU2CXP, func(h *Header) { h.Grid = GridHalfStep }, "grid", "qsu2cxp holds codes of the integer grid (0), not grid 1"},
		{LayoutTorchAOLinear, func(h *Header) { h.ZeroKind = ZeroF32 }, "zero kind", "torchao-linear holds zero points of kind none or int8, not f32"},
		{LayoutTorchAOLinear, func(h *Header) { h.Rows = 0 }, "rows", "torchao-linear holds at least one weight, not 0 x 96"},
		{LayoutTorchAOLinear, func(h *Header) { h.Bits, h.Cols, h.Group = 8, 1<<24, 0 }, "group", "torchao-linear holds the sum of each group's codes as an int32, which 16777216 codes of 8 bits may exceed"},
		{LayoutTorchAOLinear, func(h *Header) { h.Bits, h.Cols, h.Group = 1, 1<<32, 1<<31 }, "group", "torchao-linear holds the sum of each group's codes as an int32, which 2147483648 codes of 1 bits may exceed"},
		{LayoutTorchAOEmbedding, func(h *Header) { h.Tile = DefaultTile }, "tile", "torchao-embedding holds rows without a tile, not 8x16x2"},
		{LayoutTorchAOEmbedding, func(h *Header) { h.ZeroKind = ZeroNone }, "zero kind", "torchao-embedding holds zero points of kind int8, not none"},
		{LayoutTorchAOKleidiAI, func(h *Header) { h.Rows, h.Cols = 1<<40, 1<<40 }, "rows", "1099511627776 x 1099511627776 weights need more than 2^62 bytes"},
		{LayoutTorchAOKleidiAI, func(h *Header) { h.Rows = math.MaxUint64 }, "rows", "18446744073709551615 x 64 weights need more than 2^62 bytes"},
	} {
		h := at(c.layout)
		c.edit(&h)
		err := h.Validate()
		var field, msg string
		if got, ok := errors.AsType[*HeaderError](err); ok && c.field != "tile" {
			field, msg = got.Field, got.Msg
		} else if got, ok := errors.AsType[*UnsupportedError](err); ok && c.field == "tile" {
			field, msg = got.Field, got.Msg
		}
		if field != c.field || msg != c.msg {
			t.Errorf("error %v\nwant %s: %s", err, c.field, c.msg)
		}
	}
	for bits := uint8(1); bits <= 8; bits++ { // the longest groups
		h := at(LayoutTorchAOLinear)
		h.Bits, h.Cols, h.Group = bits, 1<<(32-bits)-16, 0
		if err := h.Validate(); err != nil {
			t.Error(err)
		}
		h.Cols, h.Group = 2*h.Cols, h.Cols
		if err := h.Validate(); err != nil {
			t.Error(err)
		}
		if h.Group = 0; h.Validate() == nil {
			t.Errorf("a group of %d codes of %d bits", h.Cols, bits)
		}
	}
	for _, h := range foreignHeaders {
		h.Flags |= 0x40
		var u *UnsupportedError
		if err := h.Validate(); !errors.As(err, &u) || u.Field != "flags" {
			t.Errorf("%s with an unknown flag: error %v", h.Layout, err)
		}
		if _, err := NewLowbit(h); err == nil {
			t.Errorf("%s made a Lowbit", h.Layout)
		}
	}
	if names := orList([]ZeroKind{ZeroNone}); names != "none" || strings.Contains(names, "or") {
		t.Errorf("one name written as %q", names)
	}
}
