package vec

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// fitCase is a call of each method of a Fit.
type fitCase struct {
	group, least, most int
	starts             [FitStarts]float32
	x, w               []float32
	unit, weight       [FitLanes]float32
	stored             [FitChoices][FitLanes]float32
}

func randomFit(rng *rand.Rand, group, n, bits int) *fitCase {
	end := 1 << (bits - 1)
	c := &fitCase{group: group, least: -end, most: end - 1, x: make([]float32, n), w: make([]float32, n)}
	for i := range c.starts {
		c.starts[i] = float32(end) * float32(rng.NormFloat64()+.1)
	}
	size := float32(math.Exp(rng.NormFloat64() * 10))
	for i := range c.x {
		c.x[i], c.w[i] = size*float32(rng.NormFloat64()), float32(rng.Float64())
		if rng.IntN(20) == 0 {
			c.x[i], c.w[i] = size*float32(rng.IntN(3)-1), float32(rng.IntN(2))
		}
	}
	probe := NewFit(group, &c.starts, c.least, c.most)
	for g := range FitLanes {
		var most, heaviest float32
		for i := g * group; i < min((g+1)*group, n); i++ {
			most, heaviest = max(most, c.x[i], -c.x[i]), max(heaviest, c.w[i])
		}
		if most > 0 && rng.IntN(8) > 0 {
			c.unit[g] = math.MaxInt16 / most
		}
		if heaviest > 0 {
			c.weight[g] = probe.MaxWeight / heaviest
		}
		for i := range c.stored {
			c.stored[i][g] = float32(1 / (float64(end) * rng.NormFloat64()))
			if rng.IntN(8) == 0 {
				c.stored[i][g] = c.stored[0][g]
			}
		}
	}
	return c
}

// check compares the results of this implementation with the definitions, computed in another way.
func (c *fitCase) check(t *testing.T) {
	t.Helper()
	f := NewFit(c.group, &c.starts, c.least, c.most)
	f.Unit, f.Weight, f.Stored = c.unit, c.weight, c.stored
	f.Load(c.x, c.w)
	f.Search()
	f.Choose()
	power := 1 << 14
	top := float64(-c.least)
	for _, s := range c.starts {
		top = max(top, math.Abs(float64(s)))
	}
	for float64(float32(power)*float32(top)*1.25) > 32767 {
		power /= 2
	}
	product := func(a, b int) int { return int(math.Floor(float64(a*b)/32768 + .5)) }
	for g := range FitLanes {
		sums := func(scale int) (sumA, sumB float32) {
			var a, b int64
			for i := g * c.group; i < min((g+1)*c.group, len(c.x)); i++ {
				x := int(math.RoundToEven(float64(mul(c.x[i], c.unit[g]))))
				w := int(math.RoundToEven(float64(mul(c.w[i], c.weight[g]))))
				q := min(max(product(product(x, scale), 32768/power), c.least), c.most)
				a += int64(product(x, w) * q)
				b += int64(w * q * q)
			}
			if max(a, -a, b) > math.MaxInt32 {
				t.Fatalf("group of %d, steps from %d: sums %d and %d are too large", c.group, c.least, a, b)
			}
			return float32(a), float32(b)
		}
		var best, scale float32
		for _, start := range c.starts {
			a, b := sums(int(math.RoundToEven(float64(start) * float64(power))))
			if score := div(mul(a, a), b); score > best {
				best, scale = score, div(a, b)
			}
		}
		choice := 0
		for i := range c.stored {
			s := c.stored[i][g]
			a, b := sums(int(math.RoundToEven(min(max(float64(div(float32(power), s)), -32767), 32767))))
			gain := mul(s, add(add(a, a), -mul(s, b)))
			if i == 0 || gain > best {
				best, choice = gain, i
			}
		}
		if !same(f.Scale[g], scale) || f.Choice[g] != int32(choice) {
			t.Fatalf("group of %d, %d values, steps from %d, lane %d: scale %g and choice %d, want %g and %d",
				c.group, len(c.x), c.least, g, f.Scale[g], f.Choice[g], scale, choice)
		}
	}
}

func TestFit(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		rng := rand.New(rand.NewPCG(11, 12))
		for _, group := range []int{1, 16, 20, 32, 48, 128, 256} {
			for _, n := range []int{1, group, group + 1, 3*group - group/2, FitLanes * group} {
				if n > FitLanes*group {
					continue
				}
				for bits := 1; bits <= 8; bits++ {
					randomFit(rng, group, n, bits).check(t)
				}
			}
		}
	})
}

// TestFitLimits has the largest values, weights and steps.
func TestFitLimits(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		for bits := 1; bits <= 8; bits++ {
			for _, group := range []int{32, 128} {
				c := randomFit(rand.New(rand.NewPCG(1, 2)), group, FitLanes*group, bits)
				for i := range c.x {
					c.x[i], c.w[i] = []float32{1, -1}[i/group%2], 1
				}
				f := NewFit(group, &c.starts, c.least, c.most)
				for g := range FitLanes {
					c.unit[g], c.weight[g] = math.MaxInt16, f.MaxWeight
					c.stored[0][g], c.stored[1][g] = 1e-30, -1e-30
				}
				c.check(t)
			}
		}
	})
}
