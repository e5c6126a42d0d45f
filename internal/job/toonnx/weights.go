package toonnx

import (
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/onnx"
)

// find returns the item with a tensor of this shape.
func (g *graph) find(name string, shape ...int) plan.Item {
	it := g.items[name]
	if it == nil {
		g.fail("%w", arch.Missing(name))
		return nil
	}
	if got := it.Common().Src.Shape; !slices.EqualFunc(got, shape, func(d int64, want int) bool { return d == int64(want) }) {
		g.fail("tensor %q has shape %v: config.json describes %v", name, got, shape)
		return nil
	}
	return it
}

// values returns an unquantized tensor in float32.
func (g *graph) values(name string, shape ...int) string {
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
	return g.external(e.Name(), onnx.Float, e.Src.Shape, content{part: values, item: it})
}

// quantized returns the inputs and the attributes that a node has for quantized weights. The codes
// have the name of the weight, with whole rows or in blocks.
func (g *graph) quantized(it *plan.Quantized, name string, whole bool) (inputs []string, attributes []onnx.Attribute) {
	for i, p := range it.Layout.Parts {
		suffix, t, dims := [...]string{".codes", ".scales", ".zero_points"}[i], onnx.Uint8, p.Shape
		if part(i) == scales {
			t = onnx.Float
		}
		if blocks := it.Stored.Groups(it.Cols); part(i) == codes && !whole {
			dims = []int64{it.Rows, blocks, dims[1] / blocks}
		}
		inputs = append(inputs, g.external(name+suffix, t, dims, content{part: part(i), item: it}))
		name = it.Name() // of the parts that all its names share
	}
	return inputs, []onnx.Attribute{onnx.Integer("bits", int64(it.Stored.Bits)), onnx.Integer("block_size", it.Stored.Group)}
}

// embedding looks the tokens up.
func (g *graph) embedding() string {
	name := g.names.Embedding
	switch it := g.find(name, g.c.VocabSize, g.c.HiddenSize).(type) {
	case *plan.Quantized:
		inputs, attributes := g.quantized(it, name, true)
		return g.node(name, "GatherBlockQuantized", slices.Insert(inputs, 1, inputIDs),
			append(attributes, onnx.Integer("gather_axis", 0), onnx.Integer("quantize_axis", 1))...)
	case *plan.Unquantized:
		return g.node(name, "Gather", []string{g.values(name, g.c.VocabSize, g.c.HiddenSize), inputIDs})
	}
	return ""
}

// linear adds the layer's linear layer of a kind.
func (g *graph) linear(kind arch.Kind, rows, cols int, x string) string {
	return g.product(g.at+g.c.NameOf(kind)+".weight", rows, cols, g.c.BiasOf(kind), x)
}

// merged adds the parts of a fused layer. A checkpoint may have them as one layer.
func (g *graph) merged(fused arch.Kind, l *arch.LayerConfig, x string) (list []string) {
	kinds, rows := g.c.Parts(fused, l)
	if !g.c.Facts.Has(fused) {
		for i, kind := range kinds {
			list = append(list, g.linear(kind, rows[i], g.c.HiddenSize, x))
		}
		return list
	}
	total := 0
	for _, n := range rows {
		total += n
	}
	return g.split(g.linear(fused, total, g.c.HiddenSize, x), rows...)
}

// product multiplies x with a weight, and adds the bias.
func (g *graph) product(weight string, rows, cols int, bias bool, x string) string {
	name := strings.TrimSuffix(weight, ".weight")
	b := ""
	if bias {
		b = g.values(arch.BiasName(weight), rows)
	}
	switch it := g.find(weight, rows, cols).(type) {
	case *plan.Quantized:
		inputs, attributes := g.quantized(it, weight, false)
		inputs = append([]string{x}, inputs...)
		if bias { // behind the zero points and g_idx
			inputs = append(slices.Grow(inputs, 5)[:5], b)
		}
		attributes = append([]onnx.Attribute{onnx.Integer("K", it.Cols), onnx.Integer("N", it.Rows)}, attributes...)
		attributes = append(attributes, onnx.Integer("accuracy_level", 4)) // int8 activations
		return g.node(name, "MatMulNBits", inputs, attributes...)
	case *plan.Unquantized:
		y := g.node(name, "FusedMatMul", []string{x, g.values(weight, rows, cols)}, onnx.Integer("transB", 1))
		if bias {
			y = g.node(name, "Add", []string{y, b})
		}
		return y
	}
	return ""
}
