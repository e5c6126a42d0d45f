package gq

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/model/generate"
	"github.com/lowbit-go/gq/quantizer"
)

// copyBooks copies the bundled checkpoint and edits a file of the copy.
func copyBooks(t *testing.T, name string, edit func(b []byte) []byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(books)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, name)
	b, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, edit(b), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// editTokenizer edits a tokenizer.json.
func editTokenizer(t *testing.T, edit func(vocab map[string]any, whole map[string]any)) func(b []byte) []byte {
	return func(b []byte) []byte {
		var whole map[string]any
		if err := json.Unmarshal(b, &whole); err != nil {
			t.Fatal(err)
		}
		edit(whole["model"].(map[string]any)["vocab"].(map[string]any), whole)
		b, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// sourceGate is the path of a gate that compares sources alone.
func sourceGate(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "gate.yaml")
	if err := os.WriteFile(path, []byte("version: 1\nunquantized: true\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestGateSource: a file of any format meets a gate of the checkpoint that it was made of, and none
// if the checkpoint had other weights or a tokenizer with two ids swapped.
func TestGateSource(t *testing.T) {
	t.Parallel()
	gate := sourceGate(t)
	same := func(b []byte) []byte { return b }
	for _, source := range []struct{ dir, want string }{
		{copyBooks(t, "tokenizer.json", same), ""},
		{copyBooks(t, "model.safetensors", func(b []byte) []byte { b[len(b)/4*2] ^= 1; return b }), "has other bytes in the checkpoint"},
		{copyBooks(t, "tokenizer.json", editTokenizer(t, func(vocab, _ map[string]any) {
			vocab["ing"], vocab["er"] = vocab["er"], vocab["ing"]
		})), "tokenizer: 2 tokens differ from the checkpoint's"},
		{copyBooks(t, "tokenizer.json", editTokenizer(t, func(_, whole map[string]any) {
			m := whole["model"].(map[string]any)["merges"].([]any)
			m[100], m[900] = m[900], m[100]
		})), "tokenizer: the file's tokenizer has other merges than the checkpoint's"},
	} {
		for _, format := range []format{formatGQF, formatGGUF, "gptq"} {
			dir := t.TempDir()
			file := filepath.Join(dir, "m."+string(format))
			var o QuantizeOptions
			if format == "gptq" {
				o.Recipe.Targets = targets(t, "gptq")
			}
			if _, err := Quantize(t.Context(), source.dir, file, o); err != nil {
				t.Fatal(err)
			}
			checkGate(t, gate, file, source.want)
			if format != formatGQF {
				if _, err := Repack(t.Context(), file, filepath.Join(dir, "again.gqf"), RepackOptions{}); err != nil {
					t.Fatal(err)
				}
				checkGate(t, gate, filepath.Join(dir, "again.gqf"), source.want)
			}
		}
	}
}

// TestGateFolded: the formats record how their source was folded, so that a gate of the checkpoint
// can be met, and the folds of another checkpoint meet none.
func TestGateFolded(t *testing.T) {
	t.Parallel()
	gate := sourceGate(t)
	other := copyBooks(t, "model.safetensors", func(b []byte) []byte { b[len(b)/4*2] ^= 1; return b })
	for _, source := range []struct{ dir, want string }{{books, ""}, {other, "has other bytes in the checkpoint"}} {
		for _, target := range []string{"gguf", "gptq"} {
			dir := t.TempDir()
			recipe := quantizer.Recipe{Targets: targets(t, target), Fold: quantizer.Fold{Rotate: true, Equalize: true}}
			file, own, again := filepath.Join(dir, "m."+target), filepath.Join(dir, "m.gqf"), filepath.Join(dir, "again.gqf")
			if _, err := Quantize(t.Context(), source.dir, file, QuantizeOptions{Recipe: recipe}); err != nil {
				t.Fatal(err)
			}
			if _, err := Repack(t.Context(), file, again, RepackOptions{}); err != nil {
				t.Fatal(err)
			}
			if target == "gguf" {
				if _, err := Quantize(t.Context(), source.dir, own, QuantizeOptions{Recipe: recipe}); err != nil {
					t.Fatal(err)
				}
				if _, err := Export(t.Context(), own, filepath.Join(dir, "export.gguf"), ExportOptions{}); err != nil {
					t.Fatal(err)
				}
				checkGate(t, gate, filepath.Join(dir, "export.gguf"), source.want)
			}
			checkGate(t, gate, file, source.want)
			checkGate(t, gate, again, source.want)
		}
	}
}

// TestGateOfUnquantizedGGUF: a file made of an unquantized .gguf file, with norms in F32, meets a
// gate of the checkpoint that the .gguf file was made of.
func TestGateOfUnquantizedGGUF(t *testing.T) {
	t.Parallel()
	gate := sourceGate(t)
	other := copyBooks(t, "model.safetensors", func(b []byte) []byte { b[len(b)-2] ^= 1; return b })
	for _, source := range []struct{ dir, want string }{{books, ""}, {other, "model.norm.weight: source: has other bytes in the checkpoint"}} {
		dir := t.TempDir()
		floats, file := filepath.Join(dir, "floats.gguf"), filepath.Join(dir, "m.gqf")
		if _, err := Quantize(t.Context(), source.dir, floats, QuantizeOptions{Recipe: quantizer.Recipe{Rules: []quantizer.Rule{{Match: "*", Skip: true}}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := Quantize(t.Context(), floats, file, QuantizeOptions{}); err != nil {
			t.Fatal(err)
		}
		checkGate(t, gate, file, source.want)
	}
}

// TestImportedCalibration: matrices of a calibrated .gguf file, of its repacked .gqf file, and of a
// checkpoint are judged by outputs and predictions, embeddings by their weights.
func TestImportedCalibration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	recipe := quantizer.Recipe{Bits: 4, Algorithm: gqf.AlgorithmGPTQ, Calibrate: quantizer.Self, CalibrateTokens: 100}
	var files []string
	for _, target := range []string{"gguf", "gptq"} {
		recipe.Targets = targets(t, target)
		file := filepath.Join(dir, "m."+target)
		if _, err := Quantize(t.Context(), books, file, QuantizeOptions{Recipe: recipe}); err != nil {
			t.Fatal(err)
		}
		if _, err := Repack(t.Context(), file, file+".gqf", RepackOptions{}); err != nil {
			t.Fatal(err)
		}
		files = append(files, file, file+".gqf")
	}
	for _, file := range files {
		r, err := Measure(t.Context(), books, file, MeasureOptions{Settings: accuracy.Settings{NoOutputs: true}})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Tensors {
			if want := map[bool]string{true: "gptq", false: "other"}[s.Role != "embedding"]; !s.Unquantized && s.Algorithm != want {
				t.Errorf("%s: %s: algorithm %s, want %s", filepath.Base(file), s.Name, s.Algorithm, want)
			}
		}
	}
}

// TestNoTokenizer: a file without its source's tokenizer meets no gate once a text was measured.
func TestNoTokenizer(t *testing.T) {
	dir := copyBooks(t, "tokenizer.json", func(b []byte) []byte { return b })
	if err := os.Remove(filepath.Join(dir, "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "m.gqf")
	if _, err := Quantize(t.Context(), dir, file, QuantizeOptions{}); err != nil {
		t.Fatal(err)
	}
	gate := sourceGate(t)
	checkGate(t, gate, file, "")
	checkGate(t, gate, file, "tokenizer: the file holds no tokenizer, the checkpoint does", TextFile{Path: "testdata/text/lighthouse.txt"})
}

func targets(t *testing.T, names string) []quantizer.Target {
	t.Helper()
	list, err := quantizer.ParseTargets(names)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// checkGate measures a file by the bundled checkpoint. The gate is met if want is "".
func checkGate(t *testing.T, gate, file, want string, texts ...TextFile) {
	t.Helper()
	r, err := Measure(t.Context(), books, file, MeasureOptions{Settings: accuracy.Settings{NoOutputs: true}, Gate: gate, Texts: texts})
	if err != nil {
		t.Fatal(err)
	}
	err = Verdict(r)
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %q", filepath.Base(file), err, want)
	}
}

// TestTokenizerBeyondEmbedding: a tokenizer with an id that the embedding has no row for is refused
// where the model runs, else it is a warning. Special tokens may have such ids.
func TestTokenizerBeyondEmbedding(t *testing.T) {
	t.Parallel()
	for _, special := range []bool{false, true} {
		dir := copyBooks(t, "tokenizer.json", editTokenizer(t, func(vocab, whole map[string]any) {
			whole["added_tokens"] = append(whole["added_tokens"].([]any), map[string]any{
				"id": len(vocab), "content": "<image>", "special": special, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
			})
		}))
		file := filepath.Join(t.TempDir(), "m.gqf")
		r, err := Quantize(t.Context(), dir, file, QuantizeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		in, err := Inspect(context.Background(), file, InspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		src, err := Inspect(context.Background(), dir, InspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := Plan(t.Context(), dir, file, QuantizeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		planned, err := PlanRepack(t.Context(), file, RepackOptions{Targets: targets(t, "pytorch-aarch64")})
		if err != nil {
			t.Fatal(err)
		}
		repacked, err := Repack(t.Context(), file, file+".gqf", RepackOptions{Targets: targets(t, "pytorch-aarch64")})
		if err != nil {
			t.Fatal(err)
		}
		gptq := filepath.Join(t.TempDir(), "gptq")
		if _, err := Quantize(t.Context(), dir, gptq, QuantizeOptions{Recipe: quantizer.Recipe{Targets: targets(t, "gptq")}}); err != nil {
			t.Fatal(err)
		}
		imported, err := Repack(t.Context(), gptq, gptq+".gqf", RepackOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, warnings := range [][]string{plan.Warnings, planned.Warnings, repacked.Warnings, imported.Warnings} {
			if slices.Contains(warnings, "gq cannot run this file: "+r.NotRunnable) == special {
				t.Errorf("special %t, warnings %d: %q", special, i, warnings)
			}
		}
		g, run := generate.Open(file, generate.OpenOptions{})
		if run == nil {
			g.Close()
		}
		_, measure := Measure(t.Context(), dir, file, MeasureOptions{Settings: accuracy.Settings{NoOutputs: true}, Texts: []TextFile{{Path: "testdata/text/lighthouse.txt"}}})
		told := []string{r.NotRunnable, in.Summary.Warning, src.Summary.Warning}
		for _, err := range []error{run, measure} {
			told = append(told, errors.Join(errors.New(""), err).Error())
		}
		for i, s := range told {
			if strings.Contains(s, `token "<image>" has id `) == special {
				t.Errorf("special %t, %d: %q", special, i, s)
			}
		}
	}
}

// TestGGUFTokensBeyondEmbedding: Inspect warns of a .gguf file with more tokens than its embedding
// has rows.
func TestGGUFTokensBeyondEmbedding(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.gguf")
	if _, err := Quantize(t.Context(), books, file, QuantizeOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"", `tokenizer.ggml.tokens has 1025 tokens, but tensor "token_embd.weight" has 1024 rows`} {
		in, err := Inspect(t.Context(), file, InspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := in.Summary.Warning; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		const key = "tokenizer.ggml.tokens"
		at := bytes.Index(b, []byte(key)) + len(key) + 8 // the count of the array, after two types
		binary.LittleEndian.PutUint64(b[at:], binary.LittleEndian.Uint64(b[at:])+1)
		token := append([]byte{24, 7: 0}, "a token of 24 characters"...) // 32 bytes keep the data aligned
		if err := os.WriteFile(file, slices.Insert(b, at+8, token...), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
