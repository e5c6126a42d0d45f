package conversion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/mmap"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// elsewhere opens the checkpoint in dir with its weights as remote files. fail is called before
// each request with the number of requests before it.
func elsewhere(t testing.TB, dir string, fail func(request int64) error) *safetensors.Checkpoint {
	t.Helper()
	small := t.TempDir()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var remote []safetensors.RemoteFile
	var requests atomic.Int64
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(e.Name(), ".safetensors") {
			if err := os.WriteFile(filepath.Join(small, e.Name()), data, 0o666); err != nil {
				t.Fatal(err)
			}
			continue
		}
		remote = append(remote, safetensors.RemoteFile{Name: e.Name(), Path: "hf://org/model/" + e.Name(), Size: int64(len(data)),
			ReadAt: func(_ context.Context, dst []byte, off int64) error {
				if err := fail(requests.Add(1) - 1); err != nil {
					return err
				}
				copy(dst, data[off:])
				return nil
			}})
	}
	ck, err := safetensors.Open(small, safetensors.Options{Remote: remote})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	return ck
}

func never(int64) error { return nil }

// planElsewhere plans a checkpoint whose weights are remote.
func planElsewhere(t testing.TB, ck *safetensors.Checkpoint, opts Options) *write.Job {
	t.Helper()
	config, err := assets.ReadConfig(ck)
	if err != nil {
		t.Fatal(err)
	}
	p, err := quantizing(ck, config, opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// streamed are checkpoints with everything that a unit may read.
func streamed() map[string]struct {
	config  string
	tensors []testTensor
} {
	large := func(name string, shape ...int64) testTensor {
		return testTensor{name: name, dtype: packing.BF16, shape: shape}
	}
	equal := func(i int) float32 { return float32(i%61) - 30 }
	type model = struct {
		config  string
		tensors []testTensor
	}
	fp8 := model{config: `{"model_type": "deepseek_v3", "quantization_config": {"weight_block_size": [128, 128]}}`}
	for e := range 12 {
		w := testTensor{name: fmt.Sprintf("model.layers.0.mlp.experts.%d.up_proj.weight", e), dtype: packing.F8E4M3, shape: []int64{300, 500},
			value: func(i int) float32 { return float32(i * 37 % (110 + e)) }}
		s := testTensor{name: w.name + "_scale_inv", dtype: packing.F32, shape: []int64{3, 4}, value: func(i int) float32 { return float32(i+1+e) * 0.01 }}
		fp8.tensors = append(fp8.tensors, w, s)
	}
	return map[string]model{
		"biases": {llamaConfig, append(llama(), large("model.layers.3.mlp.up_proj.weight", 3000, 700), large("model.layers.3.mlp.up_proj.bias", 3000))},
		"equal lm_head": {llamaConfig, []testTensor{
			{name: tableName, dtype: packing.BF16, shape: []int64{4000, 352}, value: equal},
			{name: headName, dtype: packing.BF16, shape: []int64{4000, 352}, value: equal},
			large("model.layers.0.mlp.up_proj.weight", 352, 352),
		}},
		"late difference": {llamaConfig, []testTensor{
			{name: tableName, dtype: packing.BF16, shape: []int64{4000, 352}, value: equal},
			{name: headName, dtype: packing.BF16, shape: []int64{4000, 352}, value: func(i int) float32 { return equal(i) + float32(i/(4000*352-1)) }},
		}},
		"fp8":              fp8,
		"fused experts":    {`{"model_type": "qwen3_5_moe", "num_experts": 3}`, []testTensor{large("model.layers.0.mlp.experts.gate_up_proj", 3, 900, 352), large("model.norm.weight", 64)}},
		"transposed":       {`{"model_type": "llama4_text", "num_experts": 3}`, []testTensor{large("model.layers.0.feed_forward.experts.gate_up_proj", 3, 352, 900)}},
		"unquantized rest": {llamaConfig, []testTensor{large("model.layers.0.mlp.up_proj.weight", 64, 64), {name: "vision.conv.weight", dtype: packing.F32, shape: []int64{70, 3, 50, 70}}}},
	}
}

// TestStream writes files while weights come from elsewhere: they are the files of local
// checkpoints, and warnings are the same.
func TestStream(t *testing.T) {
	testshared.SlowEmulated(t, "TestWriteTo runs there")
	for name, c := range streamed() {
		t.Run(name, func(t *testing.T) {
			if name != "fp8" && name != "transposed" {
				testshared.SlowEmulated(t, "two cases run there")
			}
			dir := writeCheckpoint(t, c.config, c.tensors...)
			local, want, _ := runJob(t, dir, Options{Threads: 2})
			for _, threads := range []int{1, 3} {
				p := planElsewhere(t, elsewhere(t, dir, never), Options{Threads: threads})
				if most, ok := p.Streams(); !ok || most < safetensors.ReadAheadBytes {
					t.Errorf("Streams: %d, %v", most, ok)
				}
				if _, got, _ := fillPlan(t, p); !bytes.Equal(got, want) {
					t.Errorf("%d threads: another file", threads)
				}
				if !slices.Equal(p.Warnings, local.Warnings) {
					t.Errorf("warnings %q, want %q", p.Warnings, local.Warnings)
				}
			}
		})
	}
}

// TestStreamFails has each request fail in turn. The job fails with that error and leaves nothing.
func TestStreamFails(t *testing.T) {
	testshared.SlowEmulated(t, "errors are the same natively")
	c := streamed()["biases"]
	dir := writeCheckpoint(t, c.config, c.tensors...)
	changed := errors.New("the source changed while it was read")
	failing := false
	for at := int64(1); ; at++ { // request 0 is the header's
		var failed atomic.Bool
		ck := elsewhere(t, dir, func(n int64) error {
			if n == at {
				failed.Store(true)
				return changed
			}
			return nil
		})
		config, err := assets.ReadConfig(ck)
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "x.gqf")
		p, err := quantizing(ck, config, Options{Threads: 2})
		if err == nil {
			_, err = p.Write(t.Context(), out)
		}
		if !failed.Load() { // there are no more requests
			if err != nil || !failing {
				t.Errorf("after %d requests: %v", at, err)
			}
			return
		}
		failing = true
		if !errors.Is(err, changed) || !strings.Contains(err.Error(), "hf://org/model/model.safetensors: bytes ") {
			t.Errorf("request %d fails: %v", at, err)
		}
		left, err := os.ReadDir(filepath.Dir(out))
		if err != nil || len(left) != 0 {
			t.Errorf("request %d fails, and leaves %v, %v", at, left, err)
		}
		ck.Close()
	}
}

// TestStreamUnannounced reads rows that nobody has fetched: never zeros.
func TestStreamUnannounced(t *testing.T) {
	dir := writeCheckpoint(t, llamaConfig, llama()...)
	p := planElsewhere(t, elsewhere(t, dir, never), Options{})
	for it := range p.Quantized() {
		w, err := p.In.(*fromcheckpoint.Input).Weights(it.Src, it.Transposed)
		if err != nil {
			t.Fatal(err)
		}
		err = p.In.Guard(func() error {
			w.Widen(make([]float32, it.Cols), 0, 1)
			return nil
		})
		var fault *mmap.FaultError
		if !errors.As(err, &fault) || !fault.Absent {
			t.Errorf("%s: %v", it.Name(), err)
		}
	}
}

// TestStreams names jobs that need the weights more than once.
func TestStreams(t *testing.T) {
	c := streamed()["transposed"]
	dir := writeCheckpoint(t, c.config, c.tensors...)
	opts := Options{}
	opts.Recipe.HashFiles = true
	p, err := newPlan(t, dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := p.Streams(); ok {
		t.Error("a job that hashes its files streams")
	}
}
