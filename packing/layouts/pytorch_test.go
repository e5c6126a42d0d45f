package layouts

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// TestPyTorch compares panels with those that PyTorch's _dyn_quant_pack_4bit_weight made on Arm,
// with KleidiAI. docs/examples/pytorch/judge made the vectors, and makes them again to compare.
func TestPyTorch(t *testing.T) {
	var cases []struct {
		Rows, Cols, Group           uint64 // Group 0: one scale per row
		Codes, Scales, Bias, Packed []byte // int8, float32, float32
	}
	if err := json.Unmarshal(testshared.VectorsZst(t, "../../testdata/vectors/pytorch/pack.json.zst"), &cases); err != nil {
		t.Fatal(err)
	}
	seen := map[packing.Layout]int{}
	for i, c := range cases {
		h := packing.Header{
			Layout: packing.LayoutQSI4CXP, Bits: 4, ScaleDtype: packing.ScaleF32, Tile: packing.Tile{NR: 8, KR: 16, SR: 2},
			Rows: c.Rows, Cols: c.Cols, Group: c.Group,
		}
		if c.Group > 0 {
			h.Layout, h.ScaleDtype = packing.LayoutLowbit, packing.ScaleBF16
		}
		if len(c.Bias) > 0 {
			h.Flags = packing.FlagBias
		}
		seen[h.Layout]++
		p, err := New(h.Canonical())
		if err != nil {
			t.Fatalf("case %d: %v", i, err)
		}
		codes, scales, bias := make([]int8, len(c.Codes)), float32s(c.Scales), float32s(c.Bias)
		for k, q := range c.Codes {
			codes[k] = int8(q)
		}
		var data []byte
		row := 0
		for panel := range p.Panels() {
			src := p.NewPanel()
			src.Rows = p.PanelRows(panel)
			for r := range src.Rows {
				copy(src.Codes[r*p.PackedCols():], codes[row*int(c.Cols):][:c.Cols])
				copy(src.Scales[r*p.Groups():], scales[row*p.Groups():][:p.Groups()])
				if src.Bias != nil {
					src.Bias[r] = bias[row]
				}
				row++
			}
			packed := make([]byte, p.PanelBytes())
			p.PackPanel(packed, src)
			data = append(data, packed...)
		}
		if !bytes.Equal(data, c.Packed) {
			t.Errorf("case %d, %d x %d in groups of %d: other bytes than PyTorch's", i, c.Rows, c.Cols, c.Group)
		}
	}
	if len(cases) != 20 || seen[packing.LayoutLowbit] != 12 || seen[packing.LayoutQSI4CXP] != 8 {
		t.Errorf("%d cases, %v, want 12 of groups and 8 of channels", len(cases), seen)
	}
}

func float32s(b []byte) []float32 {
	f := make([]float32, len(b)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return f
}
