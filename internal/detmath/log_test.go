package detmath

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

const prec = 200

func bigFloat(x float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(x) }

// bigAtanh2 returns 2 atanh(s) by its series, for |s| < 0.35.
func bigAtanh2(s *big.Float) *big.Float {
	square := new(big.Float).SetPrec(prec).Mul(s, s)
	power := new(big.Float).SetPrec(prec).Set(s)
	sum := new(big.Float).SetPrec(prec)
	for n := 1; n < 140 && power.Sign() != 0; n += 2 {
		sum.Add(sum, new(big.Float).SetPrec(prec).Quo(power, bigFloat(float64(n))))
		power.Mul(power, square)
	}
	return sum.Mul(sum, bigFloat(2))
}

var (
	bigLn2  = bigAtanh2(new(big.Float).SetPrec(prec).Quo(bigFloat(1), bigFloat(3)))
	bigLn10 = bigLog(10)
)

func bigLog(x float64) *big.Float {
	m, k := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		k--
	}
	s := new(big.Float).SetPrec(prec).Sub(bigFloat(m), bigFloat(1))
	s.Quo(s, new(big.Float).SetPrec(prec).Add(bigFloat(m), bigFloat(1)))
	sum := bigAtanh2(s)
	return sum.Add(sum, new(big.Float).SetPrec(prec).Mul(bigLn2, bigFloat(float64(k))))
}

func bigLog10(x float64) *big.Float {
	y := bigLog(x)
	return y.Quo(y, bigLn10)
}

// ulps returns the distance of got from want in units of want's last place.
func ulps(got float64, want *big.Float) float64 {
	w, _ := want.Float64()
	_, exp := math.Frexp(w)
	diff := new(big.Float).SetPrec(prec).Sub(bigFloat(got), want)
	diff.SetMantExp(diff, 53-exp)
	e, _ := diff.Float64()
	return math.Abs(e)
}

// arguments calls fn with n numbers of each kind.
func arguments(n int, fn func(x float64)) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range n {
		fn(math.Float64frombits(rng.Uint64N(0x7ff0000000000000-1) + 1)) // any exponent
		fn(1 + (rng.Float64()-0.5)*math.Ldexp(1, -rng.IntN(52)))        // near 1
		fn(math.Exp2(20*rng.Float64() - 10))                            // ordinary
	}
}

func TestErrorBound(t *testing.T) {
	for _, f := range []struct {
		name string
		fn   func(float64) float64
		ref  func(float64) *big.Float
	}{{"Log", Log, bigLog}, {"Log10", Log10, bigLog10}} {
		worst, at := 0.0, 0.0
		arguments(2000, func(x float64) {
			if x == 1 {
				return
			}
			if e := ulps(f.fn(x), f.ref(x)); e > worst {
				worst, at = e, x
			}
		})
		t.Logf("%s: at most %.4f ulp", f.name, worst)
		if worst > 0.55 {
			t.Errorf("%s(%g) is off by %.4f ulp", f.name, at, worst)
		}
	}
}

func TestSpecialAndExact(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct{ x, log, log10 float64 }{
		{0, -inf, -inf},
		{math.Copysign(0, -1), -inf, -inf},
		{-1, nan, nan},
		{-inf, nan, nan},
		{nan, nan, nan},
		{inf, inf, inf},
		{1, 0, 0},
		{2, math.Ln2, math.Ln2 / math.Ln10},
		{math.E, 1, math.Log10E},
		{math.MaxFloat64, 709.782712893384, 308.25471555991675},
		{math.SmallestNonzeroFloat64, -744.4400719213812, -323.3062153431158},
	} {
		// Bits: NaN must be the same one everywhere.
		if got := Log(c.x); math.Float64bits(got) != math.Float64bits(c.log) {
			t.Errorf("Log(%g) = %v, want %v", c.x, got, c.log)
		}
		if got := Log10(c.x); math.Float64bits(got) != math.Float64bits(c.log10) {
			t.Errorf("Log10(%g) = %v, want %v", c.x, got, c.log10)
		}
	}
	for x, n := 1.0, 0.0; n <= 22; x, n = x*10, n+1 { // 10^22 is the last exact one
		if got := Log10(x); got != n {
			t.Errorf("Log10(1e%g) = %v", n, got)
		}
	}
	for k := -1074; k < 1024; k++ {
		x := math.Ldexp(1, k)
		want, _ := bigLog(x).Float64()
		if got := Log(x); got != want {
			t.Errorf("Log(2^%d) = %v, want %v", k, got, want)
		}
	}
}

// TestSameBits pins the results of many arguments: a platform whose checksum differs
// computes something else.
func TestSameBits(t *testing.T) {
	const want = 0x7ca93ea2
	rng := rand.New(rand.NewPCG(5, 6))
	var sum uint32
	table := crc32.MakeTable(crc32.Castagnoli)
	var b [16]byte
	for range 200_000 {
		x := math.Float64frombits(rng.Uint64() &^ (1 << 63))
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(Log(x)))
		binary.LittleEndian.PutUint64(b[8:], math.Float64bits(Log10(x)))
		sum = crc32.Update(sum, table, b[:])
	}
	if sum != want {
		t.Errorf("checksum %#08x, want %#08x", sum, want)
	}
}

func BenchmarkLog10(b *testing.B) {
	s := 0.0
	for b.Loop() {
		s += Log10(float64(b.N) + 1.5)
	}
	_ = s
}
