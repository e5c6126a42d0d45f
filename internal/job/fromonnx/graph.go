package fromonnx

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/onnx"
	"github.com/lowbit-go/gq/packing"
)

// read visits the nodes, and takes the weights that they read. Constants and tables of rotations
// are not among them.
func (r *reader) read() error {
	if err := r.names(); err != nil {
		return err
	}
	for i := range r.graph.Nodes {
		n := &r.graph.Nodes[i]
		if err := r.node(n); err != nil {
			return fmt.Errorf("node %q (%s): %w", n.Name, n.Op, err)
		}
	}
	for i := range r.graph.Initializers {
		t := &r.graph.Initializers[i]
		module, suffix := vectorName(t.Name)
		if suffix == "" || r.taken[t] || len(t.Dims) != 1 || t.Type.Size() == 0 || t.Type == onnx.Int64 || t.Type == onnx.Int32 {
			continue
		}
		if err := r.place(suffix, t, t.Dims[0], []rowsOf{{module, 0, t.Dims[0]}}, vector); err != nil {
			return err
		}
	}
	return nil
}

// names finds who makes each tensor: an initializer, or a node that runs before its readers.
func (r *reader) names() error {
	known := map[string]bool{"": true}
	for _, v := range r.graph.Inputs {
		known[v.Name] = true
	}
	for i := range r.graph.Initializers {
		t := &r.graph.Initializers[i]
		r.tensors[t.Name], known[t.Name] = t, true
	}
	for i := range r.graph.Nodes {
		n := &r.graph.Nodes[i]
		for _, name := range n.Inputs {
			if !known[name] {
				return fmt.Errorf("node %q (%s) reads %q before a node makes it", n.Name, n.Op, name)
			}
		}
		for _, name := range n.Outputs {
			r.makers[name], known[name] = n, true
		}
	}
	for _, v := range r.graph.Outputs {
		if !known[v.Name] {
			return fmt.Errorf("no node makes the output %q", v.Name)
		}
	}
	return nil
}

// node takes the weights of a node that is a linear layer or an embedding.
func (r *reader) node(n *onnx.Node) (err error) {
	switch n.Op {
	case "MatMulNBits":
		if n.Input(4) != "" {
			return fmt.Errorf("it has a g_idx: columns in activation order have no groups in a .gqf file: quantize without activation order")
		}
		if f := r.factors(n.Input(0)); f != "" {
			return fmt.Errorf("its inputs are multiplied by the factors %q, as AWQ does, and a .gqf file has no place for them: quantize with a method that merges its factors into the layers before", f)
		}
		return r.quantized(n, n.Input(1), n.Input(2), n.Input(3), n.Input(5), n.Integer("N", 0), n.Integer("K", 0), n.Integer("bits", 4))
	case "GatherBlockQuantized":
		name := n.Input(0)
		if m := r.makers[name]; m != nil && m.Op == "Reshape" { // shared with the lm_head
			name = m.Input(0)
		}
		t := r.tensors[name]
		if t == nil || len(t.Dims) < 2 || n.Integer("gather_axis", 0) != 0 || n.Integer("quantize_axis", 1) != 1 {
			return fmt.Errorf("expected rows of codes in an initializer, gather_axis 0 and quantize_axis 1")
		}
		bits := n.Integer("bits", 4)
		width := int64(1)
		for _, d := range t.Dims[1:] {
			width *= max(0, min(d, 1<<31))
		}
		return r.quantized(n, name, n.Input(2), n.Input(3), "", t.Dims[0], width*8/max(1, bits), bits)
	case "Gather":
		if m := r.makers[n.Input(0)]; m != nil && m.Op == "Transpose" {
			return notTransposed(r.unquantized(m.Input(0)))
		}
		if t := r.unquantized(n.Input(0)); t != nil && t.Type.Size() > 0 && t.Type != onnx.Int64 {
			return r.linear(n, t, "")
		}
	case "FusedMatMul", "Gemm", "MatMul":
		if t := r.unquantized(n.Input(1)); t != nil && n.Integer("transB", 0) == 0 {
			if r.config != nil && r.config.Tied && r.module(n, t.Name)+".weight" == r.config.Facts.Prefix.Head {
				r.head = t
				r.headFile, r.headOffset, err = r.file(t)
				return err
			}
			return notTransposed(t)
		} else if t != nil {
			return r.linear(n, t, n.Input(2))
		}
	}
	return nil
}

// unquantized returns an initializer with two dimensions, or nil.
func (r *reader) unquantized(name string) *onnx.Tensor {
	if t := r.tensors[name]; t != nil && len(t.Dims) == 2 {
		return t
	}
	return nil
}

// factors returns the name of factors of single columns that a value was multiplied by, or "". The
// gains of a norm are none.
func (r *reader) factors(value string) string {
	m := r.makers[value]
	if m == nil || m.Op != "Mul" && m.Op != "Div" {
		return ""
	}
	for _, name := range m.Inputs {
		t := r.tensors[name]
		if _, suffix := vectorName(name); t != nil && suffix == "" && len(t.Dims) > 0 && t.Dims[len(t.Dims)-1] > 1 {
			return name
		}
	}
	return ""
}

// sameHead refuses a tied lm_head that is stored inputs before outputs and is not the embedding.
func (r *reader) sameHead(ck *safetensors.Checkpoint) error {
	if r.head == nil {
		return nil
	}
	t, _ := ck.Lookup(r.config.Facts.Prefix.Embedding)
	size, rows, cols := int(r.head.Type.Size()), int(r.head.Dims[1]), int(r.head.Dims[0])
	if !slices.Equal(t.Shape, []int64{int64(rows), int64(cols)}) || t.Size != r.head.Bytes() {
		return notTransposed(r.head)
	}
	embedding, err := ck.Bytes(t)
	t.File, t.Offset = r.headFile, r.headOffset
	head, wrong := ck.Bytes(t)
	if err := errors.Join(err, wrong); err != nil {
		return err
	}
	const block = 16 // columns of a cache line
	for first := 0; first < cols; first += block {
		for i := range rows {
			for j := first; j < min(cols, first+block); j++ {
				if !bytes.Equal(head[(j*rows+i)*size:][:size], embedding[(i*cols+j)*size:][:size]) {
					return notTransposed(r.head)
				}
			}
		}
	}
	return nil
}

func notTransposed(t *onnx.Tensor) error {
	if t == nil {
		return nil
	}
	return fmt.Errorf("its unquantized weight %q has the dimensions %v, inputs before outputs, and a .gqf file has outputs first: quantize this layer too, or store the embedding apart from the lm_head", t.Name, t.Dims)
}

// linear takes an unquantized weight.
func (r *reader) linear(n *onnx.Node, t *onnx.Tensor, bias string) error {
	parts := r.split(r.module(n, t.Name), t.Dims[0])
	if err := r.place(".weight", t, t.Dims[0], parts, matrix); err != nil {
		return err
	}
	return r.bias(n, bias, t.Dims[0], parts)
}

// quantized takes the parts of a quantized weight.
func (r *reader) quantized(n *onnx.Node, codes, scales, zeros, bias string, rows, k, bits int64) error {
	t := r.tensors[codes]
	if t == nil {
		return fmt.Errorf("expected codes in an initializer, found %q", codes)
	}
	parts := r.split(r.module(n, codes), rows)
	for _, p := range parts {
		r.weights = append(r.weights, hfquant.ONNXWeight{Module: p.module, K: k, Bits: bits, Block: n.Integer("block_size", 0)})
	}
	for _, part := range []struct{ suffix, name string }{{".weight", codes}, {".scales", scales}, {".zero_points", zeros}} {
		if part.name == "" {
			continue
		}
		t := r.tensors[part.name]
		if m := r.makers[part.name]; m != nil && m.Op == "Reshape" {
			t = r.tensors[m.Input(0)]
		}
		if t == nil {
			return fmt.Errorf("expected an initializer, found %q", part.name)
		}
		if err := r.place(part.suffix, t, rows, parts, matrix); err != nil {
			return err
		}
	}
	return r.bias(n, bias, rows, parts)
}

// bias takes the bias of a linear layer: an input of the node, or of a node Add behind the layer.
func (r *reader) bias(n *onnx.Node, name string, rows int64, parts []rowsOf) error {
	for i := 0; name == "" && i < len(r.graph.Nodes); i++ {
		if add := &r.graph.Nodes[i]; add.Op == "Add" && slices.Contains(add.Inputs, n.Outputs[0]) {
			other := slices.DeleteFunc(slices.Clone(add.Inputs), func(in string) bool { return in == n.Outputs[0] })
			if t := r.tensors[strings.Join(other, "")]; t != nil && slices.Equal(t.Dims, []int64{rows}) {
				name = t.Name
			}
		}
	}
	if name == "" {
		return nil
	}
	t := r.tensors[name]
	if t == nil {
		return fmt.Errorf("expected the bias in an initializer, found %q", name)
	}
	return r.place(".bias", t, rows, parts, vector)
}

// weightSuffix is what quantizers append to the name of a module for its weight.
var weightSuffix = regexp.MustCompile(`([./]MatMul)?([._]weight.*|_Q\d.*|[./]MatMul.*|\.codes)$`)

// attention and other spellings of the builder of ONNX Runtime GenAI
var (
	builderAttention = regexp.MustCompile(`\.attn\.((q|k|v|o|qkv)_proj|q_norm|k_norm)\b`)
	builderQKNorm    = regexp.MustCompile(`(\.[qk]_norm)\.layernorm$`)
	builderFinalNorm = regexp.MustCompile(`^model\.layers\.\d+\.final_norm_layernorm$`)
)

// module is the name of the module of a node with a weight, as in a checkpoint. The path in a
// node's name is the module's; other nodes have names without meaning.
func (r *reader) module(n *onnx.Node, weight string) string {
	name := strings.Trim(n.Name, "/")
	if i := strings.LastIndexByte(name, '/'); i > 0 {
		name = name[:i]
	} else {
		name = weightSuffix.ReplaceAllString(weight, "")
	}
	return checkpointName(strings.TrimSuffix(strings.ReplaceAll(name, "/", "."), ".weight"))
}

func checkpointName(name string) string {
	return builderAttention.ReplaceAllString(name, ".self_attn.$1")
}

// vectorName divides the name of a norm's gains or of a bias; "" for other names.
func vectorName(name string) (module, suffix string) {
	for _, suffix := range []string{".weight", ".bias"} {
		if module, ok := strings.CutSuffix(name, suffix); ok {
			module = builderQKNorm.ReplaceAllString(checkpointName(module), "$1")
			return builderFinalNorm.ReplaceAllString(module, "model.norm"), suffix
		}
	}
	return "", ""
}

var layerModule = regexp.MustCompile(`^(.*\blayers\.(\d+)\.)([^.]+\.)(qkv_proj|gate_up_proj)$`)

// split divides the rows of a layer that the graph has merged and the checkpoint has not.
func (r *reader) split(module string, rows int64) []rowsOf {
	whole := []rowsOf{{module, 0, rows}}
	m := layerModule.FindStringSubmatch(module)
	if m == nil || r.config == nil {
		return whole
	}
	i, err := strconv.Atoi(m[2])
	if err != nil || i >= len(r.config.Layers) {
		return whole
	}
	c, l := r.config, &r.config.Layers[i]
	q, kv := int64(c.Heads*l.HeadDim), int64(l.KVHeads*l.HeadDim)
	kinds, sizes := []arch.Kind{arch.Query, arch.Key, arch.Value}, []int64{q, kv, kv}
	merged := arch.FusedQKV
	if m[4] == "gate_up_proj" {
		n := int64(l.Intermediate)
		merged, kinds, sizes = arch.FusedGateUp, []arch.Kind{arch.Gate, arch.Up}, []int64{n, n}
	}
	total := int64(0)
	var list []rowsOf
	for i, kind := range kinds {
		list = append(list, rowsOf{m[1] + c.NameOf(kind), total, sizes[i]})
		total += sizes[i]
	}
	if c.Facts.Has(merged) || total != rows {
		return whole
	}
	return list
}

// reader finds the weights of a graph.
type reader struct {
	graph   *onnx.Graph
	config  *arch.ForwardConfig // nil: unknown
	tensors map[string]*onnx.Tensor
	makers  map[string]*onnx.Node // by output
	taken   map[*onnx.Tensor]bool
	// head is an lm_head that is tied to the embedding, and stored inputs before outputs; or nil.
	head       *onnx.Tensor
	headFile   int
	headOffset int64
	files      []string // below the directory; the first has the graph
	parts      []safetensors.Tensor
	weights    []hfquant.ONNXWeight
}

// rowsOf is a range of the rows of a tensor, with the name of the module that they are for.
type rowsOf struct {
	module      string
	first, rows int64
}

// place adds rows of a tensor to the checkpoint. The tensor has total rows, however it is shaped.
func (r *reader) place(suffix string, t *onnx.Tensor, total int64, list []rowsOf, shape func(rows, width int64) []int64) error {
	dtype, ok := map[onnx.DataType]packing.Dtype{onnx.Float: packing.F32, onnx.Float16: packing.F16, onnx.BFloat16: packing.BF16, onnx.Uint8: packing.U8}[t.Type]
	if !ok {
		return fmt.Errorf("tensor %q has the data type %d: expected FLOAT (1), UINT8 (2), FLOAT16 (10) or BFLOAT16 (16)", t.Name, t.Type)
	}
	file, off, err := r.file(t)
	if err != nil {
		return err
	}
	size := t.Type.Size()
	elements := t.Bytes() / size
	if total <= 0 || elements == 0 || elements%total != 0 {
		return fmt.Errorf("tensor %q has the dimensions %v: expected %d rows", t.Name, t.Dims, total)
	}
	width := elements / total
	r.taken[t] = true
	for _, l := range list {
		r.parts = append(r.parts, safetensors.Tensor{
			Name: l.module + suffix, Dtype: dtype, DtypeName: dtype.String(), Shape: shape(l.rows, width),
			File: file, Offset: off + l.first*width*size, Size: l.rows * width * size,
		})
	}
	return nil
}

// file returns the index of the file with a tensor, and the tensor's offset there.
func (r *reader) file(t *onnx.Tensor) (file int, off int64, err error) {
	location, off, err := t.Place()
	switch {
	case err != nil:
		return 0, 0, err
	case location == "" && t.RawAt < 0:
		return 0, 0, fmt.Errorf("tensor %q has no raw_data and no external data: write the graph again with onnx.save of a newer onnx", t.Name)
	case location == "":
		return 0, t.RawAt, nil
	case !filepath.IsLocal(filepath.FromSlash(location)):
		return 0, 0, fmt.Errorf("tensor %q lies in %q: expected a file beside the graph", t.Name, location)
	}
	name := filepath.Join(filepath.Dir(r.files[0]), filepath.FromSlash(location))
	if file = slices.Index(r.files, name); file < 0 {
		file, r.files = len(r.files), append(r.files, name)
	}
	return file, off, nil
}

func matrix(rows, width int64) []int64 { return []int64{rows, width} }
func vector(rows, width int64) []int64 { return []int64{rows * width} }
