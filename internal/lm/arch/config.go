package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/internal/jsonscan"
)

// Config has the facts of config.json that gq needs. Values of a nested language model (text_config
// and similar) take precedence over values of the outer object.
type Config struct {
	// ModelType is the outermost model_type ("llama", "qwen3_5_moe"); "" if absent.
	ModelType string
	// TextType is the language model's own model_type: text_config's ("qwen3_5_moe_text"), else
	// ModelType.
	TextType string
	// Architectures names the classes that load the checkpoint ("LlamaForCausalLM").
	Architectures []string
	// TieWordEmbeddings: the lm_head is the embedding. If config.json does not say so (TieStated is
	// false), the value is the default of the model type's class, or false for model types without a
	// known default.
	TieWordEmbeddings bool
	// TieStated: config.json says whether the lm_head is tied. Two contradicting statements (inside
	// text_config and outside) count as none.
	TieStated bool
	// VocabSize, HiddenSize and NumExperts are 0 if absent.
	VocabSize, HiddenSize, NumExperts int64
	// WeightBlockSize is the number of rows and columns of a block with a common scale in an FP8
	// checkpoint (quantization_config.weight_block_size); zero if absent.
	WeightBlockSize [2]int
}

type ConfigError struct {
	Key string // the key with its parents: "text_config.model_type"; "" for the whole file
	Msg string
}

func (e *ConfigError) Error() string {
	if e.Key == "" {
		return e.Msg
	}
	return e.Key + " " + e.Msg
}

// nests are the keys of nested language models in multimodal configs.
var nests = []string{"text_config", "llm_config", "language_config", "thinker_config"}

// maxNesting bounds the depth of nested configs: Qwen's omni models have
// thinker_config.text_config.
const maxNesting = 3

// tiedByDefault has the model types without facts that tie lm_head and embedding by default
// (transformers' configuration_*.py). Other types default to untied, or are unknown.
var tiedByDefault = set(
	"bloom", "falcon", "falcon_mamba", "gpt2", "gpt_bigcode", "gpt_neo", "jetmoe", "mamba", "mpt", "openai-gpt", "opt", "recurrent_gemma",
	"starcoder2", "t5",
)

// ParseConfig reads a config.json and ignores keys that gq does not use. Python's NaN and Infinity
// are accepted: real files have these although JSON does not. Errors are of type *ConfigError.
func ParseConfig(raw []byte) (*Config, error) {
	outer, err := parseObject(jsonscan.Finite(raw))
	if err != nil {
		return nil, err
	}
	levels := []object{outer} // outermost first
	for range maxNesting {
		inner, err := levels[len(levels)-1].nested()
		if err != nil {
			return nil, err
		}
		if inner.keys == nil {
			break
		}
		levels = append(levels, inner)
	}
	slices.Reverse(levels)
	c := &Config{}
	if c.ModelType, err = outer.text("model_type"); err != nil {
		return nil, err
	}
	for _, o := range levels {
		if c.TextType, err = o.text("model_type"); err != nil {
			return nil, err
		}
		if c.TextType != "" {
			break
		}
	}
	if err := outer.decode("architectures", &c.Architectures, "is not a list of strings"); err != nil {
		return nil, err
	}
	c.VocabSize = count(levels, "vocab_size", "padded_vocab_size")
	c.HiddenSize = count(levels, "hidden_size", "n_embd", "d_model")
	c.NumExperts = count(levels, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
	if err := c.readTie(levels); err != nil {
		return nil, err
	}
	if err := c.readBlockSize(levels); err != nil {
		return nil, err
	}
	return c, nil
}

// readTie reads the statements about tying on all levels. "tie_embedding" is the spelling of LFM2's
// first configs.
func (c *Config) readTie(levels []object) error {
	contradicted := false
	for _, o := range levels {
		for _, key := range []string{"tie_word_embeddings", "tie_embedding"} {
			var tie *bool
			if err := o.decode(key, &tie, "is neither true nor false"); err != nil {
				return err
			}
			if tie == nil {
				continue
			}
			contradicted = contradicted || c.TieStated && c.TieWordEmbeddings != *tie
			c.TieStated, c.TieWordEmbeddings = true, *tie
		}
	}
	if contradicted {
		c.TieStated = false
	}
	if !c.TieStated {
		for _, name := range []string{c.TextType, c.ModelType} {
			f := FactsOf(TextType(name))
			c.TieWordEmbeddings = c.TieWordEmbeddings || tiedByDefault[name] || f != nil && f.tied
		}
	}
	return nil
}

func (c *Config) readBlockSize(levels []object) error {
	for _, o := range levels {
		q, err := o.child("quantization_config")
		if err != nil {
			return err
		}
		var size []int
		if err := q.decode("weight_block_size", &size, "is not a list of integers"); err != nil {
			return err
		}
		if size == nil {
			continue
		}
		if len(size) != 2 || size[0] <= 0 || size[1] <= 0 {
			return &ConfigError{q.path + "weight_block_size", fmt.Sprintf("is %v: two positive numbers were expected", size)}
		}
		c.WeightBlockSize = [2]int{size[0], size[1]}
		return nil
	}
	return nil
}

// object is a JSON object and its path ("text_config." or "").
type object struct {
	path string
	keys map[string]json.RawMessage
}

func parseObject(raw []byte) (object, error) {
	o := object{}
	if err := json.Unmarshal(raw, &o.keys); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return o, &ConfigError{Msg: fmt.Sprintf("not valid JSON at byte %d: %v", syntax.Offset, syntax)}
		}
		return o, &ConfigError{Msg: "not a JSON object"}
	}
	if o.keys == nil {
		return o, &ConfigError{Msg: "not a JSON object"}
	}
	return o, nil
}

// decode stores the value of key in dst, and leaves dst unchanged if the key is absent or null.
// wrong describes a value of another type.
func (o object) decode(key string, dst any, wrong string) error {
	raw, ok := o.keys[key]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, dst); err != nil {
		return &ConfigError{o.path + key, wrong}
	}
	return nil
}

func (o object) text(key string) (string, error) {
	var s string
	err := o.decode(key, &s, "is not a string")
	return s, err
}

// child returns the object under key; its keys are nil if absent.
func (o object) child(key string) (object, error) {
	c := object{path: o.path + key + "."}
	err := o.decode(key, &c.keys, "is not an object")
	return c, err
}

// nested returns the config of the language model inside this object; its keys are nil if absent.
func (o object) nested() (object, error) {
	for _, key := range nests {
		if c, err := o.child(key); err != nil || c.keys != nil {
			return c, err
		}
	}
	return object{}, nil
}

// count returns the first positive integer of the keys, innermost level first, or 0. Other values
// (such as lists per layer) are ignored: the counts only serve to check tensors.
func count(levels []object, keys ...string) int64 {
	for _, o := range levels {
		for _, key := range keys {
			var n int64
			if json.Unmarshal(o.keys[key], &n) == nil && n > 0 {
				return n
			}
		}
	}
	return 0
}

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}
