package layouts

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// TestNew makes the packer of every layout and compares its shape with the header.
func TestNew(t *testing.T) {
	seen := map[packing.Layout]bool{packing.LayoutPlain: true}
	for _, c := range []struct {
		h    packing.Header
		want string // the type
	}{
		{packing.Header{Layout: packing.LayoutLowbit, Flags: packing.FlagBias, Bits: 3, ScaleDtype: packing.ScaleBF16, ZeroKind: packing.ZeroInt8, Tile: packing.DefaultTile, Rows: 11, Cols: 100, Group: 48}, "*packing.Lowbit"},
		{packing.Header{Layout: packing.LayoutCodes, Bits: 5, ScaleDtype: packing.ScaleF16, Rows: 11, Cols: 100, Group: 48}, "*packing.Codes"},
		{packing.Header{Layout: packing.LayoutQSI4CXP, Flags: packing.FlagBias, Bits: 4, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: 11, Cols: 45}, "*kleidiai.Packer"},
		{packing.Header{Layout: packing.LayoutQSI4C32PF16, Bits: 4, ScaleDtype: packing.ScaleF16, Tile: packing.DefaultTile, Rows: 11, Cols: 64, Group: 32}, "*kleidiai.Packer"},
		{packing.Header{Layout: packing.LayoutQSI8CXP, Bits: 8, ScaleDtype: packing.ScaleF32, Tile: packing.Tile{NR: 4, KR: 8, SR: 1}, Rows: 11, Cols: 45}, "*kleidiai.Packer"},
		{packing.Header{Layout: packing.LayoutQAI4C32P, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroF32, Tile: packing.Tile{NR: 4, KR: 8, SR: 2}, Rows: 11, Cols: 64, Group: 32}, "*kleidiai.Packer"},
		{packing.Header{Layout: packing.LayoutQSU2CXP, Bits: 2, ScaleDtype: packing.ScaleF32, Tile: packing.Tile{NR: 4, KR: 4, SR: 1}, Rows: 11, Cols: 64}, "*kleidiai.Packer"},
		{packing.Header{Layout: packing.LayoutTorchAOLinear, Bits: 6, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Tile: packing.DefaultTile, Rows: 11, Cols: 96, Group: 48}, "*torchao.linear"},
		{packing.Header{Layout: packing.LayoutTorchAOEmbedding, Bits: 6, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Rows: 11, Cols: 96, Group: 32}, "*torchao.Embedding"},
		{packing.Header{Layout: packing.LayoutTorchAOKleidiAI, Flags: packing.FlagBias, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Rows: 11, Cols: 64, Group: 32}, "*torchao.kleidiAI"},
	} {
		seen[c.h.Layout] = true
		p, err := New(c.h)
		if err != nil {
			t.Errorf("%s: %v", c.h.Layout, err)
			continue
		}
		if fmt.Sprintf("%T", p) != c.want {
			t.Errorf("%s: a %T", c.h.Layout, p)
		}
		size, _ := c.h.DataSize()
		if got := len(p.Prefix()) + p.Panels()*p.PanelBytes(); int64(got) != size {
			t.Errorf("%s: %d bytes of prefix and panels, %d in the header", c.h.Layout, got, size)
		}
		rows := 0
		for i := range p.Panels() {
			rows += p.PanelRows(i)
		}
		panel := p.NewPanel()
		nr := max(int(c.h.Tile.NR), 1)
		if rows != 11 || p.Header() != c.h || p.Groups() != int(c.h.Groups()) || len(panel.Codes) != nr*p.PackedCols() || len(panel.Scales) != nr*p.Groups() {
			t.Errorf("%s: %d rows, header %+v, %d groups, %d codes and %d scales in a panel of %d columns",
				c.h.Layout, rows, p.Header(), p.Groups(), len(panel.Codes), len(panel.Scales), p.PackedCols())
		}
		if (panel.Zeros != nil) != (c.h.ZeroKind == packing.ZeroInt8) || (panel.FloatZeros != nil) != (c.h.ZeroKind == packing.ZeroF32) || (panel.Bias != nil) != (c.h.Flags&packing.FlagBias != 0) {
			t.Errorf("%s: %d and %d zero points and %d biases in a panel", c.h.Layout, len(panel.Zeros), len(panel.FloatZeros), len(panel.Bias))
		}
		broken := c.h
		broken.Bits = 9
		if p, err := New(broken); err == nil || p != nil {
			t.Errorf("%s of 9 bits: %v, %v", c.h.Layout, p, err)
		}
	}
	for _, l := range packing.Layouts {
		if !seen[l] {
			t.Errorf("%s is not tested", l)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	var unsupported *packing.UnsupportedError
	if _, err := New(packing.PlainHeader(packing.F32, 2, 2)); !errors.As(err, &unsupported) || unsupported.Msg != "a payload of layout plain holds no packed codes" {
		t.Errorf("plain: error %v", err)
	}
	if _, err := New(packing.Header{Layout: 99}); !errors.As(err, &unsupported) {
		t.Errorf("unknown layout: error %v", err)
	}
	var malformed *packing.HeaderError
	if _, err := New(packing.Header{}); !errors.As(err, &malformed) {
		t.Errorf("no layout: error %v", err)
	}
}
