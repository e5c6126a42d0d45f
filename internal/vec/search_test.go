package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// weighted is a call of SearchScales and of ScaleErrors.
type weighted struct {
	x, w   []float32
	unit   float32
	search Search
	final  Final
}

func randomWeighted(rng *rand.Rand, k int) *weighted {
	p := &weighted{x: make([]float32, k), w: make([]float32, k), unit: 1}
	fill(rng, p.x)
	fill(rng, p.w)
	small := rng.IntN(3)
	for i := range p.x {
		p.w[i] = float32(math.Abs(float64(p.w[i])))
		if small > 0 { // so that sums stay finite
			p.x[i], p.w[i] = float32(math.Remainder(float64(p.x[i]), 4)), float32(math.Mod(float64(p.w[i]), 4))
		}
	}
	if rng.IntN(2) == 0 {
		p.unit = float32(rng.NormFloat64())
	}
	bounds := func() (lo, hi float32) {
		n, z := 1<<rng.IntN(8), 0
		if rng.IntN(2) == 0 {
			z = rng.IntN(2*n) - n
		}
		return float32(-n - z), float32(n - 1 - z)
	}
	for c := range SearchLanes {
		v := float32(rng.NormFloat64() * 10)
		switch rng.IntN(8) {
		case 0:
			v = float32(math.Mod(float64(finite(rng.Uint32())), 0x1p100))
		case 1:
			v = 0
		}
		p.search.Inv[c] = v
		p.search.Lo[c], p.search.Hi[c] = bounds()
		p.search.Product[c], p.search.Score[c] = 77, -77
	}
	for c := range FinalLanes {
		v := float32(rng.NormFloat64() / 10)
		if rng.IntN(8) == 0 {
			v = math.Float32frombits(rng.Uint32()&^expMask | uint32(1+rng.IntN(252))<<23)
		}
		p.final.Scale[c] = v
		p.final.Lo[c], p.final.Hi[c] = bounds()
		p.final.Error[c] = 77
	}
	return p
}

// exact arithmetic on float32 by way of float64, whose second rounding is harmless (53 >= 2*24+2
// bits)
func mul(a, b float32) float32 { return float32(float64(a) * float64(b)) }
func add(a, b float32) float32 { return float32(float64(a) + float64(b)) }
func div(a, b float32) float32 { return float32(float64(a) / float64(b)) }

func step(t, lo, hi float32) float32 {
	return float32(math.RoundToEven(math.Min(math.Max(float64(t), float64(lo)), float64(hi))))
}

// oracle computes the expected results of the calls from their definitions in another way.
func (p *weighted) oracle() (Search, Final) {
	s, f := p.search, p.final
	for c := range SearchLanes {
		var a, b, sumA, sumB float32
		for i, x := range p.x {
			q := step(mul(x, mul(s.Inv[c], p.unit)), s.Lo[c], s.Hi[c])
			v := mul(p.w[i], q)
			a, b = add(a, mul(v, x)), add(b, mul(v, q))
			if i+1 == len(p.x) || i%256 == 255 {
				sumA, sumB, a, b = add(sumA, a), add(sumB, b), 0, 0
			}
		}
		s.Product[c] = sumA
		if s.Score[c] = div(mul(sumA, sumA), sumB); s.Score[c] != s.Score[c] {
			s.Score[c] = 0
		}
	}
	for c := range FinalLanes {
		var sum [2]float32
		f.Error[c] = 0
		for i, x := range p.x {
			q := step(mul(x, div(1, f.Scale[c])), f.Lo[c], f.Hi[c])
			e := add(x, -mul(q, f.Scale[c]))
			sum[i%2] = add(sum[i%2], mul(mul(p.w[i], e), e))
			if i+1 == len(p.x) || i%256 == 255 {
				f.Error[c] = add(f.Error[c], add(sum[0], sum[1]))
				sum = [2]float32{}
			}
		}
	}
	return s, f
}

// check compares the results of this implementation with the expected results.
func (p *weighted) check(wantSearch *Search, wantFinal *Final) error {
	s, f := p.search, p.final
	SearchScales(&s, p.unit, p.x, p.w)
	ScaleErrors(&f, p.x, p.w)
	for c := range SearchLanes {
		if !sameNumber(s.Product[c], wantSearch.Product[c]) || !same(s.Score[c], wantSearch.Score[c]) {
			return fmt.Errorf("%d values, candidate %d: product %g, score %g, want %g and %g", len(p.x), c, s.Product[c], s.Score[c], wantSearch.Product[c], wantSearch.Score[c])
		}
	}
	for c := range FinalLanes {
		if !sameNumber(f.Error[c], wantFinal.Error[c]) {
			return fmt.Errorf("%d values, scale %d: error %g, want %g", len(p.x), c, f.Error[c], wantFinal.Error[c])
		}
	}
	if s.Inv != p.search.Inv || s.Lo != p.search.Lo || s.Hi != p.search.Hi || f.Scale != p.final.Scale || f.Lo != p.final.Lo || f.Hi != p.final.Hi {
		return fmt.Errorf("%d values: arguments changed", len(p.x))
	}
	return nil
}

// sameNumber takes all NaNs for one.
func sameNumber(a, b float32) bool { return same(a, b) || a != a && b != b }

func TestSearch(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		rng := rand.New(rand.NewPCG(7, 8))
		for _, k := range []int{1, 2, 3, 12, 16, 17, 32, 48, 128, 255, 256, 257, 300, 511, 512, 513, 1040} {
			for range 12 {
				p := randomWeighted(rng, k)
				s, f := p.oracle()
				if err := p.check(&s, &f); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func FuzzSearch(f *testing.F) {
	f.Add(uint64(1), uint16(172))
	f.Fuzz(func(t *testing.T, seed uint64, k uint16) {
		p := randomWeighted(rand.New(rand.NewPCG(seed, 1)), 1+int(k%1100))
		search, final := p.oracle()
		for _, i := range asmtest.Implementations(accelerated) {
			asmtest.Restrict(t, i.Feature)
			if err := p.check(&search, &final); err != nil {
				t.Errorf("%s: %v", i.Feature, err)
			}
		}
	})
}

// TestSearchScalesBest: of a group that is a grid's points, the candidate of the grid takes
// everything away.
func TestSearchScalesBest(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		var s Search
		for c := range SearchLanes {
			s.Inv[c], s.Lo[c], s.Hi[c] = float32(c-16)/4, -8, 7
		}
		x, w := make([]float32, 16), make([]float32, 16)
		square := float32(0)
		for i := range x {
			x[i], w[i] = float32(i-8)*0.5, float32(i+1)
			square += w[i] * x[i] * x[i]
		}
		SearchScales(&s, 1, x, w)
		if c := 24; s.Inv[c] != 2 || s.Score[c] != square || s.Score[c]/s.Product[c] != 0.5 {
			t.Errorf("the scale 1/%g has the score %g and becomes %g, want %g and 0.5", s.Inv[c], s.Score[c], s.Score[c]/s.Product[c], square)
		}
		if s.Score[16] != 0 {
			t.Errorf("steps of 0 have the score %g", s.Score[16])
		}
	})
}

func TestSumSquares(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		rng := rand.New(rand.NewPCG(9, 10))
		for _, k := range []int{0, 1, 15, 16, 17, 255, 256, 257, 512, 700, 1040} {
			for range 6 {
				x := make([]float32, k)
				fill(rng, x)
				p := &problem{x: x, scale: []float32{1}, inv: []float32{1}, group: 2048, qmin: -8, qmax: 7}
				if k == 0 {
					p.scale, p.inv = nil, nil
				}
				acc := p.oracle().acc
				if _, want := acc.Total(); SumSquares(x) != want {
					t.Fatalf("%d values: %g, want %g", k, SumSquares(x), want)
				}
			}
		}
	})
}

func TestImportance(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		rng := rand.New(rand.NewPCG(11, 12))
		for _, k := range []int{0, 1, 15, 16, 17, 48, 100} {
			x, w := make([]float32, k), make([]float32, k+1)
			fill(rng, x)
			inverse := float32(math.Abs(rng.NormFloat64()))
			Importance(w[:k], x, inverse)
			for i, v := range x {
				want := float32(math.Sqrt(float64(add(1, mul(mul(v, v), inverse)))))
				if !same(w[i], want) {
					t.Fatalf("%d values: weight %d of %g is %g, want %g", k, i, v, w[i], want)
				}
			}
			if w[k] != 0 {
				t.Fatal("written past the weights")
			}
		}
	})
}

// TestColumnSums compares with sums of one column after the other.
func TestColumnSums(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		rng := rand.New(rand.NewPCG(3, 7))
		for _, n := range []int{0, 1, 2, 31, 128} {
			e, v := make([]float32, ColumnLanes*n), make([]float32, n)
			for i := range e {
				e[i] = float32(rng.NormFloat64())
			}
			for i := range v {
				v[i] = float32(rng.NormFloat64() * math.Exp2(float64(rng.IntN(20))))
			}
			got := [ColumnLanes]float32{0: 5}
			ColumnSums(&got, e, v)
			for c := range got {
				want := float32(0)
				for i := range v {
					want += float32(v[i] * e[ColumnLanes*i+c])
				}
				if got[c] != want {
					t.Errorf("%d factors, column %d: %g, want %g", n, c, got[c], want)
				}
			}
		}
	})
}

// TestColumnCodes compares with the portable code, on grids with and without zero points and
// offsets, and rounds two targets by hand.
func TestColumnCodes(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		rng := rand.New(rand.NewPCG(5, 9))
		for round := range 200 {
			g := ColumnGrids{Least: -8, Most: 7}
			if round%3 == 1 {
				g.Half = .5
			}
			var values, shifts, sums, codes [ColumnLanes]float32
			for c := range values {
				values[c] = float32(rng.NormFloat64())
				shifts[c], sums[c] = float32(rng.NormFloat64()/8), float32(rng.NormFloat64()/8)
				g.Scale[c] = float32(rng.NormFloat64() / 4)
				g.Inverse[c] = 1 / g.Scale[c]
				if round%2 == 1 {
					g.Zero[c] = float32(rng.IntN(255)-127) / 16
					g.Whole[c] = float32(math.RoundToEven(float64(g.Zero[c])))
				}
				if round%5 == 1 {
					g.Offset[c] = float32(rng.NormFloat64())
				}
			}
			g.Scale[4], g.Inverse[4] = 0, 0
			wantValues, wantShifts, wantCodes := values, shifts, codes
			columnCodesGeneric(&g, &wantValues, &wantShifts, &wantCodes, &sums)
			ColumnCodes(&g, &values, &shifts, &codes, &sums)
			if values != wantValues || shifts != wantShifts || codes != wantCodes {
				t.Fatalf("%+v:\n%v\n%v\n%v, want\n%v\n%v\n%v", g, codes, values, shifts, wantCodes, wantValues, wantShifts)
			}
		}
		g := ColumnGrids{Least: -2, Most: 1}
		var values, shifts, sums, codes [ColumnLanes]float32
		g.Scale[0], g.Inverse[0], values[0], shifts[0], sums[0] = 2, .5, -1, 5, -1    // 3: 1.5 steps
		g.Scale[1], g.Inverse[1], values[1], shifts[1], sums[1] = 2, .5, -1, -10, -20 // -31
		ColumnCodes(&g, &values, &shifts, &codes, &sums)
		for c, want := range [][3]float32{{1, -3, 1}, {-2, 3, -27}} {
			if got := [3]float32{codes[c], values[c], shifts[c]}; got != want {
				t.Errorf("lane %d: code, error and rest are %v, want %v", c, got, want)
			}
		}
	})
}
