package kleidiai

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// TestFormatExample compares PackPanel with the bytes that docs/FORMAT.md prints.
func TestFormatExample(t *testing.T) {
	const want = `
  0  47 51 50 4b 01 00 11 01 04 00 03 00 04 08 02 00
 16  02 00 00 00 00 00 00 00 14 00 00 00 00 00 00 00
 32  00 00 00 00 00 00 00 00 70 00 00 00 00 00 00 00
 48  00 00 00 00 00 00 00 00 00 00 00 00 2c be e9 1a
 64  88 dd 22 77 bb 00 55 aa bb 00 55 aa bb 00 55 aa
 80  0c 01 06 0b 0f 04 09 0e 0f 04 09 0e 0f 04 09 0e
 96  00 05 0a 0f 03 08 0d 02 03 08 0d 02 03 08 0d 02
112  04 09 0e 03 07 0c 01 06 07 0c 01 06 07 0c 01 06
128  60 ff ff ff 20 ff ff ff 20 ff ff ff 20 ff ff ff
144  00 00 00 3d 00 00 80 bc 00 00 80 bc 00 00 80 bc
160  00 00 80 3f 00 00 00 c0 00 00 00 c0 00 00 00 c0
`
	h := packing.Header{Layout: packing.LayoutQSI4CXP, Flags: packing.FlagBias, Bits: 4, ScaleDtype: packing.ScaleF32,
		Tile: packing.Tile{NR: 4, KR: 8, SR: 2}, Rows: 2, Cols: 20}
	l, err := NewPacker(h)
	if err != nil {
		t.Fatal(err)
	}
	p := l.NewPanel()
	p.Rows = 2
	for r := range 2 {
		for k := range 20 {
			p.Codes[r*l.PackedCols()+k] = int8((5*k+3*r)%16) - 8
		}
	}
	p.Scales[0], p.Scales[1], p.Bias[0], p.Bias[1] = 0.5, -0.25, 1, -2
	data := make([]byte, l.PanelBytes())
	l.PackPanel(data, p)
	got, all := strings.Builder{}, append(h.Append(nil), data...)
	for at := 0; at < len(all); at += 16 {
		fmt.Fprintf(&got, "\n%3d  % x", at, all[at:min(at+16, len(all))])
	}
	if got.WriteString("\n"); got.String() != want {
		t.Errorf("got%swant%s", got.String(), want)
	}
}
