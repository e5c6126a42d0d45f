package hfquant

import "testing"

// TestMLXVectors reads what MLX quantized, and writes it back byte for byte. Where q * scale + bias
// is 0, (code - zero) * scale may be -0.
func TestMLXVectors(t *testing.T) {
	for _, v := range vectors(t, "mlx") {
		t.Run(v.name(), func(t *testing.T) {
			w := findOne(t, store(t, v.stored()...), string(v.Config))
			rows := readAll(t, w)
			v.check(t, w, rows)
			if got := sumOf(w.Scheme, rows, true); got != v.Dequantized {
				t.Errorf("the weights differ: SHA-256 %s, want %s", got, v.Dequantized)
			}
			l, err := MLX.NewLayout(w.Name, w.Shape, w.Scheme)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []int64{1, 3, v.N} {
				v.equalParts(t, putAll(t, l, rows, step))
			}
		})
	}
}
