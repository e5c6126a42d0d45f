package vec

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// gridCase is a call of each function of grids.go.
type gridCase struct {
	group, bits, count   int
	x, w                 []float32
	unit, weight, offset [FitLanes]float32
	list                 []GridStart
	search               GridSearch
	choice               GridChoice
}

func randomGrids(rng *rand.Rand, group, n, bits int) *gridCase {
	c := &gridCase{group: group, bits: bits, count: 4 + 4*rng.IntN(2), x: make([]float32, n), w: make([]float32, n), list: make([]GridStart, 4*(1+rng.IntN(3)))}
	size := float32(math.Exp(rng.NormFloat64() * 10))
	for i := range c.x {
		c.x[i], c.w[i] = size*float32(rng.NormFloat64()+.3), float32(rng.Float64())
		if rng.IntN(20) == 0 {
			c.w[i] = float32(rng.IntN(2))
		}
	}
	f := NewGridFit(group, bits)
	end, power := float32(int(1)<<(bits-1)), f.Power()
	for i := range c.list {
		c.list[i] = GridStart{1 + float32(rng.NormFloat64())/4, float32(rng.NormFloat64()) * power}
	}
	for g := range FitLanes {
		var lo, hi, heaviest float32
		for i := g * group; i < min((g+1)*group, n); i++ {
			lo, hi, heaviest = min(lo, c.x[i]), max(hi, c.x[i]), max(heaviest, c.w[i])
		}
		if hi > lo && rng.IntN(8) > 0 {
			c.unit[g] = 2 * math.MaxInt16 / (hi - lo)
			c.offset[g] = float32((lo + hi) / -2 * c.unit[g])
		}
		if heaviest > 0 {
			c.weight[g] = f.MaxWeight / heaviest
		}
		c.search.Inverse[g], c.search.Start[g] = power*end*float32(rng.NormFloat64()/4+1), power*float32(rng.NormFloat64())
		if rng.IntN(20) == 0 {
			c.search.Inverse[g], c.search.Start[g] = 1e30, -1e30
		}
		for _, p := range []*[FitLanes]float32{&c.search.A0, &c.search.A1, &c.search.B0, &c.search.B1, &c.search.B2} {
			p[g] = float32(rng.NormFloat64())
		}
		c.search.Score[g] = float32(rng.IntN(2) * rng.IntN(1e9))
		for i := range c.choice.Scale {
			c.choice.Scale[i][g], c.choice.Zero[i][g] = float32(1/(float64(end)*(rng.NormFloat64()/4+1))), float32(rng.NormFloat64())
			if rng.IntN(8) == 0 {
				c.choice.Scale[i][g], c.choice.Zero[i][g] = c.choice.Scale[0][g], c.choice.Zero[0][g]
			}
		}
	}
	return c
}

// check compares the results of this implementation with the definitions, computed in another way.
func (c *gridCase) check(t *testing.T) {
	t.Helper()
	f, search, choice := NewGridFit(c.group, c.bits), c.search, c.choice
	f.Unit, f.Weight, f.Offset = c.unit, c.weight, c.offset
	f.Load(c.x, c.w)
	f.Totals(&choice)
	f.SearchGrids(&search, c.list)
	f.ChooseGrids(&choice, c.count)
	power := math.Ldexp(1, 14-c.bits)
	product := func(a, b float64) float64 { return math.Floor(a*b/32768 + .5) }
	sat := func(v float64) float64 { return min(max(v, -32768), 32767) }
	code := func(v float32) float64 { return math.RoundToEven(min(max(float64(v), -32767), 32767)) }
	for g := range FitLanes {
		var x, w, p []float64
		var values, weights float64
		for i := g * c.group; i < min((g+1)*c.group, len(c.x)); i++ {
			x = append(x, math.RoundToEven(float64(add(mul(c.x[i], c.unit[g]), c.offset[g]))))
			w = append(w, math.RoundToEven(float64(mul(c.w[i], c.weight[g]))))
			p = append(p, product(x[len(x)-1], w[len(w)-1]))
			values, weights = values+p[len(p)-1], weights+w[len(w)-1]
		}
		sums := func(inverse, start float64) (a, b, n float32) {
			var sa, sb, sn float64
			for i := range x {
				q := math.Floor(sat(4*sat(product(x[i], inverse)+start)) / (4 * power))
				sa, sb, sn = sa+p[i]*q, sb+w[i]*q*q, sn+w[i]*q
			}
			return float32(sa), float32(sb), float32(sn)
		}
		want := c.search
		for _, l := range c.list {
			a, b, n := sums(code(mul(l.Factor, want.Inverse[g])), code(add(l.Shift, want.Start[g])))
			a = add(add(a, want.A0[g]), mul(n, want.A1[g]))
			b = max(add(add(b, want.B0[g]), mul(n, add(want.B1[g], mul(n, want.B2[g])))), 256)
			if score := div(mul(a, a), b); score > want.Score[g] {
				want.Score[g], want.A[g], want.B[g], want.N[g] = score, a, b, n
			}
		}
		best, chosen := float32(math.Inf(-1)), 0
		for i := range c.count {
			s, z := c.choice.Scale[i][g], c.choice.Zero[i][g]
			a, b, n := sums(code(div(float32(power), s)), code(add(mul(z, float32(power)), float32(power/2))))
			q := add(a, -mul(z, float32(values)))
			r := add(add(b, -mul(z, add(n, n))), mul(mul(z, z), float32(weights)))
			if gain := mul(s, add(add(q, q), -mul(s, r))); gain > best {
				best, chosen = gain, i
			}
		}
		if choice.Values[g] != float32(values) || choice.Weights[g] != float32(weights) {
			t.Fatalf("%d bits, group of %d, lane %d: totals %g and %g, want %g and %g", c.bits, c.group, g, choice.Values[g], choice.Weights[g], values, weights)
		}
		if !same(search.Score[g], want.Score[g]) || !same(search.A[g], want.A[g]) || !same(search.B[g], want.B[g]) || !same(search.N[g], want.N[g]) {
			t.Fatalf("%d bits, group of %d, lane %d: score %g, sums %g, %g and %g, want %g, %g, %g and %g", c.bits, c.group, g,
				search.Score[g], search.A[g], search.B[g], search.N[g], want.Score[g], want.A[g], want.B[g], want.N[g])
		}
		if choice.Choice[g] != int32(chosen) {
			t.Fatalf("%d bits, group of %d, lane %d: choice %d, want %d", c.bits, c.group, g, choice.Choice[g], chosen)
		}
	}
}

func TestGrids(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		rng := rand.New(rand.NewPCG(13, 14))
		for _, group := range []int{1, 16, 20, 32, 48, 128, 256} {
			for _, n := range []int{1, group, group + 1, 3*group - group/2, FitLanes * group} {
				if n > FitLanes*group {
					continue
				}
				for bits := 1; bits <= 8; bits++ {
					randomGrids(rng, group, n, bits).check(t)
				}
			}
		}
	})
}

// TestGridLimits has the largest values, weights and codes.
func TestGridLimits(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		for bits := 1; bits <= 8; bits++ {
			for _, group := range []int{32, 128} {
				c := randomGrids(rand.New(rand.NewPCG(1, 2)), group, FitLanes*group, bits)
				f := NewGridFit(group, bits)
				for i := range c.x {
					c.x[i], c.w[i] = []float32{1, -1}[i/group%2], 1
				}
				for g := range FitLanes {
					c.unit[g], c.weight[g], c.offset[g] = math.MaxInt16, f.MaxWeight, 0
					c.search.Inverse[g] = 1e9
					c.choice.Scale[0][g], c.choice.Scale[1][g] = 1e-30, -1e-30
				}
				c.check(t)
			}
		}
	})
}

func FuzzGrids(f *testing.F) {
	f.Add(uint64(1), uint16(100), uint8(32), uint8(4))
	f.Fuzz(func(t *testing.T, seed uint64, n uint16, group, bits uint8) {
		size := 1 + int(group)
		c := randomGrids(rand.New(rand.NewPCG(seed, 0)), size, 1+int(n)%(FitLanes*size), 1+int(bits)%8)
		for _, i := range asmtest.Implementations(accelerated) {
			asmtest.Restrict(t, i.Feature)
			c.check(t)
		}
	})
}
