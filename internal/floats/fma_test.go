package floats

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// exactFMA computes x*y + z with numbers of any length, and rounds to float32 once.
type exactFMA struct{ p, y, z big.Float }

func (f *exactFMA) of(x, y, z float32) float32 {
	for _, v := range []float32{x, y, z} {
		if v != v || math.IsInf(float64(v), 0) { // no rounding there, only rules that float64 has too
			return float32(float64(x)*float64(y) + float64(z))
		}
	}
	// Products lie between 2^-298 and 2^256: 600 bits hold all sums.
	f.p.SetPrec(600).SetFloat64(float64(x))
	f.y.SetPrec(600).SetFloat64(float64(y))
	f.z.SetPrec(600).SetFloat64(float64(z))
	f.p.Mul(&f.p, &f.y)
	f.p.Add(&f.p, &f.z)
	r, _ := f.p.Float32()
	return r
}

func (f *exactFMA) check(t *testing.T, x, y, z float32) {
	got, want := FMA32(x, y, z), f.of(x, y, z)
	if want != want && got != got {
		return
	}
	if math.Float32bits(got) != math.Float32bits(want) {
		t.Helper() // here, since it takes longer than the rest
		t.Fatalf("FMA32(%x, %x, %x) = %x, want %x", x, y, z, got, want)
	}
}

// awkward are numbers at the ends of the format's ranges, and their neighbours.
var awkward = func() []float32 {
	var list []float32
	for _, u := range []uint32{
		// Subnormals and the smallest normals.
		0, 1, 2, 3, 0x3fffff, 0x400000, 0x7ffffe, 0x7fffff, 0x800000, 0x800001, 0xffffff, 0x1000000,
		0x33800000, 0x34000000, 0x3effffff, 0x3f000000, 0x3f000001, 0x3f7fffff, 0x3f800000, 0x3f800001, 0x3f800002, 0x3fc00000, 0x40000000, 0x40400000,
		0x4b000000, 0x4b7fffff, 0x4b800000, 0x4b800001, 0x5f000000, 0x5f7fffff, 0x5f800000,
		0x7f000000, 0x7f7ffffe, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000,
	} {
		list = append(list, math.Float32frombits(u), math.Float32frombits(u|f32SignMask))
	}
	return list
}()

func TestFMA32Awkward(t *testing.T) {
	var f exactFMA
	for _, x := range awkward {
		for _, y := range awkward {
			for _, z := range awkward {
				f.check(t, x, y, z)
			}
		}
	}
}

func TestFMA32Random(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	n := 200_000 // of each of the kinds below
	if testing.Short() {
		n = 20_000
	}
	random := func() float32 { return math.Float32frombits(rng.Uint32()) }
	// few is a number with few bits, at an exponent from low to high.
	few := func(low, high int) float32 {
		return float32(math.Ldexp(float64(rng.IntN(511)-255), low+rng.IntN(high-low+1)))
	}
	var f exactFMA
	for range n {
		x, y := random(), random()
		f.check(t, x, y, random())

		// z of about the size of the product, so that bits cancel, or lie just out of reach of each
		// other.
		p := float64(x) * float64(y)
		if exp := math.Ilogb(p); p != 0 && exp > -180 && exp < 160 {
			z := float32(math.Ldexp(rng.Float64()-0.5, exp+rng.IntN(60)-30))
			f.check(t, x, y, z)
			f.check(t, x, y, -float32(p))
		}

		// Ties: numbers of few bits, whose sums end amid a float32's last place, and then a little
		// more or less.
		f.check(t, few(-8, 8), few(-8, 8), few(8, 40))
		f.check(t, few(-80, -60), few(-80, -60), few(-140, -100))
		f.check(t, few(60, 64), few(55, 60), few(90, 127))

		// A tie of the float32's last place, from which the product is too far for float64 to see it.
		one := math.Float32frombits(0x3f800000 | rng.Uint32()&0x7fffff)
		half := float32(0x1p-24) * float32(1+2*rng.IntN(2))
		tiny := math.Float32frombits(rng.Uint32()&0x1fffffff | 0x10000000)
		f.check(t, half, 1+tiny, one)
		f.check(t, one, half, one)
		f.check(t, half, -(1 - 0x1p-24), one)

		// 2^-150 - k*k * 2^-196, just below half of the smallest subnormal: a tie with any z of
		// subnormal size, or one or more places of float64 from it.
		k := float32(rng.IntN(400)) * 0x1p-23
		z := math.Float32frombits(rng.Uint32() & 0x807fffff)
		f.check(t, (1+k)*0x1p-75, (1-k)*0x1p-75, z)
		f.check(t, (1+k)*0x1p-75, (k-1)*0x1p-75, z)
		f.check(t, (1+k)*0x1p-12, (1-k)*0x1p-12, one) // the same for normal numbers
	}
}

// TestFMA32Ties meets every case of the sum's rounding on purpose: a tie of float32 in float64, and
// an error of either sign or none.
func TestFMA32Ties(t *testing.T) {
	var f exactFMA
	// x*y is a tie of float32 exactly; z a number far below float64's last place.
	for _, x := range []float32{0x1.000002p0, 0x1.000006p0, 0x1.7ffffep0, 0x1.fffffep0} {
		for _, y := range []float32{0x1.8p0, 0x1.000002p0, 0x1.8p-130, 0x1p-140, 0x1.8p127} {
			for _, z := range []float32{0, 0x1p-149, -0x1p-149, 0x1p-120, -0x1p-120, 0x1p-54, -0x1p-54, 0x1p-30} {
				for _, sign := range []float32{1, -1} {
					f.check(t, sign*x, y, z)
					f.check(t, x*0x1p-20, y*0x1p20, sign*z)
				}
			}
		}
	}
	// The product is 2^-24 - 2^-70: the sum lies just below the tie between 1 + 2^-23 and 1 +
	// 2^-22, which float64 takes it for, and ties go to the even 1 + 2^-22.
	if got := FMA32(0x1.000002p-12, 0x1.fffffcp-13, 0x1.000002p0); got != 0x1.000002p0 {
		t.Errorf("rounded twice: %x", got)
	}
}

func TestFMA32Special(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct{ x, y, z, want float32 }{
		{inf, 0, 1, nan}, {0, -inf, nan, nan}, {inf, 1, -inf, nan}, {nan, 1, 1, nan}, {1, 1, nan, nan},
		{inf, 2, 3, inf}, {inf, -2, 3, -inf}, {1, 1, -inf, -inf}, {math.MaxFloat32, math.MaxFloat32, -inf, -inf},
		{math.MaxFloat32, 2, -math.MaxFloat32, math.MaxFloat32}, {math.MaxFloat32, 2, 0, inf},
		{math.MaxFloat32, 1, 0x1p103, inf}, {math.MaxFloat32, 1, 0x1.fffffep102, math.MaxFloat32},
	} {
		got := FMA32(c.x, c.y, c.z)
		if got != c.want && (got == got || c.want == c.want) {
			t.Errorf("FMA32(%x, %x, %x) = %x, want %x", c.x, c.y, c.z, got, c.want)
		}
	}
	negZero := float32(math.Copysign(0, -1))
	for _, c := range []struct{ x, y, z, want float32 }{
		{0, 1, negZero, 0}, {negZero, 1, negZero, negZero}, {negZero, 1, 0, 0}, {1, 1, -1, 0}, {-1, 1, 1, 0},
		{0x1p-100, -0x1p-100, 0, negZero}, {0x1p-100, 0x1p-100, 0, 0},
	} {
		if got := FMA32(c.x, c.y, c.z); math.Float32bits(got) != math.Float32bits(c.want) {
			t.Errorf("FMA32(%x, %x, %x) = %x, want %x", c.x, c.y, c.z, got, c.want)
		}
	}
}

func FuzzFMA32(f *testing.F) {
	f.Add(uint32(0x3f800001), uint32(0x33800000), uint32(0x3f800000))
	f.Add(uint32(1), uint32(0x3f000000), uint32(1))
	f.Fuzz(func(t *testing.T, x, y, z uint32) {
		var e exactFMA
		e.check(t, math.Float32frombits(x), math.Float32frombits(y), math.Float32frombits(z))
	})
}

func BenchmarkFMA32(b *testing.B) {
	rng := rand.New(rand.NewPCG(5, 6))
	var x, y [1024]float32
	for i := range x {
		x[i], y[i] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
	}
	var lanes [8]float32 // a sum of its own for each, as kernels have
	b.Run("fused", func(b *testing.B) {
		for i := 0; i < b.N; i++ {
			lanes[i%8] = FMA32(x[i%1024], y[i%1024], lanes[i%8])
		}
	})
	b.Run("separate", func(b *testing.B) {
		for i := 0; i < b.N; i++ {
			lanes[i%8] += float32(x[i%1024] * y[i%1024])
		}
	})
}
