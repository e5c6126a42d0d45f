package forward

import (
	"cmp"
	"errors"
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
// of q and k as stored, norms without adding 1, frequencies from the tensors of rope factors. Names
// and orders are written here a second time, not taken from package llamacpp: OpenGGUF checks an
// export against its source, and a mistake in the export's tables must not cancel out.
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
	name, _ := f.Text(gguf.KeyArchitecture)
	c.PlusOne = false // weights are stored plus 1
	if c.PerLayer != nil {
		c.PerLayer.Vocab = c.VocabSize
	}
	for i := range c.Ropes {
		switch name { // llama_model_rope_type
		case "llama", "smollm3", "granite", "granitemoe", "granitehybrid", "glm4", "ernie4_5", "ernie4_5-moe", "cohere2", "deepseek2", "llama4":
			c.Ropes[i].Neighbours = true
		default:
			c.Ropes[i].Neighbours = false
		}
	}
	s := &ggufSource{file: f, config: c, options: kernels.Options{CPU: o.CPU, Log: o.Log}, asked: map[string]bool{}}
	if err := s.frequencies(&c.Ropes[0]); err != nil {
		return nil, err
	}
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

// frequencies takes the divisors of frequencies from the file.
func (s *ggufSource) frequencies(r *arch.RopeConfig) error {
	read := func(name string) ([]float64, error) {
		t := s.file.Tensor(name)
		if t == nil {
			return nil, nil
		}
		s.asked[name] = true
		values, err := s.values(t, r.Dims/2)
		list := make([]float64, len(values))
		for i, v := range values {
			list[i] = float64(v)
		}
		return list, err
	}
	freqs, err := read("rope_freqs.weight")
	if err != nil {
		return err
	}
	if freqs != nil { // the same in any context
		*r = arch.RopeConfig{Type: "longrope", Theta: r.Theta, Dims: r.Dims, AttentionFactor: 1, Neighbours: r.Neighbours, Short: freqs, Long: freqs}
		return nil
	}
	long, err := read("rope_factors_long.weight")
	if err != nil {
		return err
	}
	short, err := read("rope_factors_short.weight")
	if long != nil && short != nil {
		r.Long, r.Short = long, short
	}
	return err
}

// inLayer maps names in a layer to llama.cpp's.
var inLayer = map[string]string{
	"input_layernorm":               "attn_norm",
	"self_attn.q_proj":              "attn_q",
	"self_attn.k_proj":              "attn_k",
	"self_attn.v_proj":              "attn_v",
	"self_attn.qkv_proj":            "attn_qkv",
	"self_attn.o_proj":              "attn_output",
	"self_attn.q_a_proj":            "attn_q_a",
	"self_attn.q_a_layernorm":       "attn_q_a_norm",
	"self_attn.q_b_proj":            "attn_q_b",
	"self_attn.kv_a_proj_with_mqa":  "attn_kv_a_mqa",
	"self_attn.kv_a_layernorm":      "attn_kv_a_norm",
	"self_attn.kv_b_proj":           "attn_kv_b",
	"self_attn.q_norm":              "attn_q_norm",
	"self_attn.k_norm":              "attn_k_norm",
	"self_attn.query_layernorm":     "attn_q_norm",
	"self_attn.key_layernorm":       "attn_k_norm",
	"post_self_attn_layernorm":      "post_attention_norm",
	"post_mlp_layernorm":            "post_ffw_norm",
	"pre_feedforward_layernorm":     "ffn_norm",
	"post_feedforward_layernorm":    "post_ffw_norm",
	"mlp.gate_proj":                 "ffn_gate",
	"mlp.up_proj":                   "ffn_up",
	"mlp.gate_up_proj":              "ffn_up",
	"mlp.down_proj":                 "ffn_down",
	"mlp.gate":                      "ffn_gate_inp",
	"block_sparse_moe.gate":         "ffn_gate_inp",
	"block_sparse_moe.router.layer": "ffn_gate_inp",
	"mlp.gate.wg":                   "ffn_gate_inp",
	"mlp.shared_expert_gate":        "ffn_gate_inp_shexp",
	"operator_norm":                 "attn_norm",
	"ffn_norm":                      "ffn_norm",
	"self_attn.out_proj":            "attn_output",
	"self_attn.q_layernorm":         "attn_q_norm",
	"self_attn.k_layernorm":         "attn_k_norm",
	"conv.in_proj":                  "shortconv.in_proj",
	"conv.conv":                     "shortconv.conv",
	"conv.out_proj":                 "shortconv.out_proj",
	"shared_mlp.output_linear":      "ffn_down",
	"linear_attn.in_proj_qkvz":      "ssm_in",
	"linear_attn.in_proj_ba":        "ssm_ba",
	"feed_forward.w1":               "ffn_gate",
	"feed_forward.w3":               "ffn_up",
	"feed_forward.w2":               "ffn_down",
	"feed_forward.gate":             "ffn_gate_inp",
	"w1":                            "ffn_gate_exps",
	"w3":                            "ffn_up_exps",
	"w2":                            "ffn_down_exps",
	"gate_proj":                     "ffn_gate_exps",
	"up_proj":                       "ffn_up_exps",
	"down_proj":                     "ffn_down_exps",
	"self_attn.k_b_proj":            "attn_k_b", "self_attn.v_b_proj": "attn_v_b", "self_attn.o_norm": "ssm_norm",
	"self_attn.q_conv1d": "ssm_conv1d_q", "self_attn.k_conv1d": "ssm_conv1d_k", "self_attn.v_conv1d": "ssm_conv1d_v",
	"self_attn.f_a_proj": "ssm_f_a", "self_attn.f_b_proj": "ssm_f_b", "self_attn.b_proj": "ssm_beta", "self_attn.g_a_proj": "ssm_g_a", "self_attn.g_b_proj": "ssm_g_b",
	"linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
	"feed_forward.gate_proj": "ffn_gate", "feed_forward.up_proj": "ffn_up", "feed_forward.down_proj": "ffn_down", "feed_forward.router": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
	"per_layer_input_gate": "inp_gate", "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm",
	"altup.router_norm": "altup_router_norm", "altup.modality_router": "altup_router", "altup.prediction_coefs": "altup_predict_coef", "altup.correction_coefs": "altup_correct_coef",
	"laurel.linear_left": "laurel_l", "laurel.linear_right": "laurel_r", "laurel.post_laurel_norm": "laurel_post_norm",
	"pre_feedforward_layernorm_2": "pre_ffw_norm_2", "post_feedforward_layernorm_1": "post_ffw_norm_1", "post_feedforward_layernorm_2": "post_ffw_norm_2",
	"router.proj": "ffn_gate_inp", "gate_up_proj": "ffn_gate_up_exps",
	"mixer.fc1_latent_proj": "ffn_latent_down", "mixer.fc2_latent_proj": "ffn_latent_up",
	"mamba.in_proj": "ssm_in", "mamba.conv1d": "ssm_conv1d", "mamba.norm": "ssm_norm", "mamba.out_proj": "ssm_out",
	"norm": "attn_norm", "pre_ff_layernorm": "ffn_norm",
}

// parameters maps parameters of modules that are no weights and biases.
var parameters = map[string]string{
	".A_log": "ssm_a", ".D": "ssm_d", ".dt_bias": "ssm_dt.bias", ".e_score_correction_bias": "exp_probs_b.bias", ".expert_bias": "exp_probs_b.bias", ".sinks": "attn_sinks.weight",
	".correct_output_scale": "altup_correct_scale.weight", ".scale": "ffn_gate_inp.scale", ".per_expert_scale": "ffn_down_exps.scale",
}

// outside maps modules outside of layers.
var outside = map[string]string{
	"model.embed_tokens_per_layer": "per_layer_token_embd", "model.per_layer_model_projection": "per_layer_model_proj",
	"model.per_layer_projection_norm": "per_layer_proj_norm", "model.altup": "altup_proj", "model.altup_unembed": "altup_unembd_proj",
}

// find returns the tensor of a name in a checkpoint, and the expert in that tensor, or nil.
func (s *ggufSource) find(name string) (t *gguf.Tensor, expert int) {
	theirs := ""
	switch name {
	case "model.embed_tokens.weight":
		theirs = "token_embd.weight"
	case "model.norm.weight", "model.norm_f.weight", "model.final_layernorm.weight":
		theirs = "output_norm.weight"
	case "model.embedding_norm.weight":
		theirs = "token_embd_norm.weight"
	case "model.norm.bias":
		theirs = "output_norm.bias"
	case "lm_head.weight":
		theirs = "output.weight"
	case "lm_head.bias":
		theirs = "output.bias"
	default:
		rest, ok := strings.CutPrefix(name, "model.layers.")
		if !ok { // perhaps a matrix of several in a tensor
			module, number, _ := strings.Cut(strings.TrimSuffix(name, ".weight"), "_projections.")
			expert, _ = strconv.Atoi(number)
			return s.file.Tensor(outside[module] + ".weight"), expert
		}
		layer, rest, _ := strings.Cut(rest, ".")
		at := strings.LastIndexByte(rest, '.')
		if at < 0 { // layer_scalar
			return s.file.Tensor("blk." + layer + ".layer_output_scale.weight"), 0
		}
		part, suffix := rest[:at], rest[at:]
		if _, number, ok := strings.Cut("."+part, ".experts."); ok {
			number, part, _ = strings.Cut(number, ".")
			expert, _ = strconv.Atoi(number)
		}
		theirs = inLayer[part]
		// The expert of all tokens.
		if _, matrix, ok := strings.Cut(part, ".shared_"); ok && theirs == "" {
			_, matrix, _ = strings.Cut(matrix, ".")
			theirs = strings.Replace(inLayer[matrix], "_exps", "_shexp", 1)
		}
		last := part[strings.LastIndexByte(part, '.')+1:] // in modules with other names
		theirs = cmp.Or(theirs, inLayer["mamba."+last], inLayer["self_attn."+last], inLayer["mlp."+last])
		if s.config.Experts != nil && strings.HasPrefix(part, "shared_mlp.") {
			theirs += "_shexp"
		}
		if own := parameters[suffix]; own != "" {
			theirs, suffix = own, ""
		} else if part == "pre_ff_layernorm" {
			suffix = ""
		}
		if part == "post_attention_layernorm" {
			theirs = "ffn_norm"
			if s.config.Facts.NameOf(arch.FeedForwardNorm) != part || s.config.Architecture == "seed_oss" || s.config.Architecture == "gpt_oss" || s.config.Architecture == "glm4_moe" || s.config.DeltaNet != nil && s.config.Latent == nil {
				theirs = "post_attention_norm"
			}
		}
		theirs = "blk." + layer + "." + theirs + suffix
	}
	return s.file.Tensor(theirs), expert
}

// matrix finds a tensor of rows x cols weights, or an expert's part of a tensor.
func (s *ggufSource) matrix(name string, rows, cols int) (*gguf.Tensor, []byte, error) {
	t, expert := s.find(name)
	if t == nil {
		return nil, nil, arch.Missing(name)
	}
	s.asked[t.Name] = true
	switch {
	case !t.Type.Decodable():
		return nil, nil, &arch.UnsupportedError{Msg: fmt.Sprintf("tensor %q: the weights of %s are not known here", t.Name, t.Type)}
	case t.Columns() != int64(cols) || t.Rows()%int64(rows) != 0 || int64(expert) >= t.Rows()/int64(rows) || len(t.Dims) < 3 && t.Rows() != int64(rows):
		return nil, nil, fmt.Errorf("tensor %q has the dimensions %v, but %d rows of %d weights were expected", t.Name, t.Dims, rows, cols)
	}
	size := int(t.RowBytes()) * rows
	return t, s.file.Data(t)[expert*size:][:size], nil
}

func (s *ggufSource) values(t *gguf.Tensor, n int) ([]float32, error) {
	if t.Elements() != int64(n) {
		return nil, fmt.Errorf("tensor %q has %d elements: %d were expected", t.Name, t.Elements(), n)
	}
	v := make([]float32, n)
	return v, s.guard(func() error { return t.Type.Decode(v, s.file.Data(t)) })
}

func (s *ggufSource) vector(name string, n int) ([]float32, error) {
	t, _ := s.find(name)
	if t == nil {
		return nil, arch.Missing(name)
	}
	s.asked[t.Name] = true
	v, err := s.values(t, n)
	if place := s.places(name); place != nil && err == nil {
		stored, width := slices.Clone(v), 1
		if strings.HasSuffix(name, "conv1d.weight") {
			width = s.config.DeltaNet.Kernel
		}
		for i := range v {
			v[i] = stored[place(i/width)*width+i%width]
		}
	}
	if strings.HasSuffix(t.Name, ".ssm_a") { // -e^x
		for i := range v {
			v[i] = float32(detmath.Log(-float64(v[i])))
		}
	}
	return v, err
}

// tensor reads a tensor without its dimensions of 1, as llama.cpp has it. Biases of gate and up of
// fused experts are in two tensors.
func (s *ggufSource) tensor(name string, shape ...int64) ([]float32, error) {
	at, ok := strings.CutSuffix(name, ".experts.gate_up_proj.bias")
	if !ok {
		return s.vector(strings.Replace(name, ".experts.down", ".experts.0.down", 1), elements(shape))
	}
	v := make([]float32, elements(shape))
	gate, err := s.vector(at+".experts.0.gate_proj.bias", len(v)/2)
	up, err2 := s.vector(at+".experts.0.up_proj.bias", len(v)/2)
	if err = errors.Join(err, err2); err != nil {
		return nil, err
	}
	for i := range gate {
		v[2*i], v[2*i+1] = gate[i], up[i]
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
	t, data, err := s.matrix(name, rows, cols)
	if err != nil {
		return nil, err
	}
	return ggufRows{s.file, t, data}, nil
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
	if at, ok := strings.CutSuffix(l.name, "kv_b_proj.weight"); ok {
		if keys, _ := s.find(at + "k_b_proj.weight"); keys != nil {
			return s.splitLatents(at, l)
		}
	}
	names := []string{l.name} // of tensors, whose rows follow
	alternate := false
	if at, ok := strings.CutSuffix(l.name, ".experts.gate_up_proj.weight"); ok {
		expert := fmt.Sprintf("%s.experts.%d.", at, l.slice)
		names[0] = expert + "gate_up_proj.weight"
		if t, _ := s.find(names[0]); t == nil {
			names = []string{expert + "gate_proj.weight", expert + "up_proj.weight"}
		}
		alternate = s.config.Experts.Interleaved
	} else if at, ok := strings.CutSuffix(l.name, ".experts.down_proj.weight"); ok {
		names[0] = fmt.Sprintf("%s.experts.%d.down_proj.weight", at, l.slice)
	} else if at, ok := strings.CutSuffix(l.name, "shared_mlp.input_linear.weight"); ok {
		names = []string{at + "shared_mlp.gate_proj.weight", at + "shared_mlp.up_proj.weight"}
	} else if at, ok := strings.CutSuffix(l.name, "input_linear.weight"); ok {
		names = []string{fmt.Sprintf("%sexperts.%d.w1.weight", at, l.slice), fmt.Sprintf("%sexperts.%d.w3.weight", at, l.slice)}
	} else if at, ok := strings.CutSuffix(l.name, "block_sparse_moe.output_linear.weight"); ok {
		names[0] = fmt.Sprintf("%sblock_sparse_moe.experts.%d.w2.weight", at, l.slice)
	}
	each := l.rows / len(names)
	var list []ggufRows
	for _, name := range names {
		t, data, err := s.matrix(name, each, l.cols)
		if err != nil {
			return nil, err
		}
		list = append(list, ggufRows{s.file, t, data})
	}
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
	k, keys, err := s.matrix(at+"k_b_proj.weight", heads*a.KeyRank, a.Nope)
	if err != nil {
		return nil, err
	}
	v, values, err := s.matrix(at+"v_b_proj.weight", heads*a.Value, a.KeyRank)
	if err != nil {
		return nil, err
	}
	return kernels.NewRows(l.rows, l.cols, func(dst []float32, row int) {
		head, i := row/(a.Nope+a.Value), row%(a.Nope+a.Value)
		if i >= a.Nope { // errors: the types and the sizes were checked
			_ = ggufRows{s.file, v, values}.read(dst, head*a.Value+i-a.Nope)
			return
		}
		line := make([]float32, a.Nope)
		for c := range dst {
			_ = ggufRows{s.file, k, keys}.read(line, head*a.KeyRank+c)
			dst[c] = line[i]
		}
	}, nil, s.options)
}

func (s *ggufSource) shape(name string) ([]int64, bool) {
	t, _ := s.find(name)
	if t == nil {
		return nil, false
	}
	return slices.Clone(t.Dims), true
}

// names lists the tensors that the model did not ask for. Model refuses these.
func (s *ggufSource) names() (names []string) {
	for _, t := range s.file.Tensors {
		layer, part, _ := strings.Cut(strings.TrimPrefix(t.Name, "blk."), ".")
		n, err := strconv.Atoi(layer)
		copied := err == nil && n < len(s.config.Layers) && s.config.Layers[n].Borrow > 0 && strings.HasPrefix(part, "attn_")
		if !s.asked[t.Name] && !copied {
			names = append(names, t.Name)
		}
	}
	return names
}

func (s *ggufSource) biasOf(weights string) string { return arch.BiasName(weights) }
func (s *ggufSource) guard(fn func() error) error  { return s.file.Guard(fn) }
func (s *ggufSource) release()                     {}
func (s *ggufSource) close() error                 { return nil } // the opener closes the file
