package torchao

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// formatExamples are the worked examples of docs/FORMAT.md, TorchAO's layouts.
func formatExamples() (linear, embedding packing.Header, m [2]*matrix) {
	linear = packing.Header{
		Layout: packing.LayoutTorchAOLinear, Flags: packing.FlagBias, Bits: 2, ScaleDtype: packing.ScaleF32,
		ZeroKind: packing.ZeroInt8, Tile: packing.DefaultTile, Rows: 2, Cols: 16, Group: 16,
	}
	embedding = packing.Header{
		Layout: packing.LayoutTorchAOEmbedding, Bits: 3, ScaleDtype: packing.ScaleF32,
		ZeroKind: packing.ZeroInt8, Rows: 1, Cols: 96, Group: 32,
	}
	m[0] = &matrix{Scales: []float32{0.5, -0.25}, Zeros: []int8{-1, 1}, Bias: []float32{1, -2}}
	m[1] = &matrix{}
	for i, h := range []packing.Header{linear, embedding} {
		for r := range int(h.Rows) {
			for k := range int(h.Cols) {
				m[i].Codes = append(m[i].Codes, int8((k*k/3+3*r)%(1<<h.Bits)-1<<(h.Bits-1)))
			}
		}
	}
	return linear, embedding, m
}

// TestFormatExamples compares PackPanel with the bytes that docs/FORMAT.md prints.
func TestFormatExamples(t *testing.T) {
	linear, embedding, m := formatExamples()
	for i, h := range []packing.Header{linear, embedding} {
		data := pack(t, h, m[i])
		got, all := strings.Builder{}, append(h.Append(nil), data...)
		for at := 0; at < len(all); at += 16 {
			fmt.Fprintf(&got, "\n%3d  % x", at, all[at:min(at+16, len(all))])
		}
		if got.WriteString("\n"); got.String() != formatBytes[i] {
			t.Errorf("%s: got%swant%s", h.Layout, got.String(), formatBytes[i])
		}
	}
}

var formatBytes = [2]string{`
  0  47 51 50 4b 01 00 21 01 02 00 03 01 08 10 02 00
 16  02 00 00 00 00 00 00 00 10 00 00 00 00 00 00 00
 32  10 00 00 00 00 00 00 00 e0 00 00 00 00 00 00 00
 48  00 00 00 00 00 00 00 00 00 00 00 00 a4 f6 48 97
 64  38 1a 00 00 01 00 00 00 02 00 00 00 01 00 00 00
 80  01 00 00 00 08 00 00 00 10 00 00 00 02 00 00 00
 96  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
112  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
128  2a 2a 6a ea 6a 2a 2a 2a ea ea 2a aa 2a ea ea ea
144  6a ea 6a 2a 2a 2a 6a ea 2a aa 2a ea ea ea 2a aa
160  00 00 00 3f 00 00 80 be 00 00 00 00 00 00 00 00
176  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
192  ee ff ff ff fe ff ff ff 00 00 00 00 00 00 00 00
208  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
224  ff ff ff ff 01 00 00 00 00 00 00 00 00 00 00 00
240  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
256  00 00 80 3f 00 00 00 c0 00 00 00 00 00 00 00 00
272  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
`, `
  0  47 51 50 4b 01 00 22 00 03 00 03 01 00 00 00 00
 16  01 00 00 00 00 00 00 00 60 00 00 00 00 00 00 00
 32  20 00 00 00 00 00 00 00 64 00 00 00 00 00 00 00
 48  00 00 00 00 00 00 00 00 00 00 00 00 9e 59 0a 52
 64  38 1a 00 00 02 00 00 00 01 00 00 00 03 00 00 00
 80  20 00 00 00 80 00 00 00 00 00 00 00 00 00 00 00
 96  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
112  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
128  05 03 49 d8 68 00 21 03 68 c0 61 03 2d 18 4c c0
144  6d 18 0c 00 85 03 89 18 68 20 2b 00 0b a8 6b c8
160  00 68 20 2b
`}
