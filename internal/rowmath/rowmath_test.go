package rowmath

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// plain is Set.MulAdd as documented.
func plain(dst []float32, dstStride int, a []float32, aStride int, b []float32, bStride, m, k, n int) {
	for i := range m {
		for j := range n {
			for l := range k {
				dst[i*dstStride+j] += float32(a[i*aStride+l] * b[l*bStride+j])
			}
		}
	}
}

// random returns n numbers of all magnitudes.
func random(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * math.Ldexp(1, rng.IntN(20)-10))
	}
	return x
}

// TestMulAdd compares every implementation with the documented loop, and demands that the gaps
// between rows stay unchanged.
func TestMulAdd(t *testing.T) {
	asmtest.Expect(t, Sets)
	sets := asmtest.Implementations(Sets)
	rng := rand.New(rand.NewPCG(1, 2))
	rounds := 400
	if testing.Short() {
		rounds = 60
	}
	for range rounds {
		m, k, n := rng.IntN(10), rng.IntN(70), rng.IntN(200)
		ds, as, bs := n+rng.IntN(9), k+rng.IntN(9), n+rng.IntN(9)
		dst, a, b := random(rng, (m+1)*ds+1), random(rng, (m+1)*as+1), random(rng, (k+1)*bs+1)
		want := append([]float32(nil), dst...)
		plain(want, ds, a, as, b, bs, m, k, n)
		for _, s := range sets {
			got := append([]float32(nil), dst...)
			s.Code.MulAdd(got, ds, a, as, b, bs, m, k, n)
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%s: %d x %d x %d, strides %d %d %d: element %d is %v, want %v", s.Feature, m, k, n, ds, as, bs, i, got[i], want[i])
				}
			}
		}
	}
}

func TestShortSlicesPanic(t *testing.T) {
	asmtest.Each(t, Sets, func(t *testing.T, set *Set) {
		if set == Sets.For(nil).Code {
			t.Skip("the portable code cannot leave a slice's memory")
		}
		shortSlicesPanic(t, set.MulAdd)
	})
}

func shortSlicesPanic(t *testing.T, f func(dst []float32, dstStride int, a []float32, aStride int, b []float32, bStride, m, k, n int)) {
	x := make([]float32, 1024)
	for _, c := range []func(){
		func() { f(x[:1000], 512, x, 2, x, 500, 2, 2, 500) },
		func() { f(x, 16, x[:3], 2, x, 16, 2, 2, 16) },
		func() { f(x, 16, x, 2, x[:31], 16, 2, 2, 16) },
		func() { f(x, 16, x, 2, x[500:], -16, 2, 2, 16) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a slice too short was taken")
				}
			}()
			c()
		}()
	}
}

func BenchmarkMulAdd(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, s := range []struct{ m, k, n int }{{4, 256, 64}, {1, 256, 64}, {4, 64, 16}, {1, 64, 16}, {1, 256, 32}} {
		x := random(rng, 64*1024)
		for _, i := range asmtest.Implementations(Sets) {
			b.Run(fmt.Sprintf("%dx%dx%d/%s", s.m, s.k, s.n, i.Feature), func(b *testing.B) {
				for b.Loop() {
					i.Code.MulAdd(x[:1024], s.n, x[1024:], s.k, x[4096:], s.n, s.m, s.k, s.n)
				}
				b.ReportMetric(float64(s.m*s.k*s.n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gmac/s")
			})
		}
	}
}

// nasty are unusual values of a softmax or an activation function.
var nasty = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 1e-30, -1e-30, 88, -88, 104, -104, 693, -693, 694, -694, 1e5, -1e5, 3e38, -3e38, 1e-45,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
}

// rows calls f with rows of all lengths to 40 and some longer ones.
func rows(rng *rand.Rand, f func(x []float32)) {
	for n := range 60 {
		x := make([]float32, n)
		if n >= 40 {
			x = make([]float32, rng.IntN(2000))
		}
		for i := range x {
			x[i] = float32(rng.NormFloat64() * math.Ldexp(1, rng.IntN(8)))
		}
		f(x)
		if n > 0 && len(x) > 0 {
			for range 4 {
				x[rng.IntN(len(x))] = nasty[rng.IntN(len(nasty)-3)]
			}
			f(x)
			x[rng.IntN(len(x))] = nasty[len(nasty)-3+rng.IntN(3)]
			f(x)
		}
	}
}

// same compares bits; all NaNs are equal.
func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
			t.Fatalf("%s: element %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
}

func TestSoftmax(t *testing.T) {
	asmtest.Each(t, Sets, func(t *testing.T, set *Set) {
		rows(rand.New(rand.NewPCG(5, 6)), func(x []float32) {
			got, want := slices.Clone(x), slices.Clone(x)
			set.Softmax(got)
			softmaxGeneric(want)
			same(t, fmt.Sprint("softmax of ", x), got, want)
		})
	})
}

func TestGate(t *testing.T) {
	asmtest.Each(t, Sets, func(t *testing.T, set *Set) {
		rng := rand.New(rand.NewPCG(7, 8))
		rows(rng, func(x []float32) {
			up := random(rng, len(x))
			for _, c := range [][2]float64{{SiluLinear, SiluCubic}, {GeluLinear, GeluCubic}} {
				got, want := slices.Clone(x), slices.Clone(x)
				set.Gate(got, up, c[0], c[1])
				gateGeneric(want, up, c[0], c[1])
				same(t, fmt.Sprint("gate of ", x), got, want)
			}
		})
	})
}

// TestValues compares with the functions as textbooks define them.
func TestValues(t *testing.T) {
	set := Sets.For(nil).Code
	x := []float32{1, 2, 3, -1000, 0}
	set.Softmax(x)
	sum := math.Exp(-2) + math.Exp(-1) + 1 + math.Exp(-3)
	for i, want := range []float64{math.Exp(-2) / sum, math.Exp(-1) / sum, 1 / sum, 0, math.Exp(-3) / sum} {
		if math.Abs(float64(x[i])-want) > 1e-7 {
			t.Errorf("softmax %d is %v, want %v", i, x[i], want)
		}
	}
	for _, v := range []float64{-30, -3, -0.5, 0, 1e-3, 0.7, 4, 50} {
		silu, gelu := []float32{float32(v)}, []float32{float32(v)}
		set.Gate(silu, []float32{2}, SiluLinear, SiluCubic)
		set.Gate(gelu, []float32{2}, GeluLinear, GeluCubic)
		wantSilu := 2 * v / (1 + math.Exp(-v))
		wantGelu := v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
		if math.Abs(float64(silu[0])-wantSilu) > 3e-7*math.Abs(v) || math.Abs(float64(gelu[0])-wantGelu) > 3e-7*math.Abs(v) {
			t.Errorf("of %v: silu %v, want %v; gelu %v, want %v", v, silu[0], wantSilu, gelu[0], wantGelu)
		}
	}
}

func BenchmarkRows(b *testing.B) {
	x, up := random(rand.New(rand.NewPCG(9, 10)), 1024), make([]float32, 1024)
	row := make([]float32, 1024)
	for _, i := range asmtest.Implementations(Sets) {
		name, set := i.Feature, i.Code
		b.Run("softmax/"+name, func(b *testing.B) {
			for b.Loop() {
				copy(row, x)
				set.Softmax(row)
			}
		})
		b.Run("gate/"+name, func(b *testing.B) {
			for b.Loop() {
				copy(row, x)
				set.Gate(row, up, SiluLinear, SiluCubic)
			}
		})
	}
}

// TestExp compares every implementation with the documented loop.
func TestExp(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	sets := asmtest.Implementations(Sets)
	rows(rng, func(x []float32) {
		highest := float32(0)
		for _, v := range x {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return
			}
			highest = max(highest, v)
		}
		for _, s := range sets {
			got := make([]float64, len(x)+1)
			got[len(x)] = 7
			s.Code.Exp(got[:len(x)], x, highest)
			for i, v := range x {
				if want := detmath.ExpNarrow(max(-693, float64(v)-float64(highest))); math.Float64bits(got[i]) != math.Float64bits(want) {
					t.Fatalf("%s: e^(%v-%v) is %v, want %v", s.Feature, v, highest, got[i], want)
				}
			}
			if got[len(x)] != 7 {
				t.Fatalf("%s: the number behind %d results was changed", s.Feature, len(x))
			}
		}
	})
}
