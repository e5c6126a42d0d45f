package arch

import "fmt"

// order is the order in which a checkpoint stores a matrix.
type order uint8

const (
	orderUnknown order = iota
	outIn              // rows are outputs, as in torch.nn.Linear: y = W x
	inOut              // rows are inputs: y = x W
)

// expertOrders is the order of fused experts in a 3-D tensor [experts, ., .], by model_type.
var expertOrders = map[string]order{
	// y = x @ W[e]
	"gpt_oss":           inOut, // in BF16; the MXFP4 blocks of the published files are out x in
	"llama4":            inOut,
	"llama4_text":       inOut,
	"qwen3_vl_moe":      inOut, // as published; transformers 5 saves out x in, which the shape reveals
	"qwen3_vl_moe_text": inOut,
	"aria":              inOut,
	"aria_text":         inOut,
	"qwen3_5_moe":       outIn,
	"qwen3_5_moe_text":  outIn,
	"gemma4":            outIn,
	"gemma4_text":       outIn,
	"granitemoe":        outIn,
	"granitemoeshared":  outIn,
	"granitemoehybrid":  outIn,
	"jetmoe":            outIn,
	"step3p5":           outIn,
	// Published with one tensor per expert. These are fused only by transformers 5, which stacks
	// the tensors and so keeps their order.
	"deepseek_v2":    outIn,
	"deepseek_v3":    outIn,
	"dots1":          outIn,
	"ernie4_5_moe":   outIn,
	"flex_olmo":      outIn,
	"glm4_moe":       outIn,
	"glm4v_moe":      outIn,
	"hunyuan_v1_moe": outIn,
	"jamba":          outIn,
	"lfm2_moe":       outIn,
	"longcat_flash":  outIn,
	"minimax":        outIn,
	"mixtral":        outIn,
	"olmoe":          outIn,
	"phimoe":         outIn,
	"qwen2_moe":      outIn,
	"qwen3_moe":      outIn,
	"qwen3_next":     outIn,
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

// expertNames are the modules with fused experts in 3-D.
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
	if o := table[cfg.TextType]; o != orderUnknown {
		return o
	}
	return table[cfg.ModelType]
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

// contradiction checks a matrix against the hidden size of the config, which must be on the right
// side if the order is right. It returns "" without a contradiction.
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
