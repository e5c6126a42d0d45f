package gq

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// TestImportedLogits writes every architecture as an unquantized .gguf file: the model that is read
// back gives the logits of the checkpoint.
func TestImportedLogits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, v := range testmodels.ForLlamaCpp(t) {
		t.Run(v.Name, func(t *testing.T) {
			dir := t.TempDir()
			v.Write(t, dir)
			out := filepath.Join(dir, "model.gguf")
			_, err := Quantize(ctx, dir, out, QuantizeOptions{
				Rules: []quantizer.Rule{{Match: "*", Skip: true}}, Recipe: quantizer.Recipe{Pre: v.Tokenizer.Pre()},
			})
			if err != nil {
				t.Fatal(err)
			}
			want := logitsOf(t, func() (*forward.Model, error) { return forward.OpenCheckpoint(dir, forward.Options{Threads: 1}) })
			err = withModel(ctx, out, 1, stages{}, func(m readable) error {
				got := logitsOf(t, func() (*forward.Model, error) { return forward.OpenGQF(m.view, forward.Options{Threads: 1}) })
				largest, difference := 0.0, 0.0
				for i := range want {
					largest = max(largest, math.Abs(float64(want[i])))
					difference = max(difference, math.Abs(float64(got[i]-want[i])))
				}
				if !(difference <= 1e-5*largest) {
					t.Errorf("logits differ by %v of %v", difference, largest)
				}
				t.Logf("logits differ by %.2g of %.2g", difference, largest)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if strings.Contains(e.Name(), ".gqf") {
					t.Errorf("%s was written", e.Name())
				}
			}
		})
	}
}

// TestViewedLogits rounds every architecture to a .gguf file and runs it in place. With float32
// activations the logits are those of a reader that knows llama.cpp's names and orders by itself;
// with int8 activations they are near, though a router may choose other experts, and sparse gates
// other elements. The dequantized checkpoint has the same logits, too.
func TestViewedLogits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, v := range testmodels.ForLlamaCpp(t) {
		t.Run(v.Name, func(t *testing.T) {
			dir := t.TempDir()
			v.Write(t, dir)
			out := filepath.Join(dir, "model.gguf")
			var rules []quantizer.Rule
			if v.Name == "falcon-h1-norm-late" { // a tied embedding, with a factor for each use
				rules = []quantizer.Rule{{Match: "model.embed_tokens.weight", Skip: true}}
			}
			if _, err := Quantize(ctx, dir, out, QuantizeOptions{Rules: rules, Recipe: quantizer.Recipe{Bits: 8, Algorithm: gqf.AlgorithmRTN, Pre: v.Tokenizer.Pre()}}); err != nil {
				t.Fatal(err)
			}
			f, err := gguf.Open(out)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			want := logitsOf(t, func() (*forward.Model, error) { return forward.OpenGGUF(f, forward.Options{Threads: 1}) })
			compare := func(what string, got []float32, bound float64) {
				largest, difference := 0.0, 0.0
				for i := range want {
					largest = max(largest, math.Abs(float64(want[i])))
					difference = max(difference, math.Abs(float64(got[i]-want[i])))
				}
				if !(difference <= bound*largest) {
					t.Errorf("%s: logits differ by %v of %v", what, difference, largest)
				}
			}
			err = withModel(ctx, out, 1, stages{}, func(m readable) error {
				for n := range m.view.AllNames() {
					tensor, _ := m.view.Lookup(n.Name)
					p, _ := tensor.Payload(0, 0, gqf.KindWeights)
					if strings.HasSuffix(tensor.Name, ".out_proj.weight") && p.Header.Layout != packing.LayoutBlocks {
						t.Errorf("tensor %q is not multiplied in place", tensor.Name)
					}
				}
				for a, bound := range map[forward.Activations]float64{forward.Float32: 1e-5, forward.Int8: 0.5} {
					got := logitsOf(t, func() (*forward.Model, error) {
						m, err := forward.OpenGQF(m.view, forward.Options{Threads: 1, Activations: a, LlamaCpp: true})
						if err == nil {
							if ran, executed := m.Executed(); ran != a {
								t.Errorf("%s, want %s", executed, a)
							}
						}
						return m, err
					})
					compare(a.String()+" activations", got, bound)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			dir = filepath.Join(dir, "dequantized")
			if _, err := Dequantize(ctx, out, dir, DequantizeOptions{Dtype: packing.F32, Threads: 1}); err != nil {
				t.Fatal(err)
			}
			if json, err := os.ReadFile(filepath.Join(dir, "tokenizer.json")); err != nil || !bytes.Contains(json, []byte(`"vocab":{`)) {
				t.Errorf("the dequantized tokenizer.json has no vocabulary: %v", err)
			}
			compare("dequantized", logitsOf(t, func() (*forward.Model, error) {
				return forward.OpenCheckpoint(dir, forward.Options{Threads: 1, LlamaCpp: true})
			}), 1e-5)
		})
	}
}

// TestMultiplied quantizes a model with factors in config.json. A .gguf file multiplies its weights
// by them. The blocks have to equal those of a file made from a .gguf file of multiplied weights,
// and calibration has to choose codes of multiplied weights.
func TestMultiplied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := testmodels.Find(t, "falcon-h1")
	v.Write(t, dir)
	write := func(name, src string, o QuantizeOptions) *gguf.File {
		t.Helper()
		o.Recipe.Pre = v.Tokenizer.Pre()
		out := filepath.Join(dir, name+".gguf")
		if _, err := Quantize(t.Context(), src, out, o); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	logits := func(open func() (*forward.Model, error)) []float32 {
		t.Helper()
		m, err := open()
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		tokens := make([]int32, 128)
		for i := range tokens {
			tokens[i] = int32(i * (i + 101) % m.VocabSize())
		}
		out := make([]float32, len(tokens)*m.VocabSize())
		if err := m.NewSession(len(tokens)).Forward(tokens, out, true); err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := logits(func() (*forward.Model, error) { return forward.OpenCheckpoint(dir, forward.Options{}) })
	off := func(f *gguf.File) (sum float64) {
		for i, got := range logits(func() (*forward.Model, error) { return forward.OpenGGUF(f, forward.Options{}) }) {
			sum += float64(got-want[i]) * float64(got-want[i])
		}
		return sum
	}
	write("unquantized", dir, QuantizeOptions{Rules: []quantizer.Rule{{Match: "*", Skip: true}}})
	var one *gguf.File
	for _, mapping := range []gqf.Mapping{gqf.MappingKQuant, gqf.MappingFullRange} {
		recipe := quantizer.Recipe{Bits: 4, Mapping: mapping}
		one = write("one", dir, QuantizeOptions{Recipe: recipe})
		two := write("two", filepath.Join(dir, "unquantized.gguf"), QuantizeOptions{Recipe: recipe})
		if len(one.Tensors) != len(two.Tensors) {
			t.Errorf("%d tensors in one step, %d in two", len(one.Tensors), len(two.Tensors))
		}
		for _, tensor := range two.Tensors {
			own := one.Tensor(tensor.Name)
			if own == nil || own.Type != tensor.Type || !bytes.Equal(one.Data(own), two.Data(tensor)) {
				t.Errorf("%s: tensor %q differs in one step (%v) and in two (%v)", mapping, tensor.Name, own, tensor.Type)
			}
		}
	}
	recipe := quantizer.Recipe{Bits: 4, Algorithm: gqf.AlgorithmGPTQ, Calibrate: quantizer.Self, CalibrateTokens: 2048}
	calibrated := write("calibrated", dir, QuantizeOptions{Recipe: recipe})
	t.Logf("squared errors of logits: %.4g by search, %.4g by gptq", off(one), off(calibrated))
	if !(off(calibrated) < 0.97*off(one)) {
		t.Errorf("squared errors of logits: %.4g by search, %.4g by gptq", off(one), off(calibrated))
	}
}

// TestViewedDamage changes bytes of a .gguf file, of its metadata and of its blocks: opening the
// model or running it fails, or gives any logits, and never panics.
func TestViewedDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := testmodels.Find(t, "llama-bias-tied")
	v.Write(t, dir)
	out := filepath.Join(dir, "model.gguf")
	if _, err := Quantize(t.Context(), dir, out, QuantizeOptions{Recipe: quantizer.Recipe{Bits: 4, Pre: v.Tokenizer.Pre()}}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 1))
	opened := 0
	for i := range 150 {
		damaged := slices.Clone(whole)
		at, end := 0, len(damaged)
		if i%3 == 0 { // metadata and tensors' descriptions
			end = min(end, 3000)
		}
		for range 1 + r.IntN(3) {
			at = r.IntN(end)
			damaged[at] ^= 1 << r.IntN(8)
		}
		path := filepath.Join(dir, "damaged.gguf")
		if err := os.WriteFile(path, damaged, 0o666); err != nil {
			t.Fatal(err)
		}
		_ = withModel(t.Context(), path, 1, stages{}, func(m readable) error {
			model, err := forward.OpenGQF(m.view, forward.Options{Threads: 1})
			if err != nil {
				return err
			}
			defer model.Close()
			opened++
			logits := make([]float32, 3*model.VocabSize())
			return model.NewSession(3).Forward([]int32{1, 2, 3}, logits, true)
		})
	}
	if opened < 20 {
		t.Errorf("%d of 150 damaged files were opened: the test covers little", opened)
	}
}

// logits are the logits of a model after a few tokens, fewer than any sliding window has.
func logitsOf(t *testing.T, open func() (*forward.Model, error)) []float32 {
	t.Helper()
	m, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tokens := []int32{1, 5, 9, 40, 7, 3}
	out := make([]float32, len(tokens)*m.VocabSize())
	if err := m.NewSession(len(tokens)).Forward(tokens, out, true); err != nil {
		t.Fatal(err)
	}
	return out
}

// A killed job of a temporary leaves a temporary that the next job for the same target removes.
func TestTemporaryPathOfTemporary(t *testing.T) {
	dir := t.TempDir()
	f, err := atomicfile.Create(filepath.Join(dir, "model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abort()
	for _, path := range []string{f.Temp(), filepath.Join(dir, "model.gguf")} {
		if got, want := temporaryPath(path, 1), filepath.Join(dir, "model.gguf.gqf"); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestRepackTied repacks what llama-quantize makes of a tied model with Q4_0 and with Q3_K: the
// embedding, which is the lm_head, has type Q6_K. Dequantized weights must have the same bits, and
// the model must run.
func TestRepackTied(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, bits := range []int{4, 3} {
		dir := t.TempDir()
		path := func(name string) string { return filepath.Join(dir, name) }
		v := testmodels.Find(t, "llama-bias-tied")
		v.Write(t, path("src"))
		if _, err := Quantize(ctx, path("src"), path("x.gguf"), QuantizeOptions{Recipe: quantizer.Recipe{Bits: bits, EmbeddingBits: 6, Pre: v.Tokenizer.Pre()}}); err != nil {
			t.Fatal(err)
		}
		if _, err := Repack(ctx, path("x.gguf"), path("x.gqf"), RepackOptions{}); err != nil {
			t.Fatal(err)
		}
		if r, err := Verify(ctx, path("x.gqf"), VerifyOptions{}); err != nil || !r.OK() {
			t.Fatalf("%d bits: %+v, %v", bits, r, err)
		}
		f, err := gguf.Open(path("x.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		stored := f.Tensor("token_embd.weight")
		want := make([]float32, stored.Elements())
		if err := stored.Type.Decode(want, f.Data(stored)); err != nil || stored.Type != gguf.Q6_K {
			t.Fatal(stored.Type, err)
		}
		g, err := gqf.Open(path("x.gqf"), gqf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		table, ok := g.Lookup("lm_head.weight")
		rows, err := table.Rows(0, 0)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		got := make([]float32, len(want))
		for i := range table.Shape[0] {
			rows.Dequantize(got[i*table.Shape[1]:][:table.Shape[1]], int(i))
		}
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("%d bits: weight %d of the embedding is %v, want %v", bits, i, got[i], want[i])
			}
		}
		if _, err := Dequantize(ctx, path("x.gguf"), path("f32"), DequantizeOptions{Dtype: packing.F32}); err != nil {
			t.Fatal(err)
		}
		float := logitsOf(t, func() (*forward.Model, error) {
			return forward.OpenCheckpoint(path("f32"), forward.Options{Threads: 1})
		})
		for activations, limit := range map[forward.Activations]float64{forward.Float32: 1e-5, forward.Int8: 0.05} {
			logits := logitsOf(t, func() (*forward.Model, error) {
				return forward.OpenGQF(g, forward.Options{Threads: 1, Activations: activations})
			})
			largest, difference := 0.0, 0.0
			for i, v := range float {
				largest, difference = max(largest, math.Abs(float64(v))), max(difference, math.Abs(float64(v-logits[i])))
			}
			if !(difference <= limit*largest) {
				t.Errorf("%d bits, %s activations: logits differ by %v of %v", bits, activations, difference, largest)
			}
		}
	}
}

// TestGGUFBytes holds files of one type to the bytes of llama-quantize (llama.cpp 0.5.0). Its input
// was a .gguf file of gq with unquantized weights:
//
//	gq quantize testdata/books1.3M-bf16 -o b.gguf --rule '*=skip' --allow-unquantized
//	llama-quantize b.gguf q.gguf Q4_0
//	llama-imatrix -m b.gguf -f head.txt -c 256 -o b.imatrix.gguf
//	llama-quantize --imatrix b.imatrix.gguf b.gguf i.gguf Q4_0
func TestGGUFBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		quality quantizer.Quality
		most    int64
	}{{quantizer.QualityFast, 836544}, {quantizer.QualityGood, 836768}} {
		out := filepath.Join(t.TempDir(), "q.gguf")
		r := quantizer.Recipe{Bits: 4, Quality: c.quality}
		if c.quality == quantizer.QualityGood {
			r.CalibrateTokens = 1024
		}
		if _, err := Quantize(context.Background(), filepath.Join(testshared.Root(t), "testdata/books1.3M-bf16"), out, QuantizeOptions{Recipe: r}); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(out)
		if err != nil {
			t.Fatal(err)
		}
		if st.Size() > c.most {
			t.Errorf("%v: %d bytes, llama-quantize writes %d", c.quality, st.Size(), c.most)
		}
	}
}
