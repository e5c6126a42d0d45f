package llamacpp

import "slices"

// A pretokenizer is how a byte-level BPE divides a text into words: the rule that llama.cpp has for
// a value of tokenizer.ggml.pre, in the expressions of the tokenizer.json that it was made from.
// Each expression splits the words that the previous expression made. Text between two matches is a
// word too.
type pretokenizer struct {
	names    []string
	patterns []string
	// wholeWords: a word that is a token is not built by merges (ignore_merges).
	wholeWords bool
	// bos: texts begin with a BOS unless tokenizer.ggml.add_bos_token says otherwise.
	bos bool
	// nfc: tokenizer.json normalizes texts, which llama.cpp does not.
	nfc bool
}

// Expressions of tokenizer.json that several models share.
const (
	gpt2Words   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	llama3Words = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Words  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	deepseekDigits = `\p{N}{1,3}`
	deepseekCJK    = `[一-龥぀-ゟ゠-ヿ]+`
	deepseekWords  = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

	tekkenWords = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	gpt4oWords  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// pretokenizers are the rules of llama.cpp (src/llama-vocab.cpp, llm_tokenizer_bpe and
// llama_vocab::impl::load) that one of the architectures here is published with.
var pretokenizers = []pretokenizer{
	{
		names:    []string{"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0"},
		patterns: []string{llama3Words}, wholeWords: true, bos: true,
	},
	{names: []string{"smaug-bpe", "dbrx", "glm4", "chatglm-bpe"}, patterns: []string{llama3Words}},
	{names: []string{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "hunyuan", "solar-open"}, patterns: []string{qwen2Words}, nfc: true},
	{names: []string{"stablelm2", "grok-2"}, patterns: []string{qwen2Words}},
	{
		names: []string{"qwen35"}, nfc: true,
		patterns: []string{`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	},
	{names: []string{"deepseek-v3", "hunyuan-dense", "joyai-llm"}, patterns: []string{deepseekDigits, deepseekCJK, deepseekWords}},
	{
		names:    []string{"deepseek-coder"},
		patterns: []string{`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, `[一-龥ࠀ-一가-퟿]+`, `\p{N}`},
	},
	{
		names:    []string{"gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "olmo", "mpt", "jais", "trillion", "granite-docling", "exaone4"},
		patterns: []string{gpt2Words},
	},
	{
		names:    []string{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"},
		patterns: []string{`\p{N}`, gpt2Words},
	},
	{names: []string{"falcon"}, patterns: []string{"[\\p{P}\\$\\+<=>\\^~\\|`]+", gpt2Words, `[0-9][0-9][0-9]`}},
	{names: []string{"default", ""}, patterns: []string{`[\p{P}\$\+<=>\^~\|]+`, gpt2Words, `\p{N}+`, `[0-9][0-9][0-9]`}},
	{names: []string{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, patterns: []string{gpt4oWords}},
	{names: []string{"tekken"}, patterns: []string{tekkenWords}, wholeWords: true, bos: true},
	{names: []string{"poro-chat", "bloom", "gpt3-finnish"}, patterns: []string{` ?[^(\s|.,!?…。，、।۔،)]+`}},
	{names: []string{"viking"}, patterns: []string{` ?[^(\s|.,!?…。，、।۔،)]+`, `\p{N}`}},
	{
		names:    []string{"seed-coder"},
		patterns: []string{`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`},
	},
	{
		names:    []string{"minicpm5"},
		patterns: []string{`\p{N}{1,3}`, `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`}, wholeWords: true,
	},
}

// findPretokenizer returns the rule for a value of tokenizer.ggml.pre, or nil.
func findPretokenizer(name string) *pretokenizer {
	for i := range pretokenizers {
		if slices.Contains(pretokenizers[i].names, name) {
			return &pretokenizers[i]
		}
	}
	return nil
}
