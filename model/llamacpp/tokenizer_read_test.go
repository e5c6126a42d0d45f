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
	"github.com/lowbit-go/gq/internal/testshared"
	"github.com/lowbit-go/gq/model/tokenizer"
)

func stringArray(list []string) gguf.Array {
	var b []byte
	for _, s := range list {
		b = append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
	}
	return gguf.Array{Type: gguf.TypeString, Len: len(list), Data: b}
}

func intArray(list []int32) gguf.Array {
	var b []byte
	for _, v := range list {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return gguf.Array{Type: gguf.TypeInt32, Len: len(list), Data: b}
}

func floatArray(list []float32) gguf.Array {
	var b []byte
	for _, v := range list {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return gguf.Array{Type: gguf.TypeFloat32, Len: len(list), Data: b}
}

// A tokenizerFiles is a tokenizer of the shared vectors. pre is its value of tokenizer.ggml.pre, ""
// for a sentencepiece model; bos is the token that the vectors have before a text, "" for none.
type tokenizerFiles struct{ name, dir, pre, bos string }

var tokenizers = []tokenizerFiles{
	{"stories260K", "stories260K-f32", "", "<s>"}, {"books13M", "books1.3M-bf16", "", "<s>"}, {"books37M", "books3.7M-bf16", "", "<s>"},
	{"llama2", "", "", "<s>"}, {"llama3", "", "llama-bpe", ""}, {"qwen3", "", "qwen2", ""}, {"gemma3", "", "", "<bos>"},
	{"gptoss", "", "gpt-4o", ""}, {"deepseek_v3", "", "deepseek-v3", ""},
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
	return m
}

// readTokenizer turns metadata round and reads the result.
func readTokenizer(metadata map[string]any) (*tokenizer.Tokenizer, error) {
	v := readVocabulary(&keyReader{file: &gguf.File{Metadata: metadata}})
	var f tokenizer.Files
	var err error
	if f.Tokenizer, err = v.tokenizerJSON(); err != nil {
		return nil, err
	}
	if f.Config, err = v.tokenizerConfig(); err != nil {
		return nil, err
	}
	if f.GenerationConfig, err = v.generationConfig(); err != nil {
		return nil, err
	}
	return tokenizer.ParseFiles(f)
}

// TestTokenizerIDs turns the metadata of nine tokenizers round: the ids of the shared texts are
// those of an independent implementation.
func TestTokenizerIDs(t *testing.T) {
	vectors := testshared.TokenVectors(t)
	for _, c := range tokenizers {
		t.Run(c.name, func(t *testing.T) {
			tok, err := readTokenizer(metadataOf(t, c))
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
