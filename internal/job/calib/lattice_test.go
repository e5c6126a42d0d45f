package calib

import (
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// TestHeld solves a matrix with lattices in every second group. No step may change these groups,
// and every step must lower the error of the matrix.
func TestHeld(t *testing.T) {
	testshared.SlowEmulated(t, "TestSameBits has the bits")
	const rows, n, k = 600, 16, 256
	e := newEngine(2)
	defer e.close()
	r := detmath.Source(5)
	g := testHessian(e, inputs(&r, rows, k), k)
	f, err := factorize(e, g, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.feedback()
	for _, scheme := range []rounding.Scheme{
		{Mapping: gqf.MappingFullRange}, {Mapping: gqf.MappingAsymmetric}, {Mapping: gqf.MappingAsymmetric, Fractions: true},
	} {
		scheme.Bits, scheme.Group, scheme.ScaleDtype, scheme.Algorithm = 3, 32, packing.ScaleBF16, gqf.AlgorithmGPTQFT
		w := normal(&r, n*k)
		for i := range w {
			if i/32%2 == 0 {
				scale := packing.ScaleBF16.Round(0.3 + float32(i/32)/1024)
				w[i] = float32(int(r.Next()%7)-3) * scale
			}
			w[i] = packing.ScaleBF16.Round(w[i])
		}
		clear(w[64:96]) // zeros beside lattices
		j := &job{e: e}
		h, err := j.hold(plan.Matrix{Rows: n, Cols: k, Scheme: scheme, Precision: packing.ScaleBF16}, w)
		if err != nil || h == nil || h.all {
			t.Fatalf("held %+v, error %v", h, err)
		}
		for g, is := range h.groups {
			if is != (g%2 == 0) {
				t.Fatalf("group %d held: %v", g, is)
			}
		}
		target := slices.Clone(w)
		for i := range target { // what gptq-ft moves
			target[i] += 0.02 * float32(i%5-2)
		}
		s := newSolver(e, f, scheme, f.permute(target, n), n)
		s.held = h
		total := func() (sum float64) {
			for _, v := range s.errs {
				sum += v
			}
			return sum
		}
		check := func(step string) {
			t.Helper()
			c, err := s.result()
			if err != nil {
				t.Fatal(err)
			}
			row := make([]float32, k)
			for r := range n {
				c.DequantizeRow(row, r)
				for i, v := range row {
					if i/32%2 == 0 && packing.ScaleBF16.Round(v) != w[r*k+i] {
						t.Fatalf("%s, %s: weight %d of row %d is %g, not %g", scheme, step, i, r, v, w[r*k+i])
					}
				}
			}
		}
		if err := s.search(true); err != nil {
			t.Fatal(err)
		}
		s.errs = s.measure(nil)
		check("search")
		searched := total()
		s.gptq()
		check("gptq")
		solved := total()
		if solved >= searched {
			t.Errorf("%s: gptq has error %g, the search %g", scheme, solved, searched)
		}
		s.refine()
		check("refine")
		if refined := total(); refined >= solved {
			t.Errorf("%s: refine has error %g, gptq %g", scheme, refined, solved)
		}
	}
	// A matrix without lattices holds nothing, and one of lattices everything.
	scheme := rounding.Scheme{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmGPTQ}
	for _, step := range []float32{0, 0.25} {
		w := normal(&r, n*k)
		for i := range w {
			w[i] = packing.ScaleBF16.Round(w[i])
			if step > 0 {
				w[i] = step * float32(int(r.Next()%15)-7)
			}
		}
		j := &job{e: e}
		h, err := j.hold(plan.Matrix{Rows: n, Cols: k, Scheme: scheme, Precision: packing.ScaleBF16}, w)
		if err != nil || (h != nil) != (step > 0) || h != nil && !h.all {
			t.Errorf("step %g: held %v, error %v", step, h != nil, err)
		}
	}
}
