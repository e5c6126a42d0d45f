package hfquant

import (
	"maps"
	"testing"
)

// TestTorchAOVectors reads what torchao flattened, and writes it back byte for byte, with the same
// metadata.
func TestTorchAOVectors(t *testing.T) {
	for _, v := range vectors(t, "torchao") {
		t.Run(v.name(), func(t *testing.T) {
			ck := storeIn(t, t.TempDir(), v.Metadata, v.stored()...)
			w := findOne(t, ck, string(v.Config))
			rows := readAll(t, w)
			v.check(t, w, rows)
			if got := sumOf(w.Scheme, rows, false); got != v.Dequantized {
				t.Errorf("the weights differ: SHA-256 %s, want %s", got, v.Dequantized)
			}
			l, err := TorchAO.NewLayout(w.Name, w.Shape, w.Scheme)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []int64{1, 3, v.N} {
				v.equalParts(t, putAll(t, l, rows, step))
			}
			config, metadata, err := TorchAO.Config([]byte("{}"), []ModelWeight{
				{Name: w.Name, Shape: w.Shape, Scheme: &w.Scheme, Linear: v.Linear},
				{Name: "m.bias", Shape: w.Shape[:1]},
			})
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(metadata, v.Metadata) {
				t.Errorf("metadata %q, want %q", metadata, v.Metadata)
			}
			if again := findOne(t, ck, string(config)); again.Scheme != w.Scheme {
				t.Errorf("with its own config the scheme is %v, want %v", again.Scheme, w.Scheme)
			}
		})
	}
}
