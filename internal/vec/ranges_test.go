package vec

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// gridded is a call of FitRanges and of GridErrors.
type gridded struct {
	x, w                      []float32
	unit, base, inverse, most float32
	least                     float32 // of GridErrors
	ranges                    Ranges
	grids                     Grids
}

func randomGridded(rng *rand.Rand, k int) *gridded {
	p := &gridded{x: make([]float32, k), w: make([]float32, k), most: float32(int(1)<<(1+rng.IntN(5)) - 1)}
	size := float32(1)
	if rng.IntN(3) == 0 { // sums that overflow, and denormals
		size = []float32{1e25, 1e-30, 1e-43}[rng.IntN(3)]
	}
	for i := range p.x {
		p.x[i], p.w[i] = float32(rng.NormFloat64())*size, rng.Float32()
		if rng.IntN(8) == 0 {
			p.w[i] = 0
		}
	}
	p.unit, p.base, p.inverse = float32(rng.NormFloat64()), float32(rng.NormFloat64()), rng.Float32()
	if rng.IntN(2) == 0 {
		p.least = -p.most - 1
	}
	for c := range SearchLanes {
		p.ranges.Inv[c], p.ranges.Cut[c] = float32(rng.NormFloat64()*10), float32(rng.NormFloat64()*3)
		p.ranges.Product[c], p.ranges.Sum[c], p.ranges.Score[c] = 77, -77, 7
	}
	for c := range FinalLanes {
		p.grids.Scale[c], p.grids.Offset[c], p.grids.Error[c] = float32(rng.NormFloat64()/10)*max(size, 1e-30), float32(rng.NormFloat64())*size, 77
		if rng.IntN(8) == 0 {
			p.grids.Scale[c] = 0x1p-100
		}
	}
	return p
}

// oracle computes the expected results of the calls from their definitions in another way.
func (p *gridded) oracle() (Ranges, Grids) {
	s, f := p.ranges, p.grids
	for c := range SearchLanes {
		var n, a, b float32
		inv := mul(s.Inv[c], p.unit)
		shift := add(mul(p.base, inv), -s.Cut[c])
		for i, x := range p.x {
			q := step(add(mul(x, inv), shift), 0, p.most)
			v := mul(p.w[i], q)
			n, a, b = add(n, v), add(a, mul(v, x)), add(b, mul(v, q))
		}
		s.Product[c], s.Sum[c] = a, n
		s.Score[c] = div(mul(a, a), add(b, -mul(mul(n, n), p.inverse)))
		if s.Score[c] < 0 || s.Score[c] != s.Score[c] {
			s.Score[c] = 0
		}
	}
	for c := range FinalLanes {
		var sum [2]float32
		for i, x := range p.x {
			q := step(mul(add(x, -f.Offset[c]), div(1, f.Scale[c])), p.least, p.most)
			e := add(x, -add(mul(q, f.Scale[c]), f.Offset[c]))
			sum[i%2] = add(sum[i%2], mul(mul(p.w[i], e), e))
		}
		f.Error[c] = add(sum[0], sum[1])
	}
	return s, f
}

func (p *gridded) check(wantRanges *Ranges, wantGrids *Grids) error {
	s, f := p.ranges, p.grids
	FitRanges(&s, p.unit, p.base, p.inverse, p.most, p.x, p.w)
	GridErrors(&f, p.least, p.most, p.x, p.w)
	for c := range SearchLanes {
		if !sameNumber(s.Product[c], wantRanges.Product[c]) || !sameNumber(s.Sum[c], wantRanges.Sum[c]) || s.Score[c] != wantRanges.Score[c] {
			return fmt.Errorf("%d values, candidate %d: product %g, sum %g, score %g, want %g, %g and %g", len(p.x), c,
				s.Product[c], s.Sum[c], s.Score[c], wantRanges.Product[c], wantRanges.Sum[c], wantRanges.Score[c])
		}
	}
	for c := range FinalLanes {
		if !sameNumber(f.Error[c], wantGrids.Error[c]) {
			return fmt.Errorf("%d values, grid %d: error %g, want %g", len(p.x), c, f.Error[c], wantGrids.Error[c])
		}
	}
	if s.Inv != p.ranges.Inv || s.Cut != p.ranges.Cut || f.Scale != p.grids.Scale || f.Offset != p.grids.Offset {
		return fmt.Errorf("%d values: arguments changed", len(p.x))
	}
	return nil
}

func TestRanges(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		rng := rand.New(rand.NewPCG(13, 14))
		for _, k := range []int{1, 2, 3, 15, 16, 17, 32, 33} {
			for range 40 {
				p := randomGridded(rng, k)
				ranges, grids := p.oracle()
				if err := p.check(&ranges, &grids); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func FuzzRanges(f *testing.F) {
	f.Add(uint64(1), uint8(32))
	f.Fuzz(func(t *testing.T, seed uint64, k uint8) {
		p := randomGridded(rand.New(rand.NewPCG(seed, 1)), 1+int(k))
		ranges, grids := p.oracle()
		for _, i := range asmtest.Implementations(accelerated) {
			asmtest.Restrict(t, i.Feature)
			if err := p.check(&ranges, &grids); err != nil {
				t.Errorf("%s: %v", i.Feature, err)
			}
		}
	})
}

// TestFitRangesBest: of a group that is a grid's points, the candidate of the grid takes everything
// away.
func TestFitRangesBest(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		var s Ranges
		for c := range SearchLanes {
			s.Inv[c] = float32(c) / 4
		}
		x, w := make([]float32, 16), make([]float32, 16)
		square := float32(0)
		for i := range x {
			x[i], w[i] = (float32(i)-7.5)*0.5, 1
			square += x[i] * x[i]
		}
		FitRanges(&s, 1, 3.75, 1./16, 15, x, w)
		if c := 8; s.Score[c] != square || s.Score[c]/s.Product[c] != 0.5 || s.Sum[c] != 120 {
			t.Errorf("the scale 1/%g has the score %g, the sum %g and becomes %g, want %g, 120 and 0.5", s.Inv[c], s.Score[c], s.Sum[c], s.Score[c]/s.Product[c], square)
		}
	})
}

func TestGroupRange(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		shapes(func(k, group int) {
			x := make([]float32, k)
			for range 6 {
				fill(rng, x)
				n := Groups(k, group)
				lo, hi := make([]float32, n+1), make([]float32, n+1)
				if !GroupRange(lo[:n], hi[:n], x, group) {
					t.Fatalf("k %d group %d: finite values reported as not finite", k, group)
				}
				for g := range n {
					run := x[g*group : min(k, (g+1)*group)]
					low, high := slices.Min(run), slices.Max(run)
					if low >= 0 {
						low = 0
					}
					if high <= 0 {
						high = 0
					}
					if !same(lo[g], low) || !same(hi[g], high) {
						t.Fatalf("k %d group %d: range %d is [%g, %g], want [%g, %g]", k, group, g, lo[g], hi[g], low, high)
					}
				}
				if lo[n] != 0 || hi[n] != 0 {
					t.Fatalf("k %d group %d: written past the ranges", k, group)
				}
			}
		})
	})
}

func TestLeastMagnitudes(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		r := rand.New(rand.NewPCG(3, 4))
		for _, group := range []int{16, 32, 48, 300, 7} {
			for _, k := range []int{1, 15, 16, 31, 32, 100, 256, 299} {
				if group%Lanes != 0 && k > group {
					continue
				}
				x := make([]float32, k)
				for i := range x {
					if x[i] = float32(r.NormFloat64()); r.IntN(3) == 0 {
						x[i] = float32(math.Copysign(0, float64(x[i])))
					}
				}
				n := Groups(k, group)
				least := make([]uint32, LeastLanes*n)
				LeastMagnitudes(least, x, group)
				for i, v := range least {
					want := uint32(math.MaxUint32)
					for j := i / LeastLanes * group; j < min(k, (i/LeastLanes+1)*group); j++ {
						if size := math.Float32bits(x[j]) &^ (1 << 31); size != 0 && (j-i/LeastLanes*group)%LeastLanes == i%LeastLanes {
							want = min(want, 2*size-1)
						}
					}
					if v != want {
						t.Fatalf("%d values in groups of %d: least magnitude %d is %08x, want %08x", k, group, i, v, want)
					}
				}
			}
		}
	})
}

// TestGroupRangeNotFinite puts each kind of NaN and infinity at each position of rows of several
// shapes.
func TestGroupRangeNotFinite(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		for _, bits := range []uint32{0x7f800000, 0xff800000, 0x7f800001, 0xff800001, 0x7fc00000, 0xffffffff, 0x7fffffff} {
			for _, shape := range [][2]int{{172, 32}, {172, 172}, {96, 48}, {64, 64}, {7, 32}, {24, 12}} {
				k, group := shape[0], shape[1]
				x := make([]float32, k)
				for i := range x {
					x[i] = float32(i%9-4) * 0x1p125
				}
				n := Groups(k, group)
				lo, hi := make([]float32, n), make([]float32, n)
				if !GroupRange(lo, hi, x, group) {
					t.Fatal("finite values reported as not finite")
				}
				for i, was := range x {
					x[i] = math.Float32frombits(bits)
					if GroupRange(lo, hi, x, group) {
						t.Fatalf("k %d group %d: %08x at %d was not found", k, group, bits, i)
					}
					x[i] = was
				}
			}
		}
	})
}
