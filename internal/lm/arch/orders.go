package arch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// order is the order in which a checkpoint stores a matrix.
type order uint8

const (
	orderUnknown order = iota
	outIn              // rows are outputs, as in torch.nn.Linear: y = W x
	inOut              // rows are inputs: y = x W
)

// expertOrders is the order of fused experts in a 3-D tensor [experts, ., .], by model_type.
// Architectures with facts are not among them: see [Facts].
var expertOrders = map[string]order{
	"qwen3_vl_moe":      inOut, // as published; transformers 5 saves out x in, evident from the shape
	"qwen3_vl_moe_text": inOut,
	"aria":              inOut,
	"aria_text":         inOut,
	"granitemoeshared":  outIn,
	"jetmoe":            outIn,
	"step3p5":           outIn,
	// Published with a tensor per expert. Only transformers 5 fuses these experts, by stacking the
	// tensors in their order.
	"flex_olmo":     outIn,
	"glm4v_moe":     outIn,
	"jamba":         outIn,
	"longcat_flash": outIn,
	"minimax":       outIn,
}

// gptOrders is the order of matrices in architectures with GPT-2's names (gptNames). GPT-2's Conv1D
// is in x out; others use its names for Linear layers.
var gptOrders = map[string]order{
	"decision_transformer": inOut,
	"gpt2":                 inOut,
	"imagegpt":             inOut,
	"jais":                 inOut,
	"openai-gpt":           inOut,
	"gpt_bigcode":          outIn,
	"gpt_neo":              outIn,
	"exaone":               outIn,
	"nanochat":             outIn,
	"qwen":                 outIn,
	"starcoder2":           outIn,
}

// side is the side of a matrix that has the model's hidden size.
type side uint8

const (
	sideIn  side = iota // reads the hidden state
	sideOut             // writes to the hidden state
)

var expertNames = map[string]side{
	"gate_up_proj": sideIn, "gate_proj": sideIn, "up_proj": sideIn, "down_proj": sideOut,
	"w1": sideIn, "w3": sideIn, "w2": sideOut,
	"fc1": sideIn, "fc2": sideOut, // aria
	"input_linear": sideIn, "output_linear": sideOut, // granitemoe, jetmoe
}

// gptNames are the modules that are a Conv1D in GPT-2.
var gptNames = map[string]side{
	"c_attn": sideIn, "q_attn": sideIn, "kv_attn": sideIn, "c_fc": sideIn, "c_fc2": sideIn, "c_proj": sideOut,
}

// lookUp finds the order for a config in a table, first by the language model's own type.
func lookUp(table map[string]order, cfg *Config) order {
	if cfg == nil {
		return orderUnknown
	}
	return cmp.Or(table[cfg.TextType], table[cfg.ModelType])
}

// expertOrder finds the order of fused experts for a config.
func expertOrder(cfg *Config) order {
	if cfg == nil {
		return orderUnknown
	}
	switch f := cmp.Or(FactsOf(TextType(cfg.TextType)), FactsOf(TextType(cfg.ModelType))); {
	case f == nil || !f.Has(DownExperts):
		return lookUp(expertOrders, cfg)
	case f.inOut:
		return inOut
	}
	return outIn
}

// unknownOrder returns the reason why a matrix of unknown order stays unquantized.
func unknownOrder(cfg *Config) string {
	const what = "stored out x in or in x out, depending on the architecture: "
	switch {
	case cfg == nil:
		return what + "there is no config.json to name it"
	case cfg.TextType == "":
		return what + "config.json names no model_type"
	}
	return fmt.Sprintf("%sgq does not know how model_type %q does it", what, cfg.TextType)
}

// contradiction checks that the config's hidden size is on the side of the matrix that the order
// implies, and returns "" or the contradiction.
func contradiction(cfg *Config, o order, s side, rows, cols int64) string {
	out, in := rows, cols
	if o == inOut {
		out, in = cols, rows
	}
	got := in
	if s == sideOut {
		got = out
	}
	if cfg.HiddenSize == 0 || got == cfg.HiddenSize {
		return ""
	}
	return fmt.Sprintf("a %d x %d matrix of model_type %q, stored %s, does not fit hidden_size %d", rows, cols, cfg.TextType, o, cfg.HiddenSize)
}

func (o order) String() string {
	switch o {
	case outIn:
		return "out x in"
	case inOut:
		return "in x out"
	}
	return "in unknown order"
}

// heads are modules that compute logits, anywhere in a name.
var heads = set("lm_head", "embed_out", "unembedding", "unembed")

// outerHeads compute logits outside of any layer. In a layer these names are projections (BERT's
// output, OLMo's ff_out).
var outerHeads = set("output", "output_layer", "head", "ff_out")

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

// isEmbedding reports whether the tensor is the token embedding or another embedding (Gemma 3n's
// embed_tokens_per_layer).
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

// headless are endings of class names without an lm_head. GPT2LMHeadModel and InternVLChatModel are
// exceptions with an lm_head.
var headless = []string{"Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice"}

// HeadName returns the name of the lm_head that is tied to an embedding and omitted from the
// checkpoint: "lm_head.weight" for "model.embed_tokens.weight", "output.weight" for
// "tok_embeddings.weight". The result is "" if embedding is not the token embedding, or if the
// config names an architecture without an lm_head. cfg may be nil.
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
