package toonnx

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/onnx"
)

// build makes the graph.
func (g *graph) build() error {
	c := g.c
	g.Inputs = []onnx.Value{
		onnx.NewValue(inputIDs, onnx.Int64, batchSize, sequenceLength), onnx.NewValue(attentionMask, onnx.Int64, batchSize, totalLength),
	}
	g.lengths()
	g.stream = stream{x: g.scaled(g.embedding(), c.EmbeddingScale)}
	for i := range c.Layers {
		g.at = fmt.Sprintf("%slayers.%d.", g.names.Body, i)
		g.layer(i)
	}
	g.at = g.names.Body
	g.head(g.normed(c.Facts.FinalNorm.HF))
	g.Nodes[len(g.Nodes)-1].Outputs[0] = logitsName
	g.Outputs = []onnx.Value{onnx.NewValue(logitsName, onnx.Float, batchSize, sequenceLength, c.VocabSize)}
	for i, l := range c.Layers {
		cache := func(name, length string) onnx.Value {
			return onnx.NewValue(fmt.Sprintf(name, i), onnx.Float, batchSize, l.KVHeads, length, l.HeadDim)
		}
		g.Inputs = append(g.Inputs, cache(pastKey, pastLength), cache(pastValue, pastLength))
		g.Outputs = append(g.Outputs, cache(presentKey, totalLength), cache(presentValue, totalLength))
	}
	return g.err
}

// lengths computes how many tokens GroupQueryAttention sees: seqlens_k is the last position of each
// sequence, total the greatest number of tokens.
func (g *graph) lengths() {
	one := g.integers("one", nil, 1)
	n := g.node("lengths", "ReduceSum", []string{attentionMask, g.integers("axis", []int64{1}, 1)}, onnx.Integer("keepdims", 0))
	g.nodeTo([]string{"seqlens_k"}, "seqlens_k", "Cast", []string{g.node("lengths", "Sub", []string{n, one})}, onnx.Integer("to", int64(onnx.Int32)))
	shape := g.node("total", "Shape", []string{attentionMask})
	g.nodeTo([]string{"total_length"}, "total", "Cast", []string{g.node("total", "Gather", []string{shape, one})}, onnx.Integer("to", int64(onnx.Int32)))
}

// positions returns the positions of all tokens, for rotations outside of GroupQueryAttention. The
// padding behind shorter sequences has positions too.
func (g *graph) positions() string {
	const name = "positions"
	if g.made[name] {
		return name
	}
	g.made[name] = true
	zero, one := g.integers("zero", nil, 0), g.integers("one", nil, 1)
	n := g.node(name+"/new", "Gather", []string{g.node(name, "Shape", []string{inputIDs}), one})
	all := g.node(name, "ReduceSum", []string{attentionMask, g.integers("axis", []int64{1}, 1)}, onnx.Integer("keepdims", 1))
	first := g.node(name, "Max", []string{g.node(name, "Sub", []string{all, n}), zero})
	g.nodeTo([]string{name}, name, "Add", []string{first, g.node(name, "Range", []string{zero, n, one})})
	return name
}

// layer adds the parts of a layer.
func (g *graph) layer(i int) {
	c, l := g.c, &g.c.Layers[i]
	x := g.normed(c.NameOf(arch.InputNorm))
	attended := g.attention(i, l, x)
	g.add(attended, arch.PostAttentionNorm, c.Outputs.Attention)
	if !c.Parallel {
		x = g.normed(c.NameOf(arch.FeedForwardNorm))
	}
	g.add(g.network(l, x), arch.PostFeedForwardNorm, c.Outputs.FeedForward)
}

// add adds the outputs of a part to the hidden states, behind a norm, if there is one, and times a
// factor.
func (g *graph) add(y string, post arch.Kind, factor float64) {
	if name := g.c.NameOf(post); name != "" {
		y = g.norm(g.at+name, y, g.c.HiddenSize)
	}
	y = g.scaled(y, float64(factor*g.c.ResidualScale))
	g.settle()
	g.stream.add = y
}

// settle adds what has to be added to the hidden states.
func (g *graph) settle() string {
	if s := g.stream; s.add != "" {
		g.stream = stream{x: g.node(s.add+"/residual", "Add", []string{s.x, s.add})}
	}
	return g.stream.x
}

// normed returns the hidden states behind a norm; without a norm ("") the hidden states.
func (g *graph) normed(norm string) string {
	if norm == "" || g.c.LayerNorm || g.stream.add == "" {
		if x := g.settle(); norm == "" {
			return x
		}
		return g.norm(g.at+norm, g.stream.x, g.c.HiddenSize)
	}
	name, s := g.at+norm, g.stream
	out := name + "/SkipSimplifiedLayerNormalization"
	sum := name + "/residual"
	g.nodeTo([]string{out, "", "", sum}, name, "SkipSimplifiedLayerNormalization", []string{s.x, s.add, g.values(name+".weight", g.c.HiddenSize)}, g.epsilon())
	g.stream = stream{x: sum}
	return out
}

func (g *graph) epsilon() onnx.Attribute { return onnx.Real("epsilon", float32(g.c.NormEps)) }

// norm normalizes the last dimension of x.
func (g *graph) norm(name, x string, width int) string {
	op, inputs := "SimplifiedLayerNormalization", []string{x, g.values(name+".weight", width)}
	if g.c.LayerNorm {
		op = "LayerNormalization"
	}
	if g.c.NormBias {
		inputs = append(inputs, g.values(name+".bias", width))
	}
	return g.node(name, op, inputs, onnx.Integer("axis", -1), g.epsilon(), onnx.Integer("stash_type", 1))
}

// heads normalizes the heads of queries or keys, or all heads of a token together.
func (g *graph) heads(kind arch.Kind, x string, n, dim int) string {
	if g.c.NameOf(kind) == "" {
		return x
	}
	name := g.at + g.c.NameOf(kind)
	if g.c.QKNorm == arch.WholeNorms {
		return g.norm(name, x, n*dim)
	}
	apart := g.node(name+"/heads", "Reshape", []string{x, g.integers(fmt.Sprintf("shape.%d.%d", n, dim), []int64{4}, 0, 0, int64(n), int64(dim))})
	return g.node(name+"/tokens", "Reshape", []string{g.norm(name, apart, dim), g.integers(fmt.Sprintf("shape.%d", n*dim), []int64{3}, 0, 0, int64(n*dim))})
}

// attention adds the attention of layer i.
func (g *graph) attention(i int, l *arch.LayerConfig, x string) string {
	c := g.c
	parts := g.merged(arch.FusedQKV, l, x)
	q, k, v := parts[0], parts[1], parts[2]
	late := c.QKNorm == arch.RotatedNorms
	if !late {
		q, k = g.heads(arch.QueryNorm, q, c.Heads, l.HeadDim), g.heads(arch.KeyNorm, k, l.KVHeads, l.HeadDim)
	}
	attributes := []onnx.Attribute{
		onnx.Integer("num_heads", int64(c.Heads)), onnx.Integer("kv_num_heads", int64(l.KVHeads)), onnx.Real("scale", float32(c.AttentionScale)),
	}
	if l.Window > 0 {
		attributes = append(attributes, onnx.Integer("local_window_size", int64(l.Window)))
	}
	if c.AttentionSoftcap != 0 {
		attributes = append(attributes, onnx.Real("softcap", float32(c.AttentionSoftcap)))
	}
	var tables []string
	switch { // GroupQueryAttention itself rotates dimensions in units of 16
	case l.Rope < 0:
	case late || l.HeadDim%16 != 0 || c.Ropes[l.Rope].Dims%16 != 0:
		q, k = g.rotate(l, q, c.Heads), g.rotate(l, k, l.KVHeads)
	default:
		cos, sin, interleaved := g.rotation(l.Rope)
		tables = []string{cos, sin}
		attributes = append(attributes, onnx.Integer("do_rotary", 1), onnx.Integer("rotary_interleaved", interleaved))
	}
	if late {
		q, k = g.heads(arch.QueryNorm, q, c.Heads, l.HeadDim), g.heads(arch.KeyNorm, k, l.KVHeads, l.HeadDim)
	}
	name := g.at + "attention"
	inputs := append([]string{q, k, v, fmt.Sprintf(pastKey, i), fmt.Sprintf(pastValue, i), "seqlens_k", "total_length"}, tables...)
	g.nodeTo([]string{name, fmt.Sprintf(presentKey, i), fmt.Sprintf(presentValue, i)}, name, "GroupQueryAttention", inputs, attributes...)
	return g.linear(arch.Output, c.HiddenSize, c.Heads*l.HeadDim, name)
}

// rotate rotates n heads by the tokens' positions.
func (g *graph) rotate(l *arch.LayerConfig, x string, n int) string {
	cos, sin, interleaved := g.rotation(l.Rope)
	attributes := []onnx.Attribute{onnx.Integer("interleaved", interleaved), onnx.Integer("num_heads", int64(n))}
	if dims := g.c.Ropes[l.Rope].Dims; dims != l.HeadDim {
		attributes = append(attributes, onnx.Integer("rotary_embedding_dim", int64(dims)))
	}
	return g.node(x, "RotaryEmbedding", []string{x, g.positions(), cos, sin}, attributes...)
}

// network adds a feed-forward network.
func (g *graph) network(l *arch.LayerConfig, x string) string {
	parts := g.merged(arch.FusedGateUp, l, x)
	gate, up := parts[0], parts[1]
	act := g.at + "mlp/act"
	if g.c.Activation == "silu" {
		act = g.node(act, "Mul", []string{gate, g.node(act, "Sigmoid", []string{gate})})
	} else {
		act = g.node(act, "Gelu", []string{gate}, onnx.Text("approximate", "tanh"))
	}
	return g.linear(arch.Down, g.c.HiddenSize, l.Intermediate, g.node(g.at+"mlp", "Mul", []string{act, up}))
}

// head adds the lm_head, which may be the embedding.
func (g *graph) head(x string) {
	c, name := g.c, g.names.Head
	if g.items[name] == nil && c.Tied {
		g.items[name] = g.items[g.names.Embedding]
	}
	x = g.scaled(g.product(name, c.VocabSize, c.HiddenSize, c.HeadBias, x), c.LogitScale)
	if limit := c.LogitSoftcap; limit != 0 {
		x = g.node("softcap", "Tanh", []string{g.node("softcap", "Div", []string{x, g.scalar(limit)})})
		g.node("softcap", "Mul", []string{x, g.scalar(limit)})
	}
}
