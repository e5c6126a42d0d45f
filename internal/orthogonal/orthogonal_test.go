package orthogonal

import (
	"math"
	"testing"
)

func TestRotationsAreOrthogonal(t *testing.T) {
	for n, dense := range map[int]bool{
		1: false, 2: false, 8: false, 12: false, 20: false, 28: false, 36: false, 64: false, 80: false, 96: false, 180: false, 288: false, 576: false,
		3: true, 10: true, 18: true, 92: true,
	} {
		if testing.Short() && n > 64 {
			continue
		}
		r := New(n, 7, 1)
		if got := r.dense != nil; got != dense {
			t.Errorf("%d: a dense matrix %v, want %v (order %d)", n, got, dense, paleyOrder(n))
		}
		rows, scratch := make([][]float64, n), make([]float64, n)
		for i := range rows {
			rows[i] = make([]float64, n)
			rows[i][i] = 1
			r.Turn(rows[i], scratch)
			if size := 1 / math.Sqrt(float64(n)); !dense {
				for _, v := range rows[i] {
					if math.Abs(math.Abs(v)-size) > 1e-15 {
						t.Fatalf("%d: an entry is %v, not of size %v", n, v, size)
					}
				}
			}
		}
		for i := range rows {
			for j := range rows[:i+1] {
				want := 0.0
				if i == j {
					want = 1
				}
				if d := Dot(rows[i], rows[j]); math.Abs(d-want) > 1e-13 {
					t.Fatalf("%d: rows %d and %d have the product %v", n, i, j, d)
				}
			}
		}
	}
}

// TestHiddenSizes checks that the sizes of published models have Hadamard matrices: a dense one
// costs as many products as it has rows.
func TestHiddenSizes(t *testing.T) {
	for _, n := range []int{576, 640, 896, 960, 1024, 1152, 1536, 2048, 2304, 2560, 2880, 3072, 3584, 4096, 5120, 8192} {
		if o := paleyOrder(n); o == 0 || o > 180 {
			t.Errorf("%d: order %d", n, o)
		}
	}
}
