package testmodels

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
)

// A Tokenizer is a synthetic tokenizer of [Vocab] tokens in the form of a family of models. Its
// merges are learned from the repository's licence.
type Tokenizer int

const (
	Llama  Tokenizer = iota // SPM-like: a space in front, byte fallback
	Gemma                   // SPM-like, without the space in front
	Llama3                  // byte-level, with Llama 3's pattern
	Qwen                    // byte-level, with Qwen's pattern and normalization
)

// obj is a JSON object.
type obj = map[string]any

// specials are the first tokens of SPM-like vocabularies and the last tokens of byte-level
// vocabularies.
func (k Tokenizer) specials() []string {
	return [][]string{
		{"<unk>", "<s>", "</s>"}, {"<pad>", "<eos>", "<bos>", "<unk>"}, {"<|begin_of_text|>", "<|end_of_text|>"}, {"<|endoftext|>", "<|im_end|>"},
	}[k]
}

// Pre is llama.cpp's name for the pre-tokenizer; "" for SPM-like tokenizers.
func (k Tokenizer) Pre() string { return []string{"", "", "llama-bpe", "qwen2"}[k] }

func (k Tokenizer) spm() bool { return k <= Gemma }

func (k Tokenizer) bos() int { return []int{1, 2, Vocab - 2, Vocab - 2}[k] }
func (k Tokenizer) eos() int { return []int{2, 1, Vocab - 1, Vocab - 1}[k] }

// made holds the files of each Tokenizer: many models have the same.
var made [Qwen + 1]struct {
	sync.Mutex
	files map[string][]byte
}

// files returns tokenizer.json and tokenizer_config.json, which the caller must not change.
func (k Tokenizer) files(t testing.TB) map[string][]byte {
	t.Helper()
	m := &made[k]
	m.Lock()
	defer m.Unlock()
	if m.files == nil {
		m.files = k.makeFiles(t)
	}
	return m.files
}

func (k Tokenizer) makeFiles(t testing.TB) map[string][]byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(testshared.Root(t), "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	vocab, merges := k.learn(strings.Fields(string(raw[:4000])))
	special := k.specials()
	ids := obj{}
	for i, token := range vocab {
		ids[token] = i
	}
	var added []obj
	for _, s := range special {
		id := slices.Index(vocab, s)
		added = append(added, obj{"id": id, "content": s, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
		if !k.spm() {
			delete(ids, s)
		}
	}
	tokenizer := k.frame()
	tokenizer["version"], tokenizer["truncation"], tokenizer["padding"], tokenizer["added_tokens"] = "1.0", nil, nil, added
	bpe := obj{"type": "BPE", "dropout": nil, "unk_token": nil, "byte_fallback": k.spm(), "fuse_unk": k.spm(), "vocab": ids, "merges": merges}
	if k.spm() {
		bpe["unk_token"] = "<unk>"
	}
	tokenizer["model"] = bpe
	config := obj{
		"tokenizer_class": []string{"LlamaTokenizer", "GemmaTokenizer", "PreTrainedTokenizerFast", "Qwen2Tokenizer"}[k],
		"add_bos_token":   k != Qwen, "add_eos_token": false, "bos_token": vocab[k.bos()], "eos_token": vocab[k.eos()], "model_max_length": 256,
	}
	if k == Qwen {
		config["bos_token"] = nil
	}
	files := map[string][]byte{}
	for name, content := range map[string]obj{"tokenizer.json": tokenizer, "tokenizer_config.json": config} {
		if files[name], err = json.MarshalIndent(content, "", " "); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// frame returns everything around the model.
func (k Tokenizer) frame() obj {
	spaces := obj{"type": "Replace", "pattern": obj{"String": " "}, "content": "▁"}
	decoders := []obj{{"type": "Replace", "pattern": obj{"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}}
	bytes := obj{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
	split := func(digits string) obj {
		pattern := `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|` + digits + `| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
		return obj{"type": "Sequence", "pretokenizers": []obj{{"type": "Split", "pattern": obj{"Regex": pattern}, "behavior": "Isolated", "invert": false}, bytes}}
	}
	begin := func() obj {
		s := []string{"<s>", "<bos>", "<|begin_of_text|>"}[k]
		return obj{
			"type": "TemplateProcessing", "single": []obj{{"SpecialToken": obj{"id": s, "type_id": 0}}, {"Sequence": obj{"id": "A", "type_id": 0}}},
			"pair":           []obj{{"SpecialToken": obj{"id": s, "type_id": 0}}, {"Sequence": obj{"id": "A", "type_id": 0}}, {"Sequence": obj{"id": "B", "type_id": 1}}},
			"special_tokens": obj{s: obj{"id": s, "ids": []int{k.bos()}, "tokens": []string{s}}},
		}
	}
	switch k {
	case Llama:
		decoders = append(decoders, obj{"type": "Strip", "content": " ", "start": 1, "stop": 0})
		normalizers := []obj{{"type": "Prepend", "prepend": "▁"}, spaces}
		return obj{"normalizer": obj{"type": "Sequence", "normalizers": normalizers}, "pre_tokenizer": nil, "post_processor": begin(), "decoder": obj{"type": "Sequence", "decoders": decoders}}
	case Gemma:
		return obj{"normalizer": spaces, "pre_tokenizer": nil, "post_processor": begin(), "decoder": obj{"type": "Sequence", "decoders": decoders}}
	case Llama3:
		return obj{"normalizer": nil, "pre_tokenizer": split(`\p{N}{1,3}`), "post_processor": begin(), "decoder": bytes}
	}
	return obj{"normalizer": obj{"type": "NFC"}, "pre_tokenizer": split(`\p{N}`), "post_processor": bytes, "decoder": bytes}
}

// learn returns the tokens in the order of their ids, and the merges.
func (k Tokenizer) learn(text []string) (vocab []string, merges [][]string) {
	words := make([][]string, len(text))
	if k.spm() {
		vocab = k.specials()
		for b := range 256 {
			vocab = append(vocab, fmt.Sprintf("<0x%02X>", b))
		}
		letters := map[string]bool{"▁": true}
		for i, w := range text {
			words[i] = []string{"▁"}
			for _, r := range w {
				words[i] = append(words[i], string(r))
				letters[string(r)] = true
			}
		}
		var sorted []string
		for l := range letters {
			sorted = append(sorted, l)
		}
		slices.Sort(sorted)
		vocab = append(vocab, sorted...)
	} else {
		for b := range 256 {
			vocab = append(vocab, byteRune(b))
		}
		for i, w := range text {
			for _, b := range []byte(" " + w) {
				words[i] = append(words[i], byteRune(int(b)))
			}
		}
	}
	size := Vocab
	if !k.spm() {
		size -= len(k.specials())
	}
	for len(vocab) < size {
		a, b := mostFrequent(words)
		merges = append(merges, []string{a, b})
		vocab = append(vocab, a+b)
		for i := range words {
			words[i] = merge(words[i], a, b)
		}
	}
	if !k.spm() {
		return append(vocab, k.specials()...), merges
	}
	return vocab, splits(vocab)
}

// splits returns the merges of an SPM-like vocabulary: every way to make a token of two others, in
// the order of the tokens. Converters of SentencePiece models do the same.
func splits(vocab []string) (merges [][]string) {
	for _, token := range vocab {
		if strings.HasPrefix(token, "<") {
			continue
		}
		for i := range token {
			if a, b := token[:i], token[i:]; i > 0 && slices.Contains(vocab, a) && slices.Contains(vocab, b) {
				merges = append(merges, []string{a, b})
			}
		}
	}
	return merges
}

// mostFrequent returns the most frequent pair of neighbours; the first in alphabetical order among
// equals.
func mostFrequent(words [][]string) (a, b string) {
	counts := map[[2]string]int{}
	for _, w := range words {
		for i := 1; i < len(w); i++ {
			counts[[2]string{w[i-1], w[i]}]++
		}
	}
	best := 0
	for pair, n := range counts {
		if n > best || n == best && (pair[0] < a || pair[0] == a && pair[1] < b) {
			a, b, best = pair[0], pair[1], n
		}
	}
	return a, b
}

// merge joins the neighbours a and b in a word.
func merge(word []string, a, b string) (out []string) {
	for i := 0; i < len(word); i++ {
		if i+1 < len(word) && word[i] == a && word[i+1] == b {
			out = append(out, a+b)
			i++
		} else {
			out = append(out, word[i])
		}
	}
	return out
}

// byteRune is GPT-2's character for a byte: the byte's character if that is visible in Latin-1,
// else a character after U+0100.
func byteRune(b int) string {
	n := 0x100
	for i := range 256 {
		visible := '!' <= i && i <= '~' || 0xa1 <= i && i <= 0xac || 0xae <= i
		if i == b {
			if visible {
				return string(rune(b))
			}
			return string(rune(n))
		}
		if !visible {
			n++
		}
	}
	return ""
}
