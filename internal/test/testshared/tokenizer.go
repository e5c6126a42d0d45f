package testshared

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// LocalTokenizers are the tokenizers among the shared test material, by their name in the vectors.
var LocalTokenizers = map[string]string{
	"stories260K": "stories260K-f32", "books13M": "books1.3M-bf16", "books37M": "books3.7M-bf16",
}

// largeTokenizers take seconds to read on an emulated CPU.
var largeTokenizers = []string{"qwen3", "gemma3", "gptoss", "deepseek_v3"}

// Tokenizer finds the files of a tokenizer in the vectors. If files are missing, the test is
// skipped, or fails if CI is set.
func Tokenizer(t testing.TB, name string) string {
	t.Helper()
	if local, ok := LocalTokenizers[name]; ok {
		return filepath.Join(Dir(t), "models", local)
	}
	if testing.Short() && slices.Contains(largeTokenizers, name) {
		t.Skip("large, and -short is set")
	}
	root := os.Getenv("GQ_TOKENIZERS")
	dir := filepath.Join(root, name)
	_, err := os.Stat(filepath.Join(dir, "tokenizer.json"))
	switch {
	case root != "" && err == nil:
		return dir
	case os.Getenv("CI") != "":
		t.Fatalf("GQ_TOKENIZERS=%q has no %s/tokenizer.json, and CI is set: this test must not be skipped", root, name)
	}
	t.Skipf("needs %s/tokenizer.json in the directory GQ_TOKENIZERS (.ci/tokenizers fetches it)", name)
	return ""
}

// A TokenVector is a text and its ids in a tokenizer, by an independent implementation.
type TokenVector struct {
	Tokenizer      string
	Text           string
	IDs            []int32
	IDsWithSpecial []int32 `json:"ids_with_special"`
}

// TokenVectors returns the vectors of all tokenizers.
func TokenVectors(t testing.TB) []TokenVector {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(Dir(t), "vectors", "tokenizer", "ids.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []TokenVector
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	return all
}
