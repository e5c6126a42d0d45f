package toonnx

import (
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/onnx"
)

// int8Activations is the accuracy_level of MatMulNBits with which kernels quantize activations.
const int8Activations = 4

// find returns the item with a tensor of this shape.
func (g *graph) find(name string, shape ...int) plan.Item {
	it := g.items[name]
	if it == nil {
		g.fail("%w", arch.Missing(name))
		return nil
	}
	want := make([]int64, len(shape))
	for i, d := range shape {
		want[i] = int64(d)
	}
	if e := it.Common(); !slices.Equal(e.Src.Shape, want) {
		g.fail("tensor %q has shape %v: config.json describes %v", name, e.Src.Shape, want)
		return nil
	}
	return it
}

// values returns an unquantized tensor in float32.
func (g *graph) values(name string, plusOne bool, shape ...int) string {
	it := g.find(name, shape...)
	if it == nil {
		return ""
	}
	if _, ok := it.(*plan.Unquantized); !ok {
		g.fail("tensor %q is quantized, but the graph needs its values: leave it unquantized with --rule '%s=skip'", name, name)
	}
	e := it.Common()
	if !e.Src.Dtype.IsFloat() {
		g.fail("tensor %q has dtype %s: floating-point numbers were expected: take a checkpoint that is not quantized", name, e.Src.DtypeName)
	}
	return g.external(e.Name(), onnx.Float, e.Src.Shape, content{part: values, item: it, plusOne: plusOne})
}

// quantized returns the tensors of quantized weights; zeros is "" without zero points. The codes
// have the name name, and rows of the dimensions dims.
func (g *graph) quantized(it *plan.Quantized, name string, dims ...int64) (codesName, scalesName, zerosName string) {
	groups := it.Stored.Groups(it.Cols)
	codesName = g.external(name+".codes", onnx.Uint8, append([]int64{it.Rows}, dims...), content{part: codes, item: it})
	scalesName = g.external(it.Name()+".scales", onnx.Float, []int64{it.Rows, groups}, content{part: scales, item: it})
	if it.Stored.Zeros != hfquant.NoZeros {
		zerosName = g.external(it.Name()+".zero_points", onnx.Uint8, []int64{it.Rows, zeroBytes(it)}, content{part: zeros, item: it})
	}
	return codesName, scalesName, zerosName
}

// zeroBytes is the size of the zero points of a row.
func zeroBytes(it *plan.Quantized) int64 {
	return (it.Stored.Groups(it.Cols)*int64(it.Stored.Bits) + 7) / 8
}

// blockBytes is the size of the codes of a block.
func blockBytes(s hfquant.Scheme) int64 { return s.Group * int64(s.Bits) / 8 }

// embedding looks the tokens up.
func (g *graph) embedding() string {
	name := g.names.Embedding
	switch it := g.find(name, g.c.VocabSize, g.c.HiddenSize).(type) {
	case *plan.Quantized:
		table, scales, zeros := g.quantized(it, name, it.Stored.Groups(it.Cols)*blockBytes(it.Stored))
		inputs := []string{table, inputIDs, scales}
		if zeros != "" {
			inputs = append(inputs, zeros)
		}
		return g.node(name, "GatherBlockQuantized", inputs, onnx.Integer("bits", int64(it.Stored.Bits)), onnx.Integer("block_size", it.Stored.Group),
			onnx.Integer("gather_axis", 0), onnx.Integer("quantize_axis", 1))
	case *plan.Unquantized:
		return g.node(name, "Gather", []string{g.values(name, false, g.c.VocabSize, g.c.HiddenSize), inputIDs})
	}
	return ""
}

// linear adds the layer's linear layer of a kind.
func (g *graph) linear(kind arch.Kind, rows, cols int, x string) string {
	return g.product(g.at+g.c.NameOf(kind)+".weight", rows, cols, g.c.BiasOf(kind), x)
}

// product multiplies x with a weight, and adds the bias.
func (g *graph) product(weight string, rows, cols int, bias bool, x string) string {
	name := strings.TrimSuffix(weight, ".weight")
	b := ""
	if bias {
		b = g.values(arch.BiasName(weight), false, rows)
	}
	switch it := g.find(weight, rows, cols).(type) {
	case *plan.Quantized:
		table, scales, zeros := g.quantized(it, weight, it.Stored.Groups(it.Cols), blockBytes(it.Stored))
		inputs := []string{x, table, scales}
		if zeros != "" || bias {
			inputs = append(inputs, zeros)
		}
		if bias {
			inputs = append(inputs, "", b)
		}
		return g.node(name, "MatMulNBits", inputs, onnx.Integer("K", it.Cols), onnx.Integer("N", it.Rows), onnx.Integer("bits", int64(it.Stored.Bits)),
			onnx.Integer("block_size", it.Stored.Group), onnx.Integer("accuracy_level", int8Activations))
	case *plan.Unquantized:
		y := g.node(name, "FusedMatMul", []string{x, g.values(weight, false, rows, cols)}, onnx.Integer("transB", 1))
		if bias {
			y = g.node(name, "Add", []string{y, b})
		}
		return y
	}
	return ""
}
