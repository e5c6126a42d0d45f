package gq_test

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/quantizer"
)

// onnxRequest and onnxAnswer are described in testdata/onnxruntime.mjs.
type onnxRequest struct {
	Model     string    `json:"model"`
	Float32   bool      `json:"float32"`
	Sequences [][]int32 `json:"sequences"`
	Prompt    int       `json:"prompt,omitempty"`
}

type onnxAnswer struct {
	Error  string
	Logits [][]float32
}

// onnxCase is a checkpoint that ONNX Runtime and gq run with the same codes.
type onnxCase struct {
	node  *nodeProcess
	dir   string
	ids   []int32
	limit float64 // of the difference with float32 activations, as a part of the largest logit
}

// onnxSettings put every width, kind of zero point and block into a model, each into another kind
// of tensor.
var onnxSettings = []struct{ name, settings string }{
	{"4 and 8 bits", `bits: 4`},
	{"2, 4 and 8 bits", `bits: 2, group: 64, embedding-bits: 4, rules: [{match: "re:.*[.](q|qkv)_proj", bits: 8, group: channel}, {match: "re:.*[.](down_proj|o_proj)", bits: 4, group: 96}]`},
	{"zero points", `bits: 4, mapping: asymmetric, embedding-bits: 8, rules: [{match: "re:.*[.](q|qkv)_proj", bits: 8}, {match: "re:.*[.]down_proj", bits: 2, group: 16}]`},
	{"unquantized", `bits: 8, rules: [{match: "re:.*(embed_tokens|[.](o|down)_proj)", skip: true}]`},
}

// TestONNXRuntime runs directories for ONNX Runtime of all architectures that gq writes, and wants
// gq's logits with float32 activations: of a prompt at once, and token by token.
func TestONNXRuntime(t *testing.T) {
	node := startNode(t, "onnxruntime.mjs", "GQ_ONNXRUNTIME", "onnxruntime-node")
	written := 0
	// Some have heads that GroupQueryAttention does not rotate.
	for _, g := range testmodels.AllGenerated(t) {
		dir := filepath.Join(t.TempDir(), g.Name)
		g.Write(t, dir)
		c := onnxCase{node: node, dir: dir, ids: g.Sequences[0].Tokens, limit: 1e-4}
		for _, s := range g.Sequences { // as long as windows are exceeded
			if len(s.Tokens) > len(c.ids) && len(s.Tokens) <= 64 {
				c.ids = s.Tokens
			}
		}
		t.Run("generated/"+g.Name, func(t *testing.T) {
			if c.run(t, onnxSettings[0].settings) {
				written++
			}
		})
	}
	for i, v := range testmodels.Variants(t) {
		dir := filepath.Join(t.TempDir(), v.Name)
		v.Write(t, dir)
		c := onnxCase{node: node, dir: dir, ids: randomTokens(1, 30, testmodels.Vocab), limit: 1e-4}
		if v.Name == "phi4-mini" {
			c.ids = c.ids[:24] // its original_max_position_embeddings
		}
		settings := onnxSettings[i%len(onnxSettings):][:1] // of most models one, of a Llama all
		if v.Name == "llama-bias-tied" {
			settings = onnxSettings
		}
		for _, q := range settings {
			t.Run(v.Name+"/"+q.name, func(t *testing.T) {
				if c.run(t, q.settings) {
					written++
				}
			})
		}
	}
	if written < 45 {
		t.Errorf("%d directories were written", written)
	}
}

// run writes the directory and the .gqf file with the same codes, and compares logits. It returns
// false if gq refuses the architecture.
func (c *onnxCase) run(t *testing.T, settings string) bool {
	r, err := quantizer.ParseRecipe("recipe", []byte("{target: onnx, algorithm: rtn, "+settings+"}"))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "onnx")
	if _, err = gq.Quantize(context.Background(), c.dir, out, gq.QuantizeOptions{Recipe: r}); err != nil {
		if strings.Contains(err.Error(), "which no graph of gq holds") {
			t.Log(err)
			return false
		}
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "model.gqf")
	if _, err := gq.Quantize(context.Background(), c.dir, file, gq.QuantizeOptions{Recipe: r}); err != nil {
		t.Fatal(err)
	}
	want := floatLogits(t, file, c.ids)
	model, err := filepath.Glob(filepath.Join(out, "onnx", "*.onnx"))
	if err != nil || len(model) != 1 {
		t.Fatalf("models %q (%v)", model, err)
	}
	for _, prompt := range []int{0, len(c.ids) / 3} {
		var a onnxAnswer
		c.node.ask(t, onnxRequest{Model: model[0], Float32: true, Sequences: [][]int32{c.ids}, Prompt: prompt}, &a)
		if a.Error != "" {
			t.Fatalf("ONNX Runtime: %s", a.Error)
		}
		if d := largestDifference(want, a.Logits[0]); !(d <= c.limit) {
			t.Errorf("with a prompt of %d tokens, logits differ by %.2g of the largest", prompt, d)
		} else {
			t.Logf("prompt %d: difference %.2g", prompt, d)
		}
	}
	return true
}

// largestDifference is the largest difference of two lists, as a part of the largest number.
func largestDifference(want, got []float32) float64 {
	if len(want) != len(got) {
		return math.Inf(1)
	}
	worst, largest := 0.0, 0.0
	for i, w := range want {
		if d := math.Abs(float64(w) - float64(got[i])); !(d <= worst) {
			worst = d
		}
		largest = max(largest, math.Abs(float64(w)))
	}
	return worst / largest
}
