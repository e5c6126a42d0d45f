package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// softCodes are the numbers of relaxed codes.
type softCodes struct {
	choices     int
	value, grad []float32
	least       []int8
	x, m, v     []float32
}

func (c softCodes) step(s *SoftStep) { StepSoft(s, c.choices, c.value, c.grad, c.least, c.x, c.m, c.v) }

func (c softCodes) clone() softCodes {
	for _, list := range []*[]float32{&c.value, &c.grad, &c.x, &c.m, &c.v} {
		*list = slices.Clone(*list)
	}
	return c
}

func randomSoft(rng *rand.Rand, blocks, choices int) softCodes {
	n := blocks * SoftLanes
	c := softCodes{choices, make([]float32, n), make([]float32, n), make([]int8, n), make([]float32, n*choices), make([]float32, n*choices), make([]float32, n*choices)}
	for i := range n {
		c.least[i] = int8(rng.IntN(256) - 128)
		if rng.IntN(4) > 0 {
			c.grad[i] = float32(rng.NormFloat64() * math.Exp2(float64(-rng.IntN(40))))
		}
	}
	for i := range c.x {
		c.x[i] = float32(rng.NormFloat64() * math.Exp2(float64(rng.IntN(8)-3)))
		switch rng.IntN(5) {
		case 0:
			c.x[i] = -1000
		case 1:
			c.m[i], c.v[i] = float32(rng.NormFloat64()), float32(rng.ExpFloat64())
		}
	}
	return c
}

// TestStepSoft compares several steps of all implementations with the portable implementation.
func TestStepSoft(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		rng := rand.New(rand.NewPCG(5, 6))
		for range 300 {
			choices := 2 + rng.IntN(SoftChoices-1)
			got := randomSoft(rng, rng.IntN(9), choices)
			want := got.clone()
			for range 4 {
				s := SoftStep{float32(1 / (.05 + rng.Float64())), float32(1 / (.05 + rng.Float64())), 0x1p50, float32(rng.Float64()), float32(1 / (.01 + rng.Float64()))}
				got.step(&s)
				stepSoftGeneric(&s, choices, want.value, want.grad, want.least, want.x, want.m, want.v)
			}
			for i, list := range [][]float32{got.value, got.grad, got.x, got.m, got.v} {
				other := [][]float32{want.value, want.grad, want.x, want.m, want.v}[i]
				if !slices.EqualFunc(list, other, same) {
					t.Fatalf("%d choices, list %d: %v, want %v", choices, i, list, other)
				}
			}
		}
	})
}

// TestStepSoftDefinition compares a step with the definition in float64.
func TestStepSoftDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	s := SoftStep{3, 5, 3 * 0x1p20, .05, 2}
	for range 100 {
		choices := 2 + rng.IntN(SoftChoices-1)
		c := randomSoft(rng, 2, choices)
		old := c.clone()
		c.step(&s)
		for i, grad := range old.grad {
			at := func(list []float32, c int) float64 {
				return float64(list[i/SoftLanes*SoftLanes*choices+c*SoftLanes+i%SoftLanes])
			}
			p, _ := softmaxOf(choices, func(c int) float64 { return at(old.x, c) * 3 })
			for k := range choices {
				d := 0.0
				for c := range choices {
					d += p[c] * float64(k-c)
				}
				g := float64(grad) * float64(s.Slope) * p[k] * d
				a, b := .9*at(old.m, k)+.1*g, .99*at(old.v, k)+.01*g*g
				x := at(old.x, k) - .05*a/(math.Sqrt(2*b)+0x1p-16)
				if d := math.Abs(at(c.x, k) - x); d > 1e-5*(1+math.Abs(x)) {
					t.Fatalf("logit %d of code %d: %g, want %g", k, i, at(c.x, k), x)
				}
			}
			if _, mean := softmaxOf(choices, func(k int) float64 { return at(c.x, k) * 5 }); math.Abs(float64(c.value[i])-float64(c.least[i])-mean) > 2e-5 {
				t.Fatalf("code %d: %g, want %g", i, c.value[i], float64(c.least[i])+mean)
			}
			if c.grad[i] != 0 {
				t.Fatal("a gradient is not cleared")
			}
		}
	}
}

func softmaxOf(n int, x func(c int) float64) (p [SoftChoices]float64, mean float64) {
	top, sum := math.Inf(-1), 0.0
	for c := range n {
		top = max(top, x(c))
	}
	for c := range n {
		p[c] = math.Exp(x(c) - top)
		sum += p[c]
	}
	for c := range n {
		p[c] /= sum
		mean += float64(c) * p[c]
	}
	return p, mean
}

func TestSoftExp(t *testing.T) {
	for x := float32(0); x >= softLeast; x -= .0037 {
		if e := math.Abs(float64(softExp(x))/math.Exp(float64(x)) - 1); e > 0x1p-21 {
			t.Fatalf("e^%g: relative error %g", x, e)
		}
	}
	if softExp(softLeast-1e-3) != 0 || softExp(-1e6) != 0 || softExp(0) != 1 {
		t.Error("wrong ends")
	}
}
