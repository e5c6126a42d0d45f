package tile

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/asmtest"
)

func TestEpilogues(t *testing.T) {
	eachSet(t, func(t *testing.T, s Set, bits int) {
		if bits != 4 && testing.Short() {
			t.Skip("the epilogues do not depend on the width")
		}
		rng := rand.New(rand.NewPCG(5, 5))
		nr := s.NR
		for i := range 40 {
			groups := 1 + rng.IntN(9)
			number := func(n int) []float32 {
				x := make([]float32, n)
				for j := range x {
					x[j] = float32(rng.NormFloat64())
					if i%2 == 1 {
						x[j] = nasty(rng)
					}
				}
				return asmtest.AtPageEnd(t, x)
			}
			dots := make([]int32, groups*nr)
			for j := range dots {
				dots[j] = int32(rng.Uint32()) >> (rng.IntN(4) * 5)
			}
			dots = asmtest.AtPageEnd(t, dots)
			scales, zeros, as, asum := number(groups*nr), number(groups*nr), number(groups), number(groups)
			sums, factor, negZero := make([]int32, groups*nr), int32(rng.IntN(17)), int32(rng.Uint32())>>(8*rng.IntN(4))
			for j := range sums {
				sums[j] = int32(rng.Uint32()) >> (rng.IntN(4) * 5)
			}
			sums = asmtest.AtPageEnd(t, sums)
			want := [5][]float32{}
			for r := range nr {
				var f [5]float32
				for g := range groups {
					t, scale, zero := dots[g*nr+r], scales[g*nr+r], zeros[g*nr+r]
					f[0] = floats.FMA32(float32(t), float32(as[g]*scale), f[0])
					f[1] = floats.FMA32(zero, asum[g], f[1])
					f[1] = floats.FMA32(float32(16*t), float32(scale*as[g]), f[1])
					f[4] = floats.FMA32(float32(t), float32(as[g]*scale), f[4])
					f[4] = floats.FMA32(zero, asum[g], f[4])
					f[2] += float32(float32(scale*as[0]) * float32(t))
				}
				f[3] = float32(float32(factor*dots[r]+sums[r]*negZero)*float32(scales[r]*as[0])) + zeros[r]
				for j := range want {
					want[j] = append(want[j], f[j])
				}
			}
			for j, run := range []func(out *float32){
				func(out *float32) { s.EpilogueFMA(out, &dots[0], groups, &scales[0], &as[0], 4) },
				func(out *float32) { s.EpilogueQAI4(out, &dots[0], groups, &scales[0], &zeros[0], &as[0], &asum[0], 4) },
				func(out *float32) { s.EpilogueTorchAO(out, &dots[0], groups, &scales[0], as[0]) },
				func(out *float32) {
					s.EpilogueRow(out, &dots[0], &sums[0], factor, negZero, &scales[0], &zeros[0], as[0])
				},
				func(out *float32) { s.EpilogueMin(out, &dots[0], groups, &scales[0], &zeros[0], &as[0], &asum[0], 4) },
			} {
				b := newBuffer(rng, 4*nr)
				before := slices.Clone(b.all)
				run((*float32)(b.pointer()))
				b.checkMargins(t, before)
				got := unsafe.Slice((*float32)(b.pointer()), nr)
				for r := range got {
					if canonical(got[r]) != canonical(want[j][r]) || j == 3 && math.Float32bits(got[r]) != canonical(got[r]) {
						t.Fatalf("epilogue %d, case %d, output %d: %v, want %v", j, i, r, got[r], want[j][r])
					}
				}
			}
			wantSums := slices.Clone(dots)
			for j := range wantSums {
				wantSums[j] += factor * sums[j]
			}
			if s.AddSums(&dots[0], &sums[0], groups, factor); !slices.Equal(dots, wantSums) {
				t.Fatalf("AddSums, case %d: %v, want %v", i, dots, wantSums)
			}
		}
	})
}

func TestEpilogueSubs(t *testing.T) {
	eachSet(t, func(t *testing.T, s Set, bits int) {
		if bits != 4 && testing.Short() {
			t.Skip("the epilogue does not depend on the width")
		}
		rng := rand.New(rand.NewPCG(6, 6))
		for i := range 40 {
			nr, blocks, each, step, sumStep := s.NR, 1+rng.IntN(4), 1+rng.IntN(9), 1+rng.IntN(3), 1+rng.IntN(3)
			number := func(n int) []float32 {
				x := make([]float32, n)
				for j := range x {
					x[j] = float32(rng.NormFloat64())
					if i%4 == 3 {
						x[j] = nasty(rng)
					}
				}
				return asmtest.AtPageEnd(t, x)
			}
			integer := func(n int) []int32 {
				x := make([]int32, n)
				for j := range x {
					x[j] = int32(rng.Uint32()) >> (rng.IntN(4) * 8)
				}
				return asmtest.AtPageEnd(t, x)
			}
			groups := blocks * each
			dots, factors, subMins, sums := integer(groups*nr), integer(groups*nr), integer(groups*nr), integer((groups-1)*sumStep+1)
			scales, mins, as := number(blocks*nr), number(blocks*nr), number((blocks-1)*step+1)
			a := SubsArgs{Each: each, Factors: &factors[0]}
			a.Groups, a.Scales = groups, &scales[0]
			if i%2 == 1 {
				a.SubMins, a.Mins = &subMins[0], &mins[0]
			}
			want := make([]float32, nr)
			for r := range want {
				for b := range blocks {
					total, minima := int32(0), int32(0)
					for g := b * each; g < (b+1)*each; g++ {
						total += factors[g*nr+r] * dots[g*nr+r]
						minima += subMins[g*nr+r] * sums[g*sumStep]
					}
					want[r] = floats.FMA32(float32(total), float32(as[b*step]*scales[b*nr+r]), want[r])
					if a.SubMins != nil {
						want[r] = floats.FMA32(float32(minima), -float32(as[b*step]*mins[b*nr+r]), want[r])
					}
				}
			}
			b := newBuffer(rng, 4*nr)
			before := slices.Clone(b.all)
			s.EpilogueSubs((*float32)(b.pointer()), &dots[0], &a, blocks, &as[0], &sums[0], 4*step, 4*sumStep)
			b.checkMargins(t, before)
			for r, got := range unsafe.Slice((*float32)(b.pointer()), nr) {
				if canonical(got) != canonical(want[r]) {
					t.Fatalf("case %d, output %d: %v, want %v", i, r, got, want[r])
				}
			}
		}
	})
}
