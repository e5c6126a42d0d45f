package llamacpp

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// smallTokenizers are metadata of tokenizers: sentencepiece and byte-level.
var smallTokenizers = [][]gguf.Pair{
	{
		{Key: "tokenizer.ggml.model", Value: "llama"}, {Key: "tokenizer.ggml.tokens", Value: []string{"<unk>", "<s>", "</s>", "<0x0A>", "▁", "a", "b", "ab", "▁ab"}},
		{Key: "tokenizer.ggml.scores", Value: []float32{0, 0, 0, 0, -3, -4, -5, -1, -2}}, {Key: "tokenizer.ggml.token_type", Value: []int32{2, 3, 3, 6, 1, 1, 1, 1, 1}},
		{Key: "tokenizer.chat_template", Value: "{{ messages }}"}, {Key: "tokenizer.ggml.add_space_prefix", Value: true},
	},
	{
		{Key: "tokenizer.ggml.model", Value: "gpt2"}, {Key: "tokenizer.ggml.pre", Value: "qwen2"}, {Key: "tokenizer.ggml.tokens", Value: []string{"a", "b", "Ġ", "ab", "Ġab", "<|end|>"}},
		{Key: "tokenizer.ggml.merges", Value: []string{"a b", "Ġ ab"}}, {Key: "tokenizer.ggml.token_type", Value: []int32{1, 1, 1, 1, 1, 3}},
		{Key: "tokenizer.ggml.eos_token_id", Value: uint32(5)}, {Key: "tokenizer.ggml.bos_token_id", Value: uint32(5)}, {Key: "general.sampling.temp", Value: float32(0.7)},
	},
}

// hostileFiles are whole files of small models, for the fuzzer to change.
func hostileFiles(t testing.TB) (files [][]byte) {
	for i, name := range []string{"llama3", "qwen3", "gemma3", "phi4-mini", "mixtral"} {
		config, sources := model(t, name, map[string]any{"query_pre_attn_scalar": 16}, nil)
		if name != "gemma3" {
			config, sources = model(t, name, nil, nil)
		}
		m, err := Describe(config, sources)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, storedBytes(t, m, smallTokenizers[i%2], func(string, int64) float32 { return 1 }, sources))
	}
	for i, name := range []string{"granitemoehybrid", "falcon-h1", "nemotron-h-latent", "gemma4-moe"} {
		config, sources := transformersModel(t, name)
		m, err := Describe(config, sources)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, storedBytes(t, m, smallTokenizers[i%2], func(string, int64) float32 { return 1 }, sources))
	}
	return files
}

// transformersModel reads a model of testdata/transformers.
func transformersModel(t testing.TB, name string) (config []byte, sources []Source) {
	t.Helper()
	dir := filepath.Join(testshared.Root(t), "internal", "lm", "forward", "testdata", "transformers", name)
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct{ Tensors map[string][]int64 }
	if err := json.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(vectors.Tensors)) {
		sources = append(sources, Source{Name: name, Shape: vectors.Tensors[name]})
	}
	return config, sources
}

// FuzzReadCheckpoint: hostile metadata end in an error, or in files that can be read.
func FuzzReadCheckpoint(f *testing.F) {
	for _, file := range hostileFiles(f) {
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Parse(data)
		if err != nil {
			return
		}
		c, err := ReadCheckpoint(file, len(data)%2 == 1)
		if err != nil {
			return
		}
		var assets tokenizer.Files
		for _, a := range c.Assets {
			switch a.Name {
			case "config.json":
				if _, err := arch.ParseForward(a.Data); err != nil {
					t.Fatalf("%s: %v", a.Data, err)
				}
			case "tokenizer.json":
				assets.Tokenizer = a.Data
			case tokenizer.TableFile:
				assets.Table = a.Data
			case "tokenizer_config.json":
				assets.Config = a.Data
			case "generation_config.json":
				assets.GenerationConfig = a.Data
			case CardFile:
				if facts, err := cardFacts(a.Data); err != nil || facts[exactFacts] == nil {
					t.Fatalf("%s: %v", a.Data, err)
				}
			}
		}
		if assets.Tokenizer != nil {
			tok, err := tokenizer.ParseFiles(assets)
			if err != nil {
				t.Fatalf("%s: %v", assets.Tokenizer, err)
			}
			if _, err := tok.Encode("ab a\nb  ab", tokenizer.Options{AddSpecial: true}); err != nil && !bytes.Contains(assets.Tokenizer, []byte(`"unk_token"`)) {
				t.Fatal(err)
			}
		}
		for i := range c.Tensors {
			tensor := &c.Tensors[i]
			for r := range tensor.rows() {
				s, at := tensor.Segment(r)
				stored := s.Stored
				if at += s.First; s.Turned > 0 {
					at = s.First + s.Turned - 1
				}
				if row := int64(at); row < 0 || !tensor.Elements && row >= stored.Rows() || row >= stored.Elements() {
					t.Fatalf("row %d of %q is row %d of %v", r, tensor.Name, row, stored)
				}
			}
		}
	})
}

// TestHostileSeeds: the unchanged files are good ones.
func TestHostileSeeds(t *testing.T) {
	for _, data := range hostileFiles(t) {
		f, err := gguf.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		c, err := ReadCheckpoint(f, false)
		if err != nil || len(c.Assets) < 4 || c.Assets[3].Name != "generation_config.json" {
			t.Errorf("%v", err)
		}
	}
}
