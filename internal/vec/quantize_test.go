package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// quantized is what QuantizeGroups wrote.
type quantized struct {
	q   []int8
	acc ErrorSum
}

// problem is a call of QuantizeGroups or QuantizeFractions.
type problem struct {
	x, scale, inv []float32
	zero          []int8
	fraction      []float32 // nil: QuantizeGroups
	group         int
	qmin, qmax    int
	acc           ErrorSum // before the call
}

func (p *problem) run(t *testing.T) quantized {
	t.Helper()
	const guard = 0x55
	q := slices.Repeat([]int8{guard}, len(p.x)+32)
	r := quantized{q[16 : 16+len(p.x)], p.acc}
	if p.fraction != nil {
		QuantizeFractions(r.q, p.x, p.scale, p.inv, p.zero, p.fraction, p.group, p.qmin, p.qmax, &r.acc)
	} else {
		QuantizeGroups(r.q, p.x, p.scale, p.inv, p.zero, p.group, p.qmin, p.qmax, &r.acc)
	}
	for i := range 16 {
		if q[i] != guard || q[len(q)-1-i] != guard {
			t.Fatal("written outside the codes")
		}
	}
	return r
}

// oracle computes the same from the definition in another way: float64 holds products of float32
// exactly, and rounding sums of two float32 by way of float64 is harmless (53 >= 2*24+2 bits).
func (p *problem) oracle() quantized {
	r := quantized{make([]int8, len(p.x)), p.acc}
	for g := range p.scale {
		z := 0
		if p.zero != nil {
			z = int(p.zero[g])
		}
		var f float32
		if p.fraction != nil {
			f = p.fraction[g]
		}
		start, end := g*p.group, min(len(p.x), (g+1)*p.group)
		var noise, signal [Lanes]float32
		for i := start; i < end; i++ {
			x := float64(p.x[i])
			t := float64(add(float32(x*float64(p.inv[g])), f))
			n := int(math.RoundToEven(math.Min(math.Max(t, float64(p.qmin-z)), float64(p.qmax-z))))
			r.q[i] = int8(n + z)
			e := float64(float32(x - float64(mul(add(float32(n), -f), p.scale[g]))))
			lane := (i - start) % Lanes
			noise[lane] = float32(float64(noise[lane]) + float64(float32(e*e)))
			signal[lane] = float32(float64(signal[lane]) + float64(float32(x*x)))
			if i+1 == end || (i+1-start)%256 == 0 {
				for l := range Lanes {
					r.acc.Noise[l] += float64(noise[l])
					r.acc.Signal[l] += float64(signal[l])
				}
				noise, signal = [Lanes]float32{}, [Lanes]float32{}
			}
		}
	}
	return r
}

func randomProblem(rng *rand.Rand, k, group int) *problem {
	n := Groups(k, group)
	bits := 1 + rng.IntN(8)
	p := &problem{
		x: make([]float32, k), scale: make([]float32, n), inv: make([]float32, n), group: group,
		qmin: -1 << (bits - 1), qmax: 1<<(bits-1) - 1,
	}
	fill(rng, p.x)
	for g := range n {
		run := p.x[g*group : min(k, (g+1)*group)]
		s := max(slices.Max(run), -slices.Min(run)) / float32(-p.qmin)
		switch rng.IntN(6) {
		case 0:
			s = -s
		case 1:
			s = 1
		case 2:
			s = finite(rng.Uint32())
		}
		if math.Abs(float64(s)) < 0x1p-126 {
			s = 0x1p-126
		}
		p.scale[g], p.inv[g] = s, float32(1/s)
	}
	if rng.IntN(2) == 0 {
		p.zero = make([]int8, n)
		for g := range n {
			p.zero[g] = int8(rng.IntN(256) - 128)
		}
	}
	if rng.IntN(2) == 0 {
		p.fraction = make([]float32, n)
		for g := range n {
			p.fraction[g] = float32(rng.IntN(129)-64) / 128
		}
	}
	for l := range Lanes {
		p.acc.Noise[l], p.acc.Signal[l] = rng.Float64(), rng.Float64()
	}
	return p
}

func TestQuantizeGroups(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		shapes(func(k, group int) {
			for range 8 {
				p := randomProblem(rng, k, group)
				got, want := p.run(t), p.oracle()
				if !slices.Equal(got.q, want.q) {
					t.Fatalf("k %d group %d, codes %d to %d, zero points %v: wrong codes\n%v\nwant\n%v\nof %v with scales %v",
						k, group, p.qmin, p.qmax, p.zero, got.q, want.q, p.x, p.scale)
				}
				if got.acc != want.acc {
					t.Fatalf("k %d group %d: sums %v, want %v", k, group, got.acc, want.acc)
				}
			}
		})
	})
}

// TestQuantizeRounding states codes of single values: ties to even, clamping, the zero point added
// after rounding.
func TestQuantizeRounding(t *testing.T) {
	tests := []struct {
		x, scale   float32
		zero       int8
		qmin, qmax int
		want       int8
	}{
		{0.5, 1, 0, -8, 7, 0}, {1.5, 1, 0, -8, 7, 2}, {2.5, 1, 0, -8, 7, 2}, {-0.5, 1, 0, -8, 7, 0},
		{-1.5, 1, 0, -8, 7, -2}, {-2.5, 1, 0, -8, 7, -2}, {-8.5, 1, 0, -8, 7, -8}, {7.5, 1, 0, -8, 7, 7},
		{6.5, 1, 0, -8, 7, 6}, {0.5, 1, 1, -8, 7, 1}, {1.5, 1, 1, -8, 7, 3}, {2.5, 1, -3, -8, 7, -1},
		{1e30, 1, 0, -8, 7, 7}, {-1e30, 1, 0, -8, 7, -8}, {math.MaxFloat32, 0x1p-126, 0, -128, 127, 127},
		{-math.MaxFloat32, 0x1p-126, 0, -128, 127, -128}, {1, -0.125, 0, -8, 7, -8}, {-1, -0.125, 0, -8, 7, 7},
		{0.5, 1, 0, -1, 0, 0}, {-0.5, 1, 0, -1, 0, 0}, {-0.51, 1, 0, -1, 0, -1}, {127.5, 1, 0, -128, 127, 127},
		{300, 1, -128, -128, 127, 127}, {254.5, 1, -128, -128, 127, 126}, {-300, 1, 127, -128, 127, -128},
		{-254.5, 1, 127, -128, 127, -127},
		// Denormals count.
		{0x1.8p-126, 0x1p-126, 0, -8, 7, 2}, {0x1p-127, 0x1p-126, 0, -8, 7, 0}, {0x1.00001p-127, 0x1p-126, 0, -8, 7, 1},
	}
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		for _, tt := range tests {
			for _, k := range []int{1, 16, 33} { // portable, assembly, both
				p := &problem{
					x: slices.Repeat([]float32{tt.x}, k), scale: []float32{tt.scale}, inv: []float32{1 / tt.scale},
					zero: []int8{tt.zero}, group: 48, qmin: tt.qmin, qmax: tt.qmax,
				}
				for i, q := range p.run(t).q {
					if q != tt.want {
						t.Errorf("%g / %g, zero point %d, %d to %d, code %d of %d is %d, want %d", tt.x, tt.scale, tt.zero, tt.qmin, tt.qmax, i, k, q, tt.want)
					}
				}
			}
		}
	})
}

func FuzzQuantizeGroups(f *testing.F) {
	f.Add(uint64(1), uint16(172), uint16(32))
	f.Fuzz(func(t *testing.T, seed uint64, k, group uint16) {
		p := randomProblem(rand.New(rand.NewPCG(seed, 0)), int(k%2048), 1+int(group%2048))
		want := p.oracle()
		for _, i := range asmtest.Implementations(accelerated) {
			asmtest.Restrict(t, i.Feature)
			if got := p.run(t); !slices.Equal(got.q, want.q) || got.acc != want.acc {
				t.Errorf("%s: k %d group %d: %s", i.Feature, len(p.x), p.group, fmt.Sprint(got))
			}
		}
	})
}
