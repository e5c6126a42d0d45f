package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lowbit-go/gq/packing"
)

// TestWeights reads tensors of every rank in pieces of every size, in both orders, and compares
// with the definition: row r of slice s is row s*Rows + r.
func TestWeights(t *testing.T) {
	for _, tt := range []struct {
		shape              []int64
		transposed         bool
		slices, rows, cols int
	}{
		{shape: []int64{5}, slices: 1, rows: 1, cols: 5},
		{shape: []int64{3, 4}, slices: 1, rows: 3, cols: 4},
		{shape: []int64{3, 4}, transposed: true, slices: 1, rows: 4, cols: 3},
		{shape: []int64{2, 3, 4}, slices: 2, rows: 3, cols: 4},
		{shape: []int64{2, 3, 4}, transposed: true, slices: 2, rows: 4, cols: 3},
		{shape: []int64{2, 2, 3, 5}, slices: 4, rows: 3, cols: 5},
	} {
		t.Run(fmt.Sprintf("%v transposed %v", tt.shape, tt.transposed), func(t *testing.T) {
			n := tt.slices * tt.rows * tt.cols
			data := make([]byte, 4*n)
			for i := range n {
				binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(i)))
			}
			c := openTensors(t, stored{TensorSpec{"x", packing.F32, tt.shape}, data})
			w, err := c.Weights(c.Tensors()[0], WeightsOptions{Transposed: tt.transposed})
			if err != nil {
				t.Fatal(err)
			}
			if w.Slices != tt.slices || w.Rows != tt.rows || w.Cols != tt.cols {
				t.Fatalf("%d slices of %d x %d, want %d of %d x %d", w.Slices, w.Rows, w.Cols, tt.slices, tt.rows, tt.cols)
			}
			value := func(row, k int) float32 {
				if tt.transposed {
					s, r := row/tt.rows, row%tt.rows
					return float32((s*tt.cols+k)*tt.rows + r)
				}
				return float32(row*tt.cols + k)
			}
			for s := range tt.slices {
				for first := range tt.rows {
					for n := 1; n <= tt.rows-first; n++ {
						at := s*tt.rows + first
						got, want := make([]float32, n*tt.cols), make([]float32, n*tt.cols)
						for i := range want {
							want[i] = value(at+i/tt.cols, i%tt.cols)
						}
						if err := w.Read(got, at, n); err != nil {
							t.Fatal(err)
						}
						if d := cmp.Diff(want, got); d != "" {
							t.Fatalf("rows %d to %d (-want +got):\n%s", at, at+n, d)
						}
						if b := w.Bytes(at, n); (b == nil) != tt.transposed {
							t.Errorf("bytes of rows %d to %d: %v", at, at+n, b)
						}
					}
				}
			}
			all := tt.slices * tt.rows
			for _, bad := range [][3]int{{-1, 1, tt.cols}, {all, 1, tt.cols}, {0, all + 1, (all + 1) * tt.cols}, {0, -1, 0}, {0, 1, tt.cols + 1}, {0, 1, tt.cols - 1}} {
				if err := w.Read(make([]float32, bad[2]), bad[0], bad[1]); err == nil {
					t.Errorf("%d rows from %d were read into %d values", bad[1], bad[0], bad[2])
				}
			}
		})
	}
}
