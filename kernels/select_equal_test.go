package kernels

import (
	"testing"

	"github.com/lowbit-go/gq/internal/kernels/tile"
)

// TestEqualCost: of kernels that cost the same, the gemv kernel runs, which needs no unpacked
// panel, and of covers that cost the same, the cover that begins with the largest step.
func TestEqualCost(t *testing.T) {
	x := tiling{unpack: 6, steps: []tile.Step{{MR: 4}, {MR: 2}, {MR: 1}}, costs: []float64{8, 4, 2}}
	x.solve()
	s := selection{gemm: &candidate{name: "gemm"}, tiling: x}
	for _, c := range []struct {
		gemv float64 // cost of a row
		m    int
		want string
	}{
		{8, 1, "gemv"}, {8.001, 1, "gemm"}, {7.999, 1, "gemv"}, // unpacking and one row
		{5, 2, "gemv"}, {5.001, 2, "gemm"},
		{3.5, 4, "gemv"}, {3.501, 4, "gemm"},
		{2.75, 8, "gemv"}, {2.751, 8, "gemm"},
		{8, 0, "gemv"}, {8.001, -1, "gemm"}, // count as one row
	} {
		s.gemv = &candidate{name: "gemv", cost: c.gemv}
		if got := s.choose(c.m); got.name != c.want {
			t.Errorf("%d rows, a row of gemv at %v beside tiles at %v: %s, want %s", c.m, c.gemv, x.cost(max(c.m, 1)), got.name, c.want)
		}
	}
	if s.gemv = nil; s.choose(1) != s.gemm {
		t.Error("a kernel that is not there was chosen")
	}
	for n, want := range []int{0, 2, 1, 1} { // three rows: 2 and 1 cost less than 4
		if n > 0 && x.all.first[n] != want {
			t.Errorf("%d rows begin with step %d, want %d", n, x.all.first[n], want)
		}
	}
	equal := tiling{steps: []tile.Step{{MR: 4}, {MR: 2}, {MR: 1}}, costs: []float64{4, 4, 4}}
	equal.solve()
	for n := 1; n < 4; n++ {
		if equal.all.first[n] != 0 {
			t.Errorf("%d rows begin with step %d of equal cost, want the largest", n, equal.all.first[n])
		}
	}
	words := tiling{steps: []tile.Step{{MR: 16, Words: true}, {MR: 4}, {MR: 1}}, costs: []float64{16, 8, 2}}
	words.solve()
	for m, want := range map[int]int{4: 1, fewWords - 1: 1, fewWords: 0} {
		if got := words.tiles(nil, m)[0].step; got != want {
			t.Errorf("%d rows begin with step %d, want %d: words are made for %d rows or more", m, got, want, fewWords)
		}
	}
}
