package gq_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// TestQuantizeMatrixJob compares the packed bytes of quantizer.QuantizeMatrix with a .gqf file's.
func TestQuantizeMatrixJob(t *testing.T) {
	const name = "model.layers.0.self_attn.q_proj.weight"
	dir, out := "internal/lm/forward/testdata/torch/llama3", filepath.Join(t.TempDir(), "m.gqf")
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	tensor, ok := ck.Lookup(name)
	if !ok || tensor.Dtype != packing.F32 {
		t.Fatalf("%s is %+v", name, tensor)
	}
	rows, cols := tensor.Matrix()
	x := make([]float32, rows*cols)
	if err := ck.ReadRows(x, tensor, 0, int(rows)); err != nil {
		t.Fatal(err)
	}
	r := quantizer.Recipe{Bits: 3, Mapping: gqf.MappingAsymmetric}
	if _, err := gq.Quantize(t.Context(), dir, out, gq.QuantizeOptions{Recipe: r}); err != nil {
		t.Fatal(err)
	}
	f, err := gqf.Open(out, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stored, _ := f.Lookup(name)
	p, _ := stored.Payload(0, 0, gqf.KindWeights)
	want, err := f.Data(p)
	if err != nil {
		t.Fatal(err)
	}
	m, err := quantizer.QuantizeMatrix(x, int(cols), r)
	if err != nil {
		t.Fatal(err)
	}
	data, err := m.Pack()
	if err != nil || m.Header != p.Header || !bytes.Equal(data, want) {
		t.Errorf("%+v with %d bytes, want %+v with %d bytes (%v)", m.Header, len(data), p.Header, len(want), err)
	}
}
