package tokenizer

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
)

// obj is a JSON object.
type obj = map[string]any

// build returns a tokenizer.json: these members, over the members of a small model with all bytes,
// a to z and "▁" as characters, and a few merges.
func build(tb testing.TB, members obj) []byte {
	tb.Helper()
	all := obj{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": []obj{}, "normalizer": nil,
		"pre_tokenizer": nil, "post_processor": nil, "decoder": nil, "model": smallModel(nil),
	}
	for k, v := range members {
		all[k] = v
	}
	data, err := json.Marshal(all)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// smallModel has ids: 0 <unk>, 1 to 256 the bytes, then single characters, then merges.
func smallModel(members obj) obj {
	vocab := obj{"<unk>": 0}
	for b := range 256 {
		vocab[fmt.Sprintf("<0x%02X>", b)] = len(vocab)
	}
	for r := 'a'; r <= 'z'; r++ {
		vocab[string(r)] = len(vocab)
	}
	for _, s := range []string{"▁", "A", "1", ".", "th", "the", "▁the", "▁▁", "an"} {
		vocab[s] = len(vocab)
	}
	m := obj{
		"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true, "vocab": vocab,
		"merges": []string{"t h", "th e", "▁ the", "▁ ▁", "a n"},
	}
	for k, v := range members {
		m[k] = v
	}
	return m
}

// byteModel is a byte-level model with a few merges.
func byteModel() obj {
	vocab := obj{}
	for _, r := range byteRunes {
		vocab[string(r)] = len(vocab)
	}
	for _, s := range []string{"th", "the", "Ġthe", "Ġa", "ĠĠ", "Ã©"} {
		vocab[s] = len(vocab)
	}
	return obj{"type": "BPE", "vocab": vocab, "merges": [][]string{{"t", "h"}, {"th", "e"}, {"Ġ", "the"}, {"Ġ", "a"}, {"Ġ", "Ġ"}, {"Ã", "©"}}}
}

func byteLevelJSON(tb testing.TB) []byte {
	return build(tb, obj{
		"model":          byteModel(),
		"normalizer":     obj{"type": "NFC"},
		"pre_tokenizer":  obj{"type": "ByteLevel", "add_prefix_space": false},
		"decoder":        obj{"type": "ByteLevel"},
		"post_processor": obj{"type": "ByteLevel"},
		"added_tokens":   []obj{{"id": 262, "content": "<|end|>", "special": true}, {"id": 263, "content": "<tool>", "special": false, "normalized": false}},
	})
}

// spaceDecoder is Llama 2's decoder.
var spaceDecoder = obj{"type": "Sequence", "decoders": []obj{
	{"type": "Replace", "pattern": obj{"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
	{"type": "Strip", "content": " ", "start": 1, "stop": 0},
}}

func parse(tb testing.TB, data []byte) *Tokenizer {
	tb.Helper()
	tok, err := parseFiles(data, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}

// encode returns the tokens of text as tokenizer.json writes them.
func encode(tb testing.TB, tok *Tokenizer, text string, o Options) []string {
	tb.Helper()
	ids, err := tok.Encode(text, o)
	if err != nil {
		tb.Fatalf("%q: %v", text, err)
	}
	tokens := []string{}
	for _, id := range ids {
		tokens = append(tokens, tok.Token(id))
	}
	return tokens
}

// books returns the directory of the checkpoint in the repository.
func books(tb testing.TB) string {
	return filepath.Join(testshared.Root(tb), "testdata", "books1.3M-bf16")
}

// parseFiles parses two files; the second may be missing (nil).
func parseFiles(tokenizerJSON, configJSON []byte) (*Tokenizer, error) {
	return ParseFiles(Files{Tokenizer: tokenizerJSON, Config: configJSON})
}
