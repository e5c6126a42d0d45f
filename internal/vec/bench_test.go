package vec

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// The rows of a common layer: 2048 values in groups of 32, all in the first-level cache.
const (
	benchRow   = 2048
	benchGroup = 32
)

func BenchmarkVec(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	n := Groups(benchRow, benchGroup)
	x, src := make([]float32, benchRow), make([]byte, 2*benchRow)
	for i := range x {
		v := math.Float32bits(float32(rng.NormFloat64()*0.02)) &^ 0xffff
		x[i] = math.Float32frombits(v)
		binary.LittleEndian.PutUint16(src[2*i:], uint16(v>>16))
	}
	dst, q := make([]float32, benchRow), make([]int8, benchRow)
	lo, hi, scale, inv, zero := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n), make([]int8, n)
	GroupRange(lo, hi, x, benchGroup)
	for g := range scale {
		scale[g] = max(hi[g], -lo[g]) / 8
		inv[g] = 1 / scale[g]
	}
	var acc ErrorSum
	least := make([]uint32, LeastLanes*n)
	w := make([]float32, benchRow)
	var search Search
	var final Final
	var ranges Ranges
	var grids Grids
	var starts [FitStarts]float32
	for i := range starts {
		starts[i] = float32(i%8+14) / 2 * float32(1-i/8*2)
	}
	fit := NewFit(benchGroup, &starts, -8, 7)
	for g := range FitLanes {
		fit.Unit[g], fit.Weight[g] = 0x1p15/20, 0x1p14
		for i := range FitChoices {
			fit.Stored[i][g] = float32(i+60) / 500
		}
	}
	for c := range SearchLanes {
		search.Inv[c], search.Lo[c], search.Hi[c] = float32(c+60)/10, -8, 7
		ranges.Inv[c], grids.Scale[c%FinalLanes] = float32(c+60)/70, 0.01
		final.Scale[c%FinalLanes], final.Lo[c%FinalLanes], final.Hi[c%FinalLanes] = 0.01, -8, 7
	}
	const choices = 3
	logits, first, second := make([]float32, benchRow*choices), make([]float32, benchRow*choices), make([]float32, benchRow*choices)
	for i := range logits {
		logits[i] = -float32(i%7) / 2
	}
	for _, f := range []struct {
		name string
		run  func()
	}{
		{"WidenBF16", func() { WidenBF16(dst, src) }},
		{"WidenF16", func() { WidenF16(dst, src) }},
		{"GroupRange", func() { GroupRange(lo, hi, x, benchGroup) }},
		{"LeastMagnitudes", func() { LeastMagnitudes(least, x, benchGroup) }},
		{"QuantizeGroups", func() { QuantizeGroups(q, x, scale, inv, nil, benchGroup, -8, 7, &acc) }},
		{"SumSquares", func() { SumSquares(x) }},
		{"Importance", func() { Importance(w, x, 2500) }},
		{"SearchScales", func() {
			for i := 0; i < benchRow; i += benchGroup {
				SearchScales(&search, 20, x[i:i+benchGroup], w[i:i+benchGroup])
			}
		}},
		{"ScaleErrors", func() {
			for i := 0; i < benchRow; i += benchGroup {
				ScaleErrors(&final, x[i:i+benchGroup], w[i:i+benchGroup])
			}
		}},
		{"Fit", func() {
			for i := 0; i < benchRow; i += FitLanes * benchGroup {
				fit.Load(x[i:i+FitLanes*benchGroup], w[i:i+FitLanes*benchGroup])
				fit.Search()
				fit.Choose()
			}
		}},
		{"FitRanges", func() {
			for i := 0; i < benchRow; i += benchGroup {
				FitRanges(&ranges, 20, 2, 0.03, 15, x[i:i+benchGroup], w[i:i+benchGroup])
			}
		}},
		{"GridErrors", func() {
			for i := 0; i < benchRow; i += benchGroup {
				GridErrors(&grids, 0, 15, x[i:i+benchGroup], w[i:i+benchGroup])
			}
		}},
		{"StepSoft", func() {
			for i, v := range x { // there and back again
				x[i], w[i] = -v, v
			}
			StepSoft(&SoftStep{4, 4, 0x1p52, 1e-3, 1}, choices, dst, w, q, logits, first, second)
		}},
		{"QuantizeGroupsZero", func() { QuantizeGroups(q, x, scale, inv, zero, benchGroup, -8, 7, &acc) }},
	} {
		for _, i := range asmtest.Implementations(accelerated) {
			b.Run(f.name+"/"+i.Feature, func(b *testing.B) {
				asmtest.Restrict(b, i.Feature)
				for b.Loop() {
					f.run()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchRow, "ns/value")
			})
		}
	}
}
