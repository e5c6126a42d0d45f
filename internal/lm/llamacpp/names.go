package llamacpp

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lowbit-go/gq/internal/lm/arch"
)

// Keys of the metadata. An ARCH. stands for the architecture's name.
const (
	keyType = "general.type"

	keyVocabSize       = "ARCH.vocab_size"
	keyContextLength   = "ARCH.context_length"
	keyPredictors      = "ARCH.nextn_predict_layers"
	keyEmbeddingLength = "ARCH.embedding_length"
	keyBlockCount      = "ARCH.block_count"
	keyFeedForward     = "ARCH.feed_forward_length"
	keyHeads           = "ARCH.attention.head_count"
	keyKVHeads         = "ARCH.attention.head_count_kv"
	keyKeyLength       = "ARCH.attention.key_length"
	keyValueLength     = "ARCH.attention.value_length"
	keyKeyLengthMLA    = "ARCH.attention.key_length_mla"
	keyNormEps         = "ARCH.attention.layer_norm_rms_epsilon"
	keyLayerNormEps    = "ARCH.attention.layer_norm_epsilon" // of norms that subtract the mean
	keyGroups          = "ARCH.expert_group_count"
	keyGroupsUsed      = "ARCH.expert_group_used_count"
	keySections        = "ARCH.rope.dimension_sections"
	keyDeepstack       = "ARCH.n_deepstack_layers" // layers that add features of an image
	keyYarnLog         = "ARCH.rope.scaling.yarn_log_multiplier"
	keyWindow          = "ARCH.attention.sliding_window"
	keyWindowPattern   = "ARCH.attention.sliding_window_pattern"
	keyLogitCap        = "ARCH.final_logit_softcapping"
	keyExperts         = "ARCH.expert_count"
	keyExpertLength    = "ARCH.expert_feed_forward_length"
	keySharedLength    = "ARCH.expert_shared_feed_forward_length"
	keySharedCount     = "ARCH.expert_shared_count"
	keyGating          = "ARCH.expert_gating_func"
	keyMixtureStep     = "ARCH.interleave_moe_layer_step"
	keyRopeDims        = "ARCH.rope.dimension_count"
	keyRopeBase        = "ARCH.rope.freq_base"
	keyRopeBaseWindow  = "ARCH.rope.freq_base_swa" // of layers with a sliding window
	keyScalingType     = "ARCH.rope.scaling.type"
	keyScalingFactor   = "ARCH.rope.scaling.factor"
	keyScalingContext  = "ARCH.rope.scaling.original_context_length"
	keyScalingAttn     = "ARCH.rope.scaling.attn_factor"
	keyEmbeddingScale  = "ARCH.embedding_scale"
	keyResidualScale   = "ARCH.residual_scale"
	keyAttentionScale  = "ARCH.attention.scale"
	keyDeltaTaps       = "ARCH.ssm.conv_kernel"
	keyDeltaState      = "ARCH.ssm.state_size"
	keyDeltaKeyHeads   = "ARCH.ssm.group_count"
	keyDeltaHeads      = "ARCH.ssm.time_step_rank"
	keyDeltaInner      = "ARCH.ssm.inner_size"
	keyWindowKeyLength = "ARCH.attention.key_length_swa" // and others of layers with a sliding window
	keyWindowValues    = "ARCH.attention.value_length_swa"
	keyWindowRopeDims  = "ARCH.rope.dimension_count_swa"
	keyPerLayerWidth   = "ARCH.embedding_length_per_layer_input"
	keySharedKeys      = "ARCH.attention.shared_kv_layers"
	keyLogitScale      = "ARCH.logit_scale" // divides the logits of Scales, multiplies others
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
	modelBPE    = "gpt2"
	modelSPM    = "llama"  // SentencePiece's BPE
	modelMerged = "gemma4" // SentencePiece's tokens, and merges in place of scores
	modelNone   = "none"
)

// Values of keyGating.
const (
	gatingSoftmax = 1
	gatingSigmoid = 2
)

// Names of tensors outside of layers, in a checkpoint behind the prefix of arch.Prefix.
const (
	Embedding = "token_embd.weight" // embed_tokens.weight, with a row for each token
	headName  = "output.weight"     // lm_head.weight
	headBias  = "output.bias"
	ropeFreqs = "rope_freqs.weight"
	ropeLong  = "rope_factors_long.weight"
	ropeShort = "rope_factors_short.weight"
)

// Fused experts of transformers 5, in place of the experts of any mixture.
const (
	fusedRouter = "mlp.gate"
	fusedInputs = "mlp.experts.gate_up_proj" // gate above up in each expert; no suffix
	fusedDown   = "mlp.experts.down_proj"    // no suffix
)

// A family is llama.cpp's view of an architecture, with the names of the tensors of a layer.
type family struct {
	*arch.LlamaCpp
	layer []arch.Naming
	outer []arch.Naming // tensors outside of layers
	final arch.Naming   // the norm before the lm_head
}

// familyOf returns the family of a model_type of config.json, unless gq writes no .gguf files of
// the architecture.
func familyOf(modelType string) (family, bool) {
	f := arch.FactsOf(modelType)
	if f == nil || f.LlamaCpp == nil {
		return family{}, false
	}
	return family{f.LlamaCpp, f.Layer, f.Outer, f.FinalNorm}, true
}

// latent reports whether keys and values come from latents.
func (f *family) latent() bool {
	return slices.ContainsFunc(f.layer, func(n arch.Naming) bool { return n.Kind == arch.KeyDown })
}

// mixes reports whether layers have experts.
func (f *family) mixes() bool {
	return slices.ContainsFunc(f.layer, func(n arch.Naming) bool { return n.Kind == arch.Router })
}

// modelTypes returns the model types by general.architecture. llama is Llama, Mistral and Mixtral:
// llama.cpp has no sliding window there, and without the window Mistral is Llama.
func modelTypes() map[string]string {
	types := map[string]string{}
	for _, name := range arch.Architectures() {
		if f, ok := familyOf(name); ok {
			types[f.Name] = cmp.Or(types[f.Name], name)
			types[cmp.Or(f.MixtureName, f.Name)] = types[f.Name]
		}
	}
	return types
}

func knownFamilies() []string { return slices.Sorted(maps.Keys(modelTypes())) }
