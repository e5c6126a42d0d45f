package arch

import (
	"fmt"
	"slices"
	"strings"
)

// tensorName is a tensor's name split at its dots: the path to a module, the module, and the leaf
// with the name of a parameter of the module.
type tensorName struct {
	full   string
	segs   []string
	module int    // index in segs of the module's name
	leaf   string // "weight", "bias", ...; "" if the module is the parameter itself
}

// leaves are last segments that name a parameter of a module. w_0, b_0, ... are PaddlePaddle's,
// kernel and scale Flax's, w and b templateGPT's.
var leaves = set("weight", "bias", "w", "b", "w_0", "w_1", "w_2", "b_0", "kernel", "scale", "gamma", "beta")

var biasLeaves = set("bias", "b", "b_0", "beta")

func parseName(full string) tensorName {
	n := tensorName{full: full, segs: strings.Split(full, ".")}
	n.module = len(n.segs) - 1
	if n.module > 0 && leaves[n.segs[n.module]] {
		n.leaf = n.segs[n.module]
		n.module--
	}
	return n
}

// name returns the module's name: "q_proj" of "model.layers.0.self_attn.q_proj.weight".
func (n tensorName) name() string { return n.segs[n.module] }

func (n tensorName) parent() string {
	if n.module == 0 {
		return ""
	}
	return n.segs[n.module-1]
}

func (n tensorName) any(ok func(seg string) bool) bool {
	return slices.ContainsFunc(n.segs, ok)
}

// inLayer reports whether a number precedes the module: the module belongs to a list of layers or
// experts.
func (n tensorName) inLayer() bool {
	return slices.ContainsFunc(n.segs[:n.module], isNumber)
}

// expert reports whether the tensor lies under "experts", and whether under the number of an
// expert: experts.7.w1, experts.expert_7.fc1.
func (n tensorName) expert() (under, numbered bool) {
	for _, s := range n.segs {
		switch {
		case s == "experts" || s == "local_experts":
			under = true
		case under && isNumber(strings.TrimPrefix(s, "expert_")):
			return true, true
		}
	}
	return under, false
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// InTower reports whether a tensor belongs to a part of a multimodal model other than the language
// model, such as an image tower.
func InTower(name string) bool { return parseName(name).any(isTower) }

// isTower reports whether a segment names a part other than the language model: towers for images,
// video and sound, and their projectors.
func isTower(seg string) bool {
	if towers[seg] {
		return true
	}
	return slices.ContainsFunc(towerPrefixes, func(p string) bool { return strings.HasPrefix(seg, p) })
}

var towerPrefixes = []string{"vision_", "visual_", "image_", "img_", "audio_", "speech_", "patch_", "mm_", "gen_"}

var towers = set(
	"visual", "vision", "vit", "vpm", "vqmodel", "vision_tower", "embed_vision", // images
	"apm", "code2wav", "token2wav", "embed_audio", "conformer", // sound
	"multi_modal_projector", "modality_projection", "projector", "connector", "aligner", "merger", "resampler",
	"perceiver", "perceiver_resampler", "qformer", "Qformer", "query_tokens", "abstractor", "embed_tokens_extend",
)

func isPosition(seg string) bool {
	return positions[seg] || strings.Contains(seg, "position") || strings.Contains(seg, "rotary") ||
		strings.HasPrefix(seg, "pos_emb") || strings.HasPrefix(seg, "rel_pos")
}

var positions = set("wpe", "inv_freq", "rope", "freqs", "freqs_cis", "cos_cached", "sin_cached", "alibi", "relative_attention_bias")

func isNorm(module string) bool {
	m := strings.ToLower(module)
	return strings.Contains(m, "norm") || m == "ln" || strings.HasPrefix(m, "ln_") || strings.HasSuffix(m, "_ln") ||
		len(m) == 3 && strings.HasPrefix(m, "ln") && isNumber(m[2:])
}

// isRouter reports whether the module chooses experts or gates a shared expert.
func (n tensorName) isRouter() bool {
	if n.any(func(s string) bool { return routers[s] || strings.Contains(s, "router") }) {
		return true
	}
	// mlp.gate, block_sparse_moe.gate, gate.wg (Hunyuan), but not the gate of an attention
	return (n.name() == "gate" && !strings.Contains(n.parent(), "att")) || (n.name() == "wg" && n.parent() == "gate")
}

var routers = set("gate_inp", "shared_expert_gate", "e_score_correction_bias", "moe_statics", "expert_bias")

// unquantized returns the reason why the matrix of a module stays unquantized, or "". The
// state-space parameters and Gemma 3n's small matrices follow llama.cpp's list.
func (n tensorName) unquantized() string {
	switch name := n.name(); {
	case n.any(func(s string) bool { return strings.HasPrefix(s, "lora_") || strings.HasPrefix(s, "dora_") }):
		return "a low-rank adapter"
	case n.any(func(s string) bool { return s == "indexer" }):
		return "the indexer of a sparse attention"
	case n.any(func(s string) bool { return strings.HasPrefix(s, "altup") || s == "laurel" }), name == "per_layer_model_projection":
		return "one of Gemma's small correction matrices"
	case name == "A_log" || name == "A" || name == "D" || strings.HasPrefix(name, "dt_") || strings.HasPrefix(name, "time_"):
		return "a parameter of a state-space layer"
	case name == "sinks" || name == "sink":
		return "attention sinks"
	case strings.HasPrefix(name, "token_type_embed") || name == "segment_embeddings":
		return "a table of token types"
	}
	return ""
}

// quantizedParts are last segments that other quantizers write next to, or instead of, a weight.
// Floating-point tensors of these names are scales, not weights.
var quantizedParts = set(
	"qweight", "qzeros", "g_idx", "scales", "zeros", "biases", "absmax", "quant_map", "nested_absmax", "nested_quant_map", "SCB",
	"weight_packed", "weight_shape", "weight_g_idx", "weight_zero_point", "weight_scale", "weight_scale_inv", "weight_scale_2",
	"weight_global_scale", "qscale_weight", "weight_format",
)

// activationScales are last segments of activation scales.
var activationScales = set("activation_scale", "input_scale", "output_scale", "input_global_scale", "qscale_act", "k_scale", "v_scale", "kv_scale", "q_scale")

// ScaleOf reports whether a tensor holds the scales of an FP8 or MXFP4 weight, and returns the name
// of the weight: "X.weight" for "X.weight_scale_inv" (DeepSeek, Qwen), "X.weight_scale"
// (compressed-tensors) and "X.qscale_weight" (Mistral); "X" for "X_scale_inv" if X is a parameter
// without a module, such as fused experts, and for "X_scales" (MXFP4). The caller must check that
// the weight exists and has such a dtype.
func ScaleOf(name string) (weight string, ok bool) {
	if w, ok := strings.CutSuffix(name, "_scale_inv"); ok {
		return w, true
	}
	if w, ok := strings.CutSuffix(name, ".weight_scale"); ok {
		return w + ".weight", true
	}
	if w, ok := strings.CutSuffix(name, ".qscale_weight"); ok {
		return w + ".weight", true
	}
	if w, ok := strings.CutSuffix(name, "_scales"); ok { // MXFP4
		return w, true
	}
	return "", false
}

// foreignPart describes a tensor that another quantizer wrote; "" for all other tensors.
func (n tensorName) foreignPart() string {
	last := n.segs[len(n.segs)-1]
	switch _, ok := ScaleOf(n.full); {
	case strings.HasSuffix(last, "_blocks") || strings.HasSuffix(last, "_scales"):
		return "MXFP4: quantized already"
	case ok:
		return "scales of an FP8 weight"
	case activationScales[last] || strings.HasSuffix(last, "_input_scale"):
		return "scale of activations"
	case quantizedParts[last] || n.any(func(s string) bool { return s == "quant_state" }):
		return "part of a weight that is quantized already"
	}
	return ""
}

// BiasName is the name of the bias that belongs to a tensor of weights.
func BiasName(weights string) string {
	if module, ok := strings.CutSuffix(weights, ".weight"); ok {
		return module + ".bias"
	}
	return weights + "_bias"
}

// A Prefix begins the names of a language model's tensors, except the lm_head's.
type Prefix struct {
	Body, Embedding string
	Head            string // a checkpoint may omit the lm_head
}

var prefixes = []Prefix{
	{"model.", "model.embed_tokens.weight", "lm_head.weight"},
	// Multimodal models, as published, and from newer transformers.
	{"language_model.model.", "language_model.model.embed_tokens.weight", "language_model.lm_head.weight"},
	{"model.language_model.", "model.language_model.embed_tokens.weight", "lm_head.weight"},
	{"backbone.", "backbone.embeddings.weight", "lm_head.weight"}, // Nemotron-H
}

// PrefixOf finds the names of a language model. has reports whether the model has a tensor.
func PrefixOf(has func(name string) bool) (Prefix, error) {
	var found []Prefix
	for _, p := range prefixes {
		if has(p.Embedding) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return Prefix{}, Missing(prefixes[0].Embedding)
	case 1:
		return found[0], nil
	}
	return Prefix{}, fmt.Errorf("%q and %q are both embeddings: one was expected", found[0].Embedding, found[1].Embedding)
}

// Names returns functions that translate names between a checkpoint and the language model alone:
// short from, and long to the checkpoint. The language model may be part of a multimodal model. has
// reports whether the checkpoint has a name.
func Names(has func(name string) bool) (short, long func(name string) string) {
	plain, own := prefixes[0], prefixes[0]
	if p, err := PrefixOf(has); err == nil {
		own = p
	}
	return func(name string) string { return own.replace(name, plain) }, func(name string) string { return plain.replace(name, own) }
}

func (p Prefix) replace(name string, by Prefix) string {
	switch name {
	case p.Head:
		return by.Head
	case p.Embedding:
		return by.Embedding
	}
	if rest, ok := strings.CutPrefix(name, p.Body); ok {
		return by.Body + rest
	}
	return name
}

// Missing returns the error for a tensor that config.json requires.
func Missing(name string) error {
	return fmt.Errorf("tensor %q is missing: the model that config.json describes has one", name)
}

// Ignorable reports whether a tensor does not affect logits: buffers in old checkpoints, scales
// with which other programs quantize activations and their cache, layers for speculative decoding,
// and image towers.
func Ignorable(name string) bool {
	if strings.HasSuffix(name, ".rotary_emb.inv_freq") || strings.HasSuffix(name, ".masked_bias") {
		return true
	}
	if strings.HasPrefix(name, "mtp.") { // layers that guess further tokens (Qwen3-Next)
		return true
	}
	return activationScales[name[strings.LastIndexByte(name, '.')+1:]] || InTower(name)
}
