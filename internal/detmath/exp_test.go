package detmath

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// bigExp returns e^x by the series of e^(x/2^16), squared 16 times.
func bigExp(x *big.Float) *big.Float {
	small := new(big.Float).SetMantExp(x, -16)
	sum, term := bigFloat(1), bigFloat(1)
	for n := 1; n < 40; n++ {
		term.Mul(term, small)
		term.Quo(term, bigFloat(float64(n)))
		sum.Add(sum, term)
	}
	for range 16 {
		sum.Mul(sum, sum)
	}
	return sum
}

func bigPow(x, y float64) *big.Float {
	l := bigLog(x)
	return bigExp(l.Mul(l, bigFloat(y)))
}

// bigSin returns the sine by its series; 200 bits are good for |x| < 50.
func bigSin(x *big.Float) *big.Float {
	square := new(big.Float).SetPrec(prec).Mul(x, x)
	sum, term := new(big.Float).SetPrec(prec).Set(x), new(big.Float).SetPrec(prec).Set(x)
	for n := 2.0; n < 300; n += 2 {
		term.Mul(term, square)
		term.Quo(term, bigFloat(-n*(n+1)))
		sum.Add(sum, term)
	}
	return sum
}

var bigHalfPi, _ = new(big.Float).SetPrec(prec).SetString("1.57079632679489661923132169163975144209858469968755291048747229615390820314310449931")

// bigReduced returns x less the nearest multiple of 2 pi.
func bigReduced(x float64) *big.Float {
	n := math.Round(x / (2 * math.Pi))
	m := new(big.Float).SetPrec(prec).Mul(bigHalfPi, bigFloat(4*n))
	return m.Sub(bigFloat(x), m)
}

func TestElementaryErrorBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	spread := func(limit float64) float64 { // both magnitudes near limit and far below
		return (2*rng.Float64() - 1) * limit * math.Ldexp(1, -rng.IntN(12)*rng.IntN(3))
	}
	n := 3000
	if testing.Short() {
		n = 200
	}
	var base, power float64
	for _, f := range []struct {
		name  string
		bound float64
		arg   func() float64
		fn    func(float64) float64
		ref   func(float64) *big.Float
	}{
		{"Exp", 1, func() float64 { return spread(700) }, Exp, func(x float64) *big.Float { return bigExp(bigFloat(x)) }},
		{"Pow", 1.9, func() float64 {
			base = math.Exp(spread(14))
			power = spread(2)
			return power
		}, func(y float64) float64 { return Pow(base, y) }, func(y float64) *big.Float { return bigPow(base, y) }},
		{"Sin", 1, func() float64 { return spread(1e6) }, Sin, func(x float64) *big.Float { return bigSin(bigReduced(x)) }},
		{"Cos", 1, func() float64 { return spread(1e6) }, Cos, func(x float64) *big.Float {
			r := bigReduced(x)
			return bigSin(r.Add(r, bigHalfPi))
		}},
		{"Sin of float32 near multiples of pi/2", 1, func() float64 { return float64(float32(math.Pi / 2 * float64(rng.IntN(1<<24)))) },
			Sin, func(x float64) *big.Float { return bigSin(bigReduced(x)) }},
	} {
		worst, at := 0.0, 0.0
		for range n {
			x := f.arg()
			if x == 0 {
				continue
			}
			if e := ulps(f.fn(x), f.ref(x)); e > worst {
				worst, at = e, x
			}
		}
		t.Logf("%s: at most %.4f ulp", f.name, worst)
		if worst > f.bound {
			t.Errorf("%s(%g) is off by %.4f ulp", f.name, at, worst)
		}
	}
}

func TestTanh32(t *testing.T) {
	checkFloat32(t, Tanh32, math.Tanh, 0x42480000) // up to 50
	inf := float32(math.Inf(1))
	if Tanh32(inf) != 1 || Tanh32(-inf) != -1 || Tanh32(inf-inf) == Tanh32(inf-inf) {
		t.Error("infinities or NaN")
	}
}

// checkFloat32 compares fn with ref for arguments of both signs and of all magnitudes up to the
// float with the bits last.
func checkFloat32(t *testing.T, fn func(float32) float32, ref func(float64) float64, last uint32) {
	step := uint32(997)
	if testing.Short() {
		step = 99991
	}
	worst, at := 0.0, float32(0)
	for u := uint32(0); u < last; u += step {
		for _, x := range []float32{math.Float32frombits(u), -math.Float32frombits(u)} {
			got, want := fn(x), ref(float64(x))
			if math.Abs(want) < 0x1p-126 { // a subnormal result is within one unit of theirs
				if math.Abs(float64(got)-want) > 0x1p-149 {
					t.Fatalf("f(%g) = %g, want %g", x, got, want)
				}
				continue
			}
			_, exp := math.Frexp(want)
			if e := math.Abs(math.Ldexp(float64(got)-want, 24-exp)); e > worst {
				worst, at = e, x
			}
		}
	}
	t.Logf("at most %.4f ulp", worst)
	if worst > 0.52 {
		t.Errorf("f(%g) is off by %.4f ulp", at, worst)
	}
}

func TestElementarySpecialCases(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	negZero := math.Copysign(0, -1)
	pow := func(y float64) func(float64) float64 { return func(x float64) float64 { return Pow(x, y) } }
	for _, c := range []struct {
		name    string
		fn      func(float64) float64
		x, want float64
	}{
		{"Exp", Exp, 0, 1}, {"Exp", Exp, negZero, 1}, {"Exp", Exp, inf, inf}, {"Exp", Exp, -inf, 0}, {"Exp", Exp, nan, nan},
		{"Exp", Exp, 710, inf}, {"Exp", Exp, -746, 0}, {"Exp", Exp, -745.13, math.SmallestNonzeroFloat64},
		{"Pow 2", pow(2), 3, 9}, {"Pow 0", pow(0), nan, 1}, {"Pow 1/2", pow(0.5), 0, 0}, {"Pow -1", pow(-1), 0, inf}, {"Pow 1", pow(1), inf, inf},
		{"Pow -1", pow(-1), inf, 0}, {"Pow 2", pow(2), -3, nan}, {"Pow inf", pow(inf), 2, inf}, {"Pow -inf", pow(-inf), 2, 0}, {"Pow nan", pow(nan), 2, nan},
		{"Pow 1e300", pow(1e300), 2, inf}, {"Pow 10", pow(10), 10, 1e10},
		{"Sin", Sin, 0, 0}, {"Sin", Sin, negZero, negZero}, {"Sin", Sin, inf, nan}, {"Sin", Sin, nan, nan},
		{"Cos", Cos, 0, 1}, {"Cos", Cos, -inf, nan}, {"Cos", Cos, nan, nan}, {"Cos", Cos, 0x1p31, nan},
	} {
		// Bits: NaN must be the same one everywhere.
		if got := c.fn(c.x); math.Float64bits(got) != math.Float64bits(c.want) {
			t.Errorf("%s(%g) = %v, want %v", c.name, c.x, got, c.want)
		}
	}
}

// TestElementarySameBits pins the results of many arguments: a platform whose checksum differs
// computes something else.
func TestElementarySameBits(t *testing.T) {
	const want = 0x41af41bd
	rng := rand.New(rand.NewPCG(9, 10))
	var sum uint32
	table := crc32.MakeTable(crc32.Castagnoli)
	var b []byte
	for range 50_000 {
		x := float64(40*rng.Float64()) - 20
		b = b[:0]
		for _, y := range []float64{Exp(35 * x), Pow(1+float64(rng.Float64()*1e6), x), Sin(x * 1e4), Cos(x * 1e4), ExpNarrow(5 * x), float64(Tanh32(float32(x / 5)))} {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(y))
		}
		sum = crc32.Update(sum, table, b)
	}
	if sum != want {
		t.Errorf("checksum %#08x, want %#08x", sum, want)
	}
}

func BenchmarkExpNarrow(b *testing.B) {
	var x [256]float32
	for i := range x {
		x[i] = -float32(i) / 16
	}
	b.SetBytes(int64(len(x)))
	for b.Loop() {
		s := 0.0
		for _, v := range x {
			s += ExpNarrow(float64(v))
		}
		_ = s
	}
}
