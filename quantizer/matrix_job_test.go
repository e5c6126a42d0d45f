package quantizer_test

import (
	"bytes"
	"fmt"
	"log"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// A matrix of 8 outputs and 64 inputs gets 4-bit codes in groups of 32, in the layout of KleidiAI's
// qsi4c32p kernels.
func ExampleQuantizeMatrix() {
	const rows, cols = 8, 64
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(i*i%101-50) / 64
	}
	m, err := quantizer.QuantizeMatrix(x, cols, quantizer.Recipe{
		Bits: 4, Group: new(32), Layouts: []quantizer.LayoutRequest{{Family: quantizer.FamilyKleidiAI}},
	})
	if err != nil {
		log.Fatal(err)
	}
	data, err := m.Pack() // kernels.NewLinear(m.Header, data, ...) multiplies with these bytes
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("qsi4c32p:", m.Header.IsQSI4C32P(), "tile", m.Header.Tile, "of", len(data), "bytes")
	fmt.Println("codes", m.Codes[:8], "scale", m.Scales[0])
	y := make([]float32, len(x))
	m.Dequantize(y)
	fmt.Println("weights", x[:4], "became", y[:4])
	fmt.Printf("error %.3f\n", m.Error)
	// Output:
	// qsi4c32p: true tile 8x16x2 of 352 bytes
	// codes [7 7 7 6 5 4 2 0] scale -0.109375
	// weights [-0.78125 -0.765625 -0.71875 -0.640625] became [-0.765625 -0.765625 -0.765625 -0.65625]
	// error 0.057
}

// TestQuantizeMatrixJob compares the packed bytes with a .gqf file's.
func TestQuantizeMatrixJob(t *testing.T) {
	const name = "model.layers.0.self_attn.q_proj.weight"
	dir, out := "../internal/lm/forward/testdata/torch/llama3", filepath.Join(t.TempDir(), "m.gqf")
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
