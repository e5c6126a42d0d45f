package arch

import (
	"maps"
	"slices"
	"strings"
)

// Facts are everything that gq knows about an architecture: each architecture has a file of them,
// model_NAME.go, and no other file of the program names it. The forward pass, the GGUF writer and
// reader, the tests and the documents' table read the facts.
type Facts struct {
	Title string // in documents: "Llama"
	Class string // class of the model with an lm_head
	// Layer lists the tensors of a layer. Only kinds that the configuration asks for exist.
	Layer []Naming
	// Outer lists further tensors outside of layers.
	Outer []Naming
	// Prefix has the names of published files. Default: the first of prefixes.
	Prefix Prefix
	// FinalNorm is the norm before the lm_head, and llama.cpp's name; default norm and output_norm.
	FinalNorm Naming
	// LlamaCpp is nil if gq does not write .gguf files of the architecture.
	LlamaCpp *LlamaCpp

	// read reads the keys of the model_type in config.json. Its defaults are those of the
	// configuration class in transformers: published files rely on them.
	read func(k *keys, c *ForwardConfig)
	// vocab is the default of vocab_size if published files rely on it; 0 if files state the size.
	vocab int
	// tied is the default of tie_word_embeddings.
	tied bool
	// inOut: fused experts are stored inputs x outputs.
	inOut bool
}

// A Naming pairs the name of a tensor in a checkpoint with llama.cpp's name, or with names of the
// halves, all without the layer's prefix and the suffix .weight or .bias.
type Naming struct {
	Kind     Kind
	HF, GGUF string
}

// Kind says what a tensor of a layer is for.
type Kind uint8

const (
	InputNorm           Kind = iota // before attention
	PostAttentionNorm               // behind attention, before the residual
	FeedForwardNorm                 // before the feed-forward network
	PostFeedForwardNorm             // behind the feed-forward network, before the residual
	QueryNorm
	KeyNorm
	Query
	Key
	Value
	FusedQKV
	Output
	Sinks // a logit of each head that takes part in the softmax of its scores, without a value
	// Linear layers and norms of attention with latents.
	QueryDown
	LatentQueryNorm
	QueryUp
	KeyDown
	LatentKeyNorm
	KeyValueUp
	Gate // of the feed-forward network
	Up
	Down
	FusedGateUp
	Router // rows: experts
	// The experts of a layer are a single tensor of llama.cpp. Their names in a checkpoint have an
	// expert's number for *, or are fused (transformers 5).
	GateExperts
	UpExperts
	DownExperts
	GateUpExperts    // fused tensors: the rows of gate above the rows of up
	RouterCorrection // added to the experts' scores for the choice alone
	SharedGate       // of the expert that sees every token
	SharedUp
	SharedDown
	SharedFused  // gate above up
	ExpertsIn    // the latents that experts read, of the hidden states
	ExpertsOut   // the hidden states, of the latents that experts write
	SharedRouter // a single row: its sigmoid is a factor of the shared expert

	// Tensors of layers with inputs of their own, with several streams of hidden states, and with a
	// path of low rank beside attention.
	PerLayerGate
	PerLayerProjection
	PerLayerNorm
	LayerScalar // a factor of the hidden states behind the layer
	StreamNorm
	StreamRouter
	StreamPredict
	StreamCorrect
	StreamScale
	LaurelLeft
	LaurelRight
	LaurelNorm
	// Of a mixture beside a dense network: norms, and factors of router's inputs and of experts.
	ExpertsNorm
	ExpertsPostNorm
	SharedPostNorm
	RouterScale
	ExpertScale
	// Tensors outside of layers: see [Facts.Outer].
	PerLayerEmbedding
	PerLayerModel // of the embedding: the inputs of all layers
	PerLayerModelNorm
	StreamProjections // of the first stream: further streams, with a number for *
	StreamOutputs     // back
)

// LlamaCpp has llama.cpp's view of an architecture.
type LlamaCpp struct {
	Name string // general.architecture
	// MixtureName is Name of models with mixtures. Default (""): Name.
	MixtureName string
	// Permuted: neighbouring rows of a head of q and k rotate together.
	Permuted bool
	Windows  WindowUse
	// WindowLayers is the number of layers by which llama.cpp assumes sliding windows; 0: none.
	WindowLayers int
	// Window is the default of the window, if windows are used.
	Window int
	// Period is the default of Period-th layers without a sliding window, if windows are used.
	Period int
	Caps   bool // attention and logits have softcaps
	// NoRopeStep: each NoRopeStep-th layer has no rope; 0: all layers have ropes.
	NoRopeStep int
	// WideLayers is the number of layers by which llama.cpp recognizes a model that scales queries
	// by embedding_length / heads, not by the size of a head; 0: there is no such model.
	WideLayers int
	// Square: q and o are matrices of embedding_length x embedding_length.
	Square bool
	// Ungrouped: there are as many heads of keys and values as of queries.
	Ungrouped bool
	// Tied: the embedding is the only output matrix.
	Tied bool
	// Bias and MLPBias: at most these biases are loaded.
	Bias    AttentionBias
	MLPBias bool
	// RopeFactors are the types of ropes for which tensors of factors are loaded.
	RopeFactors []string
	// PartialRope: a part of a head may rotate.
	PartialRope bool
	// LocalRope: layers with a sliding window have the rope without its scaling.
	LocalRope bool
	// LogitScale: logits have a factor.
	LogitScale bool
	// Scales: embedding, residual, attention and logits have factors.
	Scales bool
	// Multiplied: weights are multiplied by all factors of the model, and the name of the norm
	// before the feed-forward network has no suffix.
	Multiplied bool
	// SharesKeys: the last layers read keys and values of earlier layers, layers have inputs of
	// their own, and products of queries and keys have no factor.
	SharesKeys bool
	// CopiesKeys: layers that read other layers' keys and values have copies that nothing reads.
	CopiesKeys bool
	// Varied: heads of keys and values, and widths, may differ between layers.
	Varied bool
	// NormKeys: the key of norms that subtract the mean is required, although no norm does.
	NormKeys bool
	// RopeSwitch: a key says whether layers have ropes.
	RopeSwitch bool
	// States is the name in layer_types of layers with a state: llama.cpp recognizes these layers by 0
	// heads of keys and values.
	States string
	// Mixture is llama.cpp's view of a mixture of experts.
	Mixture LlamaCppMixture
	// SplitLatents: keys and values of latents are two tensors, and a head's keys are transposed.
	SplitLatents bool
	// SplitInputs: the input projection of a delta net is attn_qkv and attn_gate, not ssm_in.
	SplitInputs bool
	// TiledValues: heads of values that share a head of keys lie apart in delta nets.
	TiledValues bool
	// Factors: tensors of rope factors suffice for a rope of type longrope. Mscales: config.json has
	// the factors of sines and cosines of such ropes.
	Factors, Mscales bool
	// OuterContext: the context of longrope before the extension is outside of rope_scaling.
	OuterContext bool
	// Untruncated: config.json has truncate false for yarn, for which there is no key.
	Untruncated bool
	// Change makes the configuration what llama.cpp computes, and returns how this differs from what
	// Transformers computes; "" if nothing does.
	Change func(c *ForwardConfig) (difference string)
	// Check returns what llama.cpp's code for the architecture does not support in a model, or "".
	Check func(c *ForwardConfig) string
	// Config returns keys of the config.json of a .gguf file, next to the sizes.
	Config func(m Metadata) map[string]any
}

// LlamaCppMixture says which mixtures llama.cpp's code for an architecture computes.
type LlamaCppMixture struct {
	Weights WeightUse
	Sigmoid bool // scores are sigmoids
	// DenseWidth: experts are as wide as a dense network, and no key says so.
	DenseWidth bool
	// Dense: the first layers may be dense.
	Dense bool
	// Steps: each n-th layer is a mixture, the others are dense.
	Steps bool
	// Groups: a token's experts may be limited to the groups with the best two scores.
	Groups bool
}

// WeightUse is what llama.cpp does with the weights of the chosen experts.
type WeightUse uint8

const (
	NormalizedWeights WeightUse = iota // divides them by their sum
	PlainWeights                       // takes the scores
	WeightKeys                         // reads keys for normalization and scale
)

// Metadata is the metadata of a .gguf file. Keys are without the name of the architecture.
type Metadata interface {
	HasTensor(name string) bool
	// Count reads an integer. Without a default (-1) the key is required.
	Count(key string, absent int) int
	Positive(key string, absent float64) float64
	Flag(key string, absent bool) bool
	// List reads an integer for each layer.
	List(key string) []int
}

// WindowUse is llama.cpp's use of sliding windows.
type WindowUse uint8

const (
	IgnoredWindow  WindowUse = iota
	WrittenWindow            // ignored, but its key is written
	RefusedWindow            // of one model, known by the number of its layers
	UsedWindow               // the key has a default
	OptionalWindow           // without the key, no layer has a window
	ListedWindow             // a list says which layers have the window
)

// architectures are the tested architectures by model_type: testdata has another implementation's
// logits for each.
var architectures = map[string]*Facts{}

// register adds an architecture when the program starts.
func register(modelType string, f Facts) *Facts {
	if f.Prefix.Body == "" {
		f.Prefix = prefixes[0]
	}
	if f.FinalNorm.HF == "" {
		f.FinalNorm = Naming{HF: "norm", GGUF: "output_norm"}
	}
	architectures[modelType] = &f
	return &f
}

// FactsOf returns the facts of a language model's model_type, or nil.
func FactsOf(modelType string) *Facts { return architectures[modelType] }

// Architectures returns the sorted model types that [ParseForward] knows.
func Architectures() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(architectures)), maps.Keys(multimodal))
	slices.Sort(names)
	return names
}

// NameOf returns the name of a tensor in a layer of a checkpoint, or of a tensor of Outer, or "" if
// the architecture has none.
func (f *Facts) NameOf(kind Kind) string {
	for _, list := range [][]Naming{f.Layer, f.Outer} {
		for _, n := range list {
			if n.Kind == kind {
				return n.HF
			}
		}
	}
	return ""
}

// AsLlamaCpp calls Change of the architecture.
func (c *ForwardConfig) AsLlamaCpp() (difference string) {
	if l := c.Facts.LlamaCpp; l != nil && l.Change != nil {
		return l.Change(c)
	}
	return ""
}

// Has reports whether layers have a tensor of the kind.
func (f *Facts) Has(kind Kind) bool { return f.NameOf(kind) != "" }

func join(lists ...[]Naming) (all []Naming) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// renamed returns names of a checkpoint with another module in place of old.
func renamed(list []Naming, old, module string) []Naming {
	list = slices.Clone(list)
	for i := range list {
		list[i].HF = strings.Replace(list[i].HF, old, module, 1)
	}
	return list
}

// Names that architectures share.
var (
	separateAttention = []Naming{
		{Query, "self_attn.q_proj", "attn_q"},
		{Key, "self_attn.k_proj", "attn_k"},
		{Value, "self_attn.v_proj", "attn_v"},
		{Output, "self_attn.o_proj", "attn_output"},
	}
	latentAttention = []Naming{
		{Query, "self_attn.q_proj", "attn_q"},
		{QueryDown, "self_attn.q_a_proj", "attn_q_a"},
		{LatentQueryNorm, "self_attn.q_a_layernorm", "attn_q_a_norm"},
		{QueryUp, "self_attn.q_b_proj", "attn_q_b"},
		{KeyDown, "self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
		{LatentKeyNorm, "self_attn.kv_a_layernorm", "attn_kv_a_norm"},
		{KeyValueUp, "self_attn.kv_b_proj", "attn_kv_b"},
		{Output, "self_attn.o_proj", "attn_output"},
	}
	queryKeyNorms = []Naming{
		{QueryNorm, "self_attn.q_norm", "attn_q_norm"},
		{KeyNorm, "self_attn.k_norm", "attn_k_norm"},
	}
	preNorms = []Naming{
		{InputNorm, "input_layernorm", "attn_norm"},
		{FeedForwardNorm, "post_attention_layernorm", "ffn_norm"},
	}
	// allNorms: a norm on either side of attention and feed-forward network (Gemma 2).
	allNorms = []Naming{
		{InputNorm, "input_layernorm", "attn_norm"},
		{PostAttentionNorm, "post_attention_layernorm", "post_attention_norm"},
		{FeedForwardNorm, "pre_feedforward_layernorm", "ffn_norm"},
		{PostFeedForwardNorm, "post_feedforward_layernorm", "post_ffw_norm"},
	}
	// postNorms: no norms but those behind attention and feed-forward network (OLMo 2).
	postNorms = []Naming{
		{PostAttentionNorm, "post_attention_layernorm", "post_attention_norm"},
		{PostFeedForwardNorm, "post_feedforward_layernorm", "post_ffw_norm"},
	}
	// perLayerInputs: each layer has an input of its own.
	perLayerInputs = []Naming{
		{PerLayerGate, "per_layer_input_gate", "inp_gate"},
		{PerLayerProjection, "per_layer_projection", "proj"},
		{PerLayerNorm, "post_per_layer_input_norm", "post_norm"},
	}
	perLayerModel = []Naming{
		{PerLayerEmbedding, "embed_tokens_per_layer", "per_layer_token_embd"},
		{PerLayerModel, "per_layer_model_projection", "per_layer_model_proj"},
		{PerLayerModelNorm, "per_layer_projection_norm", "per_layer_proj_norm"},
	}
	separateMLP = []Naming{
		{Gate, "mlp.gate_proj", "ffn_gate"},
		{Up, "mlp.up_proj", "ffn_up"},
		{Down, "mlp.down_proj", "ffn_down"},
	}
	fusedMLP = []Naming{
		{FusedGateUp, "mlp.gate_up_proj", "ffn_up"},
		{Down, "mlp.down_proj", "ffn_down"},
	}
	sharedExperts = []Naming{
		{SharedGate, "mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
		{SharedUp, "mlp.shared_experts.up_proj", "ffn_up_shexp"},
		{SharedDown, "mlp.shared_experts.down_proj", "ffn_down_shexp"},
	}
	separateExperts = []Naming{
		{Router, "mlp.gate", "ffn_gate_inp"},
		{GateExperts, "mlp.experts.*.gate_proj", "ffn_gate_exps"},
		{UpExperts, "mlp.experts.*.up_proj", "ffn_up_exps"},
		{DownExperts, "mlp.experts.*.down_proj", "ffn_down_exps"},
	}
)
