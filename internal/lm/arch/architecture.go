package arch

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/jsonscan"
)

// ForwardConfig has what a forward pass needs of config.json. [ParseForward] reads it.
type ForwardConfig struct {
	Architecture string // the language model's model_type: "llama"
	Facts        *Facts // of the architecture
	VocabSize    int
	HiddenSize   int
	Intermediate int // width of the feed-forward network, also of Mixtral's experts
	Heads        int
	KVHeads      int // divides Heads
	HeadDim      int
	RopeStart    int // the first dimension of a head that rotates
	MaxPositions int // max_position_embeddings: the intended context, not a limit
	Layers       []LayerConfig
	// Predictors is the number of layers behind the last that predict further tokens. Checkpoints may
	// have their tensors, and no forward pass runs them.
	Predictors int
	Ropes      []RopeConfig

	Activation string  // silu, gelu_pytorch_tanh, ClampedSilu or SquaredRelu
	NormEps    float64 // added to the mean square, or to the variance, in each norm
	PlusOne    bool    // norms multiply by 1 + weight (Gemma)
	LayerNorm  bool    // norms subtract the mean first
	NormBias   bool    // norms add a bias
	Parallel   bool    // attention and feed-forward network read the same norm of the layer's input
	QKNorm     QKNorm

	AttentionBias AttentionBias
	MLPBias       bool // of gate, up and down
	HeadBias      bool // of the lm_head

	EmbeddingScale   float64       // factor of the embedding's rows; 1 for none
	ResidualScale    float64       // factor of the outputs that are added to the hidden states
	Outputs          OutputFactors // next to ResidualScale
	LogitScale       float64       // factor of the logits, before the softcap
	AttentionScale   float64       // factor of products of queries and keys
	AttentionSoftcap float64       // s becomes c tanh(s/c); 0 for none
	Temperature      float64       // of queries, see [ForwardConfig.QueryFactor]; 0 for none
	TemperatureStep  int           // number of tokens between two temperatures
	LogitSoftcap     float64
	Tied             bool // the lm_head is the embedding

	UnitValues bool // values are normalized head by head, without weights

	Experts  *ExpertConfig   // nil for a dense model
	PerLayer *PerLayerConfig // nil without inputs of single layers
	AltUp    *AltUpConfig    // nil with a single stream of hidden states
	Laurel   int             // rank of a linear path beside attention; 0: none
	Latent   *LatentConfig   // of attention; nil without latents

	AttentionGate bool             // q has a gate for each output of attention
	ShortConv     *ShortConvConfig // nil without such layers
	DeltaNet      *DeltaNetConfig  // nil without such layers
	Mamba         *MambaConfig     // nil without such layers

	GateLimit float64 // of ClampedSilu
	GateSlope float64 // of silu and ClampedSilu: the s of x / (1 + e^(-s x))
}

// OutputFactors are factors of the outputs of parts.
type OutputFactors struct{ Attention, Mixer, FeedForward float64 }

// SquaredRelu is the Activation max(0, up)^2 of feed-forward networks without a gate (Nemotron).
const SquaredRelu = "relu2"

// PerLayerConfig describes inputs of single layers: rows of a second embedding, added to a
// projection of the first. Each layer has Width values.
type PerLayerConfig struct {
	Vocab int // rows of the second embedding; tokens beyond have row 0
	Width int
}

// AltUpConfig describes several streams of hidden states (Baykal et al., arXiv:2301.13310). A layer
// computes the first stream, and corrects its predictions of all streams.
type AltUpConfig struct {
	Streams int
	Scaled  bool // the input of the layer's own embedding has a factor for each channel
}

// ClampedSilu is the Activation (1 + u) g / (1 + e^(-slope g)), with the gate g up to a limit, and
// up, u, from -limit to limit (gpt-oss).
const ClampedSilu = "clamped silu"

// QKNorm says how queries and keys are normalized.
type QKNorm uint8

const (
	NoQKNorm     QKNorm = iota
	HeadNorms           // head by head, before the rotation
	WholeNorms          // all heads of a token together, before the rotation
	RotatedNorms        // head by head, after the rotation
	UnitNorms           // as RotatedNorms, in layers with a rope, and without weights
)

// AttentionBias says which linear layers of attention have a bias.
type AttentionBias uint8

const (
	NoBias  AttentionBias = iota
	QKVBias               // q, k and v
	AllBias               // q, k, v and the output projection
)

// HasBias reports whether the model has a bias for a matrix, given the weight's name. Matrices
// outside of attention and feed-forward networks count as having a bias.
func (c *ForwardConfig) HasBias(weight string) bool {
	segs := strings.Split(weight, ".")
	if len(segs) < 2 {
		return true
	}
	module := segs[len(segs)-2]
	for _, n := range c.Facts.Layer {
		if n.HF[strings.LastIndexByte(n.HF, '.')+1:] == module {
			return c.BiasOf(n.Kind)
		}
	}
	return true
}

// NameOf returns the name of a tensor in a layer of a checkpoint, or "" if the model has none.
func (c *ForwardConfig) NameOf(kind Kind) string {
	if c.QKNorm == NoQKNorm && (kind == QueryNorm || kind == KeyNorm) {
		return ""
	}
	if (kind == ExpertsIn || kind == ExpertsOut) && c.Experts.Latent == 0 || kind >= PerLayerGate && kind <= PerLayerNorm && c.PerLayer == nil || kind == MambaNorm && !c.Mamba.Norm {
		return ""
	}
	if a := c.Latent; a != nil { // queries come from a latent or from the hidden states
		if down := kind == QueryDown || kind == LatentQueryNorm || kind == QueryUp; a.QueryRank > 0 && kind == Query || a.QueryRank == 0 && down {
			return ""
		}
	}
	return c.Facts.NameOf(kind)
}

// Parts lists the linear layers that a fused layer of layer l joins, and their numbers of outputs.
func (c *ForwardConfig) Parts(fused Kind, l *LayerConfig) (kinds []Kind, rows []int) {
	if fused == FusedGateUp {
		return []Kind{Gate, Up}, []int{l.Intermediate, l.Intermediate}
	}
	kv := l.KVHeads * l.HeadDim
	return []Kind{Query, Key, Value}, []int{c.Heads * l.HeadDim, kv, kv}
}

// Unread reports whether no pass reads a tensor: of a layer of Predictors, or of the keys and
// values of a layer that reads another layer's. body is the prefix of the language model's tensors.
func (c *ForwardConfig) Unread(body, name string) bool {
	rest, ok := strings.CutPrefix(name, body+"layers.")
	number, rest, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 0 || n >= len(c.Layers) {
		return ok && err == nil && n >= len(c.Layers) && n < len(c.Layers)+c.Predictors
	}
	module := rest[:max(0, strings.LastIndexByte(rest, '.'))]
	return slices.ContainsFunc([]Kind{Key, Value, KeyNorm}, func(kind Kind) bool {
		return module == c.NameOf(kind) && !c.Layers[n].Uses(kind)
	})
}

// BiasOf reports whether linear layers of a kind have a bias.
func (c *ForwardConfig) BiasOf(kind Kind) bool {
	switch kind {
	case Query, Key, Value, FusedQKV:
		return c.AttentionBias >= QKVBias
	case Output:
		return c.AttentionBias == AllBias
	case Gate, Up, Down, FusedGateUp, ExpertsIn, ExpertsOut:
		return c.MLPBias
	case Router, GateUpExperts, DownExperts:
		return c.Experts != nil && c.Experts.Bias
	case MambaIn:
		return c.Mamba.InBias
	case MambaOut:
		return c.Mamba.OutBias
	}
	return false
}

// LayerConfig has the differences between layers.
type LayerConfig struct {
	Window  int  // number of tokens attended to, with the current token; 0: all
	Chunk   int  // tokens attend to their own chunk of this number of tokens; 0: all
	Rope    int  // index in Ropes; -1: no rope
	Experts bool // the feed-forward network is a mixture
	Mixer   Mixer
	// Beside: attention reads the same inputs as the mixer, and adds its own outputs.
	Beside        bool
	NoFeedForward bool

	HeadDim, KVHeads int // of attention
	Intermediate     int // width of the dense feed-forward network
	// Borrow: attention reads the keys and values of the layer Borrow layers before; 0: its own.
	Borrow int
	// KeyValues: the values are the keys before norm and rotation.
	KeyValues bool
	// Cutoff, if Sparse, zeroes the gates below their mean plus Cutoff standard deviations, and
	// subtracts that bound from the others.
	Sparse bool
	Cutoff float64
}

// QueryFactor is the factor of the queries of a token in a layer, by which attention stays sharp
// over many tokens (Nakanishi, Scalable-Softmax, arXiv:2501.19399).
func (c *ForwardConfig) QueryFactor(l *LayerConfig, position int) float64 {
	if c.Temperature == 0 || l.Rope >= 0 {
		return 1
	}
	steps := (position + 1) / c.TemperatureStep
	return 1 + float64(c.Temperature*detmath.Log(float64(1+steps)))
}

// ExpertsTransposed reports whether checkpoints store fused experts as inputs x outputs.
func (c *ForwardConfig) ExpertsTransposed() bool { return c.Facts.inOut }

// Uses reports whether the layer has tensors of a kind, if its architecture has.
func (l *LayerConfig) Uses(kind Kind) bool {
	if m := mixerOf(kind); m != NoMixer {
		other := l.KeyValues && kind == Value || l.Borrow > 0 && (kind == Key || kind == KeyNorm || kind == Value)
		return !other && (m == l.Mixer || m == AttentionMixer && l.Beside)
	}
	switch kind {
	case InputNorm, PostAttentionNorm:
		return l.Mixer != NoMixer
	case FeedForwardNorm, PostFeedForwardNorm:
		return !l.NoFeedForward
	}
	if l.NoFeedForward {
		return false
	}
	switch kind {
	case Gate, Up, Down, FusedGateUp:
		return !l.Experts
	case Router, GateExperts, UpExperts, DownExperts, GateUpExperts, RouterCorrection, SharedGate, SharedUp, SharedDown, SharedFused, ExpertsIn, ExpertsOut, SharedRouter,
		ExpertsNorm, ExpertsPostNorm, SharedPostNorm, RouterScale, ExpertScale:
		return l.Experts
	}
	return true
}

// LatentConfig describes attention whose queries, keys and values come from latents (MLA). A head
// has Nope + Rope dimensions for queries and keys.
type LatentConfig struct {
	QueryRank  int // of the queries' latent; 0: queries read the hidden states
	KeyRank    int // of the latent of keys and values
	Nope, Rope int // dimensions of a key that do not rotate, and that rotate
	Value      int // dimensions of a value, at most Nope + Rope
}

// ExpertConfig describes mixtures of experts.
type ExpertConfig struct {
	Count        int
	PerToken     int
	Intermediate int
	Normalize    bool // divide the weights of the chosen experts by their sum
	// Sigmoid: an expert's score is the sigmoid of its logit, not a softmax.
	Sigmoid bool
	// ScaleInputs: the weights are factors of the experts' inputs, not of their outputs.
	ScaleInputs bool
	// Sparse: a token's experts are chosen one after another. The weight of each is its softmax
	// among the remaining experts with a logit of at least about 1 - 2 Jitter of its own (Liu et
	// al., GRIN, arXiv:2409.12136).
	Sparse bool
	Jitter float64
	// Groups, if more than 1, is the number of groups of neighbouring experts. A token's experts are
	// in the GroupsPerToken groups with the largest sum of two scores.
	Groups, GroupsPerToken int
	GroupBest              bool    // a group counts by its best score alone
	Scale                  float64 // factor of the weights, after normalization
	Shared                 int     // width of the shared expert; 0: there is none
	Latent                 int     // experts read and write latents of this width; 0: hidden states
	Bias                   bool    // the router and the experts have biases
	// Interleaved: the rows of gate and up alternate in fused tensors.
	Interleaved bool
}

type UnsupportedError struct{ Msg string }

func (e *UnsupportedError) Error() string { return e.Msg }

// multimodal are models with a language model of architectures in a nested config, by model_type.
var multimodal = map[string]nesting{}

type nesting struct {
	class, text string   // the class of the whole, and the language model's model_type
	irrelevant  []string // keys that describe how images become embeddings
	flat        bool     // without text_config, the language model's keys are the outer ones
}

// registerMultimodal adds a model with a language model when the program starts.
func registerMultimodal(modelType string, n nesting) nesting {
	multimodal[modelType] = n
	return n
}

// TextType returns the model_type of a model's language model.
func TextType(modelType string) string {
	return cmp.Or(multimodal[modelType].text, modelType)
}

// ClassName returns the class of the model with an lm_head for a model type that [ParseForward]
// knows: the value of "architectures" in config.json.
func ClassName(modelType string) string {
	if f := FactsOf(modelType); f != nil {
		return f.Class
	}
	return multimodal[modelType].class
}

// ParseForward reads a config.json for a forward pass. Unlike [ParseConfig] it must understand
// everything: an unknown key, or a value that the forward pass cannot honour, is a *ConfigError
// with the key. An unknown model type is an *UnsupportedError.
func ParseForward(raw []byte) (*ForwardConfig, error) {
	facts, err := ParseConfig(raw)
	if err != nil {
		return nil, err
	}
	outer, err := parseObject(jsonscan.Finite(raw))
	if err != nil {
		return nil, err
	}
	k, arch, err := chooseArchitecture(facts, outer)
	if err != nil {
		return nil, err
	}
	c := &ForwardConfig{Architecture: facts.TextType, Facts: arch, EmbeddingScale: 1, ResidualScale: 1, LogitScale: 1, Outputs: OutputFactors{1, 1, 1}, Activation: "silu", GateSlope: 1}
	k.irrelevant(bookkeeping...)
	k.never(otherwise...)
	k.readMethod()
	c.VocabSize = k.size("vocab_size", arch.vocab)
	c.Tied = facts.TieWordEmbeddings
	if _, said := outer.keys["tie_word_embeddings"]; said && !facts.TieStated {
		k.fail("tie_word_embeddings", "has two different values")
	}
	arch.read(k, c)
	if k.rest(); k.err != nil {
		return nil, k.err
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	for i := range c.Layers {
		l := &c.Layers[i]
		l.HeadDim, l.KVHeads = cmp.Or(l.HeadDim, c.HeadDim), cmp.Or(l.KVHeads, c.KVHeads)
		l.Intermediate = cmp.Or(l.Intermediate, c.Intermediate)
		if c.Heads%l.KVHeads != 0 {
			return nil, &ConfigError{"num_key_value_heads", fmt.Sprintf("is %d in layer %d: that does not divide %d heads", l.KVHeads, i, c.Heads)}
		}
		if of := &c.Layers[i-l.Borrow]; of.HeadDim != l.HeadDim || of.KVHeads != l.KVHeads {
			return nil, &ConfigError{"num_kv_shared_layers", fmt.Sprintf("lets layer %d read keys of %d heads of %d of layer %d: %d of %d were expected", i, of.KVHeads, of.HeadDim, i-l.Borrow, l.KVHeads, l.HeadDim)}
		}
	}
	return c, nil
}

// chooseArchitecture finds the architecture of a config and the object that describes the language
// model.
func chooseArchitecture(facts *Config, outer object) (*keys, *Facts, error) {
	if facts.ModelType == "" {
		return nil, nil, &UnsupportedError{"config.json names no model_type"}
	}
	k, name := newKeys(outer), facts.ModelType
	arch, class := FactsOf(TextType(name)), ClassName(name)
	if m, nested := multimodal[name]; nested {
		inner, err := outer.child("text_config")
		if err != nil {
			return nil, arch, err
		}
		if inner.keys == nil && m.flat {
			k.irrelevant(m.irrelevant...)
			facts.TextType = m.text
			return k, arch, checkClass(facts, class)
		}
		if inner.keys == nil {
			return nil, arch, &ConfigError{"text_config", "is missing"}
		}
		if facts.TextType != m.text && facts.TextType != name {
			return nil, arch, &ConfigError{"text_config.model_type", fmt.Sprintf("is %q: %q was expected", facts.TextType, m.text)}
		}
		k.irrelevant(bookkeeping...)
		k.irrelevant(m.irrelevant...)
		k.never(otherwise...)
		k.readMethod()
		if k.rest(); k.err != nil {
			return nil, arch, k.err
		}
		k = newKeys(inner)
		facts.TextType = m.text
	}
	if arch == nil {
		return nil, arch, &UnsupportedError{fmt.Sprintf("model_type %q is not supported: gq runs %s",
			name, strings.Join(Architectures(), ", "))}
	}
	return k, arch, checkClass(facts, class)
}

func checkClass(facts *Config, class string) error {
	// Published files and Transformers differ in case: PhiMoE, Phimoe.
	same := func(name string) bool { return strings.EqualFold(name, class) }
	if len(facts.Architectures) > 0 && !slices.ContainsFunc(facts.Architectures, same) {
		return &UnsupportedError{fmt.Sprintf("architectures is %q: of model_type %q this forward pass knows %s only", facts.Architectures, facts.ModelType, class)}
	}
	return nil
}

// readMethod refuses checkpoints of other quantizers. FP8 and MXFP4 are accepted because
// package safetensors widens their weights.
func (k *keys) readMethod() {
	if q := k.within("quantization_config"); q != nil && k.err == nil {
		switch method := q.string("quant_method", ""); method {
		case "fp8", "mxfp4":
		default:
			k.fail("quantization_config.quant_method", "is %q: this forward pass reads only fp8 and mxfp4 of the formats of other quantizers", method)
		}
	}
}

func (c *ForwardConfig) validate() error {
	switch {
	case c.Latent != nil && (c.Latent.Value > c.HeadDim || c.KVHeads != c.Heads):
		return &ConfigError{"v_head_dim", fmt.Sprintf("is %d with %d heads of %d, and %d of keys: values of at most that size, for as many heads, were expected", c.Latent.Value, c.Heads, c.HeadDim, c.KVHeads)}
	case c.Heads%c.KVHeads != 0:
		return &ConfigError{"num_key_value_heads", fmt.Sprintf("is %d, which does not divide %d heads", c.KVHeads, c.Heads)}
	case c.Mamba != nil && c.Mamba.Heads%c.Mamba.Groups != 0:
		return &ConfigError{"mamba_n_groups", fmt.Sprintf("is %d, which does not divide %d heads", c.Mamba.Groups, c.Mamba.Heads)}
	case c.DeltaNet != nil && c.DeltaNet.ValueHeads%c.DeltaNet.KeyHeads != 0:
		return &ConfigError{"linear_num_key_heads", fmt.Sprintf("is %d, which does not divide %d heads of values", c.DeltaNet.KeyHeads, c.DeltaNet.ValueHeads)}
	case c.Experts != nil:
		if err := c.Experts.validate(); err != nil {
			return err
		}
	}
	for _, r := range c.Ropes {
		if r.Dims <= 0 || r.Dims%2 != 0 {
			return &ConfigError{"", fmt.Sprintf("%d dimensions of a head would rotate with the position: an even number was expected", r.Dims)}
		}
	}
	return nil
}

func (e *ExpertConfig) validate() error {
	if e.Scale == 0 {
		e.Scale = 1
	}
	count := e.Count
	if e.Groups > 1 {
		size := e.Count / e.Groups
		if size*e.Groups != e.Count || size < 2 || e.GroupsPerToken < 1 || e.GroupsPerToken > e.Groups {
			return &ConfigError{"n_group", fmt.Sprintf("is %d, of which a token sees %d: %d experts cannot be divided so", e.Groups, e.GroupsPerToken, e.Count)}
		}
		count = size * e.GroupsPerToken
	}
	if e.PerToken > count {
		return &ConfigError{"num_experts_per_tok", fmt.Sprintf("is %d of %d experts", e.PerToken, count)}
	}
	return nil
}
