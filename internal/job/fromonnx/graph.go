package fromonnx

import (
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
	given := &onnx.Node{} // makes inputs and initializers
	r.makers[""] = given  // an input that is left out
	for _, v := range r.graph.Inputs {
		r.makers[v.Name] = given
	}
	for i := range r.graph.Initializers {
		t := &r.graph.Initializers[i]
		r.tensors[t.Name], r.makers[t.Name] = t, given
	}
	for _, n := range r.graph.Nodes {
		for i, name := range n.Inputs {
			if t := r.tensors[name]; t != nil && n.Op == "Add" && len(n.Inputs) == 2 {
				r.added[n.Inputs[1-i]] = t
			}
		}
	}
	for i := range r.graph.Nodes {
		n := &r.graph.Nodes[i]
		for _, name := range n.Inputs {
			if r.makers[name] == nil {
				return fmt.Errorf("node %q (%s) reads %q before a node makes it", n.Name, n.Op, name)
			}
		}
		if err := r.node(n); err != nil {
			return fmt.Errorf("node %q (%s): %w", n.Name, n.Op, err)
		}
		for _, name := range n.Outputs {
			r.makers[name] = n
		}
	}
	for _, v := range r.graph.Outputs {
		if r.makers[v.Name] == nil {
			return fmt.Errorf("no node makes the output %q", v.Name)
		}
	}
	for i := range r.graph.Initializers {
		t := &r.graph.Initializers[i]
		name := vectorName.FindStringSubmatch(t.Name)
		if name == nil || r.taken[t] || len(t.Dims) != 1 || !t.Type.Dtype().IsFloat() {
			continue
		}
		if err := r.place(name[2], t, t.Dims[0], []rowsOf{{checkpointName(name[1]), 0, t.Dims[0]}}, vector); err != nil {
			return err
		}
	}
	return nil
}

// node takes the weights of a node that is a linear layer or an embedding.
func (r *reader) node(n *onnx.Node) error {
	switch n.Op {
	case "MatMulNBits":
		if n.Input(4) != "" {
			return fmt.Errorf("it has a g_idx: columns in activation order have no groups in a .gqf file: quantize without activation order")
		}
		if f := r.factors(n.Input(0)); f != "" {
			return fmt.Errorf("its inputs are multiplied by the factors %q, as AWQ does, and a .gqf file has no place for them: quantize with a method that merges its factors into the layers before", f)
		}
		return r.quantized(n, n.Input(1), n.Input(2), n.Input(3), n.Input(5))
	case "GatherBlockQuantized":
		if n.Integer("gather_axis", 0) != 0 || n.Integer("quantize_axis", 1) != 1 {
			return fmt.Errorf("expected gather_axis 0 and quantize_axis 1")
		}
		return r.quantized(n, n.Input(0), n.Input(2), n.Input(3), "")
	case "Gather":
		name := r.behind("Transpose", n.Input(0))
		switch t := r.tensors[name]; {
		case t == nil || len(t.Dims) != 2 || !t.Type.Dtype().IsFloat():
		case name != n.Input(0):
			return notTransposed(t.Name, t.Dims)
		default:
			return r.linear(n, t, "")
		}
	case "FusedMatMul", "Gemm", "MatMul":
		switch t := r.tensors[n.Input(1)]; {
		case t == nil || len(t.Dims) != 2:
		case n.Integer("transB", 0) != 0:
			return r.linear(n, t, n.Input(2))
		case r.config != nil && r.config.Tied && r.module(n, t.Name)+".weight" == r.config.Facts.Prefix.Head:
			x, err := r.tensor(t)
			r.head = &x
			return err
		default:
			return notTransposed(t.Name, t.Dims)
		}
	}
	return nil
}

// behind returns the tensor that an op makes a tensor of, or the tensor itself if no op makes it.
func (r *reader) behind(op, name string) string {
	if m := r.makers[name]; m != nil && m.Op == op {
		return m.Input(0)
	}
	return name
}

// factors returns the name of factors of single columns that a value was multiplied by, or "". The
// gains of a norm are none.
func (r *reader) factors(value string) string {
	m := r.makers[value]
	if m == nil || m.Op != "Mul" && m.Op != "Div" {
		return ""
	}
	for _, name := range m.Inputs {
		if t := r.tensors[name]; t != nil && !vectorName.MatchString(name) && len(t.Dims) > 0 && t.Dims[len(t.Dims)-1] > 1 {
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
	embedding, err := ck.Weights(t, safetensors.WeightsOptions{})
	head, wrong := ck.Weights(*r.head, safetensors.WeightsOptions{Transposed: true})
	if errors.Join(err, wrong) != nil || head.Rows != embedding.Rows || head.Cols != embedding.Cols {
		return notTransposed(r.head.Name, r.head.Shape)
	}
	block := min(64, head.Rows)
	x, y := make([]float32, block*head.Cols), make([]float32, block*head.Cols)
	for first := 0; first < head.Rows; first += block {
		n := min(block, head.Rows-first)
		if err := errors.Join(embedding.Read(x[:n*head.Cols], first, n), head.Read(y[:n*head.Cols], first, n)); err != nil {
			return err
		}
		if !slices.Equal(x, y) {
			return notTransposed(r.head.Name, r.head.Shape)
		}
	}
	return nil
}

func notTransposed(name string, dims []int64) error {
	return fmt.Errorf("its unquantized weight %q has the dimensions %v, inputs before outputs, and a .gqf file has outputs first: quantize this layer too, or store the embedding apart from the lm_head", name, dims)
}

// linear takes an unquantized weight.
func (r *reader) linear(n *onnx.Node, t *onnx.Tensor, bias string) error {
	parts := r.split(r.module(n, t.Name), t.Dims[0])
	if err := r.place(".weight", t, t.Dims[0], parts, matrix); err != nil {
		return err
	}
	return r.bias(n, bias, t.Dims[0], parts)
}

// quantized takes the parts of a quantized weight. A node that looks rows up knows no shape.
func (r *reader) quantized(n *onnx.Node, codes, scales, zeros, bias string) error {
	codes = r.behind("Reshape", codes) // of an embedding that is the lm_head too
	t := r.tensors[codes]
	if t == nil || len(t.Dims) < 2 {
		return fmt.Errorf("expected rows of codes in an initializer, found %q", codes)
	}
	bits, rows := n.Integer("bits", 4), n.Integer("N", t.Dims[0])
	k := n.Integer("K", t.Bytes()/max(1, rows)*8/max(1, bits))
	parts := r.split(r.module(n, codes), rows)
	for _, p := range parts {
		r.weights = append(r.weights, hfquant.ONNXWeight{Module: p.module, K: k, Bits: bits, Block: n.Integer("block_size", 0)})
	}
	for _, part := range []struct{ suffix, name string }{{".weight", codes}, {".scales", scales}, {".zero_points", zeros}} {
		if part.name == "" {
			continue
		}
		t := r.tensors[r.behind("Reshape", part.name)]
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
	t := r.tensors[name]
	if name == "" {
		for _, output := range n.Outputs {
			if t = r.added[output]; t != nil && slices.Equal(t.Dims, []int64{rows}) {
				return r.place(".bias", t, rows, parts, vector)
			}
		}
		return nil
	}
	if t == nil {
		return fmt.Errorf("expected the bias in an initializer, found %q", name)
	}
	return r.place(".bias", t, rows, parts, vector)
}

// weightSuffix is what quantizers append to the name of a module for its weight.
var weightSuffix = regexp.MustCompile(`([./]MatMul)?([._]weight.*|_Q\d.*|[./]MatMul.*|\.codes)$`)

// vectorName is the name of a norm's gains or of a bias.
var vectorName = regexp.MustCompile(`^(.*)(\.weight|\.bias)$`)

// spellings are names of the builder of ONNX Runtime GenAI, and the checkpoint's.
var spellings = []struct {
	builder    *regexp.Regexp
	checkpoint string
}{
	{regexp.MustCompile(`\.attn\.((q|k|v|o|qkv)_proj|q_norm|k_norm)\b`), ".self_attn.$1"},
	{regexp.MustCompile(`(\.[qk]_norm)\.layernorm$`), "$1"},
	{regexp.MustCompile(`^model\.layers\.\d+\.final_norm_layernorm$`), "model.norm"},
}

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
	for _, s := range spellings {
		name = s.builder.ReplaceAllString(name, s.checkpoint)
	}
	return name
}

var layerModule = regexp.MustCompile(`^(.*\blayers\.(\d+)\.)[^.]+\.(qkv_proj|gate_up_proj)$`)

// split divides the rows of a layer that the graph has merged and the checkpoint has not.
func (r *reader) split(module string, rows int64) (list []rowsOf) {
	whole := []rowsOf{{module, 0, rows}}
	m := layerModule.FindStringSubmatch(module)
	if m == nil || r.config == nil {
		return whole
	}
	i, err := strconv.Atoi(m[2])
	if err != nil || i >= len(r.config.Layers) {
		return whole
	}
	fused := map[string]arch.Kind{"qkv_proj": arch.FusedQKV, "gate_up_proj": arch.FusedGateUp}[m[3]]
	kinds, sizes := r.config.Parts(fused, &r.config.Layers[i])
	total := int64(0)
	for i, kind := range kinds {
		list = append(list, rowsOf{m[1] + r.config.NameOf(kind), total, int64(sizes[i])})
		total += int64(sizes[i])
	}
	if r.config.Facts.Has(fused) || total != rows {
		return whole
	}
	return list
}

// reader finds the weights of a graph.
type reader struct {
	graph   *onnx.Graph
	config  *arch.ForwardConfig // nil: unknown
	tensors map[string]*onnx.Tensor
	makers  map[string]*onnx.Node   // by output
	added   map[string]*onnx.Tensor // to an output, by the output
	taken   map[*onnx.Tensor]bool
	// head is an lm_head that is tied to the embedding, and stored inputs before outputs; or nil.
	head    *safetensors.Tensor
	files   []string // below the directory; the first has the graph
	parts   []safetensors.Tensor
	weights []hfquant.ONNXWeight
}

// rowsOf is a range of the rows of a tensor, with the name of the module that they are for.
type rowsOf struct {
	module      string
	first, rows int64
}

// place adds rows of a tensor to the checkpoint. The tensor has total rows, however it is shaped.
func (r *reader) place(suffix string, t *onnx.Tensor, total int64, list []rowsOf, shape func(rows, width int64) []int64) error {
	x, err := r.tensor(t)
	if err != nil {
		return err
	}
	elements := x.Numel()
	if total <= 0 || elements == 0 || elements%total != 0 {
		return fmt.Errorf("tensor %q has the dimensions %v: expected %d rows", t.Name, t.Dims, total)
	}
	rowBytes := x.Size / total
	r.taken[t] = true
	for _, l := range list {
		rows := x
		rows.Name, rows.Shape = l.module+suffix, shape(l.rows, elements/total)
		rows.Offset, rows.Size = x.Offset+l.first*rowBytes, l.rows*rowBytes
		r.parts = append(r.parts, rows)
	}
	return nil
}

// tensor returns an initializer as a tensor of a checkpoint.
func (r *reader) tensor(t *onnx.Tensor) (x safetensors.Tensor, err error) {
	d := t.Type.Dtype()
	x = safetensors.Tensor{Name: t.Name, Dtype: d, DtypeName: d.String(), Shape: t.Dims, Size: t.Bytes(), Offset: t.RawAt}
	location, off, err := t.Place()
	switch {
	case !d.IsFloat() && d != packing.U8:
		return x, fmt.Errorf("tensor %q has the data type %d: expected FLOAT (1), UINT8 (2), FLOAT16 (10) or BFLOAT16 (16)", t.Name, t.Type)
	case err != nil:
		return x, err
	case location == "" && int64(len(t.Raw)) != x.Size: // fields that only small tensors use
		return x, fmt.Errorf("tensor %q has no raw_data and no external data: write the graph again with onnx.save of a newer onnx", t.Name)
	case location == "":
		return x, nil
	case !filepath.IsLocal(filepath.FromSlash(location)):
		return x, fmt.Errorf("tensor %q lies in %q: expected a file beside the graph", t.Name, location)
	}
	name := filepath.Join(filepath.Dir(r.files[0]), filepath.FromSlash(location))
	if x.Offset, x.File = off, slices.Index(r.files, name); x.File < 0 {
		x.File, r.files = len(r.files), append(r.files, name)
	}
	return x, nil
}

func matrix(rows, width int64) []int64 { return []int64{rows, width} }
func vector(rows, width int64) []int64 { return []int64{rows * width} }
