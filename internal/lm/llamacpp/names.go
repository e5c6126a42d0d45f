package llamacpp

import "github.com/lowbit-go/gq/internal/lm/arch"

// Keys of the metadata. An ARCH. stands for the architecture's name.
const (
	keyType = "general.type"

	keyVocabSize       = "ARCH.vocab_size"
	keyContextLength   = "ARCH.context_length"
	keyEmbeddingLength = "ARCH.embedding_length"
	keyBlockCount      = "ARCH.block_count"
	keyFeedForward     = "ARCH.feed_forward_length"
	keyHeads           = "ARCH.attention.head_count"
	keyKVHeads         = "ARCH.attention.head_count_kv"
	keyKeyLength       = "ARCH.attention.key_length"
	keyValueLength     = "ARCH.attention.value_length"
	keyNormEps         = "ARCH.attention.layer_norm_rms_epsilon"
	keyWindow          = "ARCH.attention.sliding_window"
	keyWindowPattern   = "ARCH.attention.sliding_window_pattern"
	keyAttentionCap    = "ARCH.attn_logit_softcapping"
	keyLogitCap        = "ARCH.final_logit_softcapping"
	keyExperts         = "ARCH.expert_count"
	keyExpertsUsed     = "ARCH.expert_used_count"
	keyExpertLength    = "ARCH.expert_feed_forward_length"
	keyRopeDims        = "ARCH.rope.dimension_count"
	keyRopeBase        = "ARCH.rope.freq_base"
	keyRopeBaseWindow  = "ARCH.rope.freq_base_swa" // of layers with a sliding window
	keyScalingType     = "ARCH.rope.scaling.type"
	keyScalingFactor   = "ARCH.rope.scaling.factor"
	keyScalingContext  = "ARCH.rope.scaling.original_context_length"
	keyScalingAttn     = "ARCH.rope.scaling.attn_factor"
)

// Keys of the tokenizer.
const (
	keyTokenizerModel = "tokenizer.ggml.model"
	keyPre            = "tokenizer.ggml.pre"
	keyTokens         = "tokenizer.ggml.tokens"
	keyScores         = "tokenizer.ggml.scores"
	keyTokenTypes     = "tokenizer.ggml.token_type"
	keyMerges         = "tokenizer.ggml.merges"
	keyBOS            = "tokenizer.ggml.bos_token_id"
	keyEOS            = "tokenizer.ggml.eos_token_id"
	keyEOT            = "tokenizer.ggml.eot_token_id"
	keyEOM            = "tokenizer.ggml.eom_token_id"
	keyUnknown        = "tokenizer.ggml.unknown_token_id"
	keySeparator      = "tokenizer.ggml.seperator_token_id" // spelt like this
	keyPadding        = "tokenizer.ggml.padding_token_id"
	keyMask           = "tokenizer.ggml.mask_token_id"
	keyAddBOS         = "tokenizer.ggml.add_bos_token"
	keyAddEOS         = "tokenizer.ggml.add_eos_token"
	keySpacePrefix    = "tokenizer.ggml.add_space_prefix"
	keyExtraSpaces    = "tokenizer.ggml.remove_extra_whitespaces"
	keyTemplate       = "tokenizer.chat_template"
	keyTemplates      = "tokenizer.chat_templates" // names of templates, each in keyTemplate.NAME
)

// Values of keyTokenizerModel.
const (
	modelBPE  = "gpt2"
	modelSPM  = "llama" // SentencePiece's BPE
	modelNone = "none"
)

// A family is an architecture in llama.cpp's code.
type family struct {
	name string // general.architecture
	// permuted: neighbouring rows of a head of q and k rotate together.
	permuted bool
	windows  windowUse
	// period is the default of period-th layers without a sliding window, if windows are used.
	period int
	caps   bool // attention and logits have softcaps
	// noRopeStep: each noRopeStep-th layer has no rope; 0: all layers have ropes.
	noRopeStep int
	// wideLayers is the number of layers by which llama.cpp recognizes a model that scales queries
	// by embedding_length / heads, not by the size of a head; 0: there is no such model.
	wideLayers int
	// square: q and o are matrices of embedding_length x embedding_length.
	square bool
	// tied: the embedding is the only output matrix.
	tied bool
	// bias and mlpBias: at most these biases are loaded.
	bias    arch.AttentionBias
	mlpBias bool
	// ropeFactors are the types of ropes for which tensors of factors are loaded.
	ropeFactors []string
	layer       []naming // of the tensors of a layer
}

// windowUse is llama.cpp's use of sliding windows.
type windowUse uint8

const (
	ignoredWindow  windowUse = iota
	writtenWindow            // ignored, but its key is written
	usedWindow               // the key has a default
	optionalWindow           // without the key, no layer has a window
)

// A naming pairs llama.cpp's name of a tensor in a layer with its name in a checkpoint, both
// without the layer's prefix and the suffix .weight or .bias.
type naming struct {
	gguf, hf string
	class    class
}

type class uint8

const (
	norm class = iota
	headNorm
	query
	key
	value
	fusedQKV
	output
	gate // of the feed-forward network
	up
	down
	fusedGateUp
	router // rows: experts
	// The experts of a layer are a single tensor of llama.cpp. Their names in a checkpoint have an
	// expert's number for *, or are fused (transformers 5).
	gateExperts
	upExperts
	downExperts
)

// Names of tensors outside of layers, in a checkpoint behind the prefix of arch.Prefix.
const (
	embeddingName = "token_embd.weight"  // embed_tokens.weight
	finalNormName = "output_norm.weight" // norm.weight
	headName      = "output.weight"      // lm_head.weight
	ropeFreqs     = "rope_freqs.weight"
	ropeLong      = "rope_factors_long.weight"
	ropeShort     = "rope_factors_short.weight"
)

var (
	separateAttention = []naming{
		{"attn_q", "self_attn.q_proj", query},
		{"attn_k", "self_attn.k_proj", key},
		{"attn_v", "self_attn.v_proj", value},
		{"attn_output", "self_attn.o_proj", output},
	}
	headNorms = []naming{
		{"attn_q_norm", "self_attn.q_norm", headNorm},
		{"attn_k_norm", "self_attn.k_norm", headNorm},
	}
	preNorms = []naming{
		{"attn_norm", "input_layernorm", norm},
		{"ffn_norm", "post_attention_layernorm", norm},
	}
	// gemmaNorms: Gemma 2 and 3 have a norm on either side of attention and feed-forward network.
	gemmaNorms = []naming{
		{"attn_norm", "input_layernorm", norm},
		{"post_attention_norm", "post_attention_layernorm", norm},
		{"ffn_norm", "pre_feedforward_layernorm", norm},
		{"post_ffw_norm", "post_feedforward_layernorm", norm},
	}
	separateMLP = []naming{
		{"ffn_gate", "mlp.gate_proj", gate},
		{"ffn_up", "mlp.up_proj", up},
		{"ffn_down", "mlp.down_proj", down},
	}
	mixtralExperts = []naming{
		{"ffn_gate_inp", "block_sparse_moe.gate", router},
		{"ffn_gate_exps", "block_sparse_moe.experts.*.w1", gateExperts},
		{"ffn_up_exps", "block_sparse_moe.experts.*.w3", upExperts},
		{"ffn_down_exps", "block_sparse_moe.experts.*.w2", downExperts},
	}
	qwenExperts = []naming{
		{"ffn_gate_inp", "mlp.gate", router},
		{"ffn_gate_exps", "mlp.experts.*.gate_proj", gateExperts},
		{"ffn_up_exps", "mlp.experts.*.up_proj", upExperts},
		{"ffn_down_exps", "mlp.experts.*.down_proj", downExperts},
	}
	phi3Layer = []naming{
		{"attn_qkv", "self_attn.qkv_proj", fusedQKV},
		{"attn_output", "self_attn.o_proj", output},
		{"ffn_up", "mlp.gate_up_proj", fusedGateUp},
		{"ffn_down", "mlp.down_proj", down},
	}
)

// Fused experts of transformers 5, in place of the experts of any mixture.
const (
	fusedRouter = "mlp.gate"
	fusedInputs = "mlp.experts.gate_up_proj" // gate above up in each expert; no suffix
	fusedDown   = "mlp.experts.down_proj"    // no suffix
)

var llamaFamily = family{
	name: "llama", permuted: true, bias: arch.AllBias, mlpBias: true, ropeFactors: []string{"llama3", "longrope"},
	layer: join(preNorms, separateAttention, separateMLP),
}

// families are the architectures by model_type of config.json.
var families = map[string]family{
	"llama":   llamaFamily,
	"mistral": llamaFamily,
	"mixtral": {
		name: "llama", permuted: true, bias: arch.AllBias, ropeFactors: llamaFamily.ropeFactors,
		layer: join(preNorms, separateAttention, mixtralExperts),
	},
	"qwen2":     {name: "qwen2", square: true, bias: arch.QKVBias, layer: join(preNorms, separateAttention, separateMLP)},
	"qwen3":     {name: "qwen3", bias: arch.QKVBias, layer: join(preNorms, separateAttention, headNorms, separateMLP)},
	"qwen3_moe": {name: "qwen3moe", bias: arch.QKVBias, layer: join(preNorms, separateAttention, headNorms, qwenExperts)},
	"gemma2": {
		name: "gemma2", windows: usedWindow, period: 2, caps: true, wideLayers: 46, tied: true,
		layer: join(gemmaNorms, separateAttention, separateMLP),
	},
	"gemma3_text": {
		name: "gemma3", windows: optionalWindow, period: 6, wideLayers: 62,
		layer: join(gemmaNorms, separateAttention, headNorms, separateMLP),
	},
	"phi3":    {name: "phi3", square: true, ropeFactors: []string{"longrope"}, windows: writtenWindow, layer: join(preNorms, phi3Layer)},
	"smollm3": {name: "smollm3", permuted: true, noRopeStep: 4, bias: arch.QKVBias, layer: join(preNorms, separateAttention, separateMLP)},
}

func join(lists ...[]naming) (all []naming) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}
