package conversion

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/testquant"
	"github.com/lowbit-go/gq/packing"
)

// testTensor is a tensor of a checkpoint that a test makes up.
type testTensor struct {
	name  string
	dtype packing.Dtype
	shape []int64
	// value gives element i; nil: heavy-tailed pseudo-random numbers, the same for the same name.
	value func(i int) float32
}

func (tt testTensor) numel() int {
	n := int64(1)
	for _, d := range tt.shape {
		n *= d
	}
	return int(n)
}

// values are the elements, rounded to the dtype.
func (tt testTensor) values() []float32 {
	x := make([]float32, tt.numel())
	seed := uint64(14695981039346656037)
	for _, c := range []byte(tt.name) {
		seed = (seed ^ uint64(c)) * 1099511628211
	}
	for i := range x {
		if tt.value != nil {
			x[i] = tt.value(i)
		} else {
			seed = seed*6364136223846793005 + 1442695040888963407
			u := float32(int32(seed>>32)) / (1 << 31)
			x[i] = float32(float32(u*u)*u) * 10
		}
		switch tt.dtype {
		case packing.BF16:
			x[i] = floats.BF16ToF32(floats.BF16FromF32(x[i]))
		case packing.F16:
			x[i] = floats.F16ToF32(floats.F16FromF32(x[i]))
		}
	}
	return x
}

func (tt testTensor) bytes() []byte {
	var b []byte
	for _, v := range tt.values() {
		switch tt.dtype {
		case packing.BF16:
			b = binary.LittleEndian.AppendUint16(b, floats.BF16FromF32(v))
		case packing.F16:
			b = binary.LittleEndian.AppendUint16(b, floats.F16FromF32(v))
		case packing.F32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		case packing.F64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
		default: // one byte an element
			b = append(b, byte(v))
		}
	}
	return b
}

// writeCheckpoint makes a checkpoint in a new directory; config "" makes no config.json.
func writeCheckpoint(t testing.TB, config string, tensors ...testTensor) string {
	t.Helper()
	dir := t.TempDir()
	var list []testquant.Tensor
	for _, tt := range tensors {
		list = append(list, testquant.Tensor{Spec: safetensors.TensorSpec{Name: tt.name, Dtype: tt.dtype, Shape: tt.shape}, Data: tt.bytes()})
	}
	if err := testquant.Create(dir, list, nil); err != nil {
		t.Fatal(err)
	}
	if config != "" {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func openCheckpoint(t testing.TB, path string) *safetensors.Checkpoint {
	t.Helper()
	ck, err := safetensors.Open(path, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	return ck
}

// llama is a small tied Llama-like checkpoint with biases.
func llama() []testTensor {
	ts := []testTensor{
		{name: "model.embed_tokens.weight", dtype: packing.BF16, shape: []int64{70, 64}},
		{name: "model.norm.weight", dtype: packing.BF16, shape: []int64{64}},
	}
	for l := range 11 { // two digits: layers in order of number
		p := fmt.Sprintf("model.layers.%d.", l)
		ts = append(ts,
			testTensor{name: p + "self_attn.q_proj.weight", dtype: packing.BF16, shape: []int64{64, 64}},
			testTensor{name: p + "self_attn.q_proj.bias", dtype: packing.BF16, shape: []int64{64}},
			testTensor{name: p + "mlp.down_proj.weight", dtype: packing.BF16, shape: []int64{64, 172}},
			testTensor{name: p + "input_layernorm.weight", dtype: packing.BF16, shape: []int64{64}})
	}
	return ts
}

const llamaConfig = `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": true}`
