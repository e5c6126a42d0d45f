package torchao

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// checkBase has a second panel of 4 rows and 4 padding rows.
var checkBase = packing.Header{
	Layout: packing.LayoutTorchAOLinear, Flags: packing.FlagBias, Bits: 4, ScaleDtype: packing.ScaleF32,
	ZeroKind: packing.ZeroInt8, Tile: packing.DefaultTile, Rows: 12, Cols: 96, Group: 48,
}

func put32(at int, v uint32) func(panel []byte) int {
	return func(panel []byte) int {
		binary.LittleEndian.PutUint32(panel[at:], v)
		return at
	}
}

func TestLinearCheckPanel(t *testing.T) {
	l, err := newLinear(checkBase)
	if err != nil {
		t.Fatal(err)
	}
	data := pack(t, checkBase, randomMatrix(rand.New(rand.NewPCG(3, 4)), checkBase))
	record := l.groupBytes + l.codeBytes // of group 1
	for _, c := range []struct {
		name   string
		edit   func(panel []byte) (at int)
		reject string
	}{
		{"zero scale", put32(record+4, 0), "the scale of row 1 group 1 is 0, not a normal number"},
		{"subnormal scale", put32(record, 1), "the scale of row 0 group 1 is 1e-45, not a normal number"},
		{"NaN scale", put32(record, 0x7fc00000), "the scale of row 0 group 1 is NaN"},
		{"padding scale", put32(record+4*7, 0x80000000), "the scale of padding row 7 group 1 is -0, not 0"},
		{"sum", put32(record+32+4*2, 9999), "the sum of row 2 group 1 is 9999, its codes make "},
		{"padding sum", put32(record+32+4*4, 1), "the sum of row 4 group 1 is 1, its codes make 0"},
		{"zero point", put32(record+64, 128), "the zero point of row 0 group 1 is 128"},
		{"padding zero point", put32(record+64+4*4, 1), "the zero point of row 4 group 1 is 1"},
		{"bias", put32(l.PanelBytes()-32+4, 0xff800000), "the bias of row 1 is -Inf"},
		{"padding bias", put32(l.PanelBytes()-4, 1), "the bias of padding row 7 is 1e-45, not 0"},
		{"padding code", func(panel []byte) int { // row 4 is in the nibbles of plane 1
			at := l.groupBytes + 2*64
			panel[at+16] ^= 1
			return at
		}, "padding row 4 has a code that is not 0 at or after column 80"},
	} {
		t.Run(c.name, func(t *testing.T) {
			panel := slices.Clone(data[headerSize+l.PanelBytes():])
			if err := l.CheckPanel(1, panel); err != nil {
				t.Fatal(err)
			}
			want := headerSize + int64(l.PanelBytes()+c.edit(panel))
			checkPanelError(t, l.CheckPanel(1, panel), want, c.reject)
		})
	}
	h := checkBase
	h.Flags |= packing.FlagPositiveScales
	if l, err = newLinear(h); err != nil {
		t.Fatal(err)
	}
	put32(headerSize+l.codeBytes, math.Float32bits(-1))(data)
	checkPanelError(t, l.CheckPanel(0, data[headerSize:][:l.PanelBytes()]), headerSize+int64(l.codeBytes), "the scale of row 0 group 0 is -1 in a payload of positive scales")
}

func checkPanelError(t *testing.T, err error, offset int64, msg string) {
	t.Helper()
	var panel *packing.PanelError
	if !errors.As(err, &panel) {
		t.Fatalf("error %v, want a PanelError", err)
	}
	if panel.Offset != offset || !strings.HasPrefix(panel.Msg, msg) {
		t.Errorf("byte %d: %q, want byte %d: %q", panel.Offset, panel.Msg, offset, msg)
	}
}

// TestKleidiAICheckPanel flips every bit of a last panel with padding. CheckPanel must accept a
// panel exactly if packing the unpacked panel gives the same bytes.
func TestKleidiAICheckPanel(t *testing.T) {
	for _, tile := range testTiles {
		h := packing.Header{Layout: packing.LayoutTorchAOKleidiAI, Flags: packing.FlagBias, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: tile, Rows: 13, Cols: 64, Group: 32}
		l, err := newKleidiAI(h)
		if err != nil {
			t.Fatal(err)
		}
		data := pack(t, h, randomMatrix(rand.New(rand.NewPCG(3, 4)), h))
		panel, p, again := data[headerSize+l.PanelBytes():], l.NewPanel(), make([]byte, l.PanelBytes())
		accepted := 0
		for bit := range 8 * len(panel) {
			panel[bit/8] ^= 1 << (bit % 8)
			l.UnpackPanel(p, panel)
			p.Rows = 5
			l.PackPanel(again, p)
			err := l.CheckPanel(1, panel)
			var wrong *packing.PanelError
			switch {
			case err == nil && !slices.Equal(again, panel):
				t.Fatalf("bit %d: accepted a panel that PackPanel does not make", bit)
			case err == nil:
				accepted++
			case !errors.As(err, &wrong) || wrong.Panel != 1 || wrong.Offset < headerSize+int64(len(panel)) || wrong.Offset >= int64(len(data)):
				t.Fatalf("bit %d: error %v, want a PanelError in panel 1", bit, err)
			}
			panel[bit/8] ^= 1 << (bit % 8)
		}
		// Only changes of the 5 rows' biases are not detectable, except for the top exponent bit if
		// it makes an infinity.
		if accepted < 5*31 || accepted > 5*32 {
			t.Errorf("%d damaged panels accepted", accepted)
		}
	}
}

// TestOtherShapes checks a payload against shapes that it was not packed for.
func TestOtherShapes(t *testing.T) {
	data := pack(t, checkBase, randomMatrix(rand.New(rand.NewPCG(3, 4)), checkBase))
	checkAs := func(h packing.Header) error {
		p, err := New(h)
		if err != nil {
			t.Fatal(err)
		}
		return check(p, data)
	}
	if err := checkAs(checkBase); err != nil {
		t.Fatal(err)
	}
	// The header does not state rows, columns and groups.
	for _, rows := range []uint64{10, 16} {
		h := checkBase
		h.Rows = rows
		var panel *packing.PanelError
		if err := checkAs(h); !errors.As(err, &panel) || panel.Panel != 1 {
			t.Errorf("%d rows: error %v, want a PanelError in panel 1", rows, err)
		}
	}
	for _, c := range []struct{ cols, group uint64 }{{96, 16}, {96, 0}, {48, 48}} {
		h := checkBase
		h.Cols, h.Group = c.cols, c.group
		if checkAs(h) == nil {
			t.Errorf("%d columns, group %d: no error", c.cols, c.group)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	base := checkBase
	for _, c := range []struct {
		name string
		edit func(h *packing.Header)
	}{
		{"another layout", func(h *packing.Header) {
			*h = packing.Header{Layout: packing.LayoutLowbit, Bits: 3, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: 1, Cols: 1}
		}},
		{"no rows", func(h *packing.Header) { h.Rows = 0 }},
		{"more than can be addressed", func(h *packing.Header) { h.Rows, h.Cols, h.Group = 1<<21, 1<<40, 32 }},
		{"sums that overflow", func(h *packing.Header) { h.Bits, h.Cols, h.Group = 8, 1<<24, 0 }},
	} {
		h := base
		c.edit(&h)
		if p, err := New(h); err == nil || p != nil {
			t.Errorf("%s: %T, error %v", c.name, p, err)
		}
	}
	var unsupported *packing.UnsupportedError
	if _, err := newEmbedding(base); !errors.As(err, &unsupported) {
		t.Errorf("linear as embedding: error %v, want an UnsupportedError", err)
	}
	if _, err := newKleidiAI(base); !errors.As(err, &unsupported) {
		t.Errorf("linear as kleidiai: error %v, want an UnsupportedError", err)
	}
}

func TestPackersPanic(t *testing.T) {
	linear, err := newLinear(checkBase)
	if err != nil {
		t.Fatal(err)
	}
	h := embeddingBase
	embedding, err := newEmbedding(h)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 1<<12)
	row := make([]float32, 96)
	for name, f := range map[string]func(){
		"linear codes":        func() { p := linear.NewPanel(); p.Codes = p.Codes[1:]; linear.PackPanel(data[:linear.PanelBytes()], p) },
		"linear zeros":        func() { p := linear.NewPanel(); p.Zeros = nil; linear.PackPanel(data[:linear.PanelBytes()], p) },
		"linear rows":         func() { p := linear.NewPanel(); p.Rows = 0; linear.PackPanel(data[:linear.PanelBytes()], p) },
		"linear dst":          func() { linear.PackPanel(data, linear.NewPanel()) },
		"linear row":          func() { linear.DequantizeRow(row, data, 12) },
		"linear negative row": func() { linear.Row(nil, nil, nil, data, -1) },
		"linear panel":        func() { linear.CheckPanel(2, data[:linear.PanelBytes()]) },
		"embedding codes": func() {
			p := embedding.NewPanel()
			p.Codes = nil
			embedding.PackPanel(data[:embedding.PanelBytes()], p)
		},
		"embedding src":           func() { embedding.UnpackPanel(embedding.NewPanel(), data) },
		"embedding row":           func() { embedding.Bias(data, 3) },
		"embedding panel":         func() { embedding.CheckPanel(3, data[:embedding.PanelBytes()]) },
		"embedding scales":        func() { embedding.Row(nil, row, nil, data, 0) },
		"embedding no companions": func() { embedding.DequantizeRow(row, data, 0) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
