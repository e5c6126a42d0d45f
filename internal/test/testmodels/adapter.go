package testmodels

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
)

// Adapter writes an adapter of a checkpoint as PEFT does, with random factors for the embedding and
// two linear layers of each layer.
func Adapter(t testing.TB, model string) string {
	t.Helper()
	ck, err := safetensors.Open(model, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	const rank = 4
	var specs []safetensors.TensorSpec
	add := func(name string, rows, cols int64) {
		specs = append(specs, safetensors.TensorSpec{Name: name, Dtype: packing.F32, Shape: []int64{rows, cols}})
	}
	for _, x := range ck.Tensors() {
		module, _ := strings.CutSuffix("base_model.model."+x.Name, ".weight")
		switch {
		case strings.HasSuffix(module, "embed_tokens"):
			add(module+".lora_embedding_A", rank, x.Shape[0])
			add(module+".lora_embedding_B", x.Shape[1], rank)
		case strings.HasSuffix(module, "q_proj"), strings.HasSuffix(module, "down_proj"):
			add(module+".lora_A.weight", rank, x.Shape[1])
			add(module+".lora_B.weight", x.Shape[0], rank)
		}
	}
	dir := filepath.Join(t.TempDir(), "adapter")
	w, err := safetensors.Create(dir, specs, safetensors.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	r := rand.New(rand.NewPCG(1, 2))
	for i, s := range specs {
		var b []byte
		for range s.Shape[0] * s.Shape[1] {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(0.1*r.NormFloat64())))
		}
		if err := w.WriteAt(i, b, 0); err != nil {
			t.Fatal(err)
		}
	}
	err = w.Commit()
	if err == nil {
		err = os.Rename(filepath.Join(dir, safetensors.SingleName), filepath.Join(dir, "adapter_model.safetensors"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(`{"peft_type": "LORA", "r": 4, "lora_alpha": 8}`), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
