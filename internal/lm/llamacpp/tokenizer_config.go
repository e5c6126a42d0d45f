package llamacpp

import (
	"cmp"
	"slices"
)

func (v *vocabulary) tokenizerConfig() ([]byte, error) {
	c := object{
		"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false,
		"add_bos_token": v.addBOS, "add_eos_token": v.addEOS,
	}
	for key, id := range map[string]int{"bos_token": v.bos, "eos_token": v.eos, "unk_token": v.unk, "pad_token": v.pad} {
		c[key] = nil
		if id >= 0 && !v.absent(id) {
			c[key] = v.tokens[id]
		}
	}
	if v.spm {
		c["add_prefix_space"] = v.prefix
	}
	if t := v.chatTemplate(); t != nil {
		c["chat_template"] = t
	}
	data, err := encode(c)
	return data, cmp.Or(v.err, err)
}

// chatTemplate returns a template, a list of named templates in transformers' form, or nil.
func (v *vocabulary) chatTemplate() any {
	main := v.text(keyTemplate)
	names := v.strings(keyTemplates)
	if len(names) == 0 {
		if main == "" {
			return nil
		}
		return main
	}
	list := []object{}
	if main != "" {
		list = append(list, object{"name": "default", "template": main})
	}
	for _, name := range names {
		key := keyTemplate + "." + name
		t := v.text(key)
		if t == "" {
			v.fail(key, "is missing: %s names it", keyTemplates)
			return nil
		}
		if name != "default" || main == "" {
			list = append(list, object{"name": name, "template": t})
		}
	}
	return list
}

// ends are the texts of tokens at which llama.cpp ends a generation regardless of the metadata
// (src/llama-vocab.cpp), as far as models here have such tokens.
var ends = []string{
	"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
	"<|end_of_text|>", "<end_of_utterance>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
}

// samplings are llama.cpp's keys for the sampling that a model's author recommends.
var samplings = []struct {
	key, name string
	integer   bool
}{
	{"general.sampling.temp", "temperature", false},
	{"general.sampling.top_k", "top_k", true},
	{"general.sampling.top_p", "top_p", false},
	{"general.sampling.min_p", "min_p", false},
	{"general.sampling.penalty_repeat", "repetition_penalty", false},
}

// generationConfig writes generation_config.json: the tokens that begin and end a text, and the
// recommended sampling.
func (v *vocabulary) generationConfig() ([]byte, error) {
	c := object{}
	stops := []int{}
	for _, id := range []int{v.eos, v.role(keyEOT, -1), v.role(keyEOM, -1)} {
		if id >= 0 {
			stops = append(stops, id)
		}
	}
	for id, t := range v.tokens {
		if v.tokenType(id) == tokenControl && slices.Contains(ends, t) {
			stops = append(stops, id)
		}
	}
	slices.Sort(stops)
	stops = slices.Compact(stops)
	switch len(stops) {
	case 0:
	case 1:
		c["eos_token_id"] = stops[0]
	default:
		c["eos_token_id"] = stops
	}
	for key, id := range map[string]int{"bos_token_id": v.bos, "pad_token_id": v.pad} {
		if id >= 0 {
			c[key] = id
		}
	}
	for _, s := range samplings {
		if !v.has(s.key) {
			continue
		}
		c["do_sample"] = true
		if s.integer {
			c[s.name] = v.count(s.key, 0)
		} else {
			c[s.name] = v.number(s.key)
		}
	}
	data, err := encode(c)
	return data, cmp.Or(v.err, err)
}
