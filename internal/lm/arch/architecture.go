package arch

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/lowbit-go/gq/internal/jsonscan"
)

// ForwardConfig has what a forward pass needs of config.json. [ParseForward] reads it.
type ForwardConfig struct {
	Architecture string // the language model's model_type: "llama"
	VocabSize    int
	HiddenSize   int
	Intermediate int // width of the feed-forward network, also of Mixtral's experts
	Heads        int
	KVHeads      int // divides Heads
	HeadDim      int
	MaxPositions int // max_position_embeddings: the intended context, not a limit
	Layers       []LayerConfig
	Ropes        []RopeConfig

	Activation string  // of the feed-forward network: silu or gelu_pytorch_tanh
	NormEps    float64 // added to the mean square in each RMSNorm
	Norms      Norms
	QKNorm     bool // queries and keys are normalized, head by head

	AttentionBias AttentionBias
	MLPBias       bool // of gate, up and down
	Fused         bool // a single matrix for q, k and v, and for gate and up (Phi-3)

	EmbeddingScale   float64 // factor of the embedding's rows; 1 for none
	AttentionScale   float64 // factor of products of queries and keys
	AttentionSoftcap float64 // s becomes c tanh(s/c); 0 for none
	LogitSoftcap     float64
	Tied             bool // the lm_head is the embedding

	Experts *ExpertConfig // nil for a dense model
}

// Norms are the norms of a layer. Each half of a layer begins with a norm.
type Norms uint8

const (
	PreNorms   Norms = iota // no other norms
	PostNorms               // each half also ends with a norm, before the residual
	GemmaNorms              // PostNorms that multiply by 1 + weight (Gemma 2 and 3)
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
	switch module := segs[len(segs)-2]; module {
	case "q_proj", "k_proj", "v_proj", "qkv_proj":
		return c.AttentionBias >= QKVBias
	case "o_proj":
		return c.AttentionBias == AllBias
	case "gate_proj", "up_proj", "gate_up_proj", "down_proj":
		return c.MLPBias
	default:
		e := c.Experts
		return e == nil || module != e.Gate && module != e.Up && module != e.Down
	}
}

// LayerConfig has the differences between layers.
type LayerConfig struct {
	Window  int  // number of tokens attended to, with the current token; 0: all
	Rope    int  // index in Ropes; -1: no rope
	Experts bool // the feed-forward network is a mixture
}

// ExpertConfig describes mixtures of experts.
type ExpertConfig struct {
	Count        int
	PerToken     int
	Intermediate int
	Normalize    bool // divide the weights of the chosen experts by their sum
	// Module is the name of the mixture in a layer; Gate, Up and Down are the names of an expert's
	// matrices.
	Module, Gate, Up, Down string
}

type UnsupportedError struct{ Msg string }

func (e *UnsupportedError) Error() string { return e.Msg }

// An architecture reads the keys of its model_type in config.json. Its defaults are those of the
// configuration class in transformers: published files rely on them.
type architecture struct {
	class string // class of the model with an lm_head
	read  func(k *keys, c *ForwardConfig)
}

// architectures are the tested architectures, for which testdata has an independent
// implementation's logits.
var architectures = map[string]architecture{
	"llama":       {class: "LlamaForCausalLM", read: readLlama},
	"mistral":     {class: "MistralForCausalLM", read: readMistral},
	"mixtral":     {class: "MixtralForCausalLM", read: readMixtral},
	"qwen2":       {class: "Qwen2ForCausalLM", read: readQwen2},
	"qwen3":       {class: "Qwen3ForCausalLM", read: readQwen3},
	"qwen3_moe":   {class: "Qwen3MoeForCausalLM", read: readQwen3Moe},
	"gemma2":      {class: "Gemma2ForCausalLM", read: readGemma2},
	"gemma3_text": {class: "Gemma3ForCausalLM", read: readGemma3},
	"phi3":        {class: "Phi3ForCausalLM", read: readPhi3},
	"smollm3":     {class: "SmolLM3ForCausalLM", read: readSmolLM3},
}

// multimodal are models with a language model of architectures in a nested config. The other keys
// describe how images become embeddings.
var multimodal = map[string]struct {
	class, text string
	irrelevant  []string
}{
	"gemma3": {"Gemma3ForConditionalGeneration", "gemma3_text", []string{"vision_config", "text_config", "boi_token_index",
		"eoi_token_index", "image_token_index", "mm_tokens_per_image"}},
}

// Architectures returns the sorted model types that [ParseForward] knows.
func Architectures() []string {
	var names []string
	for name := range architectures {
		names = append(names, name)
	}
	for name := range multimodal {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// ClassName returns the class of the model with an lm_head for a model type that [ParseForward]
// knows: the value of "architectures" in config.json.
func ClassName(modelType string) string {
	if m, ok := multimodal[modelType]; ok {
		return m.class
	}
	return architectures[modelType].class
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
	c := &ForwardConfig{Architecture: facts.TextType, EmbeddingScale: 1, Activation: "silu"}
	k.irrelevant(bookkeeping...)
	k.never(otherwise...)
	k.readMethod()
	c.VocabSize = k.size("vocab_size", arch.vocab())
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
	return c, nil
}

// vocab returns the default of the class if published files rely on the default; 0 if files state
// the size.
func (a architecture) vocab() int {
	if a.class == "Gemma3ForCausalLM" {
		return 262208
	}
	return 0
}

// chooseArchitecture finds the architecture of a config and the object that describes the language
// model.
func chooseArchitecture(facts *Config, outer object) (*keys, architecture, error) {
	if facts.ModelType == "" {
		return nil, architecture{}, &UnsupportedError{"config.json names no model_type"}
	}
	k, name := newKeys(outer), facts.ModelType
	arch, ok := architectures[name]
	class := arch.class
	if m, nested := multimodal[name]; nested {
		inner, err := outer.child("text_config")
		if err != nil {
			return nil, arch, err
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
		k, arch, class, ok = newKeys(inner), architectures[m.text], m.class, true
		facts.TextType = m.text
	}
	if !ok {
		return nil, arch, &UnsupportedError{fmt.Sprintf("model_type %q is not supported: gq runs %s",
			name, strings.Join(Architectures(), ", "))}
	}
	if len(facts.Architectures) > 0 && !slices.Contains(facts.Architectures, class) {
		return nil, arch, &UnsupportedError{fmt.Sprintf("architectures is %q: of model_type %q this forward pass knows %s only", facts.Architectures, name, class)}
	}
	return k, arch, nil
}

// readMethod refuses checkpoints of other quantizers. FP8 with scales is accepted because weights
// can be widened exactly.
func (k *keys) readMethod() {
	if q := k.within("quantization_config"); q != nil && k.err == nil {
		if method := q.string("quant_method", ""); method != "fp8" {
			k.fail("quantization_config.quant_method", "is %q: this forward pass reads only fp8 of the formats of other quantizers", method)
		}
	}
}

func (c *ForwardConfig) validate() error {
	switch {
	case c.Heads%c.KVHeads != 0:
		return &ConfigError{"num_key_value_heads", fmt.Sprintf("is %d, which does not divide %d heads", c.KVHeads, c.Heads)}
	case c.Experts != nil && c.Experts.PerToken > c.Experts.Count:
		return &ConfigError{"num_experts_per_tok", fmt.Sprintf("is %d of %d experts", c.Experts.PerToken, c.Experts.Count)}
	}
	for _, r := range c.Ropes {
		if err := r.validate(); err != nil {
			return err
		}
	}
	return nil
}
