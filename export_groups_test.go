package gq_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/quantizer"
)

// TestExportShortGroups exports rows of 128 weights in groups of 96. Formats without short groups
// store groups of 32: three with the first scale, and one with the second.
func TestExportShortGroups(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	r, err := quantizer.ParseRecipe("recipe", []byte(`{bits: 4, group: 96, algorithm: rtn, rules: [{match: "*embed_tokens", skip: true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	file, ids := filepath.Join(dir, "model.gqf"), randomTokens(1, 12, 512)
	if _, err := gq.Quantize(ctx, filepath.Join("testdata", "books1.3M-bf16"), file, gq.QuantizeOptions{Recipe: r}); err != nil {
		t.Fatal(err)
	}
	want := floatLogits(t, file, ids)
	for _, target := range []string{"onnx", "gptq", "pack-quantized", "torchao-safetensors"} {
		targets, err := quantizer.ParseTargets(target)
		if err != nil {
			t.Fatal(err)
		}
		out, back := filepath.Join(dir, target), filepath.Join(dir, target+".gqf")
		if _, err := gq.Export(ctx, file, out, gq.ExportOptions{Target: targets[0]}); err != nil {
			t.Fatal(err)
		}
		if _, err := gq.Repack(ctx, out, back, gq.RepackOptions{}); err != nil {
			t.Fatal(err)
		}
		if d := largestDifference(want, floatLogits(t, back, ids)); !(d <= 1e-5) {
			t.Errorf("%s: logits differ by %.2g of the largest", target, d)
		}
	}
}
