package kernels

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/kernels/ggml"
	"github.com/lowbit-go/gq/internal/kernels/reference"
	"github.com/lowbit-go/gq/internal/kernels/tile"
)

// blockData makes random blocks: any bytes, or without damaged bytes with scales below 1e6.
func blockData(r *rand.Rand, f *ggml.Format, blocks int, damaged bool) []byte {
	data := make([]byte, blocks*f.Bytes)
	var b gguf.Block
	for i := range blocks {
		block := data[i*f.Bytes:][:f.Bytes]
		for good := false; !good; {
			for j := range block {
				block[j] = byte(r.Uint32())
			}
			f.Type.ReadBlock(&b, block)
			good = true
			for _, s := range append(b.Scales[:], b.Min) {
				good = good && (damaged || float64(floats.Abs(s)) < 1e6)
			}
		}
	}
	return data
}

// blockRows makes rows of activations of several kinds.
func blockRows(r *rand.Rand, m, cols int) []float32 {
	x := make([]float32, m*cols)
	for i := range x {
		x[i] = float32(r.NormFloat64() * math.Exp(2*r.NormFloat64()))
		switch row := i / cols; {
		case row%7 == 2 && r.IntN(3) > 0:
			x[i] = 0
		case row%7 == 3:
			x[i] *= 1e-20
		case row%7 == 4 && i%cols < 256:
			x[i] = 0
		case row%7 == 5 && i%cols == cols-1:
			x[i] = float32(math.Inf(1))
		case row%7 == 6:
			x[i] = 3
		}
	}
	return x
}

// blockVariants are the ways in which an operator of blocks can compute a product.
func blockVariants(t testing.TB, f *ggml.Format, rows, cols int, data []byte, feature string) map[string]*Linear {
	t.Helper()
	make1 := func() *Linear {
		l, err := NewLinear(f.Type.Header(uint64(rows), uint64(cols)), data, Options{CPU: feature})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	all := map[string]*Linear{"chosen": make1()}
	if l := make1(); l.gemv != nil {
		l.gemv.cost = 0
		all[l.gemv.name] = l
	}
	for i := range make1().set.Steps {
		l := make1()
		l.gemv = nil
		l.set.Steps = []tile.Step{l.set.Steps[i]}
		l.tiling = newTiling(l.panelLayout, l.set)
		l.use()
		all[fmt.Sprintf("%s by %d", l.gemm.name, l.set.Steps[0].MR)] = l
	}
	return all
}

// TestBlocks holds every kernel of this machine to the reference, bit for bit, for each type of
// ggml, with shapes that fill no panel and no tile, on one and on several goroutines.
func TestBlocks(t *testing.T) {
	pool := NewPool(3)
	defer pool.Close()
	workspaces := []*Workspace{NewWorkspace(nil), NewWorkspace(pool)}
	ran := map[string]bool{}
	for _, f := range ggml.Formats {
		r := rand.New(rand.NewPCG(uint64(f.Type), 31))
		for i, rows := range []int{1, 7, 16, 45} {
			for _, damaged := range []bool{false, true} {
				cols := f.Block * (1 + (i+1)%3)
				if f.Activations.Block() > f.Block || cols%32 != 0 {
					t.Fatalf("%s: blocks of %d weights", f.Type, f.Block)
				}
				m := []int{1, 6, 23, 9}[i]
				data, x := blockData(r, f, rows*cols/f.Block, damaged), blockRows(r, m, cols)
				want := make([]float32, m*rows)
				reference.MultiplyBlocks(want, x, m, f, data, rows, cols)
				for _, feature := range Features() {
					for name, l := range blockVariants(t, f, rows, cols, data, feature) {
						ran[l.Kernel(m)] = true
						for _, w := range workspaces {
							what := fmt.Sprintf("%s: %s, %d x %d, m %d, damaged %v", f.Type, name, rows, cols, m, damaged)
							check(t, what, forward(t, what, w, l, x, m), want, rows)
						}
					}
				}
			}
		}
	}
	for _, k := range ggml.Kernels {
		if hasFeature(k.Feature) && !ran[k.Name] {
			t.Errorf("kernel %s never ran", k.Name)
		}
	}
}

// hasFeature reports whether this CPU has an instruction set.
func hasFeature(feature string) bool {
	for _, name := range Features() {
		if name == feature {
			return true
		}
	}
	return false
}

// TestBlocksExact compares the reference with sums in float64 of dequantized weights and the same
// quantized activations: they differ by the rounding of the terms and of their sum.
func TestBlocksExact(t *testing.T) {
	for _, f := range ggml.Formats {
		r := rand.New(rand.NewPCG(uint64(f.Type), 7))
		const rows, m = 9, 2
		cols := 3 * f.Block
		data := blockData(r, f, rows*cols/f.Block, false)
		x := make([]float32, m*cols)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		got := make([]float32, m*rows)
		reference.MultiplyBlocks(got, x, m, f, data, rows, cols)
		n := cols / f.Activations.Block()
		q, scales, sums, w := make([]int8, cols), make([]float32, n), make([]float32, n), make([]float32, cols)
		for i := range m {
			if !reference.QuantizeBlocks(f.Activations, q, scales, sums, x[i*cols:][:cols]) {
				t.Fatalf("%s: row %d was not quantized", f.Type, i)
			}
			for row := range rows {
				size := cols / f.Block * f.Bytes
				if err := f.Type.Decode(w, data[row*size:][:size]); err != nil {
					t.Fatal(err)
				}
				sum, all := 0.0, 0.0
				for k, v := range w {
					a := float64(q[k]) * float64(scales[k/f.Activations.Block()])
					sum += float64(v) * a
					all += math.Abs(float64(v) * a)
				}
				// Terms of minima are as large as the scales' even where the two cancel.
				bound := all * 1e-5
				if f.Minima {
					bound = minimaBound(f, data[row*size:][:size], q, scales) * 1e-5
				}
				if f.Activations == ggml.Q8_1 {
					bound *= 100 // sums of activations are rounded to F16
				}
				if got := float64(got[i*rows+row]); !(math.Abs(got-sum) <= bound) {
					t.Errorf("%s: row %d: %v, want %v, difference %v beyond %v", f.Type, row, got, sum, got-sum, bound)
				}
			}
		}
	}
}

// minimaBound adds the magnitudes of all products of codes and of minima with activations.
func minimaBound(f *ggml.Format, data []byte, q []int8, scales []float32) (all float64) {
	var b gguf.Block
	for k := range q {
		if k%f.Block == 0 {
			f.Type.ReadBlock(&b, data[k/f.Block*f.Bytes:][:f.Bytes])
		}
		sub, subMin := 1.0, 1.0
		if f.Subs {
			sub, subMin = float64(b.Subs[k%f.Block/f.Group]), float64(b.SubMins[k%f.Block/f.Group])
		}
		i := k % f.Block
		all += math.Abs(float64(q[k])*float64(scales[k/f.Activations.Block()])) *
			(math.Abs(float64(b.Scales[0])*sub*float64(b.Codes[i])) + math.Abs(float64(b.Min)*subMin))
	}
	return all
}

// FuzzBlocks compares all kernels of this machine with the reference, for blocks of any bytes.
func FuzzBlocks(f *testing.F) {
	for i, t := range ggml.Formats {
		f.Add(uint8(i), uint8(3+i), uint8(1), uint8(i), uint64(i), make([]byte, t.Bytes))
		f.Add(uint8(i), uint8(1), uint8(2), uint8(0), uint64(i), bytes.Repeat([]byte{0xff}, t.Bytes))
	}
	f.Fuzz(func(t *testing.T, kind, rows, blocks, m uint8, seed uint64, raw []byte) {
		list := ggml.Formats
		format := list[int(kind)%len(list)]
		n, cols, rowsOfX := 1+int(rows%40), format.Block*(1+int(blocks%3)), 1+int(m%20)
		r := rand.New(rand.NewPCG(seed, 2))
		data := blockData(r, format, n*cols/format.Block, seed%2 == 0)
		copy(data, raw)
		x, want, w := blockRows(r, rowsOfX, cols), make([]float32, n*rowsOfX), NewWorkspace(nil)
		reference.MultiplyBlocks(want, x, rowsOfX, format, data, n, cols)
		for _, feature := range Features() {
			for name, l := range blockVariants(t, format, n, cols, data, feature) {
				check(t, fmt.Sprintf("%s, %d x %d, m %d, %s", format.Type, n, cols, rowsOfX, name), forward(t, name, w, l, x, rowsOfX), want, n)
			}
		}
	})
}
