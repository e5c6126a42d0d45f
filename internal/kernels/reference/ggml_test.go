package reference

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/binary"
	"io"
	"math"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/kernels/ggml"
)

// ggmlVectors has products that ggml computed, see testdata/ggml.py.
//
//go:embed testdata/ggml.bin.gz
var ggmlVectors []byte

// TestGGML compares products with ggml's: for the same blocks and activations they differ by the
// rounding of sums in another order.
func TestGGML(t *testing.T) {
	z, err := gzip.NewReader(bytes.NewReader(ggmlVectors))
	if err != nil {
		t.Fatal(err)
	}
	types := 0
	for {
		var head [3]uint32
		if err := binary.Read(z, binary.LittleEndian, &head); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		f, rows, cols := ggml.For(gguf.TensorType(head[0])), int(head[1]), int(head[2])
		size := cols / f.Block * f.Bytes
		x, data, want := make([]float32, cols), make([]byte, rows*size), make([]float32, rows)
		for _, part := range []any{x, data, want} {
			if err := binary.Read(z, binary.LittleEndian, part); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]float32, rows)
		MultiplyBlocks(got, x, 1, f, data, rows, cols)
		for r := range rows {
			if bound := 1e-6 * magnitude(f, data[r*size:][:size], x); !(math.Abs(float64(got[r]-want[r])) <= bound) {
				t.Errorf("%s, row %d: %v, ggml has %v, want a difference of at most %.2g", f.Type, r, got[r], want[r], bound)
			}
		}
		types++
	}
	if types != len(ggml.Formats) {
		t.Errorf("vectors of %d types, want %d", types, len(ggml.Formats))
	}
}

// magnitude adds the magnitudes of all products of codes and of minima with activations.
func magnitude(f *ggml.Format, data []byte, x []float32) (sum float64) {
	var b gguf.Block
	for k, v := range x {
		i := k % f.Block
		if i == 0 {
			f.Type.ReadBlock(&b, data[k/f.Block*f.Bytes:][:f.Bytes])
		}
		g := i / f.Type.GroupWeights()
		weight, minimum := math.Abs(float64(b.GroupScale(f.Type, g))*float64(b.Codes[i])), 0.0
		if f.Minima {
			if minimum = math.Abs(float64(b.Min)); f.Subs {
				minimum *= float64(b.SubMins[g])
			}
		}
		sum += (weight + minimum) * math.Abs(float64(v))
	}
	return sum
}
