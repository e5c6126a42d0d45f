package arch

import (
	"fmt"
	"strings"
)

// prefixes are the names' prefixes of the language model in checkpoints, with the name of the
// lm_head.
var prefixes = []struct{ body, head string }{
	{"model.", "lm_head.weight"},
	{"language_model.model.", "language_model.lm_head.weight"}, // multimodal, as published
	{"model.language_model.", "lm_head.weight"},                // multimodal, as newer transformers save it
}

// Prefix returns the prefix of the tensors of the language model, and the name of its lm_head,
// which a checkpoint may omit. has reports whether the model has a tensor.
func Prefix(has func(name string) bool) (body, head string, err error) {
	found := 0
	for _, p := range prefixes {
		if has(p.body + "embed_tokens.weight") {
			body, head, found = p.body, p.head, found+1
		}
	}
	switch found {
	case 0:
		return "", "", Missing(prefixes[0].body + "embed_tokens.weight")
	case 1:
		return body, head, nil
	}
	return "", "", fmt.Errorf("several tensors are named embed_tokens.weight: one was expected")
}

// Missing returns the error for a tensor that config.json requires.
func Missing(name string) error {
	return fmt.Errorf("tensor %q is missing: the model that config.json describes has one", name)
}

// Ignorable reports whether a tensor does not affect logits: buffers in old checkpoints, scales with
// which other programs quantize activations and their cache, and image towers.
func Ignorable(name string) bool {
	if strings.HasSuffix(name, ".rotary_emb.inv_freq") || strings.HasSuffix(name, ".masked_bias") {
		return true
	}
	return activationScales[name[strings.LastIndexByte(name, '.')+1:]] || InTower(name)
}
