package calib

import (
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/job/plan"
)

// TestHoldTable: a ternary matrix is held as it is, and another matrix is not.
func TestHoldTable(t *testing.T) {
	const rows, cols = 3, 512
	random := detmath.Source(5)
	w, back := make([]float32, rows*cols), make([]float32, cols)
	for i := range w {
		w[i] = float32(int(random.Next()%3)-1) * float32(i/cols+1) * 0x1p-7
	}
	m := plan.Matrix{Tensor: "w", Slices: 1, Rows: rows, Cols: cols, Scheme: named("TQ2_0")}
	h, err := (&job{}).hold(m, w)
	if err != nil || h == nil || !h.all {
		t.Fatalf("%+v, %v", h, err)
	}
	for r := range rows {
		if h.codes.DequantizeRow(back, r); !slices.Equal(back, w[r*cols:][:cols]) {
			t.Errorf("row %d has changed", r)
		}
	}
	w[2*cols+7] = 1
	if h, err := (&job{}).hold(m, w); h != nil || err != nil {
		t.Errorf("a matrix that is not ternary: %+v, %v", h, err)
	}
}
