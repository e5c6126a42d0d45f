package arch

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// keys reads a JSON object that must be understood completely: keys records the keys that were
// read, and rest reports an unread key. The first error stays; later values are meaningless.
type keys struct {
	object
	used map[string]bool
	err  error
}

func newKeys(o object) *keys { return &keys{object: o, used: map[string]bool{}} }

func (k *keys) fail(key, format string, args ...any) {
	if k.err == nil {
		k.err = &ConfigError{k.path + key, fmt.Sprintf(format, args...)}
	}
}

// has reports whether the key exists and is not null, and marks the key as understood.
func (k *keys) has(key string) bool {
	k.used[key] = true
	raw, ok := k.keys[key]
	return ok && string(raw) != "null"
}

// isNull reports whether the key is null, for keys that differ in meaning if absent.
func (k *keys) isNull(key string) bool { return string(k.keys[key]) == "null" }

func read[T any](k *keys, key string, absent T, wrong string) T {
	v := absent
	if k.has(key) {
		if err := k.decode(key, &v, wrong); err != nil && k.err == nil {
			k.err = err
		}
	}
	return v
}

// size reads a positive integer below 2^31. absent is the default; without a default (0) the key is
// required.
func (k *keys) size(key string, absent int) int {
	v := k.count(key, absent)
	switch {
	case v == 0 && absent == 0 && !k.has(key):
		k.fail(key, "is missing")
	case v == 0:
		k.fail(key, "is 0: a positive integer was expected")
	}
	return v
}

// count reads an integer from 0 to 2^31-1.
func (k *keys) count(key string, absent int) int {
	v := read(k, key, json.Number(fmt.Sprint(absent)), "is not a number")
	if strings.HasPrefix(string(k.keys[key]), `"`) { // json.Number accepts strings too
		k.fail(key, "is not a number")
	}
	n, err := v.Int64()
	f, ferr := v.Float64()
	if err != nil && ferr == nil && f == math.Trunc(f) && math.Abs(f) < 1<<31 { // 4096.0
		n, err = int64(f), nil
	}
	if err != nil || n < 0 || n > math.MaxInt32 {
		k.fail(key, "is %s: an integer from 0 to %d was expected", v, math.MaxInt32)
		return 0
	}
	return int(n)
}

func (k *keys) positive(key string, absent float64) float64 {
	v := read(k, key, absent, "is not a number")
	if !(v > 0) || math.IsInf(v, 0) {
		if absent == 0 && !k.has(key) {
			k.fail(key, "is missing")
		}
		k.fail(key, "is %v: a positive number was expected", v)
	}
	return v
}

// optional reads a positive number, or returns 0 if the key is absent or null.
func (k *keys) optional(key string) float64 {
	if !k.has(key) {
		return 0
	}
	return k.positive(key, 0)
}

func (k *keys) boolean(key string, absent bool) bool {
	return read(k, key, absent, "is neither true nor false")
}

func (k *keys) string(key, absent string) string {
	return read(k, key, absent, "is not a string")
}

// only marks a key as understood and refuses every other value.
func only[T comparable](k *keys, key string, value T, wrong string) {
	if v := read(k, key, value, wrong); v != value {
		k.fail(key, "is %v: this forward pass knows only %v", v, value)
	}
}

// never and always mark keys that may be absent, null, or this value: false, or true.
func (k *keys) never(names ...string)  { k.flags(false, names) }
func (k *keys) always(names ...string) { k.flags(true, names) }

func (k *keys) flags(value bool, names []string) {
	for _, key := range names {
		only(k, key, value, "is neither true nor false")
	}
}

// irrelevant marks keys that do not affect a forward pass.
func (k *keys) irrelevant(names ...string) {
	for _, key := range names {
		k.used[key] = true
	}
}

// within reads the object under a key; nil if absent. The caller must call join with the result.
func (k *keys) within(key string) *keys {
	if !k.has(key) {
		return nil
	}
	o, err := k.child(key)
	if err != nil && k.err == nil {
		k.err = err
	}
	return newKeys(o)
}

func (k *keys) join(inner *keys) {
	if inner == nil {
		return
	}
	inner.rest()
	if k.err == nil {
		k.err = inner.err
	}
}

// rest fails for keys that nothing has read.
func (k *keys) rest() {
	var unknown []string
	for key := range k.keys {
		if !k.used[key] {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		also := ""
		if len(unknown) > 1 {
			also = " (and " + strings.Join(unknown[1:], ", ") + ")"
		}
		k.fail(unknown[0], "is a key that this forward pass does not know%s: it may change the model", also)
	}
}

// bookkeeping are keys of any config.json that do not affect logits: who wrote the file,
// initialization and dropout in training, generation, additional results.
var bookkeeping = []string{
	"_name_or_path", "architectures", "model_type", "transformers_version", "auto_map", "torch_dtype", "dtype", "use_bfloat16",
	"tokenizer_class", "task_specific_params", "finetuning_task", "problem_type", "id2label", "label2id", "transformers.js_config",
	"unsloth_fixed", "unsloth_version", "attn_implementation", "_attn_implementation", "_attn_implementation_autoset",
	"use_cache", "cache_implementation", "return_dict", "output_attentions", "output_hidden_states", "torchscript",
	"chunk_size_feed_forward", "tf_legacy_loss", "is_llama_config", "vocab_size", "tie_word_embeddings", "quantization_config",
	// training
	"initializer_range", "attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "dropout", "pretraining_tp",
	"output_router_logits", "router_aux_loss_coef",
	// generation
	"bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id", "prefix", "max_length", "min_length",
	"do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p",
	"typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
	"bad_words_ids", "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
	"forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
	"begin_suppress_tokens", "decoder_start_token_id",
}

// otherwise are keys of any config.json that would change the model if true.
var otherwise = []string{"is_encoder_decoder", "is_decoder", "add_cross_attention", "tie_encoder_decoder", "rope_interleaved"}
