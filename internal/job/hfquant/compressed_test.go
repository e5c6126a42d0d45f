package hfquant

import (
	"bytes"
	"testing"
)

// TestCompressedVectors reads what compressed-tensors packed, and writes it back byte for byte.
func TestCompressedVectors(t *testing.T) {
	for _, v := range vectors(t, "compressed") {
		t.Run(v.name(), func(t *testing.T) {
			ck := store(t, v.stored()...)
			w := findOne(t, ck, string(v.Config))
			rows := readAll(t, w)
			v.check(t, w, rows)
			if got := sumOf(w.Scheme, rows, false); got != v.Dequantized {
				t.Errorf("the weights differ: SHA-256 %s, want %s", got, v.Dequantized)
			}
			f := PackQuantized
			if bytes.Contains(v.Config, []byte(IntQuantized)) {
				f = IntQuantized
			}
			l, err := f.NewLayout(w.Name, w.Shape, w.Scheme)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []int64{l.RowStep, 32, 64} {
				v.equalParts(t, putAll(t, l, rows, step))
			}
			ownConfig(t, f, w, v.stored())
		})
	}
}
