package packing

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestCheckPanel(t *testing.T) {
	type edit func(l *Lowbit, panel []byte)
	base := Header{Layout: LayoutLowbit, Bits: 4, ScaleDtype: ScaleBF16, Tile: DefaultTile, Rows: 12, Cols: 172, Group: 32}
	put16 := func(at func(l *Lowbit) int, v uint16) edit {
		return func(l *Lowbit, panel []byte) { binary.LittleEndian.PutUint16(panel[at(l):], v) }
	}
	put32 := func(at func(l *Lowbit) int, v uint32) edit {
		return func(l *Lowbit, panel []byte) { binary.LittleEndian.PutUint32(panel[at(l):], v) }
	}
	scale := func(g, r int) func(l *Lowbit) int {
		return func(l *Lowbit) int { return l.RecordOffset(g) + 2*r }
	}
	tail := func(i int) func(l *Lowbit) int { return func(l *Lowbit) int { return l.tailStart + 4*i } }
	for _, c := range []struct {
		name  string
		flags Flags
		edit  edit
		at    func(l *Lowbit) int // offset reported
		msg   string              // the message or its beginning
	}{
		{"zero scale", 0, put16(scale(2, 1), 0), scale(2, 1), "the scale of row 1 group 2 is 0, want a magnitude of 1.1754944e-38 to 3.3895314e+38 (bf16)"},
		{"subnormal scale", 0, put16(scale(0, 0), 0x007f), scale(0, 0), "the scale of row 0 group 0 is 1.1663108e-38, want a magnitude of 1.1754944e-38 to 3.3895314e+38 (bf16)"},
		{"infinite scale", 0, put16(scale(5, 3), 0xff80), scale(5, 3), "the scale of row 3 group 5 is -Inf, want a magnitude of 1.1754944e-38 to 3.3895314e+38 (bf16)"},
		{"negative scale", FlagPositiveScales, put16(scale(5, 3), 0xbf80), scale(5, 3), "the scale of row 3 group 5 is -1 in a payload of positive scales"},
		{"other scale", 0, put16(scale(5, 2), 0x5000), tail(2), "the sum of row 2 is "},
		{"sum", 0, put32(tail(2), 0x47000000), tail(2), "the sum of row 2 is 32768, its codes make "},
		{"bias without flag", 0, put32(tail(9), 0x80000000), tail(9), "the bias of row 1 is -0 in a payload without one"},
		{"bias NaN", FlagBias, put32(tail(9), 0x7fc00001), tail(9), "the bias of row 1 is NaN"},
		{"padding", 0, func(l *Lowbit, p []byte) { p[l.BlockOffset(5)+95] ^= 0x10 },
			func(l *Lowbit) int { return l.BlockOffset(5) }, "row 3 has code 1 past its 172 columns, at column 191"},
		{"repeated scale", 0, func(l *Lowbit, p []byte) { p[l.RecordOffset(1)+2*6] ^= 1 },
			func(l *Lowbit) int { return l.RecordOffset(1) + 2*6 }, "row 6 has another scale in group 1 than the matrix's last row, which it repeats"},
		{"repeated code", 0, func(l *Lowbit, p []byte) { p[l.BlockOffset(3)+127] ^= 1 },
			func(l *Lowbit) int { return l.BlockOffset(3) }, "row 7 has another code at column 111 than the matrix's last row, which it repeats"},
		{"repeated zero point", 0, func(l *Lowbit, p []byte) { p[l.RecordOffset(0)+16+5] ^= 1 },
			func(l *Lowbit) int { return l.RecordOffset(0) + 16 + 5 }, "row 5 has another zero point than the matrix's last row, which it repeats"},
		{"repeated sum", 0, put32(tail(4), 0), tail(4), "row 4 has another sum than the matrix's last row, which it repeats"},
		{"repeated bias", FlagBias, put32(tail(8+5), 0), tail(8 + 5), "row 5 has another bias than the matrix's last row, which it repeats"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := base
			h.Flags = c.flags
			if c.name == "repeated zero point" {
				h.ZeroKind = ZeroInt8
			}
			l, err := NewLowbit(h)
			if err != nil {
				t.Fatal(err)
			}
			data := randomMatrix(rand.New(rand.NewPCG(3, 4)), h).pack(t, l)
			panel := data[l.PanelBytes():]
			c.edit(l, panel)
			var got *PanelError
			if err := l.CheckPanel(1, panel); !errors.As(err, &got) {
				t.Fatalf("error %v, want a PanelError", err)
			}
			if want := int64(l.PanelBytes() + c.at(l)); !strings.HasPrefix(got.Msg, c.msg) || got.Offset != want || got.Panel != 1 {
				t.Errorf("panel %d, byte %d, %q; want 1, %d, %q", got.Panel, got.Offset, got.Msg, want, c.msg)
			}
		})
	}
}

// TestCheckSumFinite tests that CheckPanel refuses a sum that is not finite, even if the codes give
// it.
func TestCheckSumFinite(t *testing.T) {
	l, err := NewLowbit(Header{Layout: LayoutLowbit, Bits: 8, ScaleDtype: ScaleF32, Tile: DefaultTile, Rows: 8, Cols: 32})
	if err != nil {
		t.Fatal(err)
	}
	panel := l.NewPanel()
	panel.Rows = 8
	for i := range panel.Codes {
		panel.Codes[i] = -128
	}
	for i := range panel.Scales {
		panel.Scales[i] = 3e38
	}
	data := make([]byte, l.PanelBytes())
	l.PackPanel(data, panel)
	var got *PanelError
	if err := l.CheckPanel(0, data); !errors.As(err, &got) || got.Msg != "the sum of row 0 is -Inf, want a finite number" {
		t.Errorf("error %v", err)
	}
}
