package gq

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testquant"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// rewriteBooks makes another checkpoint of two layers of the bundled checkpoint: edit changes
// config.json, and each turns a tensor into tensors.
func rewriteBooks(t *testing.T, edit func(config map[string]any) map[string]any, each func(testquant.Tensor) []testquant.Tensor) string {
	t.Helper()
	src, dir := testmodels.Books(t, 2), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(src)); err != nil {
		t.Fatal(err)
	}
	ck, err := safetensors.Open(src, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	var list []testquant.Tensor
	for _, s := range ck.Tensors() {
		data, err := ck.Bytes(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, each(testquant.Tensor{Spec: safetensors.TensorSpec{Name: s.Name, Dtype: s.Dtype, Shape: s.Shape}, Data: bytes.Clone(data)})...)
	}
	var config map[string]any
	b, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err == nil {
		err = json.Unmarshal(b, &config)
	}
	if err == nil {
		b, err = json.Marshal(edit(config))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), b, 0o666)
	}
	if err == nil {
		err = os.Remove(filepath.Join(dir, "model.safetensors"))
	}
	if err == nil {
		err = testquant.Create(dir, list, map[string]string{"format": "pt"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// fp8Books has linear layers in E4M3 with scales of blocks of 128 x 128.
func fp8Books(t *testing.T) string {
	return rewriteBooks(t, func(config map[string]any) map[string]any {
		config["quantization_config"] = map[string]any{"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": []int{128, 128}}
		return config
	}, func(w testquant.Tensor) []testquant.Tensor {
		if !strings.HasSuffix(w.Spec.Name, "_proj.weight") {
			return []testquant.Tensor{w}
		}
		rows, cols := int(w.Spec.Shape[0]), int(w.Spec.Shape[1])
		high, wide := (rows+127)/128, (cols+127)/128
		value := func(i int) float64 { return float64(floats.BF16ToF32(binary.LittleEndian.Uint16(w.Data[2*i:]))) }
		largest := make([]float64, high*wide)
		for i := range rows * cols {
			block := &largest[i/cols/128*wide+i%cols/128]
			*block = max(*block, math.Abs(value(i)))
		}
		codes, scales := make([]byte, rows*cols), make([]byte, 4*high*wide)
		for i, v := range largest {
			binary.LittleEndian.PutUint32(scales[4*i:], math.Float32bits(float32(v/448)))
		}
		for i := range codes {
			want, best := value(i)/largest[i/cols/128*wide+i%cols/128]*448, math.Inf(1)
			for c := range 256 {
				if d := math.Abs(float64(floats.F8E4M3ToF32(byte(c))) - want); d < best {
					codes[i], best = byte(c), d
				}
			}
		}
		return []testquant.Tensor{
			{Spec: safetensors.TensorSpec{Name: w.Spec.Name, Dtype: packing.F8E4M3, Shape: w.Spec.Shape}, Data: codes},
			{Spec: safetensors.TensorSpec{Name: w.Spec.Name + "_scale_inv", Dtype: packing.F32, Shape: []int64{int64(high), int64(wide)}}, Data: scales},
		}
	})
}

// nestedBooks wraps the language model, as multimodal checkpoints do.
func nestedBooks(t *testing.T, body string) string {
	return rewriteBooks(t, func(config map[string]any) map[string]any {
		text := maps.Clone(config)
		text["model_type"], text["architectures"] = "mistral", []string{"MistralForCausalLM"}
		delete(text, "attention_bias")
		delete(text, "mlp_bias")
		delete(text, "pretraining_tp")
		return map[string]any{
			"architectures": []string{"Mistral3ForConditionalGeneration"}, "model_type": "mistral3", "text_config": text, "tie_word_embeddings": true,
			"vision_config": map[string]any{"model_type": "pixtral", "hidden_size": 64}, "image_token_index": 10,
		}
	}, func(w testquant.Tensor) []testquant.Tensor {
		list := []testquant.Tensor{w}
		if w.Spec.Name == "model.norm.weight" {
			list = append(list, testquant.Tensor{Spec: safetensors.TensorSpec{Name: "image_tower.ln_pre.weight", Dtype: w.Spec.Dtype, Shape: w.Spec.Shape}, Data: w.Data})
		}
		list[0].Spec.Name = body + strings.TrimPrefix(w.Spec.Name, "model.")
		return list
	})
}

// TestExportLeavesOut: a .gguf file of a multimodal model has the bytes of gq quantize, although
// the .gqf file has tensors before the language model's.
func TestExportLeavesOut(t *testing.T) {
	dir := nestedBooks(t, "model.language_model.")
	o := QuantizeOptions{Recipe: quantizer.Recipe{Targets: []quantizer.Target{quantizer.TargetGGUF}}}
	mustQuantize(t, dir, "model.gqf", o)
	want := mustQuantize(t, dir, "want.gguf", o)
	got := filepath.Join(dir, "got.gguf")
	if _, err := Export(t.Context(), filepath.Join(dir, "model.gqf"), got, ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(got); err != nil || !bytes.Equal(b, want) {
		t.Errorf("%v, the same bytes: %v", err, bytes.Equal(b, want))
	}
}

// changedCopy copies a checkpoint and flips the lowest bit of the last number of a tensor.
func changedCopy(t *testing.T, src, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(src)); err != nil {
		t.Fatal(err)
	}
	ck, err := safetensors.Open(src, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	i := slices.IndexFunc(ck.Tensors(), func(s safetensors.Tensor) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no tensor %s", name)
	}
	s := ck.Tensors()[i]
	file := filepath.Join(dir, "model.safetensors")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[s.Offset+s.Size-int64(s.Dtype.Bits()/8)] ^= 1
	if err := os.WriteFile(file, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestGateModels makes files of FP8 checkpoints and of multimodal checkpoints. A file meets a gate
// with its own checkpoint. A file of a changed copy does not.
func TestGateModels(t *testing.T) {
	t.Parallel()
	gate := sourceGate(t)
	for _, tt := range []struct {
		name, src string
		changed   []string
	}{
		{"fp8", fp8Books(t), []string{"model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight_scale_inv", "model.norm.weight"}},
		{"multimodal, as published", nestedBooks(t, "language_model.model."), []string{"language_model.model.layers.1.mlp.up_proj.weight"}},
		{"multimodal, newer names", nestedBooks(t, "model.language_model."), []string{"model.language_model.layers.1.mlp.up_proj.weight", "model.language_model.norm.weight"}},
	} {
		for _, changed := range append([]string{""}, tt.changed...) {
			t.Run(tt.name+" "+changed, func(t *testing.T) {
				dir, src, want := t.TempDir(), tt.src, ""
				if changed != "" {
					src, want = changedCopy(t, src, changed), "has other bytes in the checkpoint"
				}
				var files []string
				add := func(name string, err error) string {
					if err != nil {
						t.Fatal(err)
					}
					files = append(files, filepath.Join(dir, name))
					return files[len(files)-1]
				}
				for _, target := range []string{"gguf", "gptq"} {
					out := add("m."+target, nil)
					if _, err := Quantize(t.Context(), src, out, QuantizeOptions{Recipe: quantizer.Recipe{Targets: targets(t, target)}}); err != nil {
						t.Fatal(err)
					}
					_, err := Repack(t.Context(), out, out+".gqf", RepackOptions{})
					add(filepath.Base(out)+".gqf", err)
				}
				own := add("own.gqf", nil)
				if _, err := Quantize(t.Context(), src, own, QuantizeOptions{Recipe: quantizer.Recipe{Targets: targets(t, "gguf")}}); err != nil {
					t.Fatal(err)
				}
				_, err := Export(t.Context(), own, filepath.Join(dir, "export.gguf"), ExportOptions{})
				add("export.gguf", err)
				for _, file := range files {
					r, err := Measure(t.Context(), tt.src, file, MeasureOptions{Settings: accuracy.Settings{NoOutputs: true}, Gate: gate})
					if err != nil {
						t.Fatal(err)
					}
					if err := Verdict(r); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
						t.Errorf("%s: %v, want %q", filepath.Base(file), err, want)
					}
				}
			})
		}
	}
}
