package forward

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/kernels"
)

// OpenGGUF opens the model in a .gguf file and computes what llama.cpp computes, in float32: rows
// of q and k as stored, and norms without adding 1. Orders of rows are written here a second time,
// not taken from package llamacpp: OpenGGUF checks an export against its source, and a mistake in
// the export must not cancel out.
//
// f must stay open as long as the Model is used.
func OpenGGUF(f *gguf.File, o Options) (*Model, error) {
	raw, err := llamacpp.ReadConfig(f)
	if err != nil {
		return nil, err
	}
	c, err := arch.ParseForward(raw)
	if err != nil {
		return nil, err
	}
	c.PlusOne = false // weights are stored plus 1
	if c.PerLayer != nil {
		c.PerLayer.Vocab = c.VocabSize
	}
	for i := range c.Ropes { // q and k may be permuted for a rope of neighbours
		c.Ropes[i].Neighbours = c.Ropes[i].Neighbours || c.Facts.LlamaCpp.Permuted
	}
	s := &ggufSource{file: f, config: c, options: kernels.Options{CPU: o.CPU, Log: o.Log}, asked: map[string]bool{}}
	o.LlamaCpp = true
	return newModel(c, s, o)
}

// ggufSource reads tensors by llama.cpp's names.
type ggufSource struct {
	file    *gguf.File
	config  *arch.ForwardConfig
	options kernels.Options
	asked   map[string]bool // tensors, by llama.cpp's name
}

// suffixes are the ends of llama.cpp's names, by the end of the name in a checkpoint behind the
// module. It is empty for a parameter without a module.
var suffixes = map[string][]string{".weight": {".weight", ""}, ".bias": {".bias", ""}, "": {"", ".weight", ".bias"}}

// find returns the tensors with the rows of a tensor of a checkpoint, and the expert in these
// tensors. There are two if the rows are the halves of two tensors, and none if the file has none.
func (s *ggufSource) find(name string) (list []*gguf.Tensor, expert int) {
	facts := s.config.Facts
	at, namings := "", []arch.Naming{{HF: "lm_head", GGUF: "output"}, {HF: strings.TrimSuffix(facts.Prefix.Embedding, ".weight"), GGUF: "token_embd"}}
	rest, body := strings.CutPrefix(name, facts.Prefix.Body)
	if layer, ok := strings.CutPrefix(rest, "layers."); ok && body {
		number, part, _ := strings.Cut(layer, ".")
		at, name, namings = "blk."+number+".", part, facts.Layer
	} else if body && name != facts.Prefix.Embedding {
		name, namings = rest, slices.Concat(facts.Outer, []arch.Naming{facts.FinalNorm})
	}
	segs := strings.Split(name, ".")
	for i, seg := range segs {
		if n, err := strconv.Atoi(seg); err == nil {
			segs[i], expert = "*", n
		}
	}
	name = strings.Join(segs, ".")
	for _, n := range namings {
		suffix, _ := strings.CutPrefix(name, n.HF)
		if n.Kind == arch.GateUpExperts && n.GGUF == "" {
			n.GGUF = "ffn_gate_exps ffn_up_exps"
		}
		for _, suffix := range suffixes[suffix] {
			for _, part := range strings.Fields(n.GGUF) {
				if t := s.file.Tensor(at + part + suffix); t != nil {
					list = append(list, t)
				}
			}
			if len(list) > 0 {
				return list, expert
			}
		}
	}
	return nil, 0
}

// data returns the rows of expert number expert of so many, in a tensor of rows x cols weights for
// each.
func (s *ggufSource) data(t *gguf.Tensor, expert, rows, cols int) (ggufRows, error) {
	s.asked[t.Name] = true
	switch {
	case !t.Type.Decodable():
		return ggufRows{}, &arch.UnsupportedError{Msg: fmt.Sprintf("tensor %q: the weights of %s are not known here", t.Name, t.Type)}
	case t.Columns() != int64(cols) || t.Rows()%int64(rows) != 0 || int64(expert) >= t.Rows()/int64(rows) || len(t.Dims) < 3 && t.Rows() != int64(rows):
		return ggufRows{}, fmt.Errorf("tensor %q has the dimensions %v, but %d rows of %d weights were expected", t.Name, t.Dims, rows, cols)
	}
	size := int(t.RowBytes()) * rows
	return ggufRows{s.file, t, s.file.Data(t)[expert*size:][:size]}, nil
}

// tensor reads a tensor without its dimensions of 1, as llama.cpp has it. The elements of two
// halves alternate: these are biases of gate and up of fused experts.
func (s *ggufSource) tensor(name string, shape ...int64) ([]float32, error) {
	list, _ := s.find(name)
	if len(list) == 0 {
		return nil, arch.Missing(name)
	}
	v := make([]float32, elements(shape))
	place, width := s.places(name), 1
	if strings.HasSuffix(name, "conv1d.weight") && place != nil {
		width = s.config.DeltaNet.Kernel
	}
	for half, t := range list {
		s.asked[t.Name] = true
		stored := make([]float32, len(v)/len(list))
		if t.Elements() != int64(len(stored)) {
			return nil, fmt.Errorf("tensor %q has %d elements: %d were expected", t.Name, t.Elements(), len(stored))
		}
		if err := s.guard(func() error { return t.Type.Decode(stored, s.file.Data(t)) }); err != nil {
			return nil, err
		}
		for i := range stored {
			from := i
			if place != nil {
				from = place(i/width)*width + i%width
			}
			x := stored[from]
			if strings.HasSuffix(t.Name, ".ssm_a") { // -e^x
				x = float32(detmath.Log(-float64(x)))
			}
			v[i*len(list)+half] = x
		}
	}
	return v, nil
}

// places returns the places in the file of the rows of a delta net's tensor, or of the columns of
// the output projection, if the heads of values that share a head of keys lie apart; else nil.
func (s *ggufSource) places(name string) func(i int) int {
	d, keys, height := s.config.DeltaNet, 0, 1
	_, part, ok := strings.Cut(name, "linear_attn.")
	if part, _, _ = strings.Cut(part, "."); !ok || part == "norm" || !s.config.Facts.Has(arch.DeltaQKV) {
		return nil
	}
	switch part {
	case "in_proj_qkv", "conv1d":
		keys, height = 2*d.KeyHeads*d.KeyDim, d.ValueDim
	case "in_proj_z", "out_proj":
		height = d.ValueDim
	}
	each := d.ValueHeads / d.KeyHeads
	return func(i int) int {
		if i < keys {
			return i
		}
		head, row := (i-keys)/height, (i-keys)%height
		return keys + (head%each*d.KeyHeads+head/each)*height + row
	}
}

func (s *ggufSource) embedding(name string, rows, cols int) (Embedding, error) {
	list, _ := s.find(name)
	if len(list) == 0 {
		return nil, arch.Missing(name)
	}
	return s.data(list[0], 0, rows, cols)
}

type ggufRows struct {
	file *gguf.File
	*gguf.Tensor
	data []byte
}

func (r ggufRows) Lookup(dst []float32, row int) error {
	return r.file.Guard(func() error { return r.read(dst, row) })
}

func (r ggufRows) read(dst []float32, row int) error {
	size := int(r.RowBytes())
	return r.Type.Decode(dst, r.data[row*size:][:size])
}

func (s *ggufSource) linear(l *linearSpec) (kernels.Operator, error) {
	tensors, expert := s.find(l.name)
	if at, ok := strings.CutSuffix(l.name, ".self_attn.kv_b_proj.weight"); ok && len(tensors) == 0 {
		return s.splitLatents(strings.Replace(at, s.config.Facts.Prefix.Body+"layers", "blk", 1), l)
	}
	if len(tensors) == 0 {
		return nil, arch.Missing(l.name)
	}
	if l.slices > 0 {
		expert = l.slice
	}
	each := l.rows / len(tensors)
	var list []ggufRows
	for _, t := range tensors {
		rows, err := s.data(t, expert, each, l.cols)
		if err != nil {
			return nil, err
		}
		list = append(list, rows)
	}
	alternate := len(list) == 2 && l.slices > 0 && s.config.Experts.Interleaved
	place, columns := s.places(l.name), strings.HasSuffix(l.name, "linear_attn.out_proj.weight")
	return kernels.NewRows(l.rows, l.cols, func(dst []float32, row int) {
		tensor, at := row/each, row%each
		if alternate {
			tensor, at = row%len(list), row/len(list)
		}
		if place != nil && !columns {
			at = place(at)
		}
		if err := list[tensor].read(dst, at); err != nil {
			panic(err) // the type and the size were checked
		}
		if place != nil && columns {
			stored := slices.Clone(dst)
			for i := range dst {
				dst[i] = stored[place(i)]
			}
		}
	}, nil, s.options)
}

// splitLatents reads keys and values of latents from two tensors. at is the prefix of the names.
func (s *ggufSource) splitLatents(at string, l *linearSpec) (kernels.Operator, error) {
	a, heads := s.config.Latent, s.config.Heads
	keys, values := s.file.Tensor(at+".attn_k_b.weight"), s.file.Tensor(at+".attn_v_b.weight")
	if keys == nil || values == nil {
		return nil, arch.Missing(l.name)
	}
	k, err := s.data(keys, 0, heads*a.KeyRank, a.Nope)
	if err != nil {
		return nil, err
	}
	v, err := s.data(values, 0, heads*a.Value, a.KeyRank)
	if err != nil {
		return nil, err
	}
	return kernels.NewRows(l.rows, l.cols, func(dst []float32, row int) {
		head, i := row/(a.Nope+a.Value), row%(a.Nope+a.Value)
		if i >= a.Nope { // errors: the types and the sizes were checked
			_ = v.read(dst, head*a.Value+i-a.Nope)
			return
		}
		line := make([]float32, a.Nope)
		for c := range dst {
			_ = k.read(line, head*a.KeyRank+c)
			dst[c] = line[i]
		}
	}, nil, s.options)
}

func (s *ggufSource) shape(name string) ([]int64, bool) {
	list, _ := s.find(name)
	if len(list) != 1 { // the halves of fused experts have no shape of their own
		return nil, false
	}
	return slices.Clone(list[0].Dims), true
}

// names lists the tensors that the model did not ask for. Model refuses these.
func (s *ggufSource) names() (names []string) {
	for _, t := range s.file.Tensors {
		layer, part, _ := strings.Cut(strings.TrimPrefix(t.Name, "blk."), ".")
		n, err := strconv.Atoi(layer)
		copied := err == nil && n < len(s.config.Layers) && s.config.Layers[n].Borrow > 0 && strings.HasPrefix(part, "attn_")
		// The config has the divisors of frequencies.
		if !s.asked[t.Name] && !copied && !strings.HasPrefix(t.Name, "rope_") {
			names = append(names, t.Name)
		}
	}
	return names
}

func (s *ggufSource) biasOf(weights string) string { return arch.BiasName(weights) }
func (s *ggufSource) guard(fn func() error) error  { return s.file.Guard(fn) }
func (s *ggufSource) release()                     {}
func (s *ggufSource) close() error                 { return nil } // the opener closes the file
