package hfquant

import "testing"

// TestAWQVectors reads what AutoAWQ packed, in versions gemm and gemv.
func TestAWQVectors(t *testing.T) {
	for _, v := range vectors(t, "awq") {
		t.Run(v.name(), func(t *testing.T) {
			w := findOne(t, store(t, v.stored()...), string(v.Config))
			rows := readAll(t, w)
			v.check(t, w, rows)
			if got := sumOf(w.Scheme, rows, false); got != v.Dequantized {
				t.Errorf("the weights differ: SHA-256 %s, want %s", got, v.Dequantized)
			}
		})
	}
}
