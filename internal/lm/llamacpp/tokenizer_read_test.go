package llamacpp

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// The types of arrays' elements, as the GGUF specification numbers them.
const (
	typeInt32   gguf.ValueType = 5
	typeFloat32 gguf.ValueType = 6
	typeString  gguf.ValueType = 8
)

func stringArray(list []string) gguf.Array {
	var b []byte
	for _, s := range list {
		b = append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
	}
	return gguf.Array{Type: typeString, Len: len(list), Data: b}
}

func intArray(list []int32) gguf.Array {
	var b []byte
	for _, v := range list {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return gguf.Array{Type: typeInt32, Len: len(list), Data: b}
}

func floatArray(list []float32) gguf.Array {
	var b []byte
	for _, v := range list {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return gguf.Array{Type: typeFloat32, Len: len(list), Data: b}
}

// A tokenizerFiles is a tokenizer of the shared vectors. pre is its value of tokenizer.ggml.pre, ""
// for a sentencepiece model; bos is the token that the vectors have before a text, "" for none.
type tokenizerFiles struct{ name, dir, pre, bos string }

var tokenizers = []tokenizerFiles{
	{"stories260K", "stories260K-f32", "", "<s>"}, {"books13M", "books1.3M-bf16", "", "<s>"}, {"books37M", "books3.7M-bf16", "", "<s>"},
	{"llama2", "", "", "<s>"}, {"llama3", "", "llama-bpe", ""}, {"qwen3", "", "qwen2", ""}, {"gemma3", "", "", "<bos>"},
	{"books13M", "books1.3M-bf16", modelMerged, "<s>"}, {"gemma3", "", modelMerged, "<bos>"}, {"gptoss", "", "gpt-4o", ""}, {"deepseek_v3", "", "deepseek-v3", ""},
}

// tokenizerDir returns the directory with the files of a tokenizer, or skips the test.
func tokenizerDir(t *testing.T, name, dir string) string {
	if dir != "" {
		return filepath.Join(testshared.Dir(t), "models", dir)
	}
	root := os.Getenv("GQ_TOKENIZERS")
	if testing.Short() {
		t.Skip("large, and -short is set")
	}
	if root == "" {
		t.Skip("GQ_TOKENIZERS is not set (.ci/tokenizers fetches the files)")
	}
	return filepath.Join(root, name)
}

// metadataOf makes the metadata that llama.cpp's converter makes from a tokenizer.json.
func metadataOf(t *testing.T, c tokenizerFiles) map[string]any {
	t.Helper()
	pre := c.pre
	if pre == modelMerged {
		pre = ""
	}
	data, err := os.ReadFile(filepath.Join(tokenizerDir(t, c.name, c.dir), "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Added []struct {
			ID      int
			Content string
			Special bool
		} `json:"added_tokens"`
		Normalizer json.RawMessage
		Model      struct {
			Vocab  map[string]int
			Merges []json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	n := len(doc.Model.Vocab)
	for _, a := range doc.Added {
		n = max(n, a.ID+1)
	}
	tokens, types, scores := make([]string, n), make([]int32, n), make([]float32, n)
	for token, id := range doc.Model.Vocab {
		tokens[id], types[id] = token, tokenNormal
		if pre == "" && len(token) == 6 && strings.HasPrefix(token, "<0x") {
			types[id] = tokenByte
		}
		scores[id] = float32(math.Inf(-1))
	}
	merges := make([]string, len(doc.Model.Merges))
	for i, m := range doc.Model.Merges {
		pair := []string{}
		if m[0] == '"' {
			var s string
			json.Unmarshal(m, &s)
			pair = strings.SplitN(s, " ", 2)
		} else {
			json.Unmarshal(m, &pair)
		}
		merges[i] = strings.Join(pair, " ")
		if id := doc.Model.Vocab[strings.Join(pair, "")]; math.IsInf(float64(scores[id]), -1) {
			scores[id] = float32(-i)
		}
	}
	bos := -1
	for _, a := range doc.Added {
		tokens[a.ID], types[a.ID], scores[a.ID] = a.Content, tokenUserDefined, -1000
		if a.Special {
			types[a.ID] = tokenControl
		}
		if pre == "" && !a.Special { // as the converter does
			tokens[a.ID] = strings.ReplaceAll(a.Content, spaces, " ")
		}
		if a.Content == c.bos {
			bos = a.ID
		}
		if a.Content == "<unk>" {
			types[a.ID] = tokenUnknown
		}
	}
	for id, token := range tokens {
		if token == "" {
			tokens[id], types[id] = "[PAD"+string(rune('0'+id%10))+"]", tokenUnused
		}
	}
	m := map[string]any{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": stringArray(tokens),
		"tokenizer.ggml.token_type": intArray(types), "tokenizer.ggml.merges": stringArray(merges), "tokenizer.ggml.add_bos_token": bos >= 0,
	}
	if bos >= 0 {
		m["tokenizer.ggml.bos_token_id"] = uint32(bos)
	}
	if pre == "" {
		m["tokenizer.ggml.model"], m["tokenizer.ggml.pre"], m["tokenizer.ggml.scores"] = "llama", "default", floatArray(scores)
		m["tokenizer.ggml.add_space_prefix"] = strings.Contains(string(doc.Normalizer), "Prepend")
		delete(m, "tokenizer.ggml.merges")
	}
	if c.pre == modelMerged {
		m["tokenizer.ggml.model"], m["tokenizer.ggml.merges"] = modelMerged, stringArray(merges)
		delete(m, "tokenizer.ggml.scores")
	}
	return m
}

// readTokenizer turns metadata round and reads the result, with a table or without.
func readTokenizer(metadata map[string]any, table bool) (*tokenizer.Tokenizer, error) {
	k := &keyReader{file: &gguf.File{Metadata: metadata}}
	v := readVocabulary(k)
	if k.err != nil {
		return nil, k.err
	}
	list, err := v.tokenizerFiles(table)
	if err != nil {
		return nil, err
	}
	f := tokenizer.Files{Tokenizer: list[0].Data}
	if table {
		f.Table = list[1].Data
	}
	if f.Config, err = v.tokenizerConfig(); err != nil {
		return nil, err
	}
	if f.GenerationConfig, err = v.generationConfig(); err != nil {
		return nil, err
	}
	return tokenizer.ParseFiles(f)
}

// TestTokenizerIDs reads nine tokenizers back from metadata. Their ids of the shared texts must
// equal the ids of an independent implementation.
func TestTokenizerIDs(t *testing.T) {
	vectors := testshared.TokenVectors(t)
	for i, c := range append(tokenizers, tokenizers...) {
		t.Run(c.name, func(t *testing.T) {
			tok, err := readTokenizer(metadataOf(t, c), i >= len(tokenizers))
			if err != nil {
				t.Fatal(err)
			}
			n, bad := 0, 0
			for _, v := range vectors {
				if v.Tokenizer != c.name {
					continue
				}
				n++
				got, err := tok.Encode(v.Text, tokenizer.Options{})
				if err != nil || !slices.Equal(got, v.IDs) {
					if bad++; bad < 6 {
						t.Errorf("%.60q: %v\n got %d\nwant %d", v.Text, err, got, v.IDs)
					}
				}
				got, err = tok.Encode(v.Text, tokenizer.Options{AddSpecial: true})
				if err != nil || !slices.Equal(got, v.IDsWithSpecial) {
					if bad++; bad < 6 {
						t.Errorf("%.60q with special: %v\n got %d\nwant %d", v.Text, err, got, v.IDsWithSpecial)
					}
				}
			}
			t.Logf("%d texts, %d differ", n, bad)
		})
	}
}

// roundTrip holds a tokenizer that is read back from a tokenizer's metadata to the same ids.
func roundTrip(t *testing.T, ours *tokenizer.Tokenizer, metadata []gguf.Pair) {
	t.Helper()
	const text = "Hello, world! It's 3.14159 o'clock\n\n\tif (x == 0) { return;  }   naïve café — 日本語 한국어 🙂🙂 aaaaaaa     zzz"
	l, err := gguf.NewLayout(metadata, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(l.Shards[0].Header)
	if err != nil {
		t.Fatal(err)
	}
	for _, special := range []bool{false, true} {
		theirs, err := readTokenizer(f.Metadata, special)
		if err != nil {
			t.Fatal(err)
		}
		want, err := ours.Encode(text, tokenizer.Options{AddSpecial: special})
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := ours.BOS(); special && ours.AddsBOS() && ok { // which llama.cpp's metadata say
			want = slices.Insert(want, 0, id)
		}
		got, err := theirs.Encode(text, tokenizer.Options{AddSpecial: special})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("special %v: %v\n got %d\nwant %d", special, err, got, want)
		}
		if a, b := ours.Decode(want, true), theirs.Decode(want, true); a != b {
			t.Errorf("decoded %q, want %q", b, a)
		}
	}
}

// TestRoleOutside: an id that the vocabulary does not have is ignored, as llama.cpp does. Files
// have 2^32-1 for none.
func TestRoleOutside(t *testing.T) {
	for _, id := range []uint32{3, math.MaxUint32} {
		k := &keyReader{file: &gguf.File{Metadata: map[string]any{
			"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": stringArray([]string{"<unk>", "a", "b"}), "tokenizer.ggml.scores": floatArray([]float32{0, -1, -2}),
			"tokenizer.ggml.padding_token_id": id, "tokenizer.ggml.bos_token_id": id,
		}}}
		if v := readVocabulary(k); k.err != nil || v.pad != -1 || v.bos != 1 {
			t.Errorf("%d: %v", id, k.err)
		}
	}
}

// TestTokenizerReadErrors: metadata that no tokenizer.json can express are refused by their key.
func TestTokenizerReadErrors(t *testing.T) {
	long := strings.Repeat("a", maxToken+1)
	for _, c := range []struct {
		name string
		edit map[string]any
		want string
	}{
		{"unknown model", map[string]any{"tokenizer.ggml.model": "t5"}, `tokenizer.ggml.model is "t5": this program turns round`},
		{"no tokens", map[string]any{"tokenizer.ggml.tokens": nil}, "tokenizer.ggml.tokens is missing or empty"},
		{"too many tokens", map[string]any{"tokenizer.ggml.tokens": gguf.Array{Type: typeString, Len: maxElements + 1, Data: make([]byte, 8*(maxElements+1))}}, "tokenizer.ggml.tokens has 4194305 elements: at most 4194304"},
		{"too many merges", map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.merges": gguf.Array{Type: typeString, Len: maxElements + 1, Data: make([]byte, 8*(maxElements+1))}}, "tokenizer.ggml.merges has 4194305 elements: at most 4194304"},
		{"a token twice", map[string]any{"tokenizer.ggml.tokens": stringArray([]string{"<unk>", "a", "a"})}, `tokenizer.ggml.tokens has "a" twice, with ids 1 and 2`},
		{"no UTF-8", map[string]any{"tokenizer.ggml.tokens": stringArray([]string{"<unk>", "a", "\xff"})}, `as element 2, which is not valid UTF-8`},
		{"a long token", map[string]any{"tokenizer.ggml.tokens": stringArray([]string{"<unk>", "a", long})}, "a token of 513 bytes with id 2: at most 512"},
		{"too few scores", map[string]any{"tokenizer.ggml.scores": floatArray([]float32{1})}, "tokenizer.ggml.scores has 1 elements for 3 tokens"},
		{"empty scores", map[string]any{"tokenizer.ggml.scores": floatArray(nil)}, "tokenizer.ggml.scores has 0 elements for 3 tokens"},
		{"too few types", map[string]any{"tokenizer.ggml.token_type": intArray([]int32{1, 1})}, "tokenizer.ggml.token_type has 2 elements for 3 tokens"},
		{"no types", map[string]any{"tokenizer.ggml.token_type": intArray(nil)}, "tokenizer.ggml.token_type has 0 elements for 3 tokens"},
		{"no scores", map[string]any{"tokenizer.ggml.scores": nil}, "tokenizer.ggml.scores is missing"},
		{"a score that is no number", map[string]any{"tokenizer.ggml.scores": floatArray([]float32{0, 0, float32(math.NaN())})}, "tokenizer.ggml.scores has NaN as element 2"},
		{"scores of strings", map[string]any{"tokenizer.ggml.scores": stringArray([]string{"", "", ""})}, "tokenizer.ggml.scores is an array of 3 values of type string: an array of numbers"},
		{"too many types", map[string]any{"tokenizer.ggml.token_type": intArray([]int32{1, 1, 1, 1})}, "tokenizer.ggml.token_type has 4 elements: at most 3"},
		{"a role", map[string]any{"tokenizer.ggml.bos_token_id": "one"}, `tokenizer.ggml.bos_token_id is "one": an integer`},
		{"pre", map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "kimi-k2"}, `tokenizer.ggml.pre is "kimi-k2": this program does not know`},
		{"no merges", map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2"}, "tokenizer.ggml.merges is missing"},
		{"a merge", map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.merges": stringArray([]string{"ab"})}, `tokenizer.ggml.merges has "ab" as element 0: two tokens with a space`},
		{"a merge of strangers", map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.merges": stringArray([]string{"a c"})}, `tokenizer.ggml.merges has "a c" as element 0, but not all`},
		{"a template", map[string]any{"tokenizer.chat_templates": stringArray([]string{"rag"})}, "tokenizer.chat_template.rag is missing: tokenizer.chat_templates names it"},
	} {
		metadata := map[string]any{
			"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": stringArray([]string{"<unk>", "a", "b"}), "tokenizer.ggml.scores": floatArray([]float32{0, -1, -2}),
		}
		for key, v := range c.edit {
			if metadata[key] = v; v == nil {
				delete(metadata, key)
			}
		}
		if _, err := readTokenizer(metadata, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
		}
	}
}
