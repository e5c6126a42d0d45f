package fold

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// tinyModels are random models of every architecture that package model runs.
func tinyModels(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../../internal/lm/forward/testdata/torch/*/config.json")
	if err != nil || len(files) < 16 {
		t.Fatalf("%d models, %v", len(files), err)
	}
	var dirs []string
	for _, f := range files {
		dirs = append(dirs, filepath.Dir(f))
	}
	return dirs
}

func tiny(name string) string {
	return filepath.Join("../../../internal/lm/forward/testdata/torch", name)
}

// randomText makes tokens to calibrate a model on.
func randomText(t *testing.T, dir string) *text.Text {
	t.Helper()
	m, err := forward.OpenCheckpoint(dir, forward.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	return &text.Text{Source: "tokens", Sequences: RandomTokens(m.VocabSize(), 32)}
}

func awqOptions() *conversion.Options {
	return &conversion.Options{Recipe: quantizer.Recipe{Bits: 3, Algorithm: gqf.AlgorithmAWQ, Rules: []quantizer.Rule{{Match: `re:.*`, Bits: 3}}}}
}

func makeFolded(t *testing.T, dir string, j Job) (string, *Record) {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "folded")
	r, err := Make(context.Background(), dir, dst, j)
	if err != nil {
		t.Fatal(err)
	}
	return dst, r
}

// TestExact takes every step with every architecture. Make compares the logits.
func TestExact(t *testing.T) {
	testshared.SlowEmulated(t, "TestSameBytes has the bytes")
	jobs := []struct {
		name string
		Job
	}{
		{"rotate", Job{Rotate: true, Seed: 3}},
		{"equalize", Job{Equalize: true}},
		{"awq", Job{AWQ: awqOptions()}},
		{"all", Job{Rotate: true, Equalize: true, AWQ: awqOptions()}},
	}
	for _, dir := range tinyModels(t) {
		name := filepath.Base(dir)
		for _, j := range jobs {
			t.Run(name+"/"+j.name, func(t *testing.T) {
				if j.AWQ != nil {
					j.Text = randomText(t, dir)
				}
				if j.Rotate && strings.HasPrefix(name, "gemma") {
					_, err := Make(context.Background(), dir, filepath.Join(t.TempDir(), "f"), j.Job)
					var refused *arch.UnsupportedError
					if !errors.As(err, &refused) || !strings.Contains(err.Error(), "norms with gains of their own") || !strings.Contains(err.Error(), "--fold equalize") {
						t.Fatalf("%v, want a refusal that says why and what is possible", err)
					}
					return
				}
				_, r := makeFolded(t, dir, j.Job)
				if r.Check.Difference == 0 || r.Check.Tokens < 128 {
					t.Errorf("%+v: the models were not compared, or nothing was folded", r.Check)
				}
				if j.name == "awq" && !reaches(r, "down_proj", "w2", "experts") {
					t.Error("awq found factors for nothing that reads what up_proj gives")
				}
			})
		}
	}
}

// reaches reports whether a consumer of the record has one of the names.
func reaches(r *Record, names ...string) bool {
	for _, f := range r.Steps[0].Scalings {
		for _, c := range f.Consumers {
			for _, n := range names {
				if f.Rows != nil && strings.Contains(c.Tensor, n) {
					return true
				}
			}
		}
	}
	return false
}

// TestCheckFindsErrors compares models whose logits differ slightly.
func TestCheckFindsErrors(t *testing.T) {
	for _, name := range []string{"llama3", "qwen3-moe"} {
		wrong := rewrite(t, tiny(name), func(name string, x []float32) []float32 {
			if name == "model.layers.0.input_layernorm.weight" {
				x[3] *= 1.125
			}
			return x
		})
		_, err := Compare(context.Background(), tiny(name), wrong, nil, "", Options{})
		var inexact *ExactnessError
		if !errors.As(err, &inexact) || !(inexact.Difference > tolerance) {
			t.Errorf("%s: %v, want an *ExactnessError", name, err)
		}
	}
}

// hashOf hashes a directory.
func hashOf(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		fmt.Fprintln(h, d.Name(), len(raw))
		h.Write(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// TestSameBytes makes checkpoints with one thread and two, and from their records after a round
// trip through JSON. The bytes must be the recorded ones on every CPU.
func TestSameBytes(t *testing.T) {
	for _, c := range []struct{ model, want string }{
		{"llama-bias-tied", "19705bae8c775dde0cc67b67bcb94310"},
		{"qwen3-moe", "078bebf75d72972fa99709c98288ca98"},
		{"phi4-mini", "911a87cb74be2298b55643ea47b56036"},
	} {
		if testing.Short() && c.model != "qwen3-moe" {
			continue
		}
		dir := tiny(c.model)
		j := Job{Rotate: true, Seed: 9, Equalize: true, AWQ: awqOptions(), Text: randomText(t, dir)}
		j.Threads = 1
		one, r := makeFolded(t, dir, j)
		two := one
		if !testing.Short() { // numbers of threads are compared natively
			j.Threads = 2
			two, _ = makeFolded(t, dir, j)
		}
		raw, err := r.JSON()
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := ParseRecord(raw)
		if err != nil {
			t.Fatal(err)
		}
		again := filepath.Join(t.TempDir(), "again")
		if err := Apply(context.Background(), dir, again, parsed, Options{Threads: 2}); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(raw)
		got := hashOf(t, one)[:16] + hex.EncodeToString(sum[:8])
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.model, got, c.want)
		}
		if hashOf(t, two) != hashOf(t, one) || hashOf(t, again) != hashOf(t, one) {
			t.Errorf("%s: threads or the record make a difference", c.model)
		}
		if entries, _ := os.ReadDir(filepath.Dir(again)); len(entries) != 1 {
			t.Errorf("%s: %v is left", c.model, entries)
		}
	}
}

func openModelOf(t *testing.T, dir string) *safetensors.Checkpoint {
	t.Helper()
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	return ck
}

func tieOf(t *testing.T, dir string) (tied bool) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := arch.ParseConfig(raw)
	if err != nil {
		t.Fatal(err)
	}
	return c.TieWordEmbeddings
}

// TestTie rotates a tied model: lm_head stays tied only if all gains of the last norm are equal.
func TestTie(t *testing.T) {
	src := tiny("llama-bias-tied")
	dst, _ := makeFolded(t, src, Job{Rotate: true})
	head, ok := openModelOf(t, dst).Lookup("lm_head.weight")
	if !ok || head.Dtype != packing.F32 || tieOf(t, dst) {
		t.Errorf("head %+v, tied %v", head, tieOf(t, dst))
	}
	same := rewrite(t, src, func(name string, x []float32) []float32 {
		if name == "model.norm.weight" {
			for i := range x {
				x[i] = 1.5
			}
		}
		return x
	})
	dst, _ = makeFolded(t, same, Job{Rotate: true})
	if _, ok := openModelOf(t, dst).Lookup("lm_head.weight"); ok || !tieOf(t, dst) {
		t.Error("gains that are all the same have untied the head")
	}
	dst, _ = makeFolded(t, src, Job{Equalize: true})
	if _, ok := openModelOf(t, dst).Lookup("lm_head.weight"); ok || !tieOf(t, dst) {
		t.Error("factors have untied the head")
	}
	// The rest of config.json stays, even what only Python reads.
	infinite := rewrite(t, src, func(_ string, x []float32) []float32 { return x })
	path := filepath.Join(infinite, "config.json")
	config, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config = append([]byte(`{"initializer_range": Infinity,`), bytes.TrimPrefix(config, []byte("{"))...)
	if err := os.WriteFile(path, config, 0o666); err != nil {
		t.Fatal(err)
	}
	dst, _ = makeFolded(t, infinite, Job{Rotate: true})
	got, err := os.ReadFile(filepath.Join(dst, "config.json"))
	if want := bytes.Replace(config, []byte(`"tie_word_embeddings": true`), []byte(`"tie_word_embeddings": false`), 1); err != nil || !bytes.Equal(got, want) {
		t.Errorf("config.json is %s, %v, want %s", got, err, want)
	}
}

// rewrite makes an F32 copy of a checkpoint.
func rewrite(t *testing.T, src string, change func(name string, x []float32) []float32) string {
	t.Helper()
	ck := openModelOf(t, src)
	dst := t.TempDir()
	var specs []safetensors.TensorSpec
	for _, s := range ck.Tensors() {
		specs = append(specs, safetensors.TensorSpec{Name: s.Name, Dtype: packing.F32, Shape: s.Shape})
	}
	w, err := safetensors.Create(dst, specs, safetensors.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i, s := range ck.Tensors() {
		x := make([]float32, s.Numel())
		rows, _ := s.Matrix()
		if err := ck.ReadRows(x, s, 0, int(rows)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4*len(x))
		wide := make([]float64, len(x))
		for k, v := range change(s.Name, x) {
			wide[k] = float64(v)
		}
		narrow(b, wide)
		if err := w.WriteAt(i, b, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dst, "config.json"), raw, 0o666); err != nil {
		t.Fatal(err)
	}
	return dst
}

// TestUnchangedTensorsKeepTheirBytes checks the tensors that a step does not change.
func TestUnchangedTensorsKeepTheirBytes(t *testing.T) {
	src := tiny("qwen3")
	dst, _ := makeFolded(t, src, Job{Equalize: true})
	before, after := openModelOf(t, src), openModelOf(t, dst)
	for _, name := range []string{"model.embed_tokens.weight", "model.layers.0.self_attn.q_norm.weight", "model.norm.weight"} {
		a, _ := before.Lookup(name)
		b, _ := after.Lookup(name)
		x, err := before.Bytes(a)
		if err != nil {
			t.Fatal(err)
		}
		y, err := after.Bytes(b)
		if err != nil || string(x) != string(y) || a.Dtype != b.Dtype {
			t.Errorf("%s has changed (%v)", name, err)
		}
	}
	if b, _ := after.Lookup("model.layers.0.mlp.up_proj.weight"); b.Dtype != packing.F32 {
		t.Errorf("a folded tensor has dtype %s", b.Dtype)
	}
}

// TestOtherCheckpoint applies a record to a checkpoint that it was not made for.
func TestOtherCheckpoint(t *testing.T) {
	_, r := makeFolded(t, tiny("llama3"), Job{Equalize: true})
	for _, name := range []string{"phi3", "qwen3-moe", "phi4-mini"} {
		dst := filepath.Join(t.TempDir(), "f")
		err := Apply(context.Background(), tiny(name), dst, r, Options{})
		var mismatch *MismatchError
		if !errors.As(err, &mismatch) {
			t.Errorf("%s: %v, want a *MismatchError", name, err)
		}
		if _, err := os.Stat(dst); err == nil {
			t.Errorf("%s: something was written", name)
		}
	}
}

// TestNotFinite folds a checkpoint that holds an infinity.
func TestNotFinite(t *testing.T) {
	bad := rewrite(t, tiny("llama3"), func(name string, x []float32) []float32 {
		if name == "model.layers.1.mlp.down_proj.weight" {
			x[70] /= 0 * x[70]
		}
		return x
	})
	_, err := Make(context.Background(), bad, filepath.Join(t.TempDir(), "f"), Job{Rotate: true})
	if err == nil || !strings.Contains(err.Error(), `"model.layers.1.mlp.down_proj.weight"`) || !strings.Contains(err.Error(), "not finite") {
		t.Errorf("%v", err)
	}
}
