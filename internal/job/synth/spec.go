package synth

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// A Spec is the shape of a model of the Llama family or, with Experts, of the Mixtral family.
type Spec struct {
	Hidden       int           // width of the residual stream
	Intermediate int           // width inside the MLP, or inside an expert
	Layers       int           //
	Heads        int           // number of query heads
	KVHeads      int           // number of key-value heads; default (0): Heads
	HeadDim      int           // default (0): Hidden / Heads
	Vocab        int           // rows of the embedding
	Experts      int           // number in each layer; default (0): a dense MLP
	Tied         bool          // no lm_head: the embedding serves. Default false
	Dtype        packing.Dtype // F32, F16 or BF16; default (DtypeNone): BF16
	Seed         uint64        // default 0

	// MaxShardBytes bounds the data in a file; default (0): a single file.
	MaxShardBytes int64
}

// Presets are the shapes of well-known models, and two for tests: rows of 172 need short groups.
var Presets = map[string]Spec{
	"tiny":         {Hidden: 64, Intermediate: 172, Layers: 2, Heads: 8, KVHeads: 4, Vocab: 512, Tied: true},
	"tiny-moe":     {Hidden: 64, Intermediate: 172, Layers: 2, Heads: 8, KVHeads: 4, Vocab: 512, Experts: 4},
	"smollm2-135m": {Hidden: 576, Intermediate: 1536, Layers: 30, Heads: 9, KVHeads: 3, Vocab: 49152, Tied: true},
	"llama-3.2-1b": {Hidden: 2048, Intermediate: 8192, Layers: 16, Heads: 32, KVHeads: 8, Vocab: 128256, Tied: true},
	"llama-3.2-3b": {Hidden: 3072, Intermediate: 8192, Layers: 28, Heads: 24, KVHeads: 8, Vocab: 128256, Tied: true},
	"llama-3.1-8b": {Hidden: 4096, Intermediate: 14336, Layers: 32, Heads: 32, KVHeads: 8, Vocab: 128256},
}

func (s Spec) withDefaults() Spec {
	s.KVHeads = cmp.Or(s.KVHeads, s.Heads)
	if s.HeadDim == 0 && s.Heads > 0 {
		s.HeadDim = s.Hidden / s.Heads
	}
	if s.Dtype == packing.DtypeNone {
		s.Dtype = packing.BF16
	}
	return s
}

func (s Spec) Validate() error {
	s = s.withDefaults()
	for _, f := range []struct {
		name  string
		value int
	}{
		{"hidden size", s.Hidden}, {"intermediate size", s.Intermediate}, {"number of layers", s.Layers},
		{"number of heads", s.Heads}, {"number of KV heads", s.KVHeads}, {"head dimension", s.HeadDim}, {"vocabulary size", s.Vocab},
	} {
		if f.value < 1 || f.value > math.MaxInt32 {
			return fmt.Errorf("synth: %s %d is not between 1 and 2^31-1", f.name, f.value)
		}
	}
	switch {
	case s.Heads%s.KVHeads != 0:
		return fmt.Errorf("synth: %d heads cannot share %d KV heads", s.Heads, s.KVHeads)
	case s.Experts < 0 || s.Experts > math.MaxInt32:
		return fmt.Errorf("synth: %d experts", s.Experts)
	case s.Dtype != packing.F32 && s.Dtype != packing.F16 && s.Dtype != packing.BF16:
		return fmt.Errorf("synth: dtype %v; F32, F16 and BF16 are possible", s.Dtype)
	}
	return nil
}

func (s Spec) Parameters() int64 {
	n := int64(0)
	for _, t := range s.withDefaults().tensors() {
		n += t.Rows * t.Cols
	}
	return n
}

// Bytes returns the size of the data: the sum of Write's progress.
func (s Spec) Bytes() int64 {
	return s.Parameters() * int64(s.withDefaults().Dtype.Bits()/8)
}

// A Tensor is a tensor of a model and the statistics of its values.
type Tensor struct {
	Name       string
	Rows, Cols int64
	Vector     bool    // rank 1; Rows is 1
	Slices     int64   // of a tensor of rank 3: their rows lie below each other; 0: rank 2
	Mean, Std  float64 // of the values, before the gain of the row
}

// Matrix returns a matrix of values with the standard deviation gain / sqrt(cols).
func Matrix(name string, rows, cols int, gain float64) Tensor {
	return Tensor{Name: name, Rows: int64(rows), Cols: int64(cols), Std: gain / math.Sqrt(float64(cols))}
}

func Vector(name string, n int, mean, std float64) Tensor {
	return Tensor{Name: name, Rows: 1, Cols: int64(n), Vector: true, Mean: mean, Std: std}
}

func (t Tensor) spec(d packing.Dtype) safetensors.TensorSpec {
	shape := []int64{t.Rows, t.Cols}
	if t.Vector {
		shape = shape[1:]
	}
	if t.Slices > 0 {
		shape = []int64{t.Slices, t.Rows / t.Slices, t.Cols}
	}
	return safetensors.TensorSpec{Name: t.Name, Dtype: d, Shape: shape}
}

// tensors lists the model's tensors in forward order, with standard deviations of trained models.
func (s Spec) tensors() []Tensor {
	var all []Tensor
	matrix := func(name string, rows, cols int, gain float64) {
		all = append(all, Matrix(name, rows, cols, gain))
	}
	norm := func(name string, mean float64) { all = append(all, Vector(name, s.Hidden, mean, mean/16)) }
	matrix("model.embed_tokens.weight", s.Vocab, s.Hidden, 1)
	for i := range s.Layers {
		l := fmt.Sprintf("model.layers.%d.", i)
		norm(l+"input_layernorm.weight", 0.5)
		matrix(l+"self_attn.q_proj.weight", s.Heads*s.HeadDim, s.Hidden, 1.4)
		matrix(l+"self_attn.k_proj.weight", s.KVHeads*s.HeadDim, s.Hidden, 1.6)
		matrix(l+"self_attn.v_proj.weight", s.KVHeads*s.HeadDim, s.Hidden, 0.7)
		matrix(l+"self_attn.o_proj.weight", s.Hidden, s.Heads*s.HeadDim, 0.7)
		norm(l+"post_attention_layernorm.weight", 0.4)
		if s.Experts == 0 {
			matrix(l+"mlp.gate_proj.weight", s.Intermediate, s.Hidden, 1)
			matrix(l+"mlp.up_proj.weight", s.Intermediate, s.Hidden, 0.9)
			matrix(l+"mlp.down_proj.weight", s.Hidden, s.Intermediate, 1.3)
			continue
		}
		matrix(l+"block_sparse_moe.gate.weight", s.Experts, s.Hidden, 1)
		for e := range s.Experts {
			x := fmt.Sprintf("%sblock_sparse_moe.experts.%d.", l, e)
			matrix(x+"w1.weight", s.Intermediate, s.Hidden, 1)
			matrix(x+"w3.weight", s.Intermediate, s.Hidden, 0.9)
			matrix(x+"w2.weight", s.Hidden, s.Intermediate, 1.3)
		}
	}
	norm("model.norm.weight", 1.8)
	if !s.Tied {
		matrix("lm_head.weight", s.Vocab, s.Hidden, 1)
	}
	return all
}

func (s Spec) config() ([]byte, error) {
	c := struct {
		Architectures   []string `json:"architectures"`
		ModelType       string   `json:"model_type"`
		Hidden          int      `json:"hidden_size"`
		Intermediate    int      `json:"intermediate_size"`
		Layers          int      `json:"num_hidden_layers"`
		Heads           int      `json:"num_attention_heads"`
		KVHeads         int      `json:"num_key_value_heads"`
		HeadDim         int      `json:"head_dim"`
		Vocab           int      `json:"vocab_size"`
		Experts         int      `json:"num_local_experts,omitempty"`
		ExpertsPerToken int      `json:"num_experts_per_tok,omitempty"`
		HiddenAct       string   `json:"hidden_act"`
		MaxPositions    int      `json:"max_position_embeddings"`
		RMSNormEps      float64  `json:"rms_norm_eps"`
		RopeTheta       float64  `json:"rope_theta"`
		BOS             int      `json:"bos_token_id"`
		EOS             int      `json:"eos_token_id"`
		Tied            bool     `json:"tie_word_embeddings"`
		TorchDtype      string   `json:"torch_dtype"`
	}{
		Architectures: []string{"LlamaForCausalLM"}, ModelType: "llama",
		Hidden: s.Hidden, Intermediate: s.Intermediate, Layers: s.Layers, Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim, Vocab: s.Vocab,
		HiddenAct: "silu", MaxPositions: 8192, RMSNormEps: 1e-5, RopeTheta: 500000, BOS: 1, EOS: 2, Tied: s.Tied,
		TorchDtype: map[packing.Dtype]string{packing.F32: "float32", packing.F16: "float16", packing.BF16: "bfloat16"}[s.Dtype],
	}
	if s.Experts > 0 {
		c.Architectures, c.ModelType = []string{"MixtralForCausalLM"}, "mixtral"
		c.Experts, c.ExpertsPerToken = s.Experts, min(2, s.Experts)
	}
	b, err := json.MarshalIndent(c, "", "  ")
	return append(b, '\n'), err
}

// gamma and mix are SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
// OOPSLA 2014). Number i of the sequence that starts at key is mix(key + (i+1)*gamma), so any part
// of the sequence is directly available.
const gamma = 0x9e3779b97f4a7c15

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func tensorKey(seed uint64, name string) uint64 {
	key := mix(seed + gamma)
	for i := range len(name) {
		key = mix(key + uint64(name[i]) + gamma)
	}
	return key
}

const (
	// Each of the four uniform variables has 14 bits, the index of the factor has 8.
	uniformBits = 14
	uniformMask = 1<<uniformBits - 1
	tailLen     = 256
)

// tail holds the heavy-tailed factors, divided by the standard deviation of the sum of the four
// uniform variables, so that the product has mean 0 and variance 1.
var tail = makeTail()

func makeTail() (factors [tailLen]float32) {
	// (1-u)^(-1/4), for u in the middle of each of 256 intervals, is Pareto with index 4.
	var f [tailLen]float64
	square := 0.0
	for i := range f {
		f[i] = 1 / math.Sqrt(math.Sqrt((float64(tailLen-i)-0.5)/tailLen))
		square += float64(f[i] * f[i])
	}
	// The variance of the uniform distribution on 0 .. n-1 is (n^2-1)/12.
	const n = 1 << uniformBits
	scale := math.Sqrt(square/tailLen) * math.Sqrt(4*float64(n*n-1)/12)
	for i := range f {
		factors[i] = float32(f[i] / scale)
	}
	return factors
}

// fill writes the values first, first+1, ... of row row of t to dst, as dtype d.
func (t *Tensor) fill(dst []byte, d packing.Dtype, key uint64, row, first int64) {
	std := float32(t.Std)
	if !t.Vector {
		x := mix(^key + (uint64(row)+1)*gamma)
		// nearly triangular over 0.7 .. 1.3
		gain := 0.7 + float64(float64(x>>32+x&math.MaxUint32)*(0.3/(1<<32)))
		std = float32(t.Std * gain)
	}
	mean := float32(t.Mean)
	state := key + uint64(row*t.Cols+first)*gamma
	value := func() float32 {
		state += gamma
		x := mix(state)
		sum := x&uniformMask + x>>uniformBits&uniformMask + x>>(2*uniformBits)&uniformMask + x>>(3*uniformBits)&uniformMask
		v := float32(float32(int32(sum)-2*uniformMask) * tail[x>>(4*uniformBits)])
		return mean + float32(v*std)
	}
	switch d {
	case packing.F32:
		for ; len(dst) >= 4; dst = dst[4:] {
			binary.LittleEndian.PutUint32(dst, math.Float32bits(value()))
		}
	case packing.F16:
		for ; len(dst) >= 2; dst = dst[2:] {
			binary.LittleEndian.PutUint16(dst, floats.F16FromF32(value()))
		}
	case packing.BF16:
		for ; len(dst) >= 2; dst = dst[2:] {
			binary.LittleEndian.PutUint16(dst, floats.BF16FromF32(value()))
		}
	}
}
