package reference

import (
	"fmt"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/kernels/act"
	"github.com/lowbit-go/gq/internal/kernels/ggml"
)

// MultiplyBlocks computes m rows of outputs, dst [m][rows], from m rows of activations, x
// [m][cols], and from a matrix of ggml's blocks, in the order that ggml.Format states.
func MultiplyBlocks(dst, x []float32, m int, f *ggml.Format, data []byte, rows, cols int) {
	blocks := cols / f.Block
	if cols%f.Block != 0 || len(data) != rows*blocks*f.Bytes || len(dst) != m*rows || len(x) != m*cols {
		panic(fmt.Sprintf("reference: %d bytes of %s, %d outputs and %d activations for %d rows and %d x %d weights", len(data), f.Type, len(dst), len(x), m, rows, cols))
	}
	q, scales := make([]int8, cols), make([]float32, cols/f.Activations.Block())
	sums := make([]float32, len(scales))
	for i := range m {
		ok := QuantizeBlocks(f.Activations, q, scales, sums, x[i*cols:][:cols])
		for r := range rows {
			out := floats.NaN
			if ok {
				out = blockRow(f, data[r*blocks*f.Bytes:][:blocks*f.Bytes], q, scales, sums)
			}
			if out != out {
				out = floats.NaN
			}
			dst[i*rows+r] = out
		}
	}
}

// QuantizeBlocks quantizes a row of activations; sums are used by Q8_1 only.
func QuantizeBlocks(a ggml.Activations, q []int8, scales, sums, x []float32) (ok bool) {
	switch a {
	case ggml.Q8_0:
		return act.BlocksF16(q, scales, x, a.Block())
	case ggml.Q8_1:
		return act.BlocksSums(q, scales, sums, x, a.Block())
	}
	return act.BlocksF32(q, scales, sums, x, a.Block())
}

// blockRow computes an output: a row of blocks times a row of activations.
func blockRow(t *ggml.Format, data []byte, q []int8, scales, sums []float32) float32 {
	var b gguf.Block
	f, col := float32(0), 0
	for ; len(data) > 0; data = data[t.Bytes:] {
		t.Type.ReadBlock(&b, data[:t.Bytes])
		total, minima, scale := int32(0), int32(0), float32(0)
		for g := range t.Groups() {
			acts := q[col:][:t.Group]
			sum := dot(acts, b.Codes[g*t.Group:])
			scale = scales[col/t.Activations.Block()]
			if t.Subs {
				total += int32(b.Subs[g]) * sum
				minima += int32(b.SubMins[g]) * sumOf(acts)
			} else {
				own := b.Scales[0]
				if t.Type.GroupWeights() < t.Activations.Block() {
					own = b.Scales[g]
				}
				f = floats.FMA32(float32(sum), float32(scale*own), f)
				if t.Minima {
					f = floats.FMA32(b.Min, sums[col/t.Activations.Block()], f)
				}
			}
			col += t.Group
		}
		if t.Subs {
			f = floats.FMA32(float32(total), float32(scale*b.Scales[0]), f)
			if t.Minima {
				f = floats.FMA32(float32(minima), -float32(scale*b.Min), f)
			}
		}
	}
	return f
}
