package calib

import (
	"math"
	"testing"

	"github.com/lowbit-go/gq/internal/detmath"
)

// normal makes approximately normal numbers.
func normal(r *detmath.Source, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		for range 6 {
			x[i] += float32(r.Float()*2 - 1)
		}
		x[i] /= math.Sqrt2
	}
	return x
}

// inputs makes rows of activations with correlated columns; column 3 is always zero.
func inputs(r *detmath.Source, rows, k int) []float32 {
	x := normal(r, rows*k)
	for i := range rows {
		row := x[i*k:][:k]
		for j := 1; j < k; j++ {
			row[j] = float32(0.7*row[j-1]) + float32(0.5*row[j]*float32(1+j%5)) // the same on every CPU
		}
		row[3] = 0
	}
	return x
}

func testHessian(e *engine, x []float32, k int) *hessian {
	return filled(newHessian(e, k, false), x, nil, nil)
}

// filled adds rows to a hessian in two parts.
func filled(g *hessian, x, d, res []float32) *hessian {
	rows := len(x) / g.k
	for _, part := range [][2]int{{0, rows / 3}, {rows / 3, rows}} {
		g.add(part[1]-part[0], func(i int, xr, dr, rr []float32) {
			i += part[0]
			copy(xr, x[i*g.k:])
			if dr != nil {
				copy(dr, d[i*g.k:])
			}
			if rr != nil {
				copy(rr, res[i*g.width:])
			}
		})
	}
	g.done()
	return g
}

func near(a, b, scale float64) bool { return math.Abs(a-b) <= 1e-4*scale }

// TestHessian compares with sums in float64.
func TestHessian(t *testing.T) {
	const rows, k, width = 1300, 37, 11
	e := newEngine(2)
	defer e.close()
	r := detmath.Source(1)
	x, d, res, w := inputs(&r, rows, k), normal(&r, rows*k), normal(&r, rows*width), normal(&r, width*k)
	sum := func(a func(n, i int) float64, i, j int) (s float64) {
		for n := range rows {
			s += a(n, i) * float64(x[n*k+j])
		}
		return s
	}
	inputs := func(n, i int) float64 { return float64(x[n*k+i]) }
	differences := func(n, i int) float64 { return float64(d[n*k+i]) }
	outputs := func(a, r float64) func(n, i int) float64 {
		return func(n, i int) float64 {
			s := 0.0
			for j := range k {
				s += float64(d[n*k+j]) * float64(w[i*k+j])
			}
			return a*s + r*float64(res[n*width+i])
		}
	}
	for _, c := range []struct {
		name string
		g    *hessian
		a    func(n, i int) float64
	}{
		{"no shift", newHessian(e, k, false), nil},
		{"differences", newHessian(e, k, true), differences},
		{"outputs", newHessianOf(e, k, w, 0), outputs(1, 0)},
		{"outputs and residuals", newHessianOf(e, k, w, .75), outputs(.75, .75)},
	} {
		g := filled(c.g, x, d, res)
		if g.n != rows {
			t.Fatalf("%s: %d rows", c.name, g.n)
		}
		for i := range k {
			for j := range k {
				if got, want := float64(g.moment(i, j)), sum(inputs, i, j); !near(got, want, rows) {
					t.Fatalf("%s: moment %d, %d: %v, not %v", c.name, i, j, got, want)
				}
			}
		}
		if c.a == nil {
			continue
		}
		for i := range g.width {
			for j := range k {
				if got, want := float64(g.shift[i*k+j]), sum(c.a, i, j); !near(got, want, rows) {
					t.Fatalf("%s: shift %d, %d: %v, not %v", c.name, i, j, got, want)
				}
			}
		}
	}
}

// Shapes of a model of 1B parameters: 512 rows of activations, 2048 columns.
func BenchmarkHessian(b *testing.B) {
	const k = 2048
	e := newEngine(0)
	defer e.close()
	r := detmath.Source(1)
	x := normal(&r, hessianRows*k)
	g := newHessian(e, k, true)
	for b.Loop() {
		g.add(hessianRows, func(i int, xr, d, _ []float32) { copy(xr, x[i*k:]); copy(d, x[i*k:]) })
	}
}

// moment is the sum of x_i x_j.
func (g *hessian) moment(i, j int) float32 {
	if i > j {
		i, j = j, i
	}
	return g.h[i*g.k+j]
}
