package hfquant

import (
	"bytes"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// TestPutReuses writes symmetric weights in every format, twice: what is in the memory that Put
// reuses does not reach the parts.
func TestPutReuses(t *testing.T) {
	for _, f := range Formats() {
		s := Scheme{Bits: 4, Group: 32, Scales: packing.BF16}
		l, err := f.NewLayout("m.weight", []int64{64, 64}, s)
		if err != nil {
			t.Fatal(err)
		}
		rows := make([]Row, 64)
		for i := range rows {
			rows[i].resize(s, 64)
			for k := range rows[i].Codes {
				rows[i].Codes[k] = int8((i+k)%15 - 7)
			}
			rows[i].Scales[0], rows[i].Scales[1] = 1, -3
		}
		first := putAll(t, l, rows, 64)
		if err := l.Put(rows, 0, func(_ int, _ int64, b []byte) error {
			copy(b, bytes.Repeat([]byte{0xff}, len(b)))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for i, p := range putAll(t, l, rows, 64) {
			if !bytes.Equal(p.data, first[i].data) {
				t.Errorf("%s: %s differs when it is written again", f, p.Name)
			}
		}
		config, metadata, err := f.Config([]byte("{}"), []ModelWeight{{Name: "m.weight", Shape: []int64{64, 64}, Scheme: &s, Linear: true}})
		if err != nil {
			t.Fatal(err)
		}
		w := findOne(t, storeIn(t, t.TempDir(), metadata, first...), string(config))
		for n, row := range readAll(t, w) {
			for g, z := range row.Zeros {
				if z != 0 {
					t.Fatalf("%s: row %d: zero point %d in group %d", f, n, z, g)
				}
			}
		}
	}
}
