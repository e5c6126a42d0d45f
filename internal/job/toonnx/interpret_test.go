package toonnx_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/onnx"
)

// value is a tensor of an interpreted graph: numbers of any type as float64.
type value struct {
	dims []int
	v    []float64
}

func (x value) last() int { return x.dims[len(x.dims)-1] }

// like returns a value of x's shape.
func (x value) like() value { return value{x.dims, make([]float64, len(x.v))} }

// interpreter runs a graph node by node in float64, by the operators' definitions.
type interpreter struct {
	t      *testing.T
	dir    string
	model  *onnx.Model
	values map[string]value
}

// openModel reads the only graph in the folder onnx of dir.
func openModel(t *testing.T, dir string) *interpreter {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "onnx", "*.onnx"))
	if err != nil || len(list) != 1 {
		t.Fatalf("graphs %q (%v)", list, err)
	}
	raw, err := os.ReadFile(list[0])
	if err != nil {
		t.Fatal(err)
	}
	in := &interpreter{t: t, dir: filepath.Dir(list[0]), values: map[string]value{}}
	if in.model, err = onnx.Decode(raw); err != nil {
		t.Fatal(err)
	}
	for i := range in.model.Graph.Initializers {
		in.load(&in.model.Graph.Initializers[i])
	}
	return in
}

func (in *interpreter) load(x *onnx.Tensor) {
	raw := x.Raw
	location, off, err := x.Place()
	if err != nil {
		in.t.Fatal(err)
	}
	if location != "" {
		data, err := os.ReadFile(filepath.Join(in.dir, location))
		if err != nil {
			in.t.Fatal(err)
		}
		raw = data[off:][:x.Bytes()]
	}
	out := value{v: make([]float64, x.Bytes()/x.Type.Size())}
	for _, d := range x.Dims {
		out.dims = append(out.dims, int(d))
	}
	for i := range out.v {
		switch x.Type {
		case onnx.Float:
			out.v[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		case onnx.Uint8:
			out.v[i] = float64(raw[i])
		case onnx.Int64:
			out.v[i] = float64(int64(binary.LittleEndian.Uint64(raw[8*i:])))
		default:
			in.t.Fatalf("%q has type %d", x.Name, x.Type)
		}
	}
	in.values[x.Name] = out
}

// run returns the logits of a sequence, with no keys and values before it.
func (in *interpreter) run(ids []int32) []float64 {
	n := len(ids)
	tokens, mask := value{[]int{1, n}, make([]float64, n)}, value{[]int{1, n}, make([]float64, n)}
	for i, id := range ids {
		tokens.v[i], mask.v[i] = float64(id), 1
	}
	in.values["input_ids"], in.values["attention_mask"] = tokens, mask
	for i := range in.model.Graph.Nodes {
		node := &in.model.Graph.Nodes[i]
		for j, out := range in.node(node) {
			if j < len(node.Outputs) && node.Outputs[j] != "" {
				in.values[node.Outputs[j]] = out
			}
		}
	}
	return in.values["logits"].v
}

func (in *interpreter) attribute(n *onnx.Node, name string) (a onnx.Attribute) {
	for _, a := range n.Attributes {
		if a.Name == name {
			return a
		}
	}
	return a
}

func (in *interpreter) node(n *onnx.Node) []value {
	wantMicrosoft := slices.Contains([]string{"MatMulNBits", "GatherBlockQuantized", "GroupQueryAttention", "SkipSimplifiedLayerNormalization", "FusedMatMul", "RotaryEmbedding"}, n.Op)
	if (n.Domain == onnx.Microsoft) != wantMicrosoft {
		in.t.Fatalf("%s has the domain %q", n.Op, n.Domain)
	}
	x := make([]value, 10)
	for i, name := range n.Inputs {
		v, ok := in.values[name]
		if name != "" && !ok && !strings.HasPrefix(name, "past_key_values.") {
			in.t.Fatalf("%s reads %q, which no node has made", n.Name, name)
		}
		x[i] = v
	}
	each := func(f func(float64) float64) []value {
		y := x[0].like()
		for i, v := range x[0].v {
			y.v[i] = f(v)
		}
		return []value{y}
	}
	switch n.Op {
	case "Cast":
		return x[:1]
	case "Shape":
		y := value{dims: []int{len(x[0].dims)}}
		for _, d := range x[0].dims {
			y.v = append(y.v, float64(d))
		}
		return []value{y}
	case "ReduceSum": // of all values: the batch is 1
		sum := 0.0
		for _, v := range x[0].v {
			sum += v
		}
		return []value{{[]int{1}, []float64{sum}}}
	case "Range":
		y := value{}
		for v := x[0].v[0]; v < x[1].v[0]; v += x[2].v[0] {
			y.v = append(y.v, v)
		}
		y.dims = []int{len(y.v)}
		return []value{y}
	case "Reshape":
		y := value{v: x[0].v}
		for i, d := range x[1].v {
			if d == 0 {
				d = float64(x[0].dims[i])
			}
			y.dims = append(y.dims, int(d))
		}
		return []value{y}
	case "Add", "Sub", "Mul", "Div", "Max":
		return []value{in.elementwise(n.Op, x[0], x[1])}
	case "Sigmoid":
		return each(func(v float64) float64 { return 1 / (1 + math.Exp(-v)) })
	case "Tanh":
		return each(math.Tanh)
	case "Gelu":
		if in.attribute(n, "approximate").String != "tanh" {
			in.t.Fatal("Gelu is not approximated")
		}
		return each(func(v float64) float64 { return v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v))) })
	case "Split":
		return in.split(x[0], x[1])
	case "Gather":
		if len(x[0].dims) == 1 { // of a shape
			return []value{{nil, []float64{x[0].v[int(x[1].v[0])]}}}
		}
		return []value{in.rows(x[0], x[1])}
	case "GatherBlockQuantized":
		return []value{in.rows(in.dequantize(n, x[0], x[2], x[3], x[2].last()*int(n.Integer("block_size", 0))), x[1])}
	case "MatMulNBits":
		if n.Integer("accuracy_level", 0) != 4 {
			in.t.Fatal("activations would not be int8")
		}
		w := in.dequantize(n, x[1], x[2], x[3], int(n.Integer("K", 0)))
		if w.dims[0] != int(n.Integer("N", 0)) {
			in.t.Fatalf("%s: %v", n.Name, w.dims)
		}
		return []value{in.product(x[0], w, x[5])}
	case "FusedMatMul":
		if n.Integer("transB", 0) != 1 {
			in.t.Fatal("weights are not transposed")
		}
		return []value{in.product(x[0], x[1], value{})}
	case "SimplifiedLayerNormalization", "LayerNormalization":
		return []value{in.norm(n, x[0], x[1], x[2])}
	case "SkipSimplifiedLayerNormalization":
		sum := in.elementwise("Add", x[0], x[1])
		return []value{in.norm(n, sum, x[2], value{}), {}, {}, sum}
	case "RotaryEmbedding":
		return []value{in.rotate(x[0], x[1].v, x[2], x[3], int(n.Integer("num_heads", 0)), n.Integer("interleaved", 0) == 1)}
	case "GroupQueryAttention":
		return []value{in.attention(n, x)}
	}
	in.t.Fatalf("operator %q", n.Op)
	return nil
}

// elementwise repeats the shorter of two inputs.
func (in *interpreter) elementwise(op string, a, b value) value {
	y := a.like()
	if len(b.v) > len(a.v) {
		y = b.like()
	}
	for i := range y.v {
		p, q := a.v[i%len(a.v)], b.v[i%len(b.v)]
		switch op {
		case "Add":
			y.v[i] = p + q
		case "Sub":
			y.v[i] = p - q
		case "Mul":
			y.v[i] = p * q
		case "Div":
			y.v[i] = p / q
		case "Max":
			y.v[i] = max(p, q)
		}
	}
	return y
}

func (in *interpreter) split(x, sizes value) (list []value) {
	n, from := x.last(), 0
	for _, size := range sizes.v {
		y := value{dims: append(slices.Clone(x.dims[:len(x.dims)-1]), int(size))}
		for row := 0; row < len(x.v); row += n {
			y.v = append(y.v, x.v[row+from:][:int(size)]...)
		}
		list, from = append(list, y), from+int(size)
	}
	return list
}

func (in *interpreter) rows(table, ids value) value {
	n := table.last()
	y := value{dims: append(slices.Clone(ids.dims), n)}
	for _, id := range ids.v {
		y.v = append(y.v, table.v[int(id)*n:][:n]...)
	}
	return y
}

// dequantize returns rows of k weights.
func (in *interpreter) dequantize(n *onnx.Node, codes, scales, zeros value, k int) value {
	bits, block := int(n.Integer("bits", 0)), int(n.Integer("block_size", 0))
	rows, blocks := codes.dims[0], scales.last()
	if len(codes.v) != rows*blocks*block*bits/8 {
		in.t.Fatalf("%s: codes of shape %v for %d blocks of %d", n.Name, codes.dims, blocks, block)
	}
	at := func(list []float64, i int) float64 {
		return float64(int(list[i*bits/8]) >> (i * bits % 8) & (1<<bits - 1))
	}
	w := value{[]int{rows, k}, make([]float64, rows*k)}
	for r := range rows {
		row := codes.v[r*len(codes.v)/rows:]
		for i := range k {
			zero := float64(int(1) << (bits - 1))
			if zeros.v != nil {
				zero = at(zeros.v[r*zeros.last():], i/block)
			}
			w.v[r*k+i] = (at(row, i) - zero) * scales.v[r*blocks+i/block]
		}
	}
	return w
}

// product multiplies with rows of weights, and adds a bias.
func (in *interpreter) product(x, w, bias value) value {
	n, k := w.dims[0], w.last()
	y := value{dims: append(slices.Clone(x.dims[:len(x.dims)-1]), n)}
	for row := 0; row < len(x.v); row += k {
		for i := range n {
			sum := 0.0
			if bias.v != nil {
				sum = bias.v[i]
			}
			for j, v := range w.v[i*k:][:k] {
				sum += v * x.v[row+j]
			}
			y.v = append(y.v, sum)
		}
	}
	return y
}

func (in *interpreter) norm(n *onnx.Node, x, gain, bias value) value {
	y, width := x.like(), gain.last()
	eps := float64(in.attribute(n, "epsilon").Float)
	for at := 0; at < len(x.v); at += width {
		row, mean, square := x.v[at:][:width], 0.0, 0.0
		if n.Op == "LayerNormalization" {
			for _, v := range row {
				mean += v / float64(width)
			}
		}
		for _, v := range row {
			square += (v - mean) * (v - mean) / float64(width)
		}
		for i, v := range row {
			y.v[at+i] = (v - mean) / math.Sqrt(square+eps) * gain.v[i]
			if bias.v != nil {
				y.v[at+i] += bias.v[i]
			}
		}
	}
	return y
}

// rotate rotates the heads of tokens at positions.
func (in *interpreter) rotate(x value, positions []float64, cos, sin value, heads int, interleaved bool) value {
	y, n := value{x.dims, slices.Clone(x.v)}, cos.last()
	dim := x.last() / heads
	for t, p := range positions {
		for h := range heads {
			head := y.v[t*x.last()+h*dim:][:dim]
			for i := range n {
				a, b := i, i+n
				if interleaved {
					a, b = 2*i, 2*i+1
				}
				c, s := cos.v[int(p)*n+i], sin.v[int(p)*n+i]
				head[a], head[b] = head[a]*c-head[b]*s, head[b]*c+head[a]*s
			}
		}
	}
	return y
}

func (in *interpreter) attention(n *onnx.Node, x []value) value {
	q, k, v := x[0], x[1], x[2]
	tokens, heads, kvHeads := q.dims[1], int(n.Integer("num_heads", 0)), int(n.Integer("kv_num_heads", 0))
	if x[5].v[0] != float64(tokens-1) || x[6].v[0] != float64(tokens) {
		in.t.Fatalf("%s: lengths %v and %v for %d tokens", n.Name, x[5].v, x[6].v, tokens)
	}
	if n.Integer("do_rotary", 0) == 1 {
		positions := make([]float64, tokens)
		for i := range positions {
			positions[i] = float64(i)
		}
		interleaved := n.Integer("rotary_interleaved", 0) == 1
		q, k = in.rotate(q, positions, x[7], x[8], heads, interleaved), in.rotate(k, positions, x[7], x[8], kvHeads, interleaved)
	}
	dim, window := q.last()/heads, int(n.Integer("local_window_size", -1))
	scale, limit := float64(in.attribute(n, "scale").Float), float64(in.attribute(n, "softcap").Float)
	y := q.like()
	for t := range tokens {
		first := 0
		if window > 0 {
			first = max(0, t-window+1)
		}
		for h := range heads {
			at, kv := t*q.last()+h*dim, h/(heads/kvHeads)*dim
			weights, sum := make([]float64, t+1), 0.0
			for p := first; p <= t; p++ {
				score := 0.0
				for i := range dim {
					score += q.v[at+i] * k.v[p*k.last()+kv+i]
				}
				if score *= scale; limit != 0 {
					score = limit * math.Tanh(score/limit)
				}
				weights[p] = math.Exp(score)
				sum += weights[p]
			}
			for p := first; p <= t; p++ {
				for i := range dim {
					y.v[at+i] += weights[p] / sum * v.v[p*v.last()+kv+i]
				}
			}
		}
	}
	return y
}
