package hfquant

import (
	"strings"
	"testing"
)

// TestGPTQVectors reads what GPTQModel packed, in both conventions of zero points, and writes it
// back byte for byte.
func TestGPTQVectors(t *testing.T) {
	for _, v := range vectors(t, "gptq") {
		t.Run(v.name(), func(t *testing.T) {
			w := findOne(t, store(t, v.stored()...), string(v.Config))
			rows := readAll(t, w)
			v.check(t, w, rows)
			if got := sumOf(w.Scheme, rows, false); got != v.Dequantized {
				t.Errorf("the weights differ: SHA-256 %s, want %s", got, v.Dequantized)
			}
			if v.v2() {
				return // written as v1 only
			}
			for _, step := range []int64{32, 64, v.N} {
				l, err := GPTQ.NewLayout(w.Name, w.Shape, w.Scheme)
				if v.K%max(v.Group, 1) != 0 {
					if err == nil {
						t.Error("a short last group is written")
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				v.equalParts(t, putAll(t, l, rows, step))
			}
		})
	}
}

// v2 reports whether zero points are stored as they are.
func (v *vector) v2() bool { return strings.Contains(string(v.Config), "gptq_v2") }
