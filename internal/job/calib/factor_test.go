package calib

import (
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// TestFactor multiplies the factor and the solutions out again.
func TestFactor(t *testing.T) {
	testshared.SlowEmulated(t, "TestSameBits has the bits")
	const rows, k, n = 1500, panel + 200, 19
	e := newEngine(2)
	defer e.close()
	r := detmath.Source(2)
	g := testHessian(e, inputs(&r, rows, k), k)
	h := hessian{k: k, h: slices.Clone(g.h)}
	f, err := factorize(e, g, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	if f.dead != 1 || f.order[0] != 3 {
		t.Errorf("%d dead columns, %d is the first", f.dead, f.order[0])
	}
	damped := func(a, b int) float64 {
		v := float64(h.moment(f.order[a], f.order[b]))
		if a == b {
			v += f.lambda
		}
		return v
	}
	for a := range k {
		for b := range k {
			if got, want := float64(f.h[a*k+b]), damped(a, b); math.Abs(got-want) > 1e-6*math.Abs(want) {
				t.Fatalf("element %d, %d is %v, not %v", a, b, got, want)
			}
			if b < a && f.u[a*k+b] != 0 {
				t.Fatalf("U has %v at %d, %d", f.u[a*k+b], a, b)
			}
		}
		if a > 0 && f.diag[f.order[a]] < f.diag[f.order[a-1]] {
			t.Fatal("columns are not in the order of their moments")
		}
		for b := a; b < k; b++ {
			s := 0.0
			for p := range a + 1 {
				s += float64(f.u[p*k+a]) * float64(f.u[p*k+b])
			}
			if want := damped(a, b); math.Abs(s-want) > 1e-5*math.Sqrt(damped(a, a)*damped(b, b)) {
				t.Fatalf("U^T U at %d, %d is %v, not %v", a, b, s, want)
			}
		}
	}
	want := normal(&r, n*k)
	b := slices.Clone(want)
	f.solve(b, n)
	for i := range n {
		for j := range k {
			s := 0.0
			for p := range k {
				s += float64(b[i*k+p]) * damped(p, j)
			}
			if math.Abs(s-float64(want[i*k+j])) > 1e-3 {
				t.Fatalf("row %d, column %d: %v, not %v", i, j, s, want[i*k+j])
			}
		}
	}
}

// TestDamping: a matrix that the first damping does not make positive definite is factorized with a
// stronger one, and nothing of the first attempt is left in the result.
func TestDamping(t *testing.T) {
	testshared.SlowEmulated(t, "TestSameBits has the bits")
	const rows, k = 2000, 700 // several of addGram's products
	e := newEngine(2)
	defer e.close()
	r := detmath.Source(8)
	x := inputs(&r, rows, k)
	indefinite := func() (*hessian, float64) {
		g := testHessian(e, x, k)
		mean := 0.0
		for j := range k {
			mean += float64(g.moment(j, j)) / float64(k-1)
		}
		last := k - 1 // late in the order: all other blocks are factorized before it
		for j := range k {
			if g.moment(j, j) > g.moment(last, last) {
				last = j
			}
		}
		other := (last + 1) % k
		i, j := min(last, other), max(last, other)
		g.h[i*k+j] = float32(math.Sqrt(float64(g.moment(i, i))*float64(g.moment(j, j)))) + float32(.2*mean)
		return g, mean
	}
	g, mean := indefinite()
	h := hessian{k: k, h: slices.Clone(g.h)}
	f, err := factorize(e, g, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	if first := max(.01, .5*float64(k)/rows) * mean; f.lambda < 9*first {
		t.Fatalf("lambda is %g, the first one %g: the matrix does not need another", f.lambda, first)
	}
	for a := range k {
		if testing.Short() && a%7 != 0 {
			continue // under emulation: every seventh row
		}
		for b := range k {
			want := float64(h.moment(f.order[a], f.order[b]))
			if a == b {
				want += f.lambda
			}
			if got := float64(f.h[a*k+b]); math.Abs(got-want) > 1e-6*math.Abs(want) {
				t.Fatalf("element %d, %d is %v, not %v", a, b, got, want)
			}
			s := 0.0
			for p := range min(a, b) + 1 {
				s += float64(f.u[p*k+a]) * float64(f.u[p*k+b])
			}
			if math.Abs(s-want) > 1e-5*f.lambda {
				t.Fatalf("U^T U at %d, %d is %v, not %v", a, b, s, want)
			}
		}
	}
}

// TestLimits: rows whose errors exceed their limits are found, and the errors of the others are the
// same as without limits.
func TestLimits(t *testing.T) {
	testshared.SlowEmulated(t, "limits are the same natively")
	const rows, k, n = 900, 600, 50
	e := newEngine(2)
	defer e.close()
	r := detmath.Source(4)
	f, err := factorize(e, testHessian(e, inputs(&r, rows, k), k), false, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.feedback()
	d := normal(&r, n*k)
	want := f.weightedErrors(d, n, nil)
	limits := slices.Clone(want)
	for i := range limits {
		limits[i] *= []float64{.1, .5, .999999, 1, 2}[i%5]
	}
	for i, got := range f.weightedErrors(d, n, limits) {
		if i%5 >= 3 && got != want[i] || i%5 < 3 && !(got > limits[i] && got <= want[i]) {
			t.Errorf("row %d: %g, the limit is %g, the error %g", i, got, limits[i], want[i])
		}
	}
}

func BenchmarkCholesky(b *testing.B) {
	const k = 2048
	e := newEngine(0)
	defer e.close()
	r := detmath.Source(1)
	g := testHessian(e, normal(&r, 2*k*k), k)
	h := slices.Clone(g.h)
	for b.Loop() {
		g.h = slices.Clone(h)
		if _, err := factorize(e, g, false, 1); err != nil {
			b.Fatal(err)
		}
	}
}

// TestUnits: columns of a unit stay together, units are in the order of their activations, and the
// factor is of the columns in this order.
func TestUnits(t *testing.T) {
	const rows, k, unit = 300, 64, 8
	e := newEngine(2)
	defer e.close()
	r := detmath.Source(6)
	g := testHessian(e, inputs(&r, rows, k), k)
	f, err := factorize(e, g, true, unit)
	if err != nil {
		t.Fatal(err)
	}
	was := 0.0
	for a := 0; a < k; a += unit {
		sum := 0.0
		for i, j := range f.order[a:][:unit] {
			if j != f.order[a]+i || f.order[a]%unit != 0 {
				t.Fatalf("places %d to %d have the columns %d", a, a+unit-1, f.order[a:][:unit])
			}
			sum += f.diag[j]
			if got := float64(f.h[(a+i)*k+a+i]); math.Abs(got-f.diag[j]-f.lambda) > 1e-6*got {
				t.Errorf("place %d has the diagonal element %g, column %d has %g", a+i, got, j, f.diag[j]+f.lambda)
			}
		}
		if sum < was {
			t.Errorf("the unit at %d has activations %g, the unit before %g", a, sum, was)
		}
		was = sum
	}
	if slices.IsSorted(f.order) {
		t.Error("no unit moved")
	}
}
