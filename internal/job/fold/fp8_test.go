package fold

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/orthogonal"
	"github.com/lowbit-go/gq/packing"
)

// fp8Model makes a checkpoint whose projections are FP8 with a scale for each block of 16 x 16
// weights.
func fp8Model(t *testing.T) string {
	t.Helper()
	src, dst := tiny("llama3"), t.TempDir()
	ck := openModelOf(t, src)
	var specs []safetensors.TensorSpec
	var data [][]byte
	random := orthogonal.Random(4, 0)
	for _, s := range ck.Tensors() {
		raw, err := ck.Bytes(s)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(s.Name, "_proj.") {
			specs, data = append(specs, safetensors.TensorSpec{Name: s.Name, Dtype: s.Dtype, Shape: s.Shape}), append(data, raw)
			continue
		}
		codes := make([]byte, s.Numel())
		for i := range codes {
			r := random.Next()
			codes[i] = byte(r>>63<<7) | byte(0x20+r%0x20) // sizes from 0.125 to 1.875
		}
		blocks := []int64{(s.Shape[0] + 15) / 16, (s.Shape[1] + 15) / 16}
		scales := make([]byte, 4*blocks[0]*blocks[1])
		wide := make([]float64, len(scales)/4)
		for i := range wide {
			wide[i] = 0.05 + 0.1*random.Float()
		}
		narrow(scales, wide)
		specs = append(specs, safetensors.TensorSpec{Name: s.Name, Dtype: packing.F8E4M3, Shape: s.Shape},
			safetensors.TensorSpec{Name: s.Name + "_scale_inv", Dtype: packing.F32, Shape: blocks})
		data = append(data, codes, scales)
	}
	w, err := safetensors.Create(dst, specs, safetensors.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range data {
		if err := w.WriteAt(i, b, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	config = bytes.Replace(config, []byte("{"), []byte(`{"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 16]},`), 1)
	if err := os.WriteFile(filepath.Join(dst, "config.json"), config, 0o666); err != nil {
		t.Fatal(err)
	}
	return dst
}

// TestFP8 folds weights with scales: the weights that change become F32.
func TestFP8(t *testing.T) {
	for _, j := range []Job{{Rotate: true}, {Equalize: true}} {
		dst, _ := makeFolded(t, fp8Model(t), j)
		if raw, err := os.ReadFile(filepath.Join(dst, "config.json")); err != nil || strings.Contains(string(raw), "quantization_config") {
			t.Errorf("config.json speaks of FP8 weights (%v)", err)
		}
		for _, s := range openModelOf(t, dst).Tensors() {
			if strings.HasSuffix(s.Name, "_scale_inv") || s.Dtype == packing.F8E4M3 {
				t.Errorf("%s of dtype %s is left", s.Name, s.Dtype)
			}
		}
	}
}
