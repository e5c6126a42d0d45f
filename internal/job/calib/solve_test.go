package calib

import (
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// named is the scheme of a type that package gguf does not export.
func named(name string) rounding.Scheme {
	kind, _ := gguf.ParseType(name)
	s, _ := rounding.BlockScheme(kind, gqf.AlgorithmGPTQ)
	return s
}

// TestSolver checks GPTQ against the textbook's form, which inverts H, and that each step reduces
// the error.
func TestSolver(t *testing.T) {
	testshared.SlowEmulated(t, "TestSolverThreads runs there, TestSameBits has the bits")
	testSolver(t, 160, 1, []rounding.Scheme{
		named("IQ4_NL"),
		{Bits: 3, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16},
		{Bits: 2, Group: 48, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32},
		{Bits: 3, Group: 48, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleBF16, Fractions: true},
		{Bits: 1, Group: 0, Mapping: gqf.MappingHalfStep, ScaleDtype: packing.ScaleF16},
	})
}

// TestSolverBlocks does the same for llama.cpp's types.
func TestSolverBlocks(t *testing.T) {
	testshared.SlowEmulated(t, "TestSolverThreads has blocks")
	var blocks []rounding.Scheme
	for _, kind := range []gguf.TensorType{gguf.Q4_1, gguf.Q5_1, gguf.Q2_K, gguf.Q3_K, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K} {
		s, _ := rounding.BlockScheme(kind, gqf.AlgorithmGPTQ)
		blocks = append(blocks, s)
	}
	testSolver(t, panel+256, 1, append(blocks, named("IQ4_NL"), named("IQ4_XS"), named("TQ2_0"), named("MXFP4")))
}

// TestSolverPoints does the same for types with lattices: points of 8 or 4 columns are chosen
// together.
func TestSolverPoints(t *testing.T) {
	testSolver(t, 256, rounding.UnitMost, []rounding.Scheme{named("IQ2_XXS"), named("IQ2_XS"), named("IQ2_S"), named("IQ3_XXS"), named("IQ3_S"), named("Q2_K"), named("Q3_K")})
}

func testSolver(t *testing.T, k, unit int, schemes []rounding.Scheme) {
	const rows, n = 900, 24
	e := newEngine(2)
	defer e.close()
	r := detmath.Source(3)
	g := testHessian(e, inputs(&r, rows, k), k)
	f, err := factorize(e, g, true, unit)
	if err != nil {
		t.Fatal(err)
	}
	f.feedback()
	w := normal(&r, n*k)
	for _, scheme := range schemes {
		s := newSolver(e, f, scheme, f.permute(w, n), n)
		if err := s.search(true); err != nil {
			t.Fatal(err)
		}
		total := func() (sum float64) {
			for _, v := range s.errs {
				sum += v
			}
			return sum
		}
		s.errs = s.measure(nil)
		searched := total()
		var want []int8
		if k < panel && unit == 1 { // the inverse takes long
			want = textbook(s, f)
		}
		s.gptq()
		wrong := 0
		for i, q := range want {
			if q != s.codes[i] {
				wrong++
			}
		}
		// In float64, a few targets are rounded the other way, and the columns after them differ.
		if wrong > len(want)/200 {
			t.Errorf("%v: %d of %d codes are not the textbook's", scheme, wrong, len(want))
		}
		solved := total()
		for r, e := range s.measure(nil) {
			if math.Abs(e-s.errs[r]) > 1e-4*e {
				t.Errorf("%v, row %d: gptq found the error %g, it is %g", scheme, r, s.errs[r], e)
			}
		}
		adjusted := s.clone()
		adjusted.adjust(false)
		for r, e := range adjusted.measure(nil) { // to the accuracy of float32
			if e > s.errs[r]*(1+1e-4) {
				t.Errorf("%v, row %d: integers moved from error %g to %g", scheme, r, s.errs[r], e)
			}
		}
		if scheme.Mapping == gqf.MappingKQuant && slices.Equal(adjusted.measure(nil), s.errs) {
			t.Errorf("%v: no integer moved", scheme)
		}
		if scheme.SubScales() {
			settled := s.clone()
			settled.settle()
			sum := 0.0
			for _, v := range settled.errs {
				sum += v
			}
			t.Logf("%v: gptq %.4g, settled %.4g", scheme, solved, sum)
			if sum > .97*solved {
				t.Errorf("%v: error of gptq %.4g, settled %.4g", scheme, solved, sum)
			}
			stored(t, settled)
		}
		s.refine()
		refined := total()
		t.Logf("%v: error %.4g, gptq %.4g, refined %.4g; %d codes differ from the textbook's", scheme, searched, solved, refined, wrong)
		if !(solved < 0.9*searched && refined < solved) {
			t.Errorf("%v: error of the search %.4g, gptq %.4g, refined %.4g", scheme, searched, solved, refined)
		}
		before := s.clone()
		s.refit()
		s.errs = s.measure(nil)
		if again := total(); again > refined*1.001 {
			t.Errorf("%v: scales fitted again: %.6g after %.6g", scheme, again, refined)
		}
		if s.takeBetter(before); total() > refined {
			t.Errorf("%v: the better rows: %.6g after %.6g", scheme, total(), refined)
		}
		stored(t, s)
	}
}

// TestSolverThreads: blocks do not depend on the number of threads.
func TestSolverThreads(t *testing.T) {
	const rows, k, n = 600, 256, 40
	for _, kind := range []gguf.TensorType{gguf.Q2_K, gguf.Q6_K} {
		var want []byte
		for _, threads := range []int{1, 3} {
			e := newEngine(threads)
			defer e.close()
			r := detmath.Source(9)
			g := testHessian(e, inputs(&r, rows, k), k)
			f, err := factorize(e, g, true, 1)
			if err != nil {
				t.Fatal(err)
			}
			f.feedback()
			scheme, _ := rounding.BlockScheme(kind, gqf.AlgorithmGPTQ)
			s := newSolver(e, f, scheme, f.permute(normal(&r, n*k), n), n)
			if _, err := (&job{Options: Options{Refine: true}}).choose(s); err != nil {
				t.Fatal(err)
			}
			c, err := s.result()
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = c.Blocks
			} else if !slices.Equal(c.Blocks, want) {
				t.Errorf("%s: other blocks with %d threads", kind, threads)
			}
		}
	}
}

// stored holds the errors of the weights that the result stands for to the solver's.
func stored(t *testing.T, s *solver) {
	t.Helper()
	c, err := s.result()
	if err != nil {
		t.Fatal(err)
	}
	w, d := make([]float32, s.k), make([]float32, s.n*s.k)
	for r := range s.n {
		c.DequantizeRow(w, r)
		for a, j := range s.f.order {
			d[r*s.k+a] = s.target[r*s.k+a] - w[j]
		}
	}
	if got := s.f.weightedErrors(d, s.n, nil); !slices.Equal(got, s.measure(nil)) {
		t.Errorf("%v: the stored weights have errors %v, want %v", s.scheme, got, s.errs)
	}
}

// textbook is GPTQ as published, in float64, for the present scales: the inverse of H, its Cholesky
// factor, and updates of all columns that follow.
func textbook(s *solver, f *factor) []int8 {
	k, n := s.k, s.n
	// The textbook goes from column 0 up, so columns are reversed.
	a := make([]float64, k*k)
	inv := make([]float64, k*k)
	for i := range k {
		for j := range k {
			a[i*k+j] = float64(f.h[(k-1-i)*k+k-1-j])
		}
	}
	for i := range k {
		b := make([]float64, k)
		b[i] = 1
		if !solveSymmetric(slices.Clone(a), b, k) {
			panic("not positive definite")
		}
		copy(inv[i*k:], b)
	}
	// inv = U^T U, U upper.
	u := make([]float64, k*k)
	for i := range k {
		for j := i; j < k; j++ {
			v := inv[i*k+j]
			for p := range i {
				v -= u[p*k+i] * u[p*k+j]
			}
			if i == j {
				u[i*k+i] = math.Sqrt(v)
			} else {
				u[i*k+j] = v / u[i*k+i]
			}
		}
	}
	codes := make([]int8, n*k)
	for r := range n {
		w := make([]float64, k)
		for i := range k {
			w[i] = float64(s.target[r*k+k-1-i])
		}
		for i := range k {
			place := k - 1 - i
			g := s.grid(r, s.place[place])
			q := g.code(float32(w[i]))
			codes[r*k+place] = int8(q)
			err := (w[i] - float64(g.weight(q))) / u[i*k+i]
			for j := i; j < k; j++ {
				w[j] -= err * u[i*k+j]
			}
		}
	}
	return codes
}

func benchSolver(b *testing.B, run func(s *solver)) {
	const k, n = 2048, 512
	e := newEngine(0)
	defer e.close()
	r := detmath.Source(1)
	g := testHessian(e, inputs(&r, 2*k, k), k)
	f, err := factorize(e, g, true, 1)
	if err != nil {
		b.Fatal(err)
	}
	f.feedback()
	scheme := rounding.Scheme{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16}
	s := newSolver(e, f, scheme, f.permute(normal(&r, n*k), n), n)
	if err := s.search(true); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		run(s)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(k*n), "ns/weight")
}

func BenchmarkSearch(b *testing.B) { benchSolver(b, func(s *solver) { _ = s.search(true) }) }
func BenchmarkGPTQ(b *testing.B)   { benchSolver(b, (*solver).gptq) }
func BenchmarkRefine(b *testing.B) { benchSolver(b, (*solver).refine) }

// The factor is the feedback then, which takes as long.
func BenchmarkSolve(b *testing.B) {
	benchSolver(b, func(s *solver) { s.f.solve(slices.Clone(s.target), s.n) })
}
