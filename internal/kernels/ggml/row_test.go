package ggml

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// TestRows compares kernels with the arithmetic that Format states, on random bytes and on extreme
// activations. All memory ends where the next page cannot be read.
func TestRows(t *testing.T) {
	for _, k := range Kernels {
		if cpu.Check(k.Feature) != nil {
			continue
		}
		t.Run(k.Name, func(t *testing.T) {
			f := For(k.Type)
			r := rand.New(rand.NewPCG(uint64(f.Type), 3))
			for blocks := 1; blocks <= 9; blocks += 1 + blocks/4 {
				for i := range 8 {
					testRows(t, k, f, r, blocks, k.Rows*(1+i%3), i)
				}
			}
		})
	}
}

func testRows(t *testing.T, k *Kernel, f *Format, r *rand.Rand, blocks, rows, kind int) {
	cols, size := blocks*f.Block, blocks*f.Bytes
	data := make([]byte, rows*size)
	for i := range data {
		data[i] = byte(r.Uint32())
		if kind == 1 {
			data[i] = 0xff
		}
	}
	acts := make([]int8, cols)
	for i := range acts {
		acts[i] = int8(r.IntN(255) - 127)
		switch kind {
		case 1, 2:
			acts[i] = 127
		case 3:
			acts[i] = -127
		}
	}
	number := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return asmtest.AtPageEnd(t, x)
	}
	scales, actSums := number(cols/f.Activations.Block()), number(cols/f.Activations.Block())
	sums := make([]int32, cols/f.Group)
	for i, a := range acts {
		sums[i/f.Group] += int32(a)
	}
	data, acts, sums = asmtest.AtPageEnd(t, data), asmtest.AtPageEnd(t, acts), asmtest.AtPageEnd(t, sums)
	want := make([]float32, rows)
	for i := range want {
		want[i] = rowOf(f, data[i*size:][:size], acts, scales, actSums, sums)
	}
	got := asmtest.AtPageEnd(t, make([]float32, rows))
	k.Run(&RowArgs{
		Dst: &got[0], Data: &data[0], RowBytes: size, Rows: rows, Blocks: blocks,
		Acts: &acts[0], Scales: &scales[0], Sums: &sums[0], ActSums: &actSums[0],
	})
	same := func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }
	if !slices.EqualFunc(got, want, same) {
		t.Fatalf("kind %d, %d rows of %d blocks: %v, want %v", kind, rows, blocks, got, want)
	}
}

// rowOf is the arithmetic of Format.
func rowOf(f *Format, data []byte, acts []int8, scales, actSums []float32, sums []int32) (y float32) {
	var b gguf.Block
	group := 0
	for col := 0; col < len(acts); col += f.Block {
		f.Type.ReadBlock(&b, data[col/f.Block*f.Bytes:][:f.Bytes])
		all, minima, as := int32(0), int32(0), float32(0)
		for g := range f.Groups() {
			first := col + g*f.Group
			as = scales[first/f.Activations.Block()]
			sum := int32(0)
			for i, a := range acts[first:][:f.Group] {
				sum += int32(a) * int32(b.Codes[g*f.Group+i])
			}
			switch {
			case f.Subs:
				all += int32(b.Subs[g]) * sum
				minima += int32(b.SubMins[g]) * sums[group]
			case f.Group < f.Activations.Block():
				y = floats.FMA32(float32(sum), float32(as*b.Scales[g]), y)
			default:
				y = floats.FMA32(float32(sum), float32(as*b.Scales[0]), y)
				if f.Minima {
					y = floats.FMA32(b.Min, actSums[first/f.Activations.Block()], y)
				}
			}
			group++
		}
		if f.Subs {
			y = floats.FMA32(float32(all), float32(as*b.Scales[0]), y)
			if f.Minima {
				y = floats.FMA32(float32(minima), -float32(as*b.Min), y)
			}
		}
	}
	if y != y {
		return floats.NaN
	}
	return y
}
