package gq_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// llamaText has what pre-tokenizers divide in different ways.
const llamaText = "Licensed under the Apache License, Version 2.0 – 12345 «été»\n\n\tWe'll  see:   it's \"as is\" ...\r\n"

// llamaVariants are the models that llama.cpp can compute. Where llama.cpp ignores a sliding
// window, only the tokens before the window's end are the same.
func llamaVariants(t *testing.T) []testmodels.Variant {
	var all []testmodels.Variant
	for _, v := range testmodels.ForLlamaCpp(t) {
		all = append(all, v)
		if v.Name == "mistral" || v.Name == "phi3" {
			all = append(all, v.With("all", "sliding_window", nil))
		}
	}
	// llama.cpp knows models without a latent of queries by their number of layers.
	lite := testmodels.Find(t, "deepseek-v2-lite").With("26", "num_hidden_layers", 26).With("dense", "first_k_dense_replace", 25)
	all = append(all, lite)
	return all
}

// unquantized is the setting of a recipe that keeps all tensors as they are.
const unquantized = "rules: [{match: '*', skip: true}]"

// mixtures are settings that together put every type into a model of any architecture, each into
// another kind of tensor.
var mixtures = []struct{ name, settings string }{
	{"Q2_K to Q6_K", `bits: 4, mapping: k-quant, embedding-bits: 6, rules: [{match: "re:.*[.](q|qkv|q_b)_proj", bits: 2}, {match: "re:.*[.]o(ut)?_proj", bits: 3}, {match: "re:.*[.](down_proj|w2|output_linear)", bits: 5}]`},
	{"Q4_0 to Q8_0", `bits: 4, embedding-bits: 8, rules: [{match: "re:.*[.](q|qkv|q_b)_proj", bits: 4, mapping: asymmetric}, {match: "re:.*[.]o(ut)?_proj", bits: 5}, {match: "re:.*[.](down_proj|w2|output_linear)", bits: 5, mapping: asymmetric}]`},
	{"Q1_0, Q2_0", `bits: 2, embedding-bits: 8, rules: [{match: "re:.*[.](down_proj|w2|output_linear)", bits: 1}]`},
}

// TestLlamaCppModels runs exports of all architectures in llama.cpp: unquantized in float32, where
// probabilities have to be equal, and with the types of a mixture, another one for the next
// architecture.
func TestLlamaCppModels(t *testing.T) {
	llama := startLlamaCpp(t)
	for i, v := range llamaVariants(t) {
		t.Run(v.Name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), v.Name)
			v.Write(t, dir)
			c := llamaCase{llama: llama, dir: dir, pre: v.Tokenizer.Pre(), ids: randomTokens(1, 30, testmodels.Vocab), texts: []string{llamaText}, limit: 1e-4, activations: denseKL}
			switch v.Name {
			case "gemma3n-e2b":
				c.activations = 2 * expertsKL // 25 layers, and 10 of them choose among gates
			case "mistral", "ministral", "phi3", "qwen2-window", "dots1-ungrouped":
				c.ids = c.ids[:8]
			case "gemma", "gemma2", "gemma3":
				c.limit = 5e-4 // ggml computes GELU by a table of half-precision numbers
			case "mixtral", "qwen3-moe-all", "deepseek-v3":
				c.activations = expertsKL
			case "qwen3-next-all":
				c.activations = 2 * expertsKL // the state of a delta net sums over all tokens, and so do errors
			case "lfm2", "qwen3-5":
				c.activations = 2 * denseKL // three projections, or a sum over all tokens
			}
			steep := strings.HasPrefix(v.Name, "gemma3n") || strings.HasPrefix(v.Name, "gemma4")
			if steep { // products of queries and keys have no factor
				multiply(t, dir, "q_norm", 1.0/8)
			}
			if v.Name == "falcon-h1-norm-late" { // a tied embedding, with a factor for each use
				c.from = dir + "-f32.gguf"
				toGGUF(t, dir, c.from, c.pre, unquantized)
			}
			q := mixtures[i%len(mixtures)]
			c.quantized(t, q.name, q.settings)
			if steep { // GELU of nearly all gates is 0 or the gate: the table ends at -10 and 10
				multiply(t, dir, "gate", 4096)
			}
			if strings.HasPrefix(v.Name, "gemma3n") {
				c.ids[3] = testmodels.Vocab - 1 // has the inputs of token 0 in each layer
				c.edit = func() { dividesByOneLess(t, dir, v) }
			}
			checkTokens(t, dir, llamaText, c.float32(t).Tokens[0])
		})
	}
}

// multiply multiplies the tensors of a checkpoint's layers with this word in their names.
func multiply(t *testing.T, dir, word string, factor float32) {
	t.Helper()
	file := filepath.Join(dir, "model.safetensors")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n := 8 + binary.LittleEndian.Uint64(raw)
	var header map[string]struct {
		Offsets []int `json:"data_offsets"`
	}
	if err := json.Unmarshal(raw[8:n], &header); err != nil {
		t.Fatal(err)
	}
	found := false
	for name, x := range header {
		if !strings.Contains(name, word) || !strings.Contains(name, ".layers.") {
			continue
		}
		found = true
		for b := raw[n:][x.Offsets[0]:x.Offsets[1]]; len(b) > 0; b = b[4:] {
			binary.LittleEndian.PutUint32(b, math.Float32bits(factor*math.Float32frombits(binary.LittleEndian.Uint32(b))))
		}
	}
	if !found {
		t.Fatalf("no tensor has %q in its name", word)
	}
	if err := os.WriteFile(file, raw, 0o666); err != nil {
		t.Fatal(err)
	}
}

// dividesByOneLess changes config.json to llama.cpp's bound of sparse gates. Its standard deviation
// of n gates divides by n - 1, where Transformers divides by n (gaussian_topk in gemma3n.cpp).
func dividesByOneLess(t *testing.T, dir string, v testmodels.Variant) {
	t.Helper()
	const bound = 1.6448533535003662 // of 0.95
	p := math.Erfc(-bound*math.Sqrt(testmodels.Intermediate/(testmodels.Intermediate-1.0)/2)) / 2
	list := slices.Clone(v.Config["activation_sparsity_pattern"].([]float64))
	for i := range list[:10] {
		list[i] = p
	}
	config, err := json.Marshal(v.With("", "activation_sparsity_pattern", list).Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestLlamaCppBooks runs exports of trained models.
func TestLlamaCppBooks(t *testing.T) {
	llama := startLlamaCpp(t)
	shared := testshared.Dir(t)
	for _, m := range []struct {
		name, text string
		k          bool // rows are multiples of 256
	}{{"stories260K-bf16", "tinystories-val-300stories.txt", false}, {"books1.3M-bf16", "books-heldout.txt", false}, {"books3.7M-bf16", "books-heldout.txt", true}} {
		t.Run(m.name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(shared, "text", m.text))
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), m.name)
			widen(t, filepath.Join(shared, "models", m.name), dir)
			tok, err := tokenizer.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			ids, err := tok.Encode(string(text[:400]), tokenizer.Options{AddSpecial: true})
			if err != nil {
				t.Fatal(err)
			}
			c := llamaCase{llama: llama, dir: dir, ids: ids, limit: 1e-4, activations: denseKL}
			c.float32(t)
			c.quantized(t, "Q4_0", "bits: 4")
			c.quantized(t, "Q8_0", "bits: 8")
			c.quantized(t, "IQ4_NL", "mapping: nonlinear")
			c.quantized(t, "MXFP4", "mapping: mxfp4")
			if m.k {
				c.quantized(t, "K types", mixtures[0].settings)
				c.quantized(t, "IQ4_XS", "mapping: nonlinear-k")
				c.quantized(t, "TQ1_0", "mapping: ternary, bits: 1")
				c.quantized(t, "TQ2_0", "mapping: ternary, bits: 2")
				c.quantized(t, "IQ2_XXS", "mapping: lattice-xxs, bits: 2")
				c.quantized(t, "IQ2_XS", "mapping: lattice-xs, bits: 2")
				c.quantized(t, "IQ2_S", "mapping: lattice, bits: 2")
				c.quantized(t, "IQ3_XXS", "mapping: lattice-xxs, bits: 3")
				c.quantized(t, "IQ3_S", "mapping: lattice, bits: 3")
			}
			c.greedy(t, ids[:10], 40)
		})
	}
}

// llamaCase is a checkpoint in float32 that is exported.
type llamaCase struct {
	llama *llamaCpp
	dir   string
	from  string // what is exported; default dir
	pre   string // name of the pre-tokenizer, if it cannot be found
	ids   []int32
	texts []string
	limit float64 // of the difference of a probability
	// activations is denseKL or expertsKL.
	activations float64
	edit        func() // of the checkpoint, before it is compared
}

func (c *llamaCase) file(t *testing.T, settings string) string {
	t.Helper()
	file := c.dir + ".gguf"
	toGGUF(t, cmp.Or(c.from, c.dir), file, c.pre, settings)
	return file
}

// float32 compares llama.cpp's probabilities with ours for the checkpoint.
func (c *llamaCase) float32(t *testing.T) llamaAnswer {
	t.Helper()
	a := c.llama.ask(t, llamaRequest{Model: c.file(t, unquantized), Texts: c.texts, Sequences: [][]int32{c.ids}})
	if c.edit != nil {
		c.edit()
	}
	m, err := forward.OpenCheckpoint(c.dir, forward.Options{LlamaCpp: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ours := ourProbabilities(t, m, c.ids)
	worst := worstProbability(t, a.Probabilities[0], ours)
	if logits := worstLogit(a.Probabilities[0], ours); !(logits <= c.limit) {
		t.Errorf("float32: a logit is off by %.2g of the largest, want at most %g", logits, c.limit)
	} else {
		t.Logf("float32: logits are off by at most %.2g of the largest", logits)
	}
	t.Logf("float32: probabilities are off by at most %.2g", worst)
	if !(worst <= c.limit) {
		t.Errorf("float32: a probability is off by %g, want at most %g", worst, c.limit)
	}
	return a
}

// quantized compares llama.cpp's probabilities for a quantized export with ours for the same file
// in float32. llama.cpp's activations have 8 bits.
func (c *llamaCase) quantized(t *testing.T, name, settings string) {
	t.Helper()
	file := c.file(t, settings)
	a := c.llama.ask(t, llamaRequest{Model: file, Sequences: [][]int32{c.ids}})
	m := openGGUF(t, file)
	kl := medianKL(ourProbabilities(t, m, c.ids), a.Probabilities[0])
	t.Logf("%s: median KL divergence %.2g", name, kl)
	if !(kl < c.activations) {
		t.Errorf("%s: llama.cpp's predictions have a median KL divergence of %g from ours for the same weights, want less than %g", name, kl, c.activations)
	}
}

// These bound what 8-bit activations cost, in nats per token. Dense random models have at most .005
// and trained ones .0006. In random models with experts, nearly equal routers' logits make .013 of
// it: another expert is chosen, or the same ones with other weights. A wrong order of rows or a
// wrong type gives 0.1 and more.
const (
	denseKL   = 0.01
	expertsKL = 0.04
)

// greedy compares the tokens that llama.cpp chooses with ours, until two of them are nearly as
// likely.
func (c *llamaCase) greedy(t *testing.T, prompt []int32, n int) {
	t.Helper()
	file := c.file(t, "bits: 4")
	a := c.llama.ask(t, llamaRequest{Model: file, Greedy: prompt, Count: n})
	m := openGGUF(t, file)
	p := ourProbabilities(t, m, slices.Concat(prompt, a.Greedy))
	for i, id := range a.Greedy {
		at := p[len(prompt)+i-1]
		best := 0
		for j := range at {
			if at[j] > at[best] {
				best = j
			}
		}
		if best == int(id) {
			continue
		}
		t.Logf("token %d: llama.cpp has %d (%.4f), gq %d (%.4f)", i, id, at[id], best, at[best])
		if at[id] < 0.9*at[best] {
			t.Errorf("token %d is no near-tie", i)
		}
		return
	}
	t.Logf("greedy text: %d tokens are equal", len(a.Greedy))
	if len(a.Greedy) == 0 {
		t.Error("llama.cpp wrote nothing")
	}
}

func openGGUF(t *testing.T, file string) *forward.Model {
	t.Helper()
	f, err := gguf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	m, err := forward.OpenGGUF(f, forward.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// medianKL is the median over tokens of the divergence of predictions q from p: 8-bit activations
// change the choice of experts for a few tokens, which changes their predictions altogether.
func medianKL(p, q [][]float64) float64 {
	all := make([]float64, len(p))
	for i := range p {
		for j := range p[i] {
			if p[i][j] > 0 {
				all[i] += p[i][j] * math.Log(p[i][j]/q[i][j])
			}
		}
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// widen copies a checkpoint with its tensors in float32: llama.cpp multiplies BF16 weights with
// activations that it rounds to BF16.
func widen(t *testing.T, src, dst string) {
	t.Helper()
	c, err := safetensors.Open(src, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var specs []safetensors.TensorSpec
	for _, x := range c.Tensors() {
		specs = append(specs, safetensors.TensorSpec{Name: x.Name, Dtype: packing.F32, Shape: x.Shape})
	}
	w, err := safetensors.Create(dst, specs, safetensors.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i, x := range c.Tensors() {
		values := make([]float32, x.Numel())
		rows, _ := x.Matrix()
		if err := c.ReadRows(values, x, 0, int(rows)); err != nil {
			t.Fatal(err)
		}
		raw := make([]byte, 0, 4*len(values))
		for _, v := range values {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
		if err := w.WriteAt(i, raw, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	copyAssets(t, src, dst, "config.json", "generation_config.json", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model")
}

// copyAssets copies those files that exist.
func copyAssets(t *testing.T, src, dst string, names ...string) {
	t.Helper()
	for _, name := range names {
		raw, err := os.ReadFile(filepath.Join(src, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dst, name), raw, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// checkTokens compares llama.cpp's ids of a text with the tokenizer's.
func checkTokens(t *testing.T, dir, text string, got []int32) {
	t.Helper()
	tok, err := tokenizer.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	want, err := tok.Encode(text, tokenizer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("llama.cpp's tokens of %q\n got %d\nwant %d", text, got, want)
	}
}

// llamaTokenDifferences are numbers of texts that llama.cpp divides in another way, by tokenizer:
// Thai marks after letters (gptoss); a decomposed é, as llama.cpp normalizes nothing, and an </s>
// that it takes for a control token whatever its type (qwen3).
var llamaTokenDifferences = map[string]int{"gptoss": 1, "qwen3": 2}

// TestLlamaCppTokens compares llama.cpp's ids, in exports of nine tokenizers, with the ids of an
// independent implementation.
func TestLlamaCppTokens(t *testing.T) {
	llama := startLlamaCpp(t)
	byName := map[string][]testshared.TokenVector{}
	for _, v := range testshared.TokenVectors(t) {
		byName[v.Tokenizer] = append(byName[v.Tokenizer], v)
	}
	for name, vectors := range byName {
		t.Run(name, func(t *testing.T) {
			from := testshared.Tokenizer(t, name)
			dir := filepath.Join(t.TempDir(), name)
			tok, err := tokenizer.Open(from)
			if err != nil {
				t.Fatal(err)
			}
			testmodels.WriteModel(t, dir, tinyConfig(t, tok.VocabSize()))
			copyAssets(t, from, dir, "tokenizer.json", "tokenizer_config.json", "tokenizer.model")
			file := dir + ".gguf"
			toGGUF(t, dir, file, "", unquantized)
			r := llamaRequest{Model: file}
			for _, v := range vectors {
				r.Texts = append(r.Texts, v.Text)
			}
			a := llama.ask(t, r)
			bad := 0
			for i, v := range vectors {
				if !slices.Equal(a.Tokens[i], v.IDs) {
					if bad++; bad < 4 {
						t.Logf("%.80q\n got %d\nwant %d", v.Text, a.Tokens[i], v.IDs)
					}
				}
			}
			t.Logf("%d texts", len(vectors))
			if bad != llamaTokenDifferences[name] {
				t.Errorf("%d of %d texts have other ids in llama.cpp, want %d", bad, len(vectors), llamaTokenDifferences[name])
			}
			bos, ok := tok.BOS()
			special := vectors[0].IDsWithSpecial
			if want := tok.AddsBOS() || ok && len(special) > 0 && special[0] == bos; a.BOS != want {
				t.Errorf("llama.cpp puts BOS in front: %v, want %v", a.BOS, want)
			}
		})
	}
}

// tinyConfig is a Llama model with short rows, for its vocabulary.
func tinyConfig(t *testing.T, vocab int) []byte {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
		"num_attention_heads": 1, "vocab_size": vocab, "tie_word_embeddings": true, "max_position_embeddings": 256, "torch_dtype": "float32",
	})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// toGGUF writes a checkpoint as a .gguf file by settings of a recipe.
func toGGUF(t *testing.T, dir, file, pre, settings string) {
	t.Helper()
	text := "{" + settings + "}"
	recipe, err := quantizer.ParseRecipe(text, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	recipe.Pre = pre
	o := gq.QuantizeOptions{Recipe: recipe}
	if _, err := gq.Quantize(context.Background(), dir, file, o); err != nil {
		t.Fatal(err)
	}
}
