package floats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A format describes a narrow format for the reference implementation.
type format struct {
	name     string
	bits     int // all of them
	mantBits int
	fn       bool // no infinities, only the all-ones magnitude is NaN
	toF32    func(uint16) float32
	fromF32  func(float32) uint16 // nil if there is none
}

var formats = []format{
	{name: "BF16", bits: 16, mantBits: 7, toF32: BF16ToF32, fromF32: BF16FromF32},
	{name: "F16", bits: 16, mantBits: 10, toF32: F16ToF32, fromF32: F16FromF32},
	{name: "F8E4M3", bits: 8, mantBits: 3, fn: true, toF32: func(b uint16) float32 { return F8E4M3ToF32(byte(b)) }},
	{name: "F8E5M2", bits: 8, mantBits: 2, toF32: func(b uint16) float32 { return F8E5M2ToF32(byte(b)) }},
}

// value is the reference for widening: the definition of the format in float64.
func (f format) value(b uint16) float64 {
	expBits := f.bits - 1 - f.mantBits
	exp := int(b) >> f.mantBits & (1<<expBits - 1)
	mant := int(b) & (1<<f.mantBits - 1)
	bias := 1<<(expBits-1) - 1
	v := math.Ldexp(float64(1<<f.mantBits+mant), exp-bias-f.mantBits)
	top := 1<<expBits - 1
	switch {
	case exp == 0:
		v = math.Ldexp(float64(mant), 1-bias-f.mantBits)
	case exp == top && f.fn && mant == 1<<f.mantBits-1, exp == top && !f.fn && mant != 0:
		return math.NaN()
	case exp == top && !f.fn:
		v = math.Inf(1)
	}
	if b>>(f.bits-1) != 0 {
		v = -v
	}
	return v
}

func TestWidenAll(t *testing.T) {
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			for i := range 1 << f.bits {
				b := uint16(i)
				got, want := f.toF32(b), f.value(b)
				negative := i>>(f.bits-1) != 0
				if math.IsNaN(want) {
					u := math.Float32bits(got)
					if got == got {
						t.Fatalf("%#x: %g, want NaN", b, got)
					}
					if (u>>31 != 0) != negative {
						t.Fatalf("%#x: NaN %#x lost its sign", b, u)
					}
					if f.name != "BF16" && u&f32QuietBit == 0 {
						t.Fatalf("%#x: NaN %#x is signaling", b, u)
					}
					continue
				}
				if float64(got) != want || math.Signbit(float64(got)) != negative {
					t.Fatalf("%#x: %g, want %g", b, got, want)
				}
			}
		})
	}
}

func TestRoundTripAll(t *testing.T) {
	for _, f := range formats {
		if f.fromF32 == nil {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			for i := range 1 << f.bits {
				b := uint16(i)
				want := b
				if math.IsNaN(f.value(b)) {
					want |= 1 << (f.mantBits - 1) // quiet, the other bits kept
				}
				if got := f.fromF32(f.toF32(b)); got != want {
					t.Fatalf("%#x: came back as %#x, want %#x", b, got, want)
				}
			}
		})
	}
}

// narrower returns the slow reference for rounding: the nearest of all values of the format by
// binary search, ties to the even code, where infinity stands for the next power of two.
func (f format) narrower() func(x float32) uint16 {
	inf := uint16(1<<(f.bits-1) - 1<<f.mantBits)
	values := make([]float64, inf+1)
	for i := range inf {
		values[i] = f.value(i)
	}
	values[inf] = 2 * f.value(inf-1<<f.mantBits)
	return func(x float32) uint16 { return f.narrow(x, values) }
}

func (f format) narrow(x float32, values []float64) uint16 {
	sign := uint16(0)
	if math.Signbit(float64(x)) {
		sign = 1 << (f.bits - 1)
	}
	a := math.Abs(float64(x))
	inf := uint16(len(values) - 1)
	if math.IsInf(a, 1) {
		return sign | inf
	}
	lo, hi := uint16(0), inf // values[lo] <= a, and a < values[hi] or hi is infinity
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; values[mid] <= a {
			lo = mid
		} else {
			hi = mid
		}
	}
	// Both differences are exact: neighbours of 11 bits or fewer around 24 bits.
	below, above := a-values[lo], values[hi]-a
	if above < below || above == below && hi&1 == 0 {
		return sign | hi
	}
	return sign | lo
}

// checkNarrow compares f with its reference, which narrower gives.
func checkNarrow(t *testing.T, f format, reference func(float32) uint16, x float32) {
	t.Helper()
	if got, want := f.fromF32(x), reference(x); got != want {
		t.Fatalf("%g (%#08x): %#04x, want %#04x", x, math.Float32bits(x), got, want)
	}
}

// TestNarrowTies visits every boundary between neighbouring values, both sides of
// it, and every value with its neighbours.
func TestNarrowTies(t *testing.T) {
	for _, f := range formats {
		if f.fromF32 == nil {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			reference := f.narrower()
			for i := range 1 << f.bits {
				v := f.value(uint16(i))
				if math.IsNaN(v) {
					continue
				}
				around(t, f, reference, float32(v))
				next := f.value(uint16(i + 1))
				if math.IsNaN(next) || math.IsInf(v, 0) {
					continue
				}
				if math.IsInf(next, 0) {
					next = 2 * f.value(uint16(i+1-1<<f.mantBits))
				}
				around(t, f, reference, float32((v+next)/2))
			}
		})
	}
}

func around(t *testing.T, f format, reference func(float32) uint16, x float32) {
	t.Helper()
	checkNarrow(t, f, reference, x)
	checkNarrow(t, f, reference, math.Nextafter32(x, float32(math.Inf(1))))
	checkNarrow(t, f, reference, math.Nextafter32(x, float32(math.Inf(-1))))
}

func TestNarrowRandom(t *testing.T) {
	for _, f := range formats {
		if f.fromF32 == nil {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			reference := f.narrower()
			rng := rand.New(rand.NewPCG(1, 2))
			for range 100_000 {
				if x := math.Float32frombits(rng.Uint32()); x == x {
					checkNarrow(t, f, reference, x)
				}
			}
			for range 100_000 { // around F16's range, with its subnormals
				u := rng.Uint32()
				checkNarrow(t, f, reference, math.Float32frombits(u&0x807fffff|(100+u>>23&0xff%48)<<23))
			}
		})
	}
}

func TestNarrowEdges(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		x         float32
		bf16, f16 uint16
	}{
		{0, 0, 0},
		{float32(math.Copysign(0, -1)), 0x8000, 0x8000},
		{1, 0x3f80, 0x3c00},
		{-2, 0xc000, 0xc000},
		{inf, 0x7f80, 0x7c00},
		{-inf, 0xff80, 0xfc00},
		{math.MaxFloat32, 0x7f80, 0x7c00},
		{math.SmallestNonzeroFloat32, 0, 0},
		{65504, 0x4780, 0x7bff},
		{math.Nextafter32(65520, 0), 0x4780, 0x7bff},
		{65520, 0x4780, 0x7c00},
		{0x1p-24, 0x3380, 0x0001},
		{0x1p-25, 0x3300, 0x0000},                      // tie to even: 0
		{math.Nextafter32(0x1p-25, 1), 0x3300, 0x0001}, // above the tie
		{0x1.8p-24, 0x33c0, 0x0002},                    // tie between 1 and 2
		// Tie between the largest subnormal and 2^-14.
		{0x1.ffcp-15, 0x3880, 0x0400},
		{math.Float32frombits(0x7f7f7fff), 0x7f7f, 0x7c00},        // just below BF16's overflow
		{math.Float32frombits(0x7f7f8000), 0x7f80, 0x7c00},        // BF16's overflow: a tie
		{math.Float32frombits(0x00008000), 0x0000, 0x0000},        // tie of BF16 subnormals, to even
		{math.Float32frombits(0x00018000), 0x0002, 0x0000},        // the same, upwards
		{math.Float32frombits(0x7f800001), 0x7fc0, 0x7e00},        // signaling NaN with low bits only
		{math.Float32frombits(0xffc12345), 0xffc1, 0xfe00 | 0x09}, // payload kept
	} {
		if got := BF16FromF32(c.x); got != c.bf16 {
			t.Errorf("BF16FromF32(%#08x) = %#04x, want %#04x", math.Float32bits(c.x), got, c.bf16)
		}
		if got := F16FromF32(c.x); got != c.f16 {
			t.Errorf("F16FromF32(%#08x) = %#04x, want %#04x", math.Float32bits(c.x), got, c.f16)
		}
	}
}

func TestF8Edges(t *testing.T) {
	for _, c := range []struct {
		b          byte
		e4m3, e5m2 float32
	}{
		{0x01, 0x1p-9, 0x1p-16},
		{0x07, 0x1.cp-7, 0x1.cp-14},
		{0x08, 0x1p-6, 0x1p-13},
		{0x38, 1, 0.5},
		{0x7b, 352, 57344},
		{0x7e, 448, float32(math.NaN())},
		{0x7c, 384, float32(math.Inf(1))},
		{0xfc, -384, float32(math.Inf(-1))},
	} {
		if got := F8E4M3ToF32(c.b); got != c.e4m3 {
			t.Errorf("F8E4M3ToF32(%#x) = %g, want %g", c.b, got, c.e4m3)
		}
		if got := F8E5M2ToF32(c.b); got != c.e5m2 && c.e5m2 == c.e5m2 {
			t.Errorf("F8E5M2ToF32(%#x) = %g, want %g", c.b, got, c.e5m2)
		}
	}
}

func BenchmarkF16FromF32(b *testing.B) {
	var x [1024]float32
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	b.SetBytes(4 * int64(len(x)))
	var sum uint16
	for b.Loop() {
		for _, v := range x {
			sum += F16FromF32(v)
		}
	}
	_ = sum
}

// TestMicroscaling holds both formats to the OCP Microscaling Formats specification's formulas.
func TestMicroscaling(t *testing.T) {
	for b := range 255 {
		if got := E8M0ToF32(byte(b)); float64(got) != math.Ldexp(1, b-127) {
			t.Errorf("E8M0 %d: %g", b, got)
		}
	}
	if got := E8M0ToF32(255); got == got {
		t.Errorf("E8M0 255: %g, want NaN", got)
	}
	for b := range 256 {
		exp, mant := b>>1&3, float64(b&1)
		want := mant / 2
		if exp > 0 {
			want = math.Ldexp(1+mant/2, exp-1)
		}
		if b&8 != 0 {
			want = -want
		}
		if got := E2M1ToF32(byte(b)); float64(got) != want || math.Signbit(float64(got)) != (b&8 != 0) {
			t.Errorf("E2M1 %#x: %g, want %g", b, got, want)
		}
	}
}
