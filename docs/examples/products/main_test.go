package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/quantizer"
)

// TestProducts reads the records as products.h does. The products must be near the products of the
// activations with the record's codes, scales, zero points and biases: the judges pack these.
func TestProducts(t *testing.T) {
	dir := t.TempDir()
	checkpoint, file, out := filepath.Join(dir, "checkpoint"), filepath.Join(dir, "model.gqf"), filepath.Join(dir, "products")
	if err := run([]string{"checkpoint", checkpoint}); err != nil {
		t.Fatal(err)
	}
	if _, err := gq.Quantize(context.Background(), checkpoint, file, gq.QuantizeOptions{Recipe: quantizer.Recipe{
		Algorithm: gqf.AlgorithmRTN, // whose zero points are integers
		Layouts:   []quantizer.LayoutRequest{{Family: quantizer.FamilyLowbit}},
		Rules:     []quantizer.Rule{{Match: "layers.*.proj", Bits: 5, Mapping: gqf.MappingAsymmetric}},
	}}); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"multiply", file, out}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	r, records := bytes.NewReader(data), 0
	for ; ; records++ {
		var head [7]uint32 // variant, slice, rows, cols, groups, m, bytes of the name
		if err := binary.Read(r, binary.LittleEndian, &head); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		n, k, groups, m := int(head[2]), int(head[3]), int(head[4]), int(head[5])
		name, codes, scales, zeros := make([]byte, head[6]), make([]int8, n*k), make([]float32, n*groups), make([]int8, n*groups)
		bias, x, y := make([]float32, n), make([]float32, m*k), make([]float32, m*n)
		for _, part := range []any{name, codes, scales, zeros, bias, x, y} {
			if err := binary.Read(r, binary.LittleEndian, part); err != nil {
				t.Fatal(err)
			}
		}
		signal, noise := 0.0, 0.0
		for i := range m {
			for row := range n {
				sum := float64(bias[row])
				for c := range k {
					g := row*groups + c/32
					sum += float64(x[i*k+c]) * float64(int(codes[row*k+c])-int(zeros[g])) * float64(scales[g])
				}
				signal += sum * sum
				noise += (sum - float64(y[i*n+row])) * (sum - float64(y[i*n+row]))
			}
		}
		if db := 10 * math.Log10(signal/noise); !(db > 30) {
			t.Errorf("%s, %d x %d: %.1f dB", name, n, k, db)
		}
	}
	if records != len(shapes) {
		t.Errorf("%d records, want %d", records, len(shapes))
	}
	if err := run([]string{"multiply", file}); err == nil {
		t.Error("a missing argument is no error")
	}
}
