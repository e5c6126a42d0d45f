package arch

import (
	"slices"
	"strings"
)

// heads are modules that compute logits, anywhere in a name.
var heads = set("lm_head", "embed_out", "unembedding", "unembed")

// outerHeads compute logits outside of any layer. In a layer these names are projections (BERT's
// output, OLMo's ff_out).
var outerHeads = set("output", "output_layer", "head", "ff_out")

// isHead reports whether the tensor is an lm_head.
func (n tensorName) isHead() bool {
	return n.any(func(s string) bool { return heads[s] }) ||
		outerHeads[n.name()] && !n.inLayer() ||
		n.name() == "head" && n.parent() == "shared_head" // DeepSeek's multi-token prediction
}

// tiedHeads maps the modules that hold an embedding to the lm_head of the same model: its name if
// the two are tied and the checkpoint omits the lm_head.
var tiedHeads = map[string]string{
	"embed_tokens":    "lm_head",
	"wte":             "lm_head",
	"word_embeddings": "lm_head", // BLOOM, Falcon; HeadName treats BERT and ChatGLM apart
	"embeddings":      "lm_head", // Mamba, RWKV
	"embedding":       "lm_head", // Mamba's own checkpoints
	"tokens_embed":    "lm_head", // GPT
	"shared":          "lm_head", // T5
	"embed_in":        "embed_out",
	"tok_embeddings":  "output", // Llama's own checkpoints, llama.c, InternLM2
	"token_embedder":  "output", // templateGPT
	"emb":             "head",   // RWKV's own checkpoints
}

// isEmbedding reports whether the tensor is an embedding: the token embedding or another one (Gemma
// 3n's embed_tokens_per_layer).
func (n tensorName) isEmbedding() bool {
	name := n.name()
	return tiedHeads[name] != "" || strings.HasPrefix(name, "embed_tokens") ||
		strings.HasSuffix(name, "_embedding") || strings.HasSuffix(name, "_embeddings") ||
		name == "token_embd" || name == "tok_emb" || name == "token_emb"
}

// bodies are the modules that contain everything but the lm_head, longest first.
var bodies = [][]string{
	{"model", "language_model"}, {"model", "text_model"}, {"model", "decoder"}, {"model", "transformer"},
	{"model"}, {"transformer"}, {"backbone"}, {"gpt_neox"}, {"rwkv"}, {"decoder"},
}

// headless are endings of class names without an lm_head, except GPT2LMHeadModel and
// InternVLChatModel, which have one.
var headless = []string{"Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice"}

// HeadName returns the name of the lm_head that is tied to an embedding and omitted from the
// checkpoint: "lm_head.weight" for "model.embed_tokens.weight", "output.weight" for
// "tok_embeddings.weight". It returns "" if embedding is not the token embedding, or if the config
// names an architecture without an lm_head. cfg may be nil.
func HeadName(cfg *Config, embedding string) string {
	n := parseName(embedding)
	head := tiedHeads[n.name()]
	path := n.segs[:n.module]
	if head == "" || n.leaf != "weight" || n.inLayer() || cfg != nil && cfg.headless() ||
		n.parent() == "embeddings" || slices.Contains(path, "encoder") { // BERT and similar
		return ""
	}
	if n.name() == "word_embeddings" && n.parent() == "embedding" { // ChatGLM
		return strings.Join(append(slices.Clone(path[:len(path)-1]), "output_layer", "weight"), ".")
	}
	for _, b := range bodies {
		if len(path) >= len(b) && slices.Equal(path[len(path)-len(b):], b) {
			if len(b) == 2 && b[1] == "transformer" { // OLMo's own checkpoints have the lm_head inside
				return strings.Join(append(slices.Clone(path), "ff_out", "weight"), ".")
			}
			path = path[:len(path)-len(b)]
			break
		}
	}
	return strings.Join(append(slices.Clone(path), head, "weight"), ".")
}

// headless reports whether none of the config's architectures has an lm_head.
func (c *Config) headless() bool {
	for _, arch := range c.Architectures {
		ends := func(ending string) bool { return strings.HasSuffix(arch, ending) }
		if !slices.ContainsFunc(headless, ends) || strings.Contains(arch, "Head") || strings.Contains(arch, "Chat") {
			return false
		}
	}
	return len(c.Architectures) > 0
}
