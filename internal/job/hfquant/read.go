package hfquant

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
)

type Quantized struct {
	Format  Format
	Weights []Weight
	// Parts maps each tensor of the checkpoint that holds some of a weight to the weight's index.
	Parts map[string]int
	// Config is config.json without the entry that describes quantization.
	Config []byte
}

// Weight is the weight called name; nil if there is none.
func (q *Quantized) Weight(name string) *Weight {
	i, ok := slices.BinarySearchFunc(q.Weights, name, func(w Weight, name string) int { return strings.Compare(w.Name, name) })
	if !ok {
		return nil
	}
	return &q.Weights[i]
}

type Weight struct {
	Name   string  // as in an unquantized checkpoint: "model.layers.0.mlp.up_proj.weight"
	Shape  []int64 // [N, K]
	Scheme Scheme

	codec codec
}

// codec reads the rows of a weight. The slices of row have the lengths that the scheme demands.
type codec interface {
	readCodes(row *Row, n int64) error
	// readGroups sets the other slices.
	readGroups(row *Row, n int64) error
}

// Read sets row to row n of the weight. It grows the slices of row as needed. Several goroutines
// may read rows at once, each into its own Row, inside the checkpoint's Guard.
func (w *Weight) Read(row *Row, n int64) error {
	if err := w.ReadGroups(row, n); err != nil {
		return err
	}
	return w.codec.readCodes(row, n)
}

// ReadGroups is Read without the codes: scales, zero points and offsets of row.
func (w *Weight) ReadGroups(row *Row, n int64) error {
	if n < 0 || n >= w.Shape[0] {
		return fmt.Errorf("weight %s has %d rows, not row %d", quote(w.Name), w.Shape[0], n)
	}
	row.resize(w.Scheme, w.Shape[1])
	return w.codec.readGroups(row, n)
}

// finders find the weights of a checkpoint by the quant_method of its config.json.
var finders = map[string]func(*finder) error{
	"compressed-tensors": findCompressed,
	"torchao":            findTorchAO,
	"gptq":               findGPTQ,
	"awq":                findAWQ,
	"auto-round":         findAutoRound,
	"mlx":                findMLX,                            // MLX writes no quant_method
	"fp8":                func(*finder) error { return nil }, // see Find
	"mxfp4":              func(*finder) error { return nil },
}

// Find lists the quantized weights of ck. config is its config.json, nil if there is none. The
// result is nil if no weight is quantized, and for FP8 and MXFP4 weights, read by
// [safetensors.Weights]. A weight that cannot be read is an error.
func Find(ck *safetensors.Checkpoint, config []byte) (*Quantized, error) {
	f := &finder{ck: ck, q: &Quantized{Parts: map[string]int{}}}
	var err error
	if f.entry, err = findEntry(config); err != nil {
		return nil, &FormatError{Dir: ck.Dir(), Msg: err.Error()}
	}
	if f.entry == nil {
		if err := f.oldEntry(); err != nil {
			return nil, err
		}
	}
	find := f.method()
	if find == nil {
		return nil, f.unread()
	}
	if err := f.run(find, config); err != nil || len(f.q.Weights) == 0 {
		return nil, err
	}
	return f.q, nil
}

// run lists the quantized weights, and keeps config.json without its entry about quantization.
func (f *finder) run(find func(*finder) error, config []byte) error {
	err := f.ck.Guard(func() error { return find(f) })
	f.sort()
	if err == nil && config != nil {
		f.q.Config, err = WithoutQuantization(config)
	}
	return err
}

type finder struct {
	ck    *safetensors.Checkpoint
	entry *entry // nil if config.json has none
	q     *Quantized
}

func (f *finder) method() func(*finder) error {
	switch {
	case f.entry == nil && hasTorchAO(f.ck):
		return findTorchAO
	case f.entry == nil:
		return nil
	case f.entry.Method != "":
		return finders[f.entry.Method]
	}
	var keys struct {
		Groups    json.RawMessage `json:"config_groups"`
		GroupSize json.RawMessage `json:"group_size"`
	}
	_ = json.Unmarshal(f.entry.raw, &keys) // findEntry has read this
	switch {
	case keys.Groups != nil:
		return findCompressed
	case keys.GroupSize != nil:
		return finders[string(MLX)]
	}
	return nil
}

// unread fails if no finder suits the tensors of a checkpoint that looks quantized, except to FP8.
func (f *finder) unread() error {
	for _, t := range f.ck.Tensors() {
		packed := len(t.Shape) >= 2 && (t.Dtype == packing.I32 || t.Dtype == packing.I8 || t.Dtype == packing.U8 || t.Dtype == packing.U32)
		if !packed {
			continue
		}
		if f.entry == nil {
			if name := looksLike(f.ck, t.Name); name != "" {
				return &UnsupportedError{Dir: f.ck.Dir(), Tensor: t.Name, Msg: "it looks like a weight of " + name +
					", but no quantization_config in config.json says how it is quantized"}
			}
			continue
		}
		method := f.entry.Method
		if method == "" {
			method = "(none)"
		}
		return &UnsupportedError{Dir: f.ck.Dir(), Tensor: t.Name, Msg: fmt.Sprintf("%s, and config.json names quant_method %s: the methods read are %s; convert the checkpoint to BF16 with the library of its method first",
			t.DtypeName, quote(method), list(slices.Sorted(maps.Keys(finders))))}
	}
	return nil
}

// looksLike guesses by tensor names which library quantized the weight in the tensor, if any.
func looksLike(ck *safetensors.Checkpoint, name string) string {
	module, last := splitName(name)
	has := func(other string) bool {
		_, ok := ck.Lookup(module + other)
		return ok
	}
	switch {
	case last == "weight_packed" && has("weight_scale"), last == "weight" && has("weight_scale"):
		return "compressed-tensors"
	case last == "qweight" && has("qzeros"):
		return "GPTQ or AWQ"
	case last == "weight" && has("scales") && has("biases"):
		return "MLX"
	}
	return ""
}

// splitName splits the name of a tensor before its last component: "layers.0.mlp." and "weight".
func splitName(name string) (module, last string) {
	i := strings.LastIndexByte(name, '.') + 1
	return name[:i], name[i:]
}

func (f *finder) add(w Weight, names ...string) error {
	for _, name := range names {
		if i, ok := f.q.Parts[name]; ok && i < len(f.q.Weights) {
			return f.formatError(name, "it belongs to %s and to %s", quote(f.q.Weights[i].Name), quote(w.Name))
		}
		f.q.Parts[name] = len(f.q.Weights)
	}
	f.q.Weights = append(f.q.Weights, w)
	return nil
}

func (f *finder) sort() {
	order := make([]int, len(f.q.Weights))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(f.q.Weights[a].Name, f.q.Weights[b].Name) })
	weights := make([]Weight, len(order))
	moved := make([]int, len(order))
	for to, from := range order {
		weights[to], moved[from] = f.q.Weights[from], to
	}
	f.q.Weights = weights
	for name, i := range f.q.Parts {
		f.q.Parts[name] = moved[i]
	}
}

func (f *finder) readEntry(dst any) error {
	if err := json.Unmarshal(f.entry.raw, dst); err != nil {
		return f.formatError("", "%s", strings.Join(append(slices.Clone(f.entry.path), err.Error()), ": "))
	}
	return nil
}

func (f *finder) formatError(tensor, format string, args ...any) *FormatError {
	e := &FormatError{Dir: f.ck.Dir(), Tensor: tensor, Msg: fmt.Sprintf(format, args...)}
	if f.entry != nil {
		e.File = f.entry.file
	}
	return e
}

func (f *finder) unsupported(tensor, format string, args ...any) error {
	return (*UnsupportedError)(f.formatError(tensor, format, args...))
}
