package toonnx

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/onnx"
	"github.com/lowbit-go/gq/packing"
)

// Inputs and outputs have the names that ONNX Runtime GenAI and transformers.js expect. In the
// names of keys and values, %d is the number of the layer.
const (
	inputIDs      = "input_ids"
	attentionMask = "attention_mask"
	logitsName    = "logits"
	pastKey       = "past_key_values.%d.key"
	pastValue     = "past_key_values.%d.value"
	presentKey    = "present.%d.key"
	presentValue  = "present.%d.value"

	// sizes that vary: transformers.js looks for batch_size
	batchSize      = "batch_size"
	sequenceLength = "sequence_length"
	pastLength     = "past_sequence_length"
	totalLength    = "total_sequence_length"
)

// part is what a tensor outside of the model's file holds.
type part uint8

const (
	codes part = iota
	scales
	zeros
	packed // the codes as kernels read them
	values // of an unquantized tensor, in float32
	cosines
	sines
)

// content is the content of tensors of the graph.
type content struct {
	part
	item    plan.Item // nil: of a rope
	rope    int
	tensors []int          // indices among the graph's initializers
	packer  packing.Packer // of packed weights

	file      int // with weights
	off, size int64
}

// graph makes the graph of a model. Behind the first error it adds nothing of use.
type graph struct {
	*onnx.Graph
	c        *arch.ForwardConfig
	names    arch.Prefix
	items    map[string]plan.Item // by all names
	contents []content
	made     map[string]bool // names of initializers and of outputs of shared nodes
	at       string          // prefix of the layer's tensors
	stream   stream
	err      error
}

// stream is the hidden states: a tensor, and a tensor that has to be added to it.
type stream struct{ x, add string }

func (g *graph) fail(format string, args ...any) {
	if g.err == nil {
		g.err = fmt.Errorf(format, args...)
	}
}

// microsoft are the operators of the domain of ONNX Runtime.
var microsoft = map[string]bool{
	"MatMulNBits": true, "GatherBlockQuantized": true, "GroupQueryAttention": true, "SkipSimplifiedLayerNormalization": true,
	"FusedMatMul": true, "RotaryEmbedding": true,
}

// node adds a node with one output, and returns the output's name.
func (g *graph) node(name, op string, inputs []string, attributes ...onnx.Attribute) string {
	out := name + "/" + op
	g.nodeTo([]string{out}, name, op, inputs, attributes...)
	return out
}

func (g *graph) nodeTo(outputs []string, name, op string, inputs []string, attributes ...onnx.Attribute) {
	n := onnx.Node{Name: name + "/" + op, Op: op, Inputs: inputs, Outputs: outputs, Attributes: attributes}
	if microsoft[op] {
		n.Domain = onnx.Microsoft
	}
	g.Nodes = append(g.Nodes, n)
}

// initializer adds a tensor once, and returns its name.
func (g *graph) initializer(t onnx.Tensor) string {
	if !g.made[t.Name] {
		g.made[t.Name] = true
		g.Initializers = append(g.Initializers, t)
	}
	return t.Name
}

// integers returns a constant: a list, or a scalar if dims is empty.
func (g *graph) integers(name string, dims []int64, list ...int64) string {
	t := onnx.Tensor{Name: name, Type: onnx.Int64, Dims: dims}
	for _, v := range list {
		t.Raw = binary.LittleEndian.AppendUint64(t.Raw, uint64(v))
	}
	return g.initializer(t)
}

// scalar returns a constant.
func (g *graph) scalar(v float64) string {
	f := float32(v)
	return g.initializer(onnx.Tensor{Name: fmt.Sprint("constant.", f), Type: onnx.Float, Raw: binary.LittleEndian.AppendUint32(nil, math.Float32bits(f))})
}

// external returns a tensor whose bytes lie in another file. Tensors with the same content share
// the bytes.
func (g *graph) external(name string, t onnx.DataType, dims []int64, want content) string {
	if g.made[name] {
		return name
	}
	x := onnx.Tensor{Name: name, Type: t, Dims: dims}
	i := slices.IndexFunc(g.contents, func(c content) bool { return c.part == want.part && c.item == want.item && c.rope == want.rope })
	if i < 0 {
		i = len(g.contents)
		want.size = x.Bytes()
		g.contents = append(g.contents, want)
	}
	g.contents[i].tensors = append(g.contents[i].tensors, len(g.Initializers))
	return g.initializer(x)
}

// scaled multiplies by a constant.
func (g *graph) scaled(x string, factor float64) string {
	if factor == 1 {
		return x
	}
	return g.node(x+"/scale", "Mul", []string{x, g.scalar(factor)})
}

// split cuts the last dimension of x.
func (g *graph) split(x string, widths ...int) []string {
	var outputs []string
	var sizes []int64
	for i, w := range widths {
		outputs = append(outputs, fmt.Sprintf("%s/%d", x, i))
		sizes = append(sizes, int64(w))
	}
	list := g.integers(fmt.Sprint("widths.", widths), []int64{int64(len(sizes))}, sizes...)
	g.nodeTo(outputs, x, "Split", []string{x, list}, onnx.Integer("axis", -1))
	return outputs
}

// rotation returns the tables of a rope, and 1 if it rotates neighbouring values together.
func (g *graph) rotation(rope int) (cos, sin string, interleaved int64) {
	r, name := &g.c.Ropes[rope], fmt.Sprintf("rope.%d.", rope)
	if r.Neighbours {
		interleaved = 1
	}
	dims := []int64{int64(context(g.c)), int64(r.Dims / 2)}
	return g.external(name+"cos", onnx.Float, dims, content{part: cosines, rope: rope}), g.external(name+"sin", onnx.Float, dims, content{part: sines, rope: rope}), interleaved
}
