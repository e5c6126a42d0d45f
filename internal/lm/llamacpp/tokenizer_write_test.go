package llamacpp

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// dirReader reads the files of a directory.
func dirReader(dir string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, name)) }
}

func find(pairs []gguf.Pair, key string) any {
	for _, p := range pairs {
		if p.Key == key {
			return p.Value
		}
	}
	return nil
}

// A realTokenizer is a tokenizer of the shared vectors, and its metadata.
type realTokenizer struct {
	tok        *tokenizer.Tokenizer
	vocabulary *Vocabulary
}

// realTokenizers keeps the tokenizers that openReal has read: large ones take a second.
var realTokenizers sync.Map // of name: func() (realTokenizer, error)

// openReal returns a tokenizer, which is read once, and its directory.
func openReal(t *testing.T, name string) (r realTokenizer, dir string) {
	t.Helper()
	dir = testshared.Tokenizer(t, name)
	once, _ := realTokenizers.LoadOrStore(name, sync.OnceValues(func() (r realTokenizer, err error) {
		if r.tok, err = tokenizer.Open(dir); err == nil {
			r.vocabulary, err = Tokenizer(dirReader(dir), r.tok.VocabSize(), TokenizerOptions{})
		}
		return r, err
	}))
	r, err := once.(func() (realTokenizer, error))()
	if err != nil {
		t.Fatal(err)
	}
	return r, dir
}

// TestRealTokenizers checks the metadata of nine tokenizers, and reads them back.
func TestRealTokenizers(t *testing.T) {
	testshared.SlowEmulated(t, "vocabularies are read by the same code natively")
	for _, c := range []struct {
		name, model, pre string
		bos, eos         any
		add              bool
	}{
		{"stories260K", "llama", "default", uint32(1), uint32(2), true},
		{"books13M", "llama", "default", uint32(1), uint32(2), true},
		{"books37M", "llama", "default", uint32(1), uint32(2), true},
		{"llama2", "llama", "default", uint32(1), uint32(2), true},
		{"gemma3", "llama", "default", uint32(2), uint32(106), true},
		{"llama3", "gpt2", "llama-bpe", uint32(128000), uint32(128001), false},
		{"qwen3", "gpt2", "qwen2", nil, uint32(151645), false},
		{"gptoss", "gpt2", "gpt-4o", uint32(199998), uint32(200002), false},
		{"deepseek_v3", "gpt2", "deepseek-v3", uint32(0), uint32(1), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := openReal(t, c.name)
			v := r.vocabulary
			for key, want := range map[string]any{keyTokenizerModel: c.model, keyPre: c.pre, keyBOS: c.bos, keyEOS: c.eos, keyAddBOS: c.add} {
				if got := find(v.Metadata, key); got != want {
					t.Errorf("%s %v, want %v", key, got, want)
				}
			}
			if len(v.Notes) > 0 {
				t.Errorf("notes: %q", v.Notes)
			}
			roundTrip(t, r.tok, v.Metadata)
		})
	}
}

// TestEncodeSPM holds the scores to the ids of an independent implementation of tokenizer.json:
// llama.cpp's algorithm gives the same ids with them.
func TestEncodeSPM(t *testing.T) {
	testshared.SlowEmulated(t, "vocabularies are read by the same code natively")
	vectors := testshared.TokenVectors(t)
	for _, name := range []string{"stories260K", "books13M", "books37M", "llama2", "gemma3"} {
		t.Run(name, func(t *testing.T) {
			r, dir := openReal(t, name)
			all := []*Vocabulary{r.vocabulary} // scores of the file, or of merges without it
			if _, err := os.Stat(filepath.Join(dir, sentencePieceFile)); err == nil {
				v, err := Tokenizer(func(name string) ([]byte, error) {
					if name == sentencePieceFile {
						return nil, fs.ErrNotExist
					}
					return dirReader(dir)(name)
				}, r.tok.VocabSize(), TokenizerOptions{})
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, v) // scores of merges
			}
			for _, v := range all {
				e := newSPM(find(v.Metadata, keyTokens).([]string), find(v.Metadata, keyTokenTypes).([]int32),
					find(v.Metadata, keyScores).([]float32), find(v.Metadata, keySpacePrefix).(bool))
				n, bad := 0, 0
				for _, vec := range vectors {
					if vec.Tokenizer != name {
						continue
					}
					n++
					if got := e.encode(vec.Text); !slices.Equal(got, vec.IDs) {
						bad++
						at := 0
						for at < min(len(got), len(vec.IDs)) && got[at] == vec.IDs[at] {
							at++
						}
						t.Errorf("%.40q from token %d: %d, want %d", vec.Text, at, got[at:min(len(got), at+5)], vec.IDs[at:min(len(vec.IDs), at+5)])
					}
				}
				t.Logf("%d texts, %d differ", n, bad)
			}
		})
	}
}

// synthetic is a byte-level tokenizer of few tokens.
const synthetic = `{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"<|end|>":3},"merges":["a b"]},
"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":%s},"decoder":{"type":"ByteLevel"},
"added_tokens":[{"id":3,"content":"<|end|>","special":true},{"id":5,"content":"▁tool","special":false},{"id":6,"content":"<|x|>","special":false},{"id":9,"content":"[PAD4]","special":false}]}`

func files(content map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if s, ok := content[name]; ok {
			return []byte(s), nil
		}
		return nil, fs.ErrNotExist
	}
}

func TestSynthetic(t *testing.T) {
	read := files(map[string]string{
		"tokenizer.json":         fmt.Sprintf(synthetic, "true"),
		"tokenizer_config.json":  `{"eos_token":"<|end|>","pad_token":"b","add_eos_token":true,"chat_template":[{"name":"default","template":"D"},{"name":"tool use","template":"T"}]}`,
		"generation_config.json": `{"eos_token_id":[3,6,1,2]}`,
	})
	v, err := Tokenizer(read, 9, TokenizerOptions{Pre: "gpt-2"})
	if err != nil {
		t.Fatal(err)
	}
	want := []gguf.Pair{
		{Key: keyTokenizerModel, Value: "gpt2"}, {Key: keyPre, Value: "gpt-2"},
		{Key: keyTokens, Value: []string{"a", "b", "ab", "<|end|>", "[PAD4]", " tool", "<|x|>", "[PAD7]", "[PAD8]"}},
		{Key: keyTokenTypes, Value: []int32{1, 1, 1, 3, 5, 4, 3, 5, 5}}, {Key: keyMerges, Value: []string{"a b"}},
		{Key: keyEOS, Value: uint32(3)}, {Key: keyEOT, Value: uint32(1)}, {Key: keyEOM, Value: uint32(2)}, {Key: keyPadding, Value: uint32(1)},
		{Key: keyAddBOS, Value: false}, {Key: keyAddEOS, Value: true},
		{Key: keyTemplate, Value: "D"}, {Key: keyTemplate + ".tool_use", Value: "T"}, {Key: keyTemplates, Value: []string{"tool_use"}},
	}
	if !reflect.DeepEqual(v.Metadata, want) {
		t.Errorf("%v\nwant %v", v.Metadata, want)
	}
	if s := fmt.Sprintf("%q", v.Notes); !strings.Contains(s, `[PAD4]`) || !strings.Contains(s, `stops at token 6, \"<|x|>\"`) {
		t.Errorf("notes %s: the token without a row and the third token that ends were expected", s)
	}
	// With its row, the token keeps its name, and the padding has another one.
	if v, err = Tokenizer(read, 10, TokenizerOptions{Pre: "gpt-2"}); err != nil || find(v.Metadata, keyTokens).([]string)[4] != "[PAD4]_" {
		t.Errorf("padding: %v, %v", v, err)
	}
	if v, err = Tokenizer(files(nil), 9, TokenizerOptions{}); err != nil || find(v.Metadata, keyTokenizerModel) != "none" || len(v.Notes) != 1 {
		t.Errorf("without tokenizer.json: %v, %v", v, err)
	}
}

func TestTokenizerErrors(t *testing.T) {
	for _, c := range []struct {
		name, json, pre, want string
		rows                  int
	}{
		{"unknown pre", fmt.Sprintf(synthetic, "true"), "", "in the same way are gpt-2", 10},
		{"unlike any", strings.Replace(fmt.Sprintf(synthetic, "true"), `"ByteLevel","add_prefix_space":false,"use_regex":true`, `"Split","pattern":{"String":"4"},"behavior":"Isolated"`, 1), "", "most alike are", 10},
		{"misspelt", fmt.Sprintf(synthetic, "true"), "lama-bpe", `no pre-tokenizer named "lama-bpe"; did you mean "llama-bpe"`, 10},
		{"rows", fmt.Sprintf(synthetic, "true"), "gpt-2", `token 2, "ab", but the embedding has 2 rows`, 2},
		{"neither kind", `{"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`, "", "aborts at a character that is no token: write a .gqf file", 1},
	} {
		_, err := Tokenizer(files(map[string]string{"tokenizer.json": c.json}), c.rows, TokenizerOptions{Pre: c.pre})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func FuzzSentencePiece(f *testing.F) {
	f.Add([]byte{0x0a, 0x08, 0x0a, 0x01, 'a', 0x15, 0, 0, 0x80, 0xbf, 0x12, 0x02, 0x18, 0x02})
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, raw []byte) {
		pieces, err := parseSentencePiece(raw)
		if err == nil && 2*len(pieces) > len(raw) {
			t.Errorf("%d pieces in %d bytes", len(pieces), len(raw))
		}
	})
}

func TestParseSentencePiece(t *testing.T) {
	pieces, err := parseSentencePiece([]byte{0x0a, 0x08, 0x0a, 0x01, 'a', 0x15, 0, 0, 0x80, 0xbf, 0x12, 0x02, 0x18, 0x02, 0x0a, 0x03, 0x0a, 0x01, 'b'})
	if err != nil || !slices.Equal(pieces, []piece{{"a", -1}, {"b", 0}}) {
		t.Errorf("%v, %v", pieces, err)
	}
	for want, raw := range map[string][]byte{
		"byte 1: a length is cut off":                 {0x0a, 0x80},
		"byte 2: a field of 5 bytes, 1 are left":      {0x0a, 0x05, 0},
		"byte 4: a field of 9 bytes, 1 are left":      {0x0a, 0x03, 0x0a, 0x09, 0},
		"byte 1: a field of unknown type 3":           {0x0b},
		"byte 0: a tag is cut off":                    {0x80},
		"byte 4: a score of 0 bytes: 4 were expected": {0x0a, 0x02, 0x10, 0x00},
	} {
		if _, err := parseSentencePiece(raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%x: %v, want %q", raw, err, want)
		}
	}
}
