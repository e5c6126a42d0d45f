package kleidiai

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

func TestCheckPanel(t *testing.T) {
	header := func(i int, edit func(h *packing.Header)) packing.Header {
		h := layoutHeaders[i]
		h.Tile, h.Rows, h.Cols = h.Layout.Tiles()[0], 6, 96
		edit(&h)
		return h
	}
	cx := header(0, func(h *packing.Header) { h.Cols = 45 })
	cxBias := header(0, func(h *packing.Header) { h.Flags = packing.FlagBias })
	positive := header(0, func(h *packing.Header) { h.Flags = packing.FlagPositiveScales })
	f16 := header(1, func(h *packing.Header) {})
	cx8 := header(2, func(h *packing.Header) {})
	qai := header(3, func(h *packing.Header) { h.Flags = packing.FlagBias })
	two := header(4, func(h *packing.Header) { h.Flags = packing.FlagBias })

	scale := func(r, g int) func(f *frame) int { return func(f *frame) int { return f.scaleAt(r, g) } }
	zero := func(r, g int) func(f *frame) int { return func(f *frame) int { return f.zeroAt(r, g) } }
	sum := func(r int) func(f *frame) int { return func(f *frame) int { return f.sum0 + 4*r } }
	bias := func(r int) func(f *frame) int { return func(f *frame) int { return f.bias0 + 4*r } }
	code := func(r, k int) func(f *frame) int { return func(f *frame) int { return f.codeAt(r, k) } }
	put := func(v float32) func(b []byte) {
		return func(b []byte) { binary.LittleEndian.PutUint32(b, math.Float32bits(v)) }
	}
	put16 := func(v uint16) func(b []byte) { return func(b []byte) { binary.LittleEndian.PutUint16(b, v) } }
	flip := func(v byte) func(b []byte) { return func(b []byte) { b[0] ^= v } }

	for _, c := range []struct {
		name string
		h    packing.Header
		at   func(f *frame) int // offset changed and reported
		edit func(b []byte)     // changes the bytes there
		msg  string             // the message or its beginning
	}{
		{"zero scale", cx, scale(1, 0), put(0), "the scale of row 1 group 0 is 0, stored as 0: want magnitudes of 1.1754944e-38 to 3.4028235e+38 (f32)"},
		{"scale subnormal as stored", cx, scale(1, 0), put(0x1p-127), "the scale of row 1 group 0 is 9.403955e-38, stored as 5.877472e-39: want magnitudes of 1.1754944e-38 to 3.4028235e+38 (f32)"},
		{"scale infinite as meant", cx, scale(1, 0), put(-0x1p127), "the scale of row 1 group 0 is -Inf, stored as -Inf: want magnitudes of 1.1754944e-38 to 3.4028235e+38 (f32)"},
		{"negative scale", positive, scale(0, 0), put(-1), "the scale of row 0 group 0 is -16 in a payload of positive scales"},
		{"infinite f16 scale", f16, scale(0, 2), put16(0xfc00), "the scale of row 0 group 2 is -Inf, stored as -Inf: want magnitudes of 5.9604645e-08 to 65504 (f16)"},
		{"zero point NaN", qai, zero(1, 2), put(float32(math.NaN())), "the zero point of row 1 group 2 is NaN"},
		{"zero point infinite", qai, zero(0, 0), put(float32(math.Inf(-1))), "the zero point of row 0 group 0 is -Inf"},
		{"padding column", cx, code(1, 50), flip(0x20), "row 1 has code 2 past its 45 columns, at column 50"},
		{"code", cx, sum(1), nil, "the sum of row 1 is "},
		{"sum", cx8, sum(1), put(1), "the sum of row 1 is 1065353216, its codes make "},
		{"bias without flag", cx8, bias(1), put(float32(math.Copysign(0, -1))), "the bias of row 1 is -0 in a payload without one"},
		{"bias NaN", cxBias, bias(0), put(float32(math.NaN())), "the bias of row 0 is NaN"},
		{"bias infinite", qai, bias(0), put(float32(math.Inf(1))), "the bias of row 0 is +Inf"},
		{"repeated scale", f16, scale(3, 1), flip(1), "row 3 has another scale in group 1 than that of the matrix's last row, which it repeats"},
		{"repeated code", qai, code(2, 70), flip(0x10), "row 2 has another code at column "},
		{"repeated zero point", qai, zero(2, 1), put(7), "row 2 has another zero point in group 1 than that of the matrix's last row, which it repeats"},
		{"repeated sum", cx, sum(3), put(7), "row 3 has another sum than that of the matrix's last row, which it repeats"},
		{"repeated bias", cxBias, bias(3), put(7), "row 3 has another bias than that of the matrix's last row, which it repeats"},
		{"zero code", two, code(3, 33), flip(1), "row 3 has another code at column 33 than that 0, which rows past the last one have in this layout"},
		{"zero scale of padding", two, scale(3, 0), put(1), "row 3 has another scale in group 0 than that 0, which rows past the last one have in this layout"},
		{"zero sum", two, sum(2), put(1), "row 2 has another sum than that 0, which rows past the last one have in this layout"},
		{"zero bias", two, bias(2), put(1), "row 2 has another bias than that 0, which rows past the last one have in this layout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, data, _ := packRandom(t, rand.New(rand.NewPCG(3, 4)), c.h)
			panel := data[(l.Panels()-1)*l.PanelBytes():]
			if c.edit != nil {
				c.edit(panel[c.at(l.f):])
			} else {
				panel[l.f.codeAt(1, 3)] ^= 1 // only the sum shows this
			}
			var got *packing.PanelError
			if err := l.CheckPanel(l.Panels()-1, panel); !errors.As(err, &got) {
				t.Fatalf("error %v, want a PanelError", err)
			}
			want := int64((l.Panels()-1)*l.PanelBytes() + c.at(l.f))
			if !strings.HasPrefix(got.Msg, c.msg) || got.Offset != want || got.Panel != l.Panels()-1 {
				t.Errorf("panel %d, byte %d, %q; want %d, %d, %q", got.Panel, got.Offset, got.Msg, l.Panels()-1, want, c.msg)
			}
		})
	}
}

// TestCheckPanelFindsEveryBit flips every bit of a panel. CheckPanel must report each flip unless
// PackPanel can produce the result too.
func TestCheckPanelFindsEveryBit(t *testing.T) {
	for _, h := range layoutHeaders {
		h.Tile, h.Rows, h.Cols = h.Layout.Tiles()[0], 3, 64
		l, data, _ := packRandom(t, rand.New(rand.NewPCG(5, 6)), h)
		p, again := l.NewPanel(), make([]byte, l.PanelBytes())
		for bit := range 8 * len(data) {
			data[bit/8] ^= 1 << (bit % 8)
			err := l.CheckPanel(0, data)
			l.UnpackPanel(p, data)
			p.Rows = 3
			l.PackPanel(again, p)
			if same := string(again) == string(data); err == nil && !same {
				t.Fatalf("%s: bit %d flipped: not found", h.Layout, bit)
			}
			data[bit/8] ^= 1 << (bit % 8)
		}
	}
}
