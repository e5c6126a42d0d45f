package gq

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// mxfp4Experts writes a model of gpt-oss twice: its experts in MXFP4, as published files have them,
// and the same weights in BF16, inputs x outputs. The values of the codes are those of the OCP
// Microscaling Formats specification.
func mxfp4Experts(t *testing.T) (mx, bf16 string) {
	t.Helper()
	dir := t.TempDir()
	v := testmodels.Find(t, "gpt-oss").With("limit", "swiglu_limit", 7) // llama.cpp's
	v.Write(t, filepath.Join(dir, "from"))
	from, err := safetensors.Open(filepath.Join(dir, "from"), safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	type tensor struct {
		safetensors.TensorSpec
		data []byte
	}
	var blocked, plain []tensor
	random := detmath.Source(1)
	values := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	for _, x := range from.Tensors() {
		raw, err := from.Bytes(x)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(x.Name, "_proj") {
			same := tensor{safetensors.TensorSpec{Name: x.Name, Dtype: x.Dtype, Shape: x.Shape}, bytes.Clone(raw)}
			blocked, plain = append(blocked, same), append(plain, same)
			continue
		}
		experts, cols, rows := int(x.Shape[0]), int(x.Shape[1]), int(x.Shape[2])
		blocks, scales := make([]byte, experts*rows*cols/2), make([]byte, experts*rows*cols/32)
		for i := range blocks {
			blocks[i] = byte(random.Next())
		}
		for i := range scales {
			scales[i] = byte(121 + random.Next()%3)
		}
		wide := make([]byte, 2*experts*rows*cols)
		for i := range experts * rows * cols {
			code := blocks[i/2] >> (4 * (i % 2))
			value := math.Ldexp(values[code&7], int(scales[i/32])-127)
			if code&8 != 0 {
				value = -value
			}
			expert, row, col := i/(rows*cols), i/cols%rows, i%cols
			binary.LittleEndian.PutUint16(wide[2*((expert*cols+col)*rows+row):], uint16(math.Float32bits(float32(value))>>16))
		}
		e, r, c := int64(experts), int64(rows), int64(cols)
		blocked = append(blocked, tensor{safetensors.TensorSpec{Name: x.Name + "_blocks", Dtype: packing.U8, Shape: []int64{e, r, c / 32, 16}}, blocks},
			tensor{safetensors.TensorSpec{Name: x.Name + "_scales", Dtype: packing.U8, Shape: []int64{e, r, c / 32}}, scales})
		plain = append(plain, tensor{safetensors.TensorSpec{Name: x.Name, Dtype: packing.BF16, Shape: x.Shape}, wide})
	}
	write := func(name string, list []tensor, config map[string]any) string {
		path := filepath.Join(dir, name)
		var specs []safetensors.TensorSpec
		for _, x := range list {
			specs = append(specs, x.TensorSpec)
		}
		w, err := safetensors.Create(path, specs, safetensors.WriteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		for i, x := range list {
			if err := w.WriteAt(i, x.data, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "config.json"), raw, 0o666); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
			data, err := os.ReadFile(filepath.Join(dir, "from", name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(path, name), data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	bf16 = write("bf16", plain, v.Config)
	return write("mx", blocked, v.With("mx", "quantization_config", map[string]any{"quant_method": "mxfp4", "modules_to_not_convert": []string{"lm_head"}}).Config), bf16
}

// TestMXFP4 runs, quantizes and measures experts in MXFP4: all figures and codes are the BF16
// model's.
func TestMXFP4(t *testing.T) {
	ctx := context.Background()
	mx, bf16 := mxfp4Experts(t)
	open := func(dir string) func() (*forward.Model, error) {
		return func() (*forward.Model, error) { return forward.OpenCheckpoint(dir, forward.Options{Threads: 1}) }
	}
	want := logitsOf(t, open(bf16))
	for i, v := range logitsOf(t, open(mx)) {
		if v != want[i] {
			t.Fatalf("logit %d is %v, in BF16 %v", i, v, want[i])
		}
	}
	var weights [2]map[string]string
	for i, dir := range []string{bf16, mx} {
		file := dir + ".gqf"
		if _, err := Quantize(ctx, dir, file, QuantizeOptions{Recipe: quantizer.Recipe{Bits: 4, Group: new(32)}}); err != nil {
			t.Fatal(err)
		}
		r, err := Measure(ctx, dir, file, MeasureOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Tensors) == 0 || !(float64(r.Totals.SQNR) > 10) {
			t.Errorf("%s: %d tensors, %+v", dir, len(r.Tensors), r.Totals)
		}
		if _, err := Dequantize(ctx, file, dir+"-back", DequantizeOptions{Dtype: packing.F32}); err != nil {
			t.Fatal(err)
		}
		weights[i] = readTensors(t, dir+"-back")
	}
	// A checkpoint's experts that no format holds become BF16.
	for _, dir := range []string{bf16, mx} {
		if _, err := Quantize(ctx, dir, dir+"-gptq", QuantizeOptions{Recipe: quantizer.Recipe{Bits: 4, Group: new(32), Targets: []quantizer.Target{quantizer.CheckpointTarget(hfquant.GPTQ)}}}); err != nil {
			t.Fatal(err)
		}
	}
	if want, got := readTensors(t, bf16+"-gptq"), readTensors(t, mx+"-gptq"); !maps.Equal(want, got) {
		t.Errorf("checkpoints of format gptq differ: %d tensors, want %d", len(got), len(want))
	}
	for _, bits := range []int{4, 0} { // 0: unquantized
		var files [2]map[string]string
		for i, dir := range []string{bf16, mx} {
			o := QuantizeOptions{Recipe: quantizer.Recipe{Bits: bits}}
			if bits == 0 {
				o.Rules = []quantizer.Rule{{Match: "*", Skip: true}}
			}
			if _, err := Quantize(ctx, dir, dir+".gguf", o); err != nil {
				t.Fatal(err)
			}
			f, err := gguf.Open(dir + ".gguf")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			files[i] = map[string]string{}
			for _, x := range f.Tensors {
				files[i][x.Name] = string(f.Data(x))
			}
		}
		if !maps.Equal(files[0], files[1]) {
			t.Errorf("%d bits: .gguf files of MXFP4 and BF16 differ", bits)
		}
	}
	for name, data := range weights[0] {
		if weights[1][name] != data {
			t.Errorf("tensor %q of the MXFP4 model is quantized in another way", name)
		}
	}
	_, err := Quantize(ctx, mx, mx+"-skip.gqf", QuantizeOptions{Rules: []quantizer.Rule{{Match: "*", Skip: true}}})
	if err == nil || !strings.Contains(err.Error(), "a .gqf file has no unquantized MXFP4") {
		t.Errorf("unquantized: %v", err)
	}
}

// readTensors returns the bytes of all tensors.
func readTensors(t *testing.T, dir string) map[string]string {
	t.Helper()
	c, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all := map[string]string{}
	for _, x := range c.Tensors() {
		raw, err := c.Bytes(x)
		if err != nil {
			t.Fatal(err)
		}
		all[x.Name] = string(raw)
	}
	return all
}
