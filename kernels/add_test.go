package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
)

// TestAdd holds sums of products to chains of fused multiply-adds, for operands in both orders,
// with rows farther apart than they are long, shapes that end within panels, chunks and blocks, and
// any number of threads. Values between rows of dst stay.
func TestAdd(t *testing.T) {
	pool := NewPool(3)
	defer pool.Close()
	workspaces := []*Workspace{NewWorkspace(nil), NewWorkspace(pool)}
	shapes := [][3]int{{1, 1, 1}, {5, 3, 2}, {33, 70, 7}, {130, 17, 600}, {64, 32, 16}, {1100, 40, 5}, {97, 260, 515}}
	for _, feature := range Features() {
		t.Run(feature, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 8))
			transposed, err := NewTransposed(Options{CPU: feature})
			if err != nil {
				t.Fatal(err)
			}
			for i, shape := range shapes {
				m, n, k := shape[0], shape[1], shape[2]
				if testing.Short() && m*n*k > 1<<22 {
					continue
				}
				for kind := range 4 {
					gap := kind * 3
					x, at := someOperand(rng, m, k, gap, kind&1 == 1)
					y, yat := someOperand(rng, k, n, gap, kind&2 == 2)
					start := someRows(rng, m, n+gap)
					want := append([]float32(nil), start...)
					for r := range m {
						for c := range n {
							s := start[r*(n+gap)+c]
							for j := range k {
								s = floats.FMA32(at(r, j), yat(j, c), s)
							}
							want[r*(n+gap)+c] = written(s)
						}
					}
					for _, w := range workspaces {
						got := append([]float32(nil), start...)
						if err := transposed.Add(w, got, n+gap, m, n, k, x, y); err != nil {
							t.Fatal(err)
						}
						check(t, fmt.Sprintf("shape %d, kind %d", i, kind), got, want, n+gap)
					}
				}
			}
			x := Operand{Data: make([]float32, 12), Stride: 4}
			for _, wrong := range []struct{ m, n, k, stride int }{{4, 1, 4, 1}, {3, 4, 4, 4}, {3, 2, 3, 1}} {
				if err := transposed.Add(workspaces[0], make([]float32, 12), wrong.stride, wrong.m, wrong.n, wrong.k, x, x); err == nil {
					t.Errorf("%+v: no error", wrong)
				}
			}
		})
	}
}

// TestAddGram holds the upper triangle to Add's sums. Only a band below the diagonal may change
// too.
func TestAddGram(t *testing.T) {
	pool := NewPool(3)
	defer pool.Close()
	workspaces := []*Workspace{NewWorkspace(nil), NewWorkspace(pool)}
	for _, feature := range Features() {
		t.Run(feature, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(9, 8))
			transposed, err := NewTransposed(Options{CPU: feature})
			if err != nil {
				t.Fatal(err)
			}
			for _, shape := range [][2]int{{1, 1}, {33, 3}, {130, 600}, {500, 7}, {1300, 4}} {
				n, k := shape[0], shape[1]
				if testing.Short() && n > 1000 {
					continue
				}
				for kind := range 2 {
					gap := kind * 3
					x, _ := someOperand(rng, k, n, gap, kind == 1)
					start := someRows(rng, n, n+gap)
					want := append([]float32(nil), start...)
					turned := x
					turned.Transposed = !x.Transposed
					if err := transposed.Add(workspaces[0], want, n+gap, n, n, k, turned, x); err != nil {
						t.Fatal(err)
					}
					for i, w := range workspaces {
						got := append([]float32(nil), start...)
						if err := transposed.AddGram(w, got, n+gap, n, k, x); err != nil {
							t.Fatal(err)
						}
						for r := range n {
							for c := range n + gap {
								at := r*(n+gap) + c
								switch {
								case c >= r && c < n && math.Float32bits(got[at]) != math.Float32bits(want[at]):
									t.Fatalf("%d columns of %d, workspace %d: %g at %d, %d, want %g", n, k, i, got[at], r, c, want[at])
								case (c < r-GramBand || c >= n) && math.Float32bits(got[at]) != math.Float32bits(start[at]):
									t.Fatalf("%d columns of %d, workspace %d: the value at %d, %d has changed", n, k, i, r, c)
								}
							}
						}
					}
				}
			}
			x := Operand{Data: make([]float32, 12), Stride: 4}
			for _, wrong := range []struct{ n, k, stride int }{{4, 4, 4}, {4, 3, 4}, {3, 2, 2}} {
				if err := transposed.AddGram(workspaces[0], make([]float32, 12), wrong.stride, wrong.n, wrong.k, x); err == nil {
					t.Errorf("%+v: no error", wrong)
				}
			}
		})
	}
}

// someOperand makes a matrix of rows x cols values and the function that reads it.
func someOperand(rng *rand.Rand, rows, cols, gap int, transposed bool) (Operand, func(i, j int) float32) {
	if transposed {
		o := Operand{Data: someRows(rng, cols, rows+gap), Stride: rows + gap, Transposed: true}
		return o, func(i, j int) float32 { return o.Data[j*o.Stride+i] }
	}
	o := Operand{Data: someRows(rng, rows, cols+gap), Stride: cols + gap}
	return o, func(i, j int) float32 { return o.Data[i*o.Stride+j] }
}
