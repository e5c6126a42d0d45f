package gq

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/quantizer"
)

// factsOf returns the general.* and quantize.* keys that no writer computes.
func factsOf(t *testing.T, path string) map[string]any {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	facts := map[string]any{}
	for key, v := range f.Metadata {
		if a, ok := v.(gguf.Array); ok {
			v, _ = a.Strings()
		}
		switch {
		case key == "general.architecture" || key == "general.type" || key == "general.file_type" || key == "general.quantization_version":
		case strings.HasPrefix(key, "general.") || strings.HasPrefix(key, "quantize."):
			facts[key] = v
		}
	}
	return facts
}

// TestGGUFFacts: facts of a .gguf file survive .gqf files and checkpoints. An importance matrix
// describes the codes only that it was used for.
func TestGGUFFacts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	v := testmodels.Find(t, "llama2-linear")
	v.Write(t, path("src"))
	card := "---\nlicense: apache-2.0\nmodel_name: Tiny Test\nlanguage: [en, no]\ntags: [a, b]\nbase_model: org/model-7B\n---\n# Tiny\n"
	if err := os.WriteFile(path("src/README.md"), []byte(card), 0o666); err != nil {
		t.Fatal(err)
	}
	imatrix := path("moments.dat")
	calibrated := QuantizeOptions{
		Recipe: quantizer.Recipe{Bits: 4, Algorithm: gqf.AlgorithmImatrix, Calibrate: "self", CalibrateTokens: 128}, ImatrixOut: imatrix,
	}
	if _, err := Quantize(ctx, path("src"), path("first.gguf"), calibrated); err != nil {
		t.Fatal(err)
	}
	if facts := factsOf(t, path("first.gguf")); facts["quantize.imatrix.file"] != nil || facts["general.license"] != "apache-2.0" {
		t.Errorf("calibrated on a text: %v", facts)
	}
	// Chunks and the text's name, as llama-imatrix writes them.
	f, err := os.OpenFile(imatrix, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("\x07\x00\x00\x00\x08\x00\x00\x00wiki.txt")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	from := QuantizeOptions{Recipe: quantizer.Recipe{Bits: 4, Algorithm: gqf.AlgorithmImatrix, Imatrix: []string{imatrix}}, ImatrixOut: path("again.dat")}
	if _, err := Quantize(ctx, path("src"), path("x.gguf"), from); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(path("again.dat")); err != nil || !strings.HasSuffix(string(raw), "\x07\x00\x00\x00\x08\x00\x00\x00wiki.txt") {
		t.Errorf("--imatrix-out lost the chunks: %v", err)
	}
	want := factsOf(t, path("x.gguf"))
	for key, value := range map[string]any{
		"general.name": "Tiny Test", "general.license": "apache-2.0", "quantize.imatrix.file": "moments.dat", "quantize.imatrix.dataset": "wiki.txt",
		"quantize.imatrix.chunks_count": uint32(7), "general.base_model.0.repo_url": "https://huggingface.co/org/model-7B",
	} {
		if want[key] != value {
			t.Errorf("%s is %v, want %v", key, want[key], value)
		}
	}
	if n, ok := want["quantize.imatrix.entries_count"].(uint32); !ok || n < 10 {
		t.Errorf("%v entries", want["quantize.imatrix.entries_count"])
	}
	if _, err := Repack(ctx, path("x.gguf"), path("x.gqf"), RepackOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Export(ctx, path("x.gqf"), path("back.gguf"), ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := factsOf(t, path("back.gguf")); !reflect.DeepEqual(got, want) {
		t.Errorf("by way of a .gqf file:\n%v\nwant\n%v", got, want)
	}
	if _, err := Dequantize(ctx, path("x.gguf"), path("floats"), DequantizeOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Quantize(ctx, path("floats"), path("anew.gguf"), QuantizeOptions{Recipe: quantizer.Recipe{Bits: 8}}); err != nil {
		t.Fatal(err)
	}
	for key := range want {
		if strings.HasPrefix(key, "quantize.") {
			delete(want, key)
		}
	}
	if got := factsOf(t, path("anew.gguf")); !reflect.DeepEqual(got, want) {
		t.Errorf("by way of a checkpoint, quantized anew:\n%v\nwant\n%v", got, want)
	}
}

// TestRepackFusedExperts takes codes of experts over that a checkpoint has in one tensor, and a
// .gguf file in two.
func TestRepackFusedExperts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	testmodels.Find(t, "granitemoe").Write(t, path("src"))
	if _, err := Quantize(ctx, path("src"), path("x.gguf"), QuantizeOptions{Recipe: quantizer.Recipe{Bits: 4}}); err != nil {
		t.Fatal(err)
	}
	if _, err := Repack(ctx, path("x.gguf"), path("x.gqf"), RepackOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Export(ctx, path("x.gqf"), path("back.gguf"), ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	a, err := gguf.Open(path("x.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := gguf.Open(path("back.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	experts := 0
	for _, want := range a.Tensors {
		got := b.Tensor(want.Name)
		if got == nil || got.Type != want.Type || !bytes.Equal(a.Data(want), b.Data(got)) {
			t.Errorf("tensor %q differs", want.Name)
		}
		if strings.HasSuffix(want.Name, "_exps.weight") && want.Type == gguf.Q4_0 {
			experts++
		}
	}
	if experts != 9 || len(a.Tensors) != len(b.Tensors) {
		t.Errorf("%d tensors of experts, %d and %d tensors", experts, len(a.Tensors), len(b.Tensors))
	}
}
