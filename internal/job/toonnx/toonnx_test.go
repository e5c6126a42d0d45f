package toonnx_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/toonnx"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/onnx"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// planned is the job of quantizing a checkpoint by the settings of a recipe. to is nil for a .gqf
// file with the same codes.
func planned(t *testing.T, src, settings string, to *toonnx.Options) (*write.Job, error) {
	t.Helper()
	if !strings.Contains(settings, "algorithm") {
		settings += ", algorithm: rtn" // fast
	}
	r, err := quantizer.ParseRecipe("recipe", []byte("{target: onnx, "+settings+"}"))
	if err != nil {
		t.Fatal(err)
	}
	ck, err := safetensors.Open(src, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	config, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := conversion.NewPlan(ck, config, conversion.Options{Recipe: r, Threads: 2, ONNX: to})
	if err != nil {
		return nil, err
	}
	return p.Job, nil
}

// quantized writes the directory and the .gqf file, and returns their paths.
func quantized(t *testing.T, src, settings string, to toonnx.Options) (dir, file string) {
	t.Helper()
	base := t.TempDir()
	dir, file = filepath.Join(base, "onnx"), filepath.Join(base, "model.gqf")
	for path, o := range map[string]*toonnx.Options{dir: &to, file: nil} {
		j, err := planned(t, src, settings, o)
		if err != nil {
			t.Fatal(err)
		}
		r, err := j.Write(context.Background(), path)
		if err != nil {
			t.Fatal(err)
		}
		if r.OutputBytes != j.OutputBytes || path == dir && size(t, dir) != j.OutputBytes {
			t.Errorf("%s has %d bytes, the plan said %d", path, r.OutputBytes, j.OutputBytes)
		}
	}
	return dir, file
}

func size(t *testing.T, dir string) (n int64) {
	for _, f := range filesOf(t, dir) {
		n += int64(len(f.data))
	}
	return n
}

type file struct {
	name string
	data []byte
}

func filesOf(t *testing.T, dir string) (list []file) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		list = append(list, file{filepath.ToSlash(name), data})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// compare wants the graph's logits to be the .gqf file's with float32 activations.
func compare(t *testing.T, dir, path string, ids []int32) {
	t.Helper()
	f, err := gqf.Open(path, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := forward.OpenGQF(f, forward.Options{Activations: forward.Float32, Log: func(kernels.Choice) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	want := make([]float32, len(ids)*m.VocabSize())
	if err := m.NewSession(len(ids)).Forward(ids, want, true); err != nil {
		t.Fatal(err)
	}
	got := openModel(t, dir).run(ids)
	if len(got) != len(want) {
		t.Fatalf("%d logits, not %d", len(got), len(want))
	}
	worst, largest := 0.0, 0.0
	for i, w := range want {
		if d := math.Abs(float64(w) - got[i]); !(d <= worst) {
			worst = d
		}
		largest = max(largest, math.Abs(float64(w)))
	}
	if !(worst <= 1e-5*largest) {
		t.Errorf("logits differ by %.2g of the largest", worst/largest)
	}
}

// refused are the generated models that have no graph, with what the error names.
var refused = map[string]string{
	"arcee": "another activation", "bamba": "layers with a state", "dots1": "mixtures of experts", "nemotron": "another activation", "deepseek-v2": "latents", "deepseek-v2-lite": "latents", "deepseek-v3": "latents", "ernie4-5-moe": "mixtures of experts",
	"falcon-h1": "layers with a state", "falcon-h1-norm": "layers with a state", "gemma3n": "inputs of single layers", "gemma4": "inputs of single layers",
	"gemma4-dense": "norms without gains", "gemma4-moe": "norms without gains", "glm4-moe": "mixtures of experts", "glm4-moe-lite": "latents",
	"gpt-oss": "attention sinks", "granitemoe": "mixtures of experts", "granitemoehybrid": "layers with a state", "granitemoehybrid-dense": "layers with a state",
	"hunyuan-moe": "mixtures of experts", "kimi-linear": "latents", "lfm2": "layers with a state", "lfm2-moe": "layers with a state", "llama4": "norms without gains",
	"minicpm3": "latents", "minimax-m2": "mixtures of experts", "nemotron-h": "layers with a state", "nemotron-h-latent": "layers with a state",
	"olmoe": "mixtures of experts", "phimoe": "mixtures of experts", "qwen2-moe": "mixtures of experts", "qwen3-5": "gates of attention",
	"qwen3-5-moe": "gates of attention", "qwen3-next": "gates of attention",
}

// TestArchitectures interprets the graphs of all generated models, whose heads have several sizes.
func TestArchitectures(t *testing.T) {
	for _, g := range testmodels.AllGenerated(t) {
		t.Run(g.Name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), g.Name)
			g.Write(t, dir)
			if what := refused[g.Name]; what != "" {
				if _, err := planned(t, dir, "bits: 4", &toonnx.Options{}); err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "take another target") {
					t.Errorf("the plan's error is %v, not of %s", err, what)
				}
				return
			}
			ids := g.Sequences[0].Tokens
			out, path := quantized(t, dir, "bits: 4, rules: [{match: '*.o_proj', bits: 8, group: 16}]", toonnx.Options{})
			compare(t, out, path, ids[:min(len(ids), 24)])
		})
	}
}

// TestSchemes puts widths, groups, zero points and unquantized weights into Llamas with and without
// biases, and into a Phi-3 with fused layers.
func TestSchemes(t *testing.T) {
	testshared.SlowEmulated(t, "TestArchitectures runs there")
	llama := filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16")
	biased := filepath.Join(t.TempDir(), "biased")
	testmodels.Find(t, "llama-bias-tied").Write(t, biased)
	fused := filepath.Join(t.TempDir(), "fused")
	testmodels.Find(t, "phi4-mini").Write(t, fused)
	random := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, 12)
	for i := range ids {
		ids[i] = random.Int32N(testmodels.Vocab)
	}
	for _, c := range []struct {
		name, src, settings string
		block               int64 // of model.layers.0.mlp.down_proj
	}{
		{"2 bits", llama, "bits: 2", 32},
		{"8 bits per channel", llama, "bits: 8, group: channel", 128},
		{"channels of no whole blocks", fused, "bits: 4, group: channel", 256},
		{"zero points", biased, "bits: 4, mapping: asymmetric, embedding-bits: 2", 32},
		{"2-bit zero points", biased, "bits: 2, mapping: asymmetric, group: 64, embedding-bits: 4", 64},
		{"8-bit zero points", fused, "bits: 8, mapping: asymmetric, group: 256", 256},
		{"groups of 96", llama, "bits: 4, group: 96", 32},
		{"groups of 48", biased, "bits: 4, group: 48", 16},
		{"groups of 512", biased, "bits: 4, group: 512", 256},
		{"float32 scales", llama, "bits: 8, scale-dtype: f32", 32},
		{"unquantized embedding and layer", biased, "bits: 4, rules: [{match: '*embed_tokens', skip: true}, {match: '*.q_proj', skip: true}, {match: '*.up_proj', skip: true}]", 32},
		{"untied", llama, "bits: 4, rules: [{match: lm_head, bits: 4}, {match: model.embed_tokens, bits: 8}]", 32},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, path := quantized(t, c.src, c.settings, toonnx.Options{})
			compare(t, dir, path, ids)
			for _, n := range openModel(t, dir).model.Graph.Nodes {
				if n.Op == "MatMulNBits" && n.Name == "model.layers.0.mlp.down_proj/MatMulNBits" && n.Integer("block_size", 0) != c.block {
					t.Errorf("blocks of %d, not %d", n.Integer("block_size", 0), c.block)
				}
			}
			f, err := gqf.Open(path, gqf.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			j, err := conversion.NewExport(f, path, conversion.ExportOptions{ONNX: &toonnx.Options{}})
			if err != nil {
				t.Fatal(err)
			}
			exported := filepath.Join(t.TempDir(), "exported")
			if _, err := j.Write(context.Background(), exported); err != nil {
				t.Fatal(err)
			}
			if a, b := filesOf(t, dir), filesOf(t, exported); !slices.EqualFunc(a, b, func(a, b file) bool { return a.name == b.name && slices.Equal(a.data, b.data) }) {
				t.Error("the export has other bytes")
			}
		})
	}
}

// TestPlanErrors has schemes that the operators do not hold.
func TestPlanErrors(t *testing.T) {
	src := filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16")
	for settings, want := range map[string]string{
		"bits: 1":                     "onnx has 2, 4 and 8 bits, and 1 would take the bytes of 2: use 2 bits",
		"bits: 3":                     "3 would take the bytes of 4: use 4 bits",
		"bits: 5":                     "5 would take the bytes of 8: use 8 bits",
		"bits: 6":                     "use 8 bits",
		"bits: 7":                     "use 8 bits",
		"bits: 4, scale-dtype: f16":   "use bf16 scales",
		"bits: 2, mapping: half-step": "onnx has no codes of mapping half-step: use full-range or asymmetric",
		"bits: 4, embedding-bits: 6":  "6 would take the bytes of 8",
		"bits: 4, rules: [{match: '*.q_proj', bits: 3}]":        "3 would take the bytes of 4",
		"bits: 4, rules: [{match: '*.q_proj', layout: lowbit}]": "states a layout",
	} {
		if _, err := planned(t, src, settings, &toonnx.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %q", settings, err, want)
		}
	}
	_, err := planned(t, src, "bits: 4", &toonnx.Options{Split: 4096})
	if err != nil {
		t.Error(err)
	}
	if _, err = planned(t, src, "bits: 8, group: 16", &toonnx.Options{Split: 1}); err == nil || !strings.Contains(err.Error(), "transformers.js reads up to 100") {
		t.Errorf("--split 1: %v", err)
	}
}

// TestExportErrors has .gqf files with codes that the operators do not hold.
func TestExportErrors(t *testing.T) {
	testshared.SlowEmulated(t, "refusals are the same natively")
	src := filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16")
	for settings, want := range map[string]string{
		"bits: 3":                     "use 4 bits: quantize the checkpoint again with --target onnx",
		"bits: 2, mapping: half-step": "no codes of mapping half-step",
		"bits: 4, mapping: asymmetric, algorithm: search": "fractional zero points, onnx has none",
		"bits: 4, scale-dtype: f32":                       "use bf16 scales",
	} {
		r, err := quantizer.ParseRecipe("recipe", []byte("{"+settings+"}"))
		if err != nil {
			t.Fatal(err)
		}
		ck, err := safetensors.Open(src, safetensors.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer ck.Close()
		config, err := os.ReadFile(filepath.Join(src, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := conversion.NewPlan(ck, config, conversion.Options{Recipe: r})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "model.gqf")
		if _, err := p.Write(context.Background(), path); err != nil {
			t.Fatal(err)
		}
		f, err := gqf.Open(path, gqf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := conversion.NewExport(f, path, conversion.ExportOptions{ONNX: &toonnx.Options{}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %q", settings, err, want)
		}
	}
}

// TestPrepacked wants the hashes that ONNX Runtime 1.30 for arm64 stored for the same codes, in
// emulation of a CPU with i8mm and of a Cortex-A76 (tools/judges/onnx_arm64.mjs): its packed bytes
// are these files'.
func TestPrepacked(t *testing.T) {
	testshared.SlowEmulated(t, "TestArchitectures runs there")
	raw, err := os.ReadFile(filepath.Join("testdata", "prepacked.json"))
	if err != nil {
		t.Fatal(err)
	}
	var hashes map[string]map[string]string
	if err := json.Unmarshal(raw, &hashes); err != nil {
		t.Fatal(err)
	}
	for tile, want := range hashes {
		parsed, err := packing.ParseTile(tile)
		if err != nil {
			t.Fatal(err)
		}
		dir, path := quantized(t, filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16"), "bits: 4, algorithm: search", toonnx.Options{Tile: parsed, Split: 1 << 18})
		compare(t, dir, path, []int32{1, 300, 2, 5})
		in, found := openModel(t, dir), 0
		for _, x := range in.model.Graph.Initializers {
			for _, p := range x.External {
				if value, ok := strings.CutPrefix(p.Value, "MatMulNBits+"); ok {
					found++
					if hash, _, _ := strings.Cut(value, "|"); p.Key != "prepacked_1" || hash != want[x.Name] {
						t.Errorf("%s has the hash %s, not %s", x.Name, hash, want[x.Name])
					}
				}
			}
		}
		if len(want) != 42 || found != len(want) {
			t.Errorf("%d tensors are packed, not %d", found, len(want))
		}
		config, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		if data, _ := filepath.Glob(filepath.Join(dir, "onnx", "*.onnx_data*")); len(data) < 4 || !strings.Contains(string(config), `"use_external_data_format": `+string(rune('0'+len(data)))) {
			t.Errorf("%d files with weights; config.json: %s", len(data), config)
		}
	}
}

// TestGolden has the hash of a directory.
func TestGolden(t *testing.T) {
	dir, _ := quantized(t, filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16"), "bits: 4, rules: [{match: '*.v_proj', bits: 2}]", toonnx.Options{Tile: packing.Tile{NR: 4, KR: 16, SR: 2}})
	h := sha256.New()
	for _, f := range filesOf(t, dir) {
		h.Write(f.data)
	}
	if got, want := hex.EncodeToString(h.Sum(nil)), goldenHash; got != want {
		t.Errorf("hash %s, not %s", got, want)
	}
}

// TestReadBack changes bytes of a complete directory before it is read back.
func TestReadBack(t *testing.T) {
	src := filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16")
	for name, c := range map[string]struct {
		file   string
		change func(m *onnx.Model, data []byte) []byte
		want   string
	}{
		"cut off":    {"onnx/model_q4.onnx", func(_ *onnx.Model, data []byte) []byte { return data[:len(data)/2] }, "byte "},
		"no weights": {"onnx/model_q4.onnx_data", func(_ *onnx.Model, data []byte) []byte { return data[:5000] }, "do not lie in"},
		"other codes": {"onnx/model_q4.onnx_data", func(_ *onnx.Model, data []byte) []byte {
			clear(data[:4096])
			return data
		}, `row 0 of tensor "model.embed_tokens.weight" has other codes or scales than were written`},
		"another norm": {"onnx/model_q4.onnx_data", func(_ *onnx.Model, data []byte) []byte {
			data[len(data)-1] = 0
			return data
		}, `tensor "model.norm.weight" are not what the source has`},
		"an input that no node makes": {"onnx/model_q4.onnx", func(m *onnx.Model, _ []byte) []byte {
			m.Graph.Nodes = m.Graph.Nodes[1:]
			return m.Encode()
		}, "before a node makes it"},
		"a tensor of another file": {"onnx/model_q4.onnx", func(m *onnx.Model, _ []byte) []byte {
			for i := range m.Graph.Initializers {
				if m.Graph.Initializers[i].External != nil {
					m.Graph.Initializers[i].SetPlace("/etc/passwd", 0)
				}
			}
			return m.Encode()
		}, "expected a file beside the graph"},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := planned(t, src, "bits: 4", &toonnx.Options{})
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "onnx")
			_, err = j.WriteWith(context.Background(), dir, write.Options{Written: func() {
				temps, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), ".onnx.*", "onnx", "*"))
				more, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), ".onnx.*", "onnx", ".*"))
				for _, path := range append(temps, more...) {
					if !strings.Contains(filepath.Base(path), filepath.Base(c.file)+".gq-") {
						continue
					}
					data, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					m, _ := onnx.Decode(data)
					if err := os.WriteFile(path, c.change(m, data), 0o666); err != nil {
						t.Fatal(err)
					}
				}
			}})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "was not written") {
				t.Errorf("%v, not %q", err, c.want)
			}
			if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
}

const goldenHash = "4d961eb2f3e8aa97d06347e97248d44122651c4d056edc01bb168df0eb63bc3e"
