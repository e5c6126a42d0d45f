package llamacpp

import (
	_ "embed" // prehashes.txt
	"maps"
	"slices"
	"strings"
	"sync"
)

// A pretokenizer is how a byte-level BPE divides a text into words: llama.cpp's rule for a value of
// tokenizer.ggml.pre, in the expressions of the original tokenizer.json. Each expression splits the
// words of the previous expression. Text between two matches is a word too.
type pretokenizer struct {
	names    []string
	patterns []string
	// wholeWords: a word that is a token is not built by merges (ignore_merges).
	wholeWords bool
	// bos: texts begin with a BOS unless tokenizer.ggml.add_bos_token says otherwise.
	bos bool
	// nfc: tokenizer.json normalizes texts; llama.cpp does not.
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

// pretokenizers are llama.cpp's rules (src/llama-vocab.cpp, llm_tokenizer_bpe and
// llama_vocab::impl::load) for the published models of the architectures here.
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

// preNames returns the values of tokenizer.ggml.pre that llama.cpp knows for byte-level BPE
// (src/llama-vocab.cpp). With default, llama.cpp splits texts like GPT-2 and warns.
func preNames() []string {
	names := slices.AppendSeq([]string{"gemma4", "jina-de", "jina-es", "llada-moe", "whitespace"}, maps.Values(preHashes()))
	for _, p := range pretokenizers {
		names = append(names, p.names...)
	}
	slices.Sort(names)
	return slices.Compact(slices.DeleteFunc(names, func(name string) bool { return name == "" }))
}

// preHashList has lines of a name of a pre-tokenizer and the SHA-256 of the ids of preText, written
// as a Python list (conversion/base.py, get_vocab_base_pre).
//
//go:embed prehashes.txt
var preHashList string

var preHashes = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	for line := range strings.Lines(preHashList) {
		name, hash, _ := strings.Cut(strings.TrimSpace(line), " ")
		names[hash] = name
	}
	return names
})
