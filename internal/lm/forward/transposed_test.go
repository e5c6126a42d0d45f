package forward

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// TestTransposed reads the rows of a matrix that is stored inputs x outputs, in place and copied.
func TestTransposed(t *testing.T) {
	const rows, cols = 5, 3
	var data []byte
	for i := range rows * cols {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)))
	}
	for _, packed := range []bool{false, true} {
		op, err := floats{packed: packed}.transposed(data, packing.F32, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		row := make([]float32, cols)
		for r := range rows {
			op.(kernels.RowReader).ReadRow(row, r)
			for k, v := range row {
				if want := float32(k*rows + r); v != want {
					t.Errorf("packed %t: weight %d of row %d is %v, want %v", packed, k, r, v, want)
				}
			}
		}
	}
}
