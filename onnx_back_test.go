package gq_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/quantizer"
)

// TestONNXBack takes the directories for ONNX Runtime of all architectures over again, and wants
// the logits of the .gqf file with the same codes, bit for bit.
func TestONNXBack(t *testing.T) {
	r, err := quantizer.ParseRecipe("recipe", []byte("{target: onnx, algorithm: rtn, bits: 4}"))
	if err != nil {
		t.Fatal(err)
	}
	written := 0
	for _, v := range testmodels.Variants(t) {
		dir := t.TempDir()
		v.Write(t, dir)
		out, file, back := filepath.Join(t.TempDir(), "onnx"), filepath.Join(t.TempDir(), "a.gqf"), filepath.Join(t.TempDir(), "b.gqf")
		if _, err := gq.Quantize(context.Background(), dir, out, gq.QuantizeOptions{Recipe: r}); err != nil {
			if !strings.Contains(err.Error(), "which no graph of gq holds") {
				t.Errorf("%s: %v", v.Name, err)
			}
			continue
		}
		written++
		if _, err := gq.Quantize(context.Background(), dir, file, gq.QuantizeOptions{Recipe: r}); err != nil {
			t.Fatal(err)
		}
		if _, err := gq.Repack(context.Background(), out, back, gq.RepackOptions{}); err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		ids := randomTokens(1, 12, testmodels.Vocab)
		if !slices.Equal(floatLogits(t, file, ids), floatLogits(t, back, ids)) {
			t.Errorf("%s: the logits differ", v.Name)
		}
	}
	if written < 20 {
		t.Errorf("%d directories were written", written)
	}
}

// floatLogits are the logits of a .gqf file with float32 activations.
func floatLogits(t *testing.T, file string, ids []int32) []float32 {
	f, err := gqf.Open(file, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := forward.OpenGQF(f, forward.Options{Activations: forward.Float32, Log: func(kernels.Choice) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	logits := make([]float32, len(ids)*m.VocabSize())
	if err := m.NewSession(len(ids)).Forward(ids, logits, true); err != nil {
		t.Fatal(err)
	}
	return logits
}

// TestONNXHead measures a graph with an lm_head of its own, of a checkpoint without lm_head.
func TestONNXHead(t *testing.T) {
	r, err := quantizer.ParseRecipe("recipe", []byte(`{target: onnx, algorithm: rtn, rules: [{match: lm_head, bits: 4}, {match: model.embed_tokens, bits: 8}]}`))
	if err != nil {
		t.Fatal(err)
	}
	src, out := filepath.Join("testdata", "books1.3M-bf16"), filepath.Join(t.TempDir(), "onnx")
	if _, err := gq.Quantize(context.Background(), src, out, gq.QuantizeOptions{Recipe: r}); err != nil {
		t.Fatal(err)
	}
	got, err := gq.Measure(context.Background(), src, out, gq.MeasureOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range got.Tensors {
		if row.Name == "lm_head.weight" && row.SQNR > 15 && row.SQNR < 30 {
			return
		}
	}
	t.Errorf("lm_head.weight of 4 bits is not among the tensors: %+v", got.Tensors[0])
}
