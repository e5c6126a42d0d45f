package vec

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// latticeTests are the tests of some schemes: bits of symmetric and asymmetric codes, and dtypes.
var latticeTests = []LatticeTest{
	// 4 bits, BF16.
	{Inverse: 1.0 / 8.2, Exempt: 0x1p-122, Normal: 0x1p-126, Error: 0x1.02p-8},
	// 8 bits, BF16.
	{Inverse: 1.0 / 131, Exempt: 0x1p-118, Normal: 0x1p-126, Error: 0x1.02p-8},
	{Inverse: 1.0 / 256, Exempt: 0x1p-6, Smaller: 1, Normal: 0x1p-14, Error: 0x1.01p-11},   // F16
	{Inverse: 1.0 / 255.1, Exempt: 0x1p-118, Smaller: 1, Normal: 0x1p-126, Error: 0x1p-24}, // F32
	{Inverse: 1.0 / 4.1, Exempt: 0, Normal: 0x1p-14, Error: 0x1.01p-11},                    // 3 bits
	// Passes often.
	{Inverse: 1.0 / 255.1, Exempt: 0x1p-118, Smaller: 1, Normal: 0x1p-126, Error: 0x1.8p-5},
}

// TestLatticeGroups compares with the portable code: groups on lattices and not, of zeros, with few
// weights that are not zero, subnormal, and near the largest numbers.
func TestLatticeGroups(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		r := rand.New(rand.NewPCG(8, 4))
		var passed, failed int
		for i := range 4000 {
			test := &latticeTests[i%len(latticeTests)]
			n := 1 + r.IntN(40)
			const group = 16
			x := make([]float32, n*group)
			for g := range n {
				scale := float32(math.Ldexp(1+r.Float64(), []int{-3, -14, -125, -140, 118}[max(r.IntN(20)-15, 0)]))
				span, zeros := 1<<(1+r.IntN(8)), r.IntN(5)
				lattice := r.IntN(2) == 0
				for j := range group {
					v := r.NormFloat64() / 2
					if lattice {
						v = float64(r.IntN(2*span+1) - span)
					}
					if r.IntN(4) < zeros {
						v = 0
					}
					w := float32(float32(v) * scale)
					if test.Error > 0x1p-20 { // BF16
						w = math.Float32frombits((math.Float32bits(w) + 0x8000) &^ 0xffff)
					}
					x[g*group+j] = w
				}
			}
			lo, hi, least := make([]float32, n), make([]float32, n), make([]uint32, LeastLanes*n)
			if !GroupRange(lo, hi, x, group) {
				continue
			}
			LeastMagnitudes(least, x, group)
			got, want := bytes.Repeat([]byte{0xaa}, Groups(n, 8)), make([]byte, Groups(n, 8))
			LatticeGroups(got, lo, hi, least, test)
			latticeGroupsGeneric(want, lo, hi, least, test)
			if !bytes.Equal(got, want) {
				t.Fatalf("%d groups, test %+v: %08b, want %08b", n, *test, got, want)
			}
			for g := range n {
				if want[g/8]>>(g%8)&1 == 1 {
					passed++
				} else {
					failed++
				}
			}
		}
		if passed < 10000 || failed < 10000 {
			t.Errorf("%d groups passed and %d failed", passed, failed)
		}
	})
}
