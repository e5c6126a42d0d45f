package packing

import (
	"fmt"
	"strings"
	"testing"
)

// formatExample is the worked example of docs/FORMAT.md, "lowbit".
func formatExample() *matrix {
	m := &matrix{
		h: Header{Layout: LayoutLowbit, Flags: FlagBias, Bits: 3, ScaleDtype: ScaleBF16, ZeroKind: ZeroInt8,
			Tile: Tile{4, 8, 2}, Rows: 2, Cols: 20, Group: 16},
		scales: []float32{0.5, -0.25, 1.5, 2},
		zeros:  []int8{-1, 2, 0, 3},
		bias:   []float32{1, -2},
	}
	for r := range 2 {
		for k := range 20 {
			m.codes = append(m.codes, int8((5*k+3*r)%8)-4)
		}
	}
	return m
}

// TestFormatExample compares PackPanel with the bytes that docs/FORMAT.md prints.
func TestFormatExample(t *testing.T) {
	const want = `
  0  47 51 50 4b 01 00 02 01 03 00 01 01 04 08 02 00
 16  02 00 00 00 00 00 00 00 14 00 00 00 00 00 00 00
 32  10 00 00 00 00 00 00 00 68 00 00 00 00 00 00 00
 48  00 00 00 00 00 00 00 00 00 00 00 00 93 bd b0 19
 64  00 6d 92 ff db 00 6d 92 db 00 6d 92 db 00 6d 92
 80  24 0c 34 1c 3c 24 0c 34 3c 24 0c 34 3c 24 0c 34
 96  c4 6c d4 7c dc c4 6c d4 dc c4 6c d4 dc c4 6c d4
112  00 3f c0 3f c0 3f c0 3f ff 00 00 00 80 be 00 40
128  00 40 00 40 02 03 03 03 00 00 d0 40 00 00 40 c2
144  00 00 40 c2 00 00 40 c2 00 00 80 3f 00 00 00 c0
160  00 00 00 c0 00 00 00 c0
`
	m := formatExample()
	l, err := NewLowbit(m.h)
	if err != nil {
		t.Fatal(err)
	}
	got, all := strings.Builder{}, append(m.h.Append(nil), m.pack(t, l)...)
	for at := 0; at < len(all); at += 16 {
		fmt.Fprintf(&got, "\n%3d  % x", at, all[at:min(at+16, len(all))])
	}
	if got.WriteString("\n"); got.String() != want {
		t.Errorf("got%swant%s", got.String(), want)
	}
}
