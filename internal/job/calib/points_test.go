package calib

import (
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/job/rounding"
)

// TestUnitError: points that are chosen by the form have at most the error of those chosen by its
// diagonal, and a good deal less in sum. nearer moves weights exactly if their error falls.
func TestUnitError(t *testing.T) {
	r := detmath.Source(11)
	for _, name := range []string{"IQ2_XXS", "IQ3_S"} {
		p := named(name).Points()
		u := unitError{n: p.Width}
		errorOf := func(target, weights *octet) float32 {
			var d octet
			for i := range u.n {
				d[i] = target[i] - weights[i]
			}
			_, e := u.gradient(&d)
			return e
		}
		const scale = 0.03
		var chosen, simple float64
		moves := 0
		for range 400 {
			var rows [rounding.UnitMost]octet
			factors := make([]float64, u.n)
			for i := range u.n {
				copy(rows[i][i:u.n], normal(&r, u.n-i))
				for l := i + 1; l < u.n; l++ {
					rows[i][l] *= .4
				}
				rows[i][i], factors[i] = 1, 1+float64(i)/4
			}
			u.square(&rows, factors)
			var target, weights, diagonal octet
			copy(target[:u.n], normal(&r, u.n))
			codes := make([]int8, u.n)
			p.Round(codes, target[:], u.diagonal[:], scale)
			for i, q := range codes {
				diagonal[i] = float32(q) * scale
			}
			u.choose(p, codes, &weights, &target, scale)
			e, was := errorOf(&target, &weights), errorOf(&target, &diagonal)
			if e > was*(1+1e-5) {
				t.Fatalf("%s: error %g, by the diagonal %g", name, e, was)
			}
			chosen, simple = chosen+float64(e), simple+float64(was)
			var d octet
			for i := range u.n {
				if float32(codes[i])*scale != weights[i] {
					t.Fatalf("%s: weights %g of codes %d", name, weights[:u.n], codes)
				}
				target[i] += target[(i+1)%u.n] / 2
				d[i] = target[i] - weights[i]
			}
			g, _ := u.gradient(&d)
			before, first := weights, errorOf(&target, &weights)
			move, better := u.nearer(p, codes, &weights, &g, scale)
			if better {
				moves++
			}
			if !better && weights != before {
				t.Fatalf("%s: weights moved", name)
			}
			for i := range u.n {
				before[i] += move[i]
			}
			if e := errorOf(&target, &before); (e < first) != better && (e-first > 1e-4*first || first-e > 1e-4*first) {
				t.Fatalf("%s: error %g after %g, taken: %t", name, e, first, better)
			}
		}
		t.Logf("%s: %.3g of the diagonal's error; %d moves", name, chosen/simple, moves)
		if chosen > .97*simple || moves < 100 {
			t.Errorf("%s: %g of the diagonal's error, %d moves of 400", name, chosen/simple, moves)
		}
	}
}

// TestSweepPoints: a sweep lowers the error of every row and reaches all units, but for a unit that
// is right. The integers of groups move to other odd numbers and lower the error too.
func TestSweepPoints(t *testing.T) {
	const rows, k, n = 600, 256, 32
	e := newEngine(2)
	defer e.close()
	r := detmath.Source(12)
	g := testHessian(e, inputs(&r, rows, k), k)
	f, err := factorize(e, g, true, rounding.UnitMost)
	if err != nil {
		t.Fatal(err)
	}
	f.feedback()
	for _, name := range []string{"IQ2_S", "IQ3_XXS"} {
		s := newSolver(e, f, named(name), f.permute(normal(&r, n*k), n), n)
		if err := s.search(true); err != nil {
			t.Fatal(err)
		}
		before, codes := s.measure(nil), slices.Clone(s.codes)
		s.sweep()
		after := s.measure(nil)
		moved := map[int]bool{}
		for i, q := range s.codes {
			if q != codes[i] {
				moved[i%k/rounding.UnitMost] = true
			}
		}
		if len(moved) < k/rounding.UnitMost-1 {
			t.Errorf("%s: codes moved in %d of %d units", name, len(moved), k/rounding.UnitMost)
		}
		total := [3]float64{}
		adjusted := s.clone()
		adjusted.adjust(false)
		integers := 0
		for r, e := range adjusted.measure(nil) {
			total[0], total[1], total[2] = total[0]+before[r], total[1]+after[r], total[2]+e
			if after[r] >= before[r] || e > after[r]*(1+1e-4) {
				t.Errorf("%s, row %d: error %g, swept %g, adjusted %g", name, r, before[r], after[r], e)
			}
			for i, sub := range adjusted.blocks[r].SubScales {
				if sub != s.blocks[r].SubScales[i] {
					integers++
				}
			}
		}
		t.Logf("%s: error %.4g, swept %.4g, adjusted %.4g with %d integers", name, total[0], total[1], total[2], integers)
		if total[1] > .93*total[0] || total[2] > .97*total[1] || integers == 0 {
			t.Errorf("%s: error %g, swept %g, adjusted %g with %d integers", name, total[0], total[1], total[2], integers)
		}
		stored(t, s)
		stored(t, adjusted)
	}
}
