package synth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
)

// write makes the checkpoint in a new directory and opens it.
func write(t testing.TB, s Spec) *safetensors.Checkpoint {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if err := Write(context.Background(), dir, s, nil); err != nil {
		t.Fatal(err)
	}
	c, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestGolden demands the same bytes on all platforms (.ci runs it on arm64).
func TestGolden(t *testing.T) {
	for _, tt := range []struct {
		preset string
		dtype  packing.Dtype
		want   string
	}{
		{"tiny", packing.BF16, "c8b15bf073cd5618aa141295c32217695852ca4886a712782b96e687adf9effa"},
		{"tiny", packing.F32, "c32f971a22035513a6236bb85414a1899bbb7dcb8649ef2dbab7faaf5f5720bb"},
		{"tiny-moe", packing.F16, "2abaf54914ce51fc28eb290f4021600fae160cd9e83ec7f508eebae4922c7967"},
	} {
		s := Presets[tt.preset]
		s.Dtype = tt.dtype
		c := write(t, s)
		raw, err := os.ReadFile(filepath.Join(c.Dir(), "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(raw)
		if got := hex.EncodeToString(sum[:]); got != tt.want {
			t.Errorf("%s in %v: %s, want %s", tt.preset, tt.dtype, got, tt.want)
		}
	}
}

// TestPresets compares the numbers of parameters, in millions, with
// shared/reference/quantization.md, section 6b, and with Llama-3.1-8B's.
func TestPresets(t *testing.T) {
	want := map[string]float64{"smollm2-135m": 134.5, "llama-3.2-1b": 1235.8, "llama-3.2-3b": 3212.7, "llama-3.1-8b": 8030.3}
	for name, s := range Presets {
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if millions, ok := want[name]; ok && math.Abs(float64(s.Parameters())/1e6-millions) > 0.1 {
			t.Errorf("%s has %d parameters, want %v million", name, s.Parameters(), millions)
		}
	}
	if n := Presets["llama-3.2-1b"].Bytes(); n != 2471628800 {
		t.Errorf("llama-3.2-1b has %d bytes", n)
	}
}

func TestWrite(t *testing.T) {
	s := Presets["tiny-moe"]
	s.MaxShardBytes = 100_000
	dir := filepath.Join(t.TempDir(), "a", "b")
	var total atomic.Int64
	if err := Write(context.Background(), dir, s, func(n int64) { total.Add(n) }); err != nil {
		t.Fatal(err)
	}
	if total.Load() != s.Bytes() {
		t.Errorf("progress of %d bytes, want %d", total.Load(), s.Bytes())
	}
	c, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(c.Files()) < 4 {
		t.Errorf("%d shards", len(c.Files()))
	}
	if want := 2 + 2*(6+1+3*4) + 1; len(c.Tensors()) != want {
		t.Errorf("%d tensors, want %d", len(c.Tensors()), want)
	}
	for name, want := range map[string][]int64{
		"model.embed_tokens.weight":                           {512, 64},
		"lm_head.weight":                                      {512, 64},
		"model.norm.weight":                                   {64},
		"model.layers.1.self_attn.k_proj.weight":              {32, 64},
		"model.layers.1.block_sparse_moe.gate.weight":         {4, 64},
		"model.layers.0.block_sparse_moe.experts.3.w2.weight": {64, 172},
		"model.layers.0.block_sparse_moe.experts.0.w3.weight": {172, 64},
		"model.layers.1.post_attention_layernorm.weight":      {64},
	} {
		ts, ok := c.Lookup(name)
		if !ok || !slices.Equal(ts.Shape, want) || ts.Dtype != packing.BF16 {
			t.Errorf("%s: %v %v", name, ts.Shape, ts.Dtype)
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	if config["model_type"] != "mixtral" || config["num_local_experts"] != 4.0 || config["tie_word_embeddings"] != false || config["torch_dtype"] != "bfloat16" || config["head_dim"] != 8.0 {
		t.Errorf("config is %s", raw)
	}
	if err := Write(context.Background(), dir, s, nil); err == nil || !strings.Contains(err.Error(), "holds a checkpoint already") {
		t.Errorf("a second checkpoint: %v", err)
	}
}

// TestValuesByPosition: a value does not depend on how the work was divided, on shards, or on the
// depth of the model.
func TestValuesByPosition(t *testing.T) {
	a := write(t, Spec{Hidden: 64, Intermediate: 96, Layers: 1, Heads: 4, Vocab: 40000})
	b := write(t, Spec{Hidden: 64, Intermediate: 96, Layers: 2, Heads: 4, Vocab: 40000, Tied: true, MaxShardBytes: 1 << 20})
	other := write(t, Spec{Hidden: 64, Intermediate: 96, Layers: 1, Heads: 4, Vocab: 40000, Seed: 1})
	for _, ts := range b.Tensors() {
		x, ok := a.Lookup(ts.Name)
		if !ok {
			continue
		}
		xb, _ := a.Bytes(x)
		yb, _ := b.Bytes(ts)
		zb, _ := other.Bytes(x)
		if !slices.Equal(xb, yb) {
			t.Errorf("%s differs", ts.Name)
		}
		if slices.Equal(xb, zb) {
			t.Errorf("%s does not depend on the seed", ts.Name)
		}
	}
}

// TestStatistics checks the moments that the package comment promises.
func TestStatistics(t *testing.T) {
	c := write(t, Spec{Hidden: 1024, Intermediate: 2048, Layers: 1, Heads: 8, Vocab: 32, Dtype: packing.F32})
	for _, tt := range []struct {
		name string
		std  float64
	}{{"model.layers.0.mlp.down_proj.weight", 1.3 / math.Sqrt(2048)}, {"model.layers.0.self_attn.q_proj.weight", 1.4 / 32}} {
		ts, _ := c.Lookup(tt.name)
		rows, _ := ts.Matrix()
		x := make([]float32, ts.Numel())
		if err := c.ReadRows(x, ts, 0, int(rows)); err != nil {
			t.Fatal(err)
		}
		var sum, square, fourth, largest float64
		for _, v := range x {
			f := float64(v)
			sum += f
			square += f * f
			fourth += f * f * f * f
			largest = max(largest, math.Abs(f))
		}
		n := float64(len(x))
		std := math.Sqrt(square / n)
		kurtosis := fourth / n / (std * std * std * std)
		t.Logf("%s: mean %.5f, std %.5f, kurtosis %.2f, extreme %.1f std", tt.name, sum/n, std, kurtosis, largest/std)
		if math.Abs(sum/n) > 5*std/math.Sqrt(n) || math.Abs(std/tt.std-1) > 0.03 || kurtosis < 4 || kurtosis > 7 || largest/std < 8 {
			t.Errorf("%s: statistics are off", tt.name)
		}
	}
	ts, _ := c.Lookup("model.layers.0.input_layernorm.weight")
	x := make([]float32, 1024)
	if err := c.ReadRows(x, ts, 0, 1); err != nil {
		t.Fatal(err)
	}
	if slices.Min(x) <= 0 {
		t.Errorf("a norm has the entry %v", slices.Min(x))
	}
}

func TestCancel(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	ctx, cancel := context.WithCancel(context.Background())
	s := Presets["smollm2-135m"]
	err := Write(ctx, dir, s, func(int64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestValidate(t *testing.T) {
	good := Presets["tiny"]
	for name, change := range map[string]func(*Spec){
		"hidden":       func(s *Spec) { s.Hidden = 0 },
		"intermediate": func(s *Spec) { s.Intermediate = -1 },
		"layers":       func(s *Spec) { s.Layers = 0 },
		"heads":        func(s *Spec) { s.Heads, s.KVHeads, s.HeadDim = 0, 0, 0 },
		"KV heads":     func(s *Spec) { s.KVHeads = 3 },
		"head dim":     func(s *Spec) { s.Heads, s.KVHeads = 65, 65 },
		"vocabulary":   func(s *Spec) { s.Vocab = 1 << 31 },
		"experts":      func(s *Spec) { s.Experts = -1 },
		"dtype":        func(s *Spec) { s.Dtype = packing.F8E4M3 },
	} {
		s := good
		change(&s)
		if s.Validate() == nil {
			t.Errorf("%s: %+v is valid", name, s)
		}
		if Write(context.Background(), t.TempDir(), s, nil) == nil {
			t.Errorf("%s: %+v was written", name, s)
		}
	}
}

func BenchmarkFill(b *testing.B) {
	for _, d := range []packing.Dtype{packing.BF16, packing.F16, packing.F32} {
		b.Run(d.String(), func(b *testing.B) {
			ts := Tensor{Rows: 1, Cols: 8192, Std: 0.02}
			buf := make([]byte, 8192*d.Bits()/8)
			b.SetBytes(int64(len(buf)))
			for b.Loop() {
				ts.fill(buf, d, 1, 0, 0)
			}
		})
	}
}
