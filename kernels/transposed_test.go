package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// TestTransposed holds both products to chains of fused multiply-adds, for every kind of weights,
// shapes that end within panels, tiles and blocks, and any number of threads.
func TestTransposed(t *testing.T) {
	pool := NewPool(3)
	defer pool.Close()
	workspaces := []*Workspace{NewWorkspace(nil), NewWorkspace(pool)}
	shapes := [][3]int{{1, 1, 1}, {5, 3, 2}, {33, 70, 7}, {90, 17, 20}, {64, 32, 1}, {300, 40, 13}, {70, 20000, 3}}
	for _, feature := range Features() {
		t.Run(feature, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 6))
			transposed, err := NewTransposed(Options{CPU: feature})
			if err != nil {
				t.Fatal(err)
			}
			for i, shape := range shapes {
				rows, cols, m := shape[0], shape[1], shape[2]
				if testing.Short() && rows*cols > 1<<20 {
					continue
				}
				d := []packing.Dtype{packing.F32, packing.BF16, packing.F16}[i%3]
				h, data, weights := plainPayload(rng, d, rows, cols, i%2 == 1)
				f, err := NewFloat(h, data, Options{CPU: feature})
				if err != nil {
					t.Fatal(err)
				}
				r, err := NewRows(rows, cols, func(dst []float32, row int) { copy(dst, weights[row*cols:]) }, nil, Options{CPU: feature})
				if err != nil {
					t.Fatal(err)
				}
				x, start := someRows(rng, m, rows), someRows(rng, m, cols)
				for j, reader := range []RowReader{f.(RowReader), r} {
					for _, add := range []bool{false, true} {
						got, want := append([]float32(nil), start...), make([]float32, m*cols)
						for at := range want {
							s := float32(0)
							if add {
								s = start[at]
							}
							for n := range rows {
								s = floats.FMA32(x[at/cols*rows+n], weights[n*cols+at%cols], s)
							}
							want[at] = written(s)
						}
						if err := transposed.Multiply(workspaces[(i+j)%2], got, x, m, reader, add); err != nil {
							t.Fatal(err)
						}
						check(t, fmt.Sprintf("%d x %d %s, m %d, add %v", rows, cols, d, m, add), got, want, cols)
					}
				}
				from, y := rows/3, someRows(rng, m, cols)
				n := rows - from
				got, want := make([]float32, n*cols), make([]float32, n*cols)
				for at := range want {
					s := float32(0)
					for j := range m {
						s = floats.FMA32(x[j*rows+from+at/cols], y[j*cols+at%cols], s)
					}
					want[at] = written(s)
				}
				if err := transposed.Outer(workspaces[i%2], got, x, y, m, rows, cols, from, n); err != nil {
					t.Fatal(err)
				}
				check(t, fmt.Sprintf("outer product of %d x %d, m %d", rows, cols, m), got, want, cols)
				if held := 4 * (cap(transposed.weights) + cap(transposed.packed)); rows*cols > 1<<20 && held > 3*transposedBytes {
					t.Errorf("%d x %d: %d bytes held, want at most %d", rows, cols, held, 3*transposedBytes)
				}
			}
		})
	}
}

// written is a sum as kernels write it.
func written(s float32) float32 {
	if s += 0; s != s {
		return math.Float32frombits(0x7fc00000)
	}
	return s
}

func TestTransposedRefuses(t *testing.T) {
	transposed, err := NewTransposed(Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRows(4, 3, func([]float32, int) {}, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := NewWorkspace(nil)
	for _, err := range []error{
		transposed.Multiply(w, make([]float32, 5), make([]float32, 8), 2, r, false),
		transposed.Multiply(w, make([]float32, 6), make([]float32, 7), 2, r, false),
		transposed.Outer(w, make([]float32, 6), make([]float32, 8), make([]float32, 6), 2, 4, 3, 3, 2),
		transposed.Outer(w, make([]float32, 5), make([]float32, 8), make([]float32, 6), 2, 4, 3, 2, 2),
		transposed.Outer(w, make([]float32, 6), make([]float32, 8), make([]float32, 5), 2, 4, 3, 2, 2),
	} {
		if err == nil {
			t.Error("no error")
		}
	}
}
