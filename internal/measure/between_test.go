package measure

import (
	"fmt"
	"math"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// TestBetween checks that a file with unquantized weights is as far from a quantized file as
// Tensors finds the checkpoint to be, for fused experts and for weights stored as inputs x outputs
// too.
func TestBetween(t *testing.T) {
	const experts = `{"model_type": %q, "num_experts": 3}`
	for _, tt := range []struct {
		name, config string
		tensor       testTensor
		noWeights    bool // of the unquantized file
	}{
		{name: "matrix", tensor: testTensor{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.BF16, shape: []int64{3001, 96}}},
		{name: "vector", tensor: testTensor{name: "model.norm.weight", dtype: packing.F32, shape: []int64{192}}},
		{name: "experts", config: fmt.Sprintf(experts, "qwen3_5_moe"),
			tensor: testTensor{name: "model.layers.0.mlp.experts.gate_up_proj", dtype: packing.BF16, shape: []int64{3, 80, 64}}},
		{name: "transposed", config: fmt.Sprintf(experts, "llama4_text"),
			tensor: testTensor{name: "model.layers.0.feed_forward.experts.gate_up_proj", dtype: packing.BF16, shape: []int64{3, 64, 80}}},
		{name: "FP8", noWeights: true, tensor: testTensor{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.F8E4M3, shape: []int64{150, 200}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := writeCheckpoint(t, tt.config, tt.tensor)
			coded, _ := quantize(t, dir, conversion.Options{})
			o := conversion.Options{}
			if len(tt.tensor.shape) > 1 {
				o.Rules = []quantizer.Rule{{Match: "*", Skip: true}}
			}
			plain, _ := quantize(t, dir, o)
			var signal, noise float64
			for _, s := range tensorsOf(t, dir, coded, TensorOptions{NoOutputs: true}) {
				signal, noise = signal+s.Signal, noise+s.Noise
			}
			a, b := openFile(t, plain), openFile(t, coded)
			pair := func(a, b *gqf.File, threads int) Distance {
				t.Helper()
				var n int64
				list, err := Between(t.Context(), a, b, []Pair{{0, 0}}, BetweenOptions{Threads: threads, Progress: func(more int64) { n += more }})
				if err != nil {
					t.Fatal(err)
				}
				if n != a.Tensor(0).Elements() {
					t.Errorf("progress of %d weights, want %d", n, a.Tensor(0).Elements())
				}
				return list[0]
			}
			got := pair(a, b, 1)
			switch {
			case tt.noWeights:
				if got.Incomparable == "" {
					t.Errorf("SQNR %v of weights without their scales", got.SQNR)
				}
			case got.Equal != (noise == 0):
				t.Errorf("equal: %v", got.Equal)
			case noise > 0 && math.Abs(float64(got.SQNR-accuracy.Ratio(signal, noise))) > 1e-9:
				t.Errorf("SQNR %v, want %v", got.SQNR, accuracy.Ratio(signal, noise))
			}
			if again := pair(b, b, 1); !again.Equal || !again.SQNR.Exact() {
				t.Errorf("a file is %v from itself", again.SQNR)
			}
		})
	}
}

// TestBetweenThreads checks that threads change no bit, and that tensors of different shapes have
// no SQNR.
func TestBetweenThreads(t *testing.T) {
	a := openFile(t, bundledFile(t, quantizer.Recipe{}))
	b := openFile(t, bundledFile(t, quantizer.Recipe{Bits: 3}))
	var pairs []Pair
	for i := range a.Len() {
		pairs = append(pairs, Pair{i, i})
	}
	pairs = append(pairs, Pair{0, 2})
	one, err := Between(t.Context(), a, b, pairs, BetweenOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	five, err := Between(t.Context(), a, b, pairs, BetweenOptions{Threads: 5})
	if err != nil {
		t.Fatal(err)
	}
	for i := range one {
		if one[i] != five[i] {
			t.Errorf("%s: %v with one thread, %v with five", a.Tensor(pairs[i].A).Name, one[i], five[i])
		}
	}
	if last := one[len(one)-1]; last.Incomparable != "has another shape" {
		t.Errorf("other shapes: %v", last)
	}
}
