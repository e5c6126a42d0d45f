package conversion

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/fromquantized"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testquant"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// importDir imports a quantized checkpoint and opens the file, which it verifies.
func importDir(t *testing.T, dir string, opts RepackOptions) (*gqf.File, *write.Job) {
	t.Helper()
	return writeVerified(t, func() (*write.Job, error) { return tryDir(t, dir, opts) })
}

// writeVerified writes a plan and verifies the file.
func writeVerified(t *testing.T, make func() (*write.Job, error)) (*gqf.File, *write.Job) {
	t.Helper()
	plan, err := make()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "model.gqf")
	if _, err := plan.Write(context.Background(), out); err != nil {
		t.Fatal(err)
	}
	f, err := gqf.Open(out, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if report, err := f.Verify(context.Background(), gqf.VerifyOptions{Deep: true}); err != nil || !report.OK() {
		t.Fatalf("the imported file: %+v, %v", report, err)
	}
	return f, plan
}

func tryDir(t *testing.T, dir string, opts RepackOptions) (*write.Job, error) {
	t.Helper()
	f, err := fromquantized.Open(dir)
	if err != nil {
		return nil, err
	}
	if f == nil {
		t.Fatalf("%s is not quantized", dir)
	}
	t.Cleanup(func() { f.Close() })
	return importing(f, opts)
}

// checkValues compares the dequantized file with the weights that the checkpoint stands for, bit
// for bit but for the sign of zeros, and everything else with the source checkpoint.
func checkValues(t *testing.T, f *gqf.File, source string, weights map[string]*testquant.Weight) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "dequantized")
	if _, err := Dequantize(context.Background(), f, "model.gqf", out, DequantizeOptions{Dtype: packing.F32}); err != nil {
		t.Fatal(err)
	}
	open := func(dir string) *safetensors.Checkpoint {
		ck, err := safetensors.Open(dir, safetensors.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ck.Close() })
		return ck
	}
	got, want := open(out), open(source)
	if len(got.Tensors()) != len(want.Tensors()) {
		t.Errorf("%d tensors, want %d", len(got.Tensors()), len(want.Tensors()))
	}
	for _, s := range want.Tensors() {
		tensor, ok := got.Lookup(s.Name)
		if !ok {
			t.Errorf("tensor %q is missing", s.Name)
			continue
		}
		w := weights[s.Name]
		if w == nil {
			a, _ := got.Bytes(tensor)
			b, _ := want.Bytes(s)
			if tensor.Dtype != s.Dtype || string(a) != string(b) {
				t.Errorf("unquantized tensor %q has changed", s.Name)
			}
			continue
		}
		x := make([]float32, w.Shape[1])
		for n := range int(w.Shape[0]) {
			if err := got.ReadRows(x, tensor, n, 1); err != nil {
				t.Fatal(err)
			}
			for k, v := range w.Values(n) {
				if math.Float32bits(x[k]) != math.Float32bits(v) && (v != 0 || x[k] != 0) {
					t.Errorf("tensor %q (%s), row %d, column %d: %v, want %v", s.Name, w.Scheme, n, k, x[k], v)
					break
				}
			}
			if t.Failed() {
				return
			}
		}
	}
}

// TestImportQuantized imports checkpoints into every layout. Each weight must be (code - zero) *
// scale, computed in float32 from the checkpoint's numbers.
func TestImportQuantized(t *testing.T) {
	testshared.SlowEmulated(t, "codes are taken over by the same code natively")
	const bf16, f16, f32 = packing.BF16, packing.F16, packing.F32
	const no, integer, offsets = hfquant.NoZeros, hfquant.IntZeros, hfquant.Offsets
	source := t.TempDir()
	testmodels.Find(t, "llama-bias-tied").Write(t, source)
	lowbit, kleidiai := quantizer.LayoutRequest{}, quantizer.LayoutRequest{Family: quantizer.FamilyKleidiAI}
	for i, c := range []struct {
		format  hfquant.Format
		scheme  hfquant.Scheme
		layouts []quantizer.LayoutRequest
		targets string
		want    string // the layout of all weights
	}{
		{hfquant.IntQuantized, hfquant.Scheme{Bits: 4, Group: 32, Scales: bf16}, nil, "", "lowbit=qsi4c32p 8x16x2"},
		{hfquant.IntQuantized, hfquant.Scheme{Bits: 4, Scales: f32}, []quantizer.LayoutRequest{kleidiai}, "", "qsi4cxp 8x16x2"},
		{hfquant.IntQuantized, hfquant.Scheme{Bits: 8, Scales: bf16}, []quantizer.LayoutRequest{kleidiai}, "", "qsi8cxp 4x8x1"},
		{hfquant.PackQuantized, hfquant.Scheme{Bits: 4, Group: 128, Scales: bf16}, nil, "xnnpack-i8mm", "lowbit=qsi4c32p 4x16x2"},
		{hfquant.PackQuantized, hfquant.Scheme{Bits: 4, Group: 128, Scales: f16}, nil, "llama.cpp-i8mm", "qsi4c32p-f16 4x16x2"},
		{hfquant.PackQuantized, hfquant.Scheme{Bits: 4, Scales: f16}, nil, "llama.cpp-i8mm", "qsi4c32p-f16 4x16x2"},
		{hfquant.PackQuantized, hfquant.Scheme{Bits: 4, Scales: bf16}, nil, "pytorch-aarch64", "qsi4cxp 8x16x2"},
		{hfquant.PackQuantized, hfquant.Scheme{Bits: 8, Group: 64, Scales: f16}, nil, "", "lowbit 8x16x2"},
		{hfquant.PackQuantized, hfquant.Scheme{Bits: 4, Group: 64, Scales: bf16, Zeros: integer}, []quantizer.LayoutRequest{lowbit, kleidiai}, "", "lowbit 8x16x2,qai4c32p 4x16x2"},
		{hfquant.TorchAO, hfquant.Scheme{Bits: 4, Group: 32, Scales: f32}, nil, "", "lowbit 8x16x2"},
		{hfquant.TorchAO, hfquant.Scheme{Bits: 3, Group: 64, Scales: f32}, nil, "torchao", "torchao-linear 8x16x2"},
		{hfquant.TorchAO, hfquant.Scheme{Bits: 5, Group: 64, Scales: f32, Zeros: integer}, nil, "torchao", "torchao-linear 8x16x2"},
		{hfquant.TorchAO, hfquant.Scheme{Bits: 8, Scales: bf16, Zeros: integer}, nil, "", "lowbit 8x16x2"},
		{hfquant.GPTQ, hfquant.Scheme{Bits: 4, Group: 128, Scales: f16}, []quantizer.LayoutRequest{lowbit, {Family: quantizer.FamilyCodes}}, "", "lowbit 8x16x2,codes"},
		{hfquant.GPTQ, hfquant.Scheme{Bits: 4, Group: 32, Scales: f16}, []quantizer.LayoutRequest{kleidiai}, "", "qsi4c32p-f16 4x16x2"},
		{hfquant.GPTQ, hfquant.Scheme{Bits: 4, Group: 32, Scales: f16, Zeros: integer}, []quantizer.LayoutRequest{kleidiai}, "", "qai4c32p 4x16x2"},
		{hfquant.GPTQ, hfquant.Scheme{Bits: 3, Group: 32, Scales: f16, Zeros: integer}, nil, "", "lowbit 8x16x2"},
		{hfquant.GPTQ, hfquant.Scheme{Bits: 2, Scales: f16}, []quantizer.LayoutRequest{kleidiai}, "", "qsu2cxp 4x4x1"},
		{hfquant.GPTQ, hfquant.Scheme{Bits: 8, Scales: f16, Zeros: integer}, nil, "", "lowbit 8x16x2"},
		{hfquant.AWQ, hfquant.Scheme{Bits: 4, Group: 128, Scales: f16, Zeros: integer}, nil, "", "lowbit 8x16x2"},
		{hfquant.AWQ, hfquant.Scheme{Bits: 4, Group: 64, Scales: f16, Zeros: integer}, []quantizer.LayoutRequest{kleidiai}, "", "qai4c32p 4x16x2"},
		{hfquant.AWQ, hfquant.Scheme{Bits: 4, Group: 32, Scales: f16}, []quantizer.LayoutRequest{kleidiai}, "", "qsi4c32p-f16 4x16x2"},
		{hfquant.MLX, hfquant.Scheme{Bits: 4, Group: 64, Scales: bf16}, nil, "", "lowbit=qsi4c32p 8x16x2"},
		{hfquant.MLX, hfquant.Scheme{Bits: 6, Group: 64, Scales: f16, Zeros: integer}, nil, "", "lowbit 8x16x2"},
		{hfquant.MLX, hfquant.Scheme{Bits: 4, Group: 64, Scales: bf16, Zeros: offsets}, nil, "", "qai4c32p 4x16x2"},
		{hfquant.MLX, hfquant.Scheme{Bits: 4, Group: 32, Scales: f16, Zeros: offsets}, []quantizer.LayoutRequest{kleidiai}, "", "qai4c32p 4x16x2"},
	} {
		t.Run(fmt.Sprintf("%s %s", c.format, c.scheme), func(t *testing.T) {
			if i%3 > 0 { // a third has cases of every format
				testshared.SlowEmulated(t, "codes are taken over by the same code natively")
			}
			dir := t.TempDir()
			weights := testquant.Write(t, source, dir, c.format, func(name string, shape []int64) *hfquant.Scheme {
				if strings.HasSuffix(name, "0.self_attn.q_proj.weight") || strings.HasSuffix(name, "0.mlp.down_proj.weight") {
					return &c.scheme
				}
				return nil
			})
			opts := RepackOptions{Layouts: c.layouts}
			if c.targets != "" {
				var err error
				if opts.Targets, err = quantizer.ParseTargets(c.targets); err != nil {
					t.Fatal(err)
				}
			}
			f, p := importDir(t, dir, opts)
			for _, l := range p.Tensors {
				want := ""
				if weights[l.Name] != nil {
					want = c.want
				}
				if got := strings.Join(l.Layouts, ","); got != want {
					t.Errorf("tensor %q has layout %q, want %q (%s)", l.Name, got, want, l.Reason)
				}
			}
			checkValues(t, f, source, weights)
			config, err := f.Asset("config.json")
			if err != nil || strings.Contains(string(config), "quant") {
				t.Errorf("config.json: %s, %v", config, err)
			}
			tokenizer, err := os.ReadFile(filepath.Join(source, "tokenizer.json"))
			if err != nil {
				t.Fatal(err)
			}
			if asset, err := f.Asset("tokenizer.json"); err != nil || string(asset) != string(tokenizer) {
				t.Errorf("tokenizer.json differs: %v", err)
			}
			origin, err := f.Asset(gqf.ProvenanceName)
			if err != nil || !strings.Contains(string(origin), fmt.Sprintf("%q", c.format.Library())) || !strings.Contains(string(origin), `"header_sha256"`) {
				t.Errorf("provenance: %s, %v", origin, err)
			}
		})
	}
}

// patch overwrites bytes of a tensor of a checkpoint that has one file.
func patch(t *testing.T, dir, tensor string, off int64, b []byte) {
	t.Helper()
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	info, ok := ck.Lookup(tensor)
	if !ok {
		t.Fatalf("no tensor %q", tensor)
	}
	f, err := os.OpenFile(filepath.Join(dir, ck.Files()[0].Name), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, info.Offset+off); err != nil {
		t.Fatal(err)
	}
}

// zero sets a tensor to zeros.
func zero(t *testing.T, dir, tensor string) {
	t.Helper()
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	info, _ := ck.Lookup(tensor)
	patch(t, dir, tensor, 0, make([]byte, info.Size))
}

// TestImportUnfit: what no layout holds exactly is refused with its place, and stored in float32 if
// the job says so. What is no number is always refused.
func TestImportUnfit(t *testing.T) {
	testshared.SlowEmulated(t, "refusals are the same natively")
	const weight = "model.layers.0.self_attn.q_proj.weight"
	source := t.TempDir()
	testmodels.Find(t, "llama-bias-tied").Write(t, source)
	for _, c := range []struct {
		name    string
		format  hfquant.Format
		scheme  hfquant.Scheme
		tensor  string // whose bytes at off are replaced; "": none
		off     int64
		bytes   []byte
		layouts []quantizer.LayoutRequest
		want    string
		refused bool // with Dequantize too
	}{
		{"zero scale", hfquant.PackQuantized, hfquant.Scheme{Bits: 4, Group: 64, Scales: packing.BF16}, "weight_scale", 2 * (4*3 + 1), []byte{0, 0}, nil,
			`model.safetensors: tensor "` + weight + `" (4 bits, group 64, BF16 scales): row 3, group 1 has the scale 0, outside the range of bf16 scales here (1.1754944e-38 to 3.3895314e+38); --dequantize stores`, false},
		{"subnormal scale", hfquant.TorchAO, hfquant.Scheme{Bits: 4, Scales: packing.F32}, "_weight_scale", 4, []byte{1, 0, 0, 0}, nil,
			`row 1, group 0 has the scale 1e-45, outside the range of f32 scales`, false},
		{"subnormal half", hfquant.GPTQ, hfquant.Scheme{Bits: 4, Group: 32, Scales: packing.F16}, "scales", 0, []byte{1, 0}, nil, "", false},
		{"negative half with zero points", hfquant.GPTQ, hfquant.Scheme{Bits: 4, Group: 32, Scales: packing.F16, Zeros: hfquant.IntZeros}, "scales", 0, []byte{1, 0xa4}, nil, "", false},
		{"zero half", hfquant.GPTQ, hfquant.Scheme{Bits: 4, Group: 32, Scales: packing.F16}, "scales", 0, []byte{0, 0}, nil, "", false},
		{"NaN", hfquant.PackQuantized, hfquant.Scheme{Bits: 4, Group: 64, Scales: packing.BF16}, "weight_scale", 0, []byte{0xc0, 0x7f}, nil, `row 0`, true},
		{"infinite", hfquant.GPTQ, hfquant.Scheme{Bits: 4, Group: 32, Scales: packing.F16}, "scales", 0, []byte{0, 0x7c}, nil, `row 0`, true},
		{"offsets in lowbit", hfquant.MLX, hfquant.Scheme{Bits: 4, Group: 64, Scales: packing.BF16, Zeros: hfquant.Offsets}, "", 0, nil, []quantizer.LayoutRequest{{}},
			`its offsets are no multiples of the scales, which layout lowbit 8x16x2 cannot hold: only qai4c32p of --layout kleidiai can; --dequantize`, false},
		{"offsets of 8 bits", hfquant.MLX, hfquant.Scheme{Bits: 8, Group: 64, Scales: packing.BF16, Zeros: hfquant.Offsets}, "", 0, nil, nil,
			`only qai4c32p of --layout kleidiai can (`, false},
		{"small groups", hfquant.IntQuantized, hfquant.Scheme{Bits: 4, Group: 8, Scales: packing.BF16}, "", 0, nil, nil,
			`groups of 8 weights: a .gqf file has groups of a multiple of 16, or per channel`, false},
		{"rounding zero points", hfquant.TorchAO, hfquant.Scheme{Bits: 4, Group: 32, Scales: packing.F32, Zeros: hfquant.IntZeros}, "", 0, nil, []quantizer.LayoutRequest{{Family: quantizer.FamilyKleidiAI}},
			`layout qai4c32p 4x16x2 holds zero points times scales, which round for scales of more than 16 significant bits: use layout lowbit`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			weights := testquant.Write(t, source, dir, c.format, func(name string, _ []int64) *hfquant.Scheme {
				if name != weight {
					return nil
				}
				return &c.scheme
			})
			if c.tensor != "" {
				patch(t, dir, strings.TrimSuffix(weight, "weight")+c.tensor, c.off, c.bytes)
				delete(weights, weight)
			}
			opts := RepackOptions{Layouts: c.layouts}
			_, err := tryDir(t, dir, opts)
			switch {
			case c.want == "" && err == nil:
				f, _ := importDir(t, dir, opts)
				writeVerified(t, func() (*write.Job, error) {
					return NewRepack(f, "model.gqf", RepackOptions{Layouts: []quantizer.LayoutRequest{{Family: quantizer.FamilyCodes}}})
				})
				return
			case err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "layers.0.self_attn.q_proj"):
				t.Fatalf("%v\nwant %s", err, c.want)
			}
			opts.Dequantize = true
			if _, err := tryDir(t, dir, opts); c.refused {
				if err == nil {
					t.Error("imported with Dequantize")
				}
				return
			}
			f, p := importDir(t, dir, opts)
			if got := findRow(p, weight); got.Action != plan.ActionUnquantized || !strings.HasPrefix(got.Reason, "dequantized from "+c.scheme.String()) {
				t.Errorf("%+v", got)
			}
			if c.tensor == "" {
				checkValues(t, f, source, weights)
			}
		})
	}
}

func findRow(p *write.Job, name string) *plan.Tensor {
	for _, l := range p.Tensors {
		if l.Name == name {
			return l
		}
	}
	return &plan.Tensor{}
}

// TestImportTied: a quantized embedding is the lm_head too if the checkpoint has none, and a
// lm_head with the same codes is stored once.
func TestImportTied(t *testing.T) {
	scheme := hfquant.Scheme{Bits: 4, Group: 64, Scales: packing.BF16, Zeros: hfquant.Offsets}
	source, dir := t.TempDir(), t.TempDir()
	testmodels.Find(t, "llama-bias-tied").Write(t, source)
	weights := testquant.Write(t, source, dir, hfquant.MLX, func(name string, shape []int64) *hfquant.Scheme {
		if len(shape) != 2 {
			return nil
		}
		return &scheme
	})
	f, p := importDir(t, dir, RepackOptions{})
	if l := findRow(p, "lm_head.weight"); l.Action != plan.ActionShare || l.SharedWith != "model.embed_tokens.weight" {
		t.Errorf("lm_head: %+v", l)
	}
	checkValues(t, f, source, weights)
	tensor, _ := f.Lookup("lm_head.weight")
	if tensor.Name != "model.embed_tokens.weight" {
		t.Errorf("lm_head.weight is a name of %q", tensor.Name)
	}
	if p, _ := tensor.Payload(0, 0, gqf.KindWeights); p.Header.Layout != packing.LayoutQAI4C32P {
		t.Errorf("the embedding has layout %s", p.Header.Layout)
	}
}

// TestImportBiasOfZeros: a bias of zeros beside a quantized weight, as AutoGPTQ stored for every
// layer, is left out if the model has none there.
func TestImportBiasOfZeros(t *testing.T) {
	const q, k, o = "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj", "model.layers.0.self_attn.o_proj"
	for _, bias := range []bool{false, true} {
		source, dir := t.TempDir(), t.TempDir()
		testmodels.Find(t, "llama-bias-tied").Write(t, source)
		testquant.Write(t, source, dir, hfquant.GPTQ, func(name string, _ []int64) *hfquant.Scheme {
			if name == q+".weight" || name == k+".weight" {
				return &hfquant.Scheme{Bits: 4, Group: 32, Scales: packing.F16}
			}
			return nil
		})
		zero(t, dir, q+".bias")
		zero(t, dir, o+".bias") // its weight is not quantized
		path := filepath.Join(dir, "config.json")
		config, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bias {
			without := regexp.MustCompile(`"attention_bias": *true`).ReplaceAllString(string(config), `"attention_bias": false`)
			if without == string(config) {
				t.Fatalf("%s has no attention_bias", config)
			}
			config = []byte(without)
		}
		if err := os.WriteFile(path, config, 0o666); err != nil {
			t.Fatal(err)
		}
		f, p := importDir(t, dir, RepackOptions{})
		for _, name := range []string{q, k, o} {
			if _, ok := f.Lookup(name + ".bias"); ok != (bias || name != q) {
				t.Errorf("attention_bias %v: tensor %s.bias is there: %v", bias, name, ok)
			}
		}
		if got := strings.Contains(strings.Join(p.Warnings, "\n"), "biases of zeros: 1, left out"); got == bias {
			t.Errorf("attention_bias %v: warnings %q", bias, p.Warnings)
		}
	}
}
