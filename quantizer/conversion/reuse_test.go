package conversion

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

const reuseConfig = `{"model_type":"gpt2","tie_word_embeddings":true}`

// reuseTensors are stored in every way: in several units, transposed, tied, with a bias.
func reuseTensors() []testTensor {
	return []testTensor{
		{name: "wte.weight", dtype: packing.BF16, shape: []int64{2000, 768}},
		{name: "h.0.attn.c_attn.weight", dtype: packing.F32, shape: []int64{768, 700}},
		{name: "h.0.attn.c_attn.bias", dtype: packing.F32, shape: []int64{700}},
		{name: "h.0.mlp.c_fc.weight", dtype: packing.F16, shape: []int64{768, 99}},
		{name: "h.0.ln_1.weight", dtype: packing.F32, shape: []int64{768}},
	}
}

// reused writes p to memory, with tensors copied from old.
func reused(t *testing.T, p *Plan, old *gqf.File) (*ReuseReport, []byte) {
	t.Helper()
	ctx := context.Background()
	var total int64
	var done atomic.Int64
	r, err := p.Reuse(ctx, old, "old.gqf", nil, func(n int64) (func(int64), func()) {
		total = n
		return func(n int64) { done.Add(n) }, func() {}
	})
	if err != nil {
		t.Fatal(err)
	}
	if done.Load() != total {
		t.Errorf("%d of %d bytes were compared", done.Load(), total)
	}
	m := make(memory, p.OutputBytes)
	j, err := p.newJob(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	j.reuse, j.out = r, []io.WriterAt{m}
	if err := j.fill(ctx); err != nil {
		t.Fatal(err)
	}
	return r.report(), m
}

// TestReuse makes files with tensors of an older file, which have the bytes of files without.
func TestReuse(t *testing.T) {
	base := quantizer.Recipe{Bits: 4, Group: 32}
	all := quantizer.Recipe{Bits: 4, Group: 32, Layouts: layoutsOf(t, "lowbit,kleidiai,torchao,codes")}
	fp8 := []testTensor{
		{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.F8E4M3, shape: []int64{256, 256}, value: func(i int) float32 { return float32(i*37%100 + 8) }},
		{name: "model.layers.0.mlp.up_proj.weight_scale_inv", dtype: packing.F32, shape: []int64{2, 2}, value: func(i int) float32 { return float32(i+1) / 64 }},
		{name: "model.layers.0.mlp.down_proj.weight", dtype: packing.BF16, shape: []int64{64, 256}},
	}
	const fp8Config = `{"model_type":"llama","quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}}`
	for _, c := range []struct {
		name    string
		was, is Options
		tensors []testTensor
		config  string
		change  string // the tensor of the checkpoint with another byte
		copied  int
		reason  string
	}{
		{name: "the same job", was: Options{Recipe: base}, is: Options{Recipe: base}, copied: 3},
		{name: "all layouts", was: Options{Recipe: all}, is: Options{Recipe: all}, copied: 3},
		{name: "one rule", was: Options{Recipe: base}, is: Options{Recipe: base, Rules: mustRules(t, "h.0.mlp.c_fc.weight=6")}, copied: 2, reason: reuseScheme},
		{name: "a rule less", was: Options{Recipe: base, Rules: mustRules(t, "h.0.mlp.c_fc.weight=skip")}, is: Options{Recipe: base}, copied: 2, reason: reuseScheme},
		{name: "another algorithm", was: Options{Recipe: base}, is: Options{Recipe: quantizer.Recipe{Bits: 4, Group: 32, Algorithm: gqf.AlgorithmRTN}}, reason: reuseScheme},
		{name: "another layout", was: Options{Recipe: base}, is: Options{Recipe: all}, reason: reuseScheme},
		{name: "positive scales", was: Options{Recipe: base}, is: Options{Recipe: quantizer.Recipe{Bits: 4, Group: 32, PositiveScales: true}}, reason: reuseScheme},
		{name: "other weights", was: Options{Recipe: base}, is: Options{Recipe: base}, change: "wte.weight", copied: 2, reason: reuseBytes},
		{name: "other transposed weights", was: Options{Recipe: base}, is: Options{Recipe: base}, change: "h.0.attn.c_attn.weight", copied: 2, reason: reuseBytes},
		{name: "another bias", was: Options{Recipe: base}, is: Options{Recipe: base}, change: "h.0.attn.c_attn.bias", copied: 2, reason: reuseBytes},
		{name: "another norm", was: Options{Recipe: base}, is: Options{Recipe: base}, change: "h.0.ln_1.weight", copied: 3},
		{name: "block scales", was: Options{Recipe: base}, is: Options{Recipe: base}, tensors: fp8, config: fp8Config, copied: 2},
		{name: "other block scales", was: Options{Recipe: base}, is: Options{Recipe: base}, tensors: fp8, config: fp8Config, change: "model.layers.0.mlp.up_proj.weight_scale_inv", copied: 1, reason: reuseBytes},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.reason != "" || c.change != "" {
				testshared.SlowEmulated(t, "rows are compared by the same code natively; the cases without a change copy there")
			}
			if c.tensors == nil {
				c.tensors, c.config = reuseTensors(), reuseConfig
			}
			dir := writeCheckpoint(t, c.config, c.tensors...)
			_, _, old := runJob(t, dir, c.was)
			if c.change != "" {
				patch(t, dir, c.change, 8, []byte{1, 2})
			}
			p, want, _ := runJob(t, dir, c.is)
			for _, threads := range []int{1, 4} {
				p.opts.Threads = threads
				r, got := reused(t, p, old)
				if !bytes.Equal(got, want) {
					t.Fatalf("the file has other bytes than without reuse (%s)", r)
				}
				if quantized := r.Tensors + r.Made; r.Tensors != c.copied || quantized < c.copied || (c.reason == "") != (len(r.Reasons) == 0) || c.reason != "" && r.Reasons[0].Reason != c.reason {
					t.Errorf("%s; want %d copied, and the reason %q", r, c.copied, c.reason)
				}
			}
		})
	}
}

// rows gives codes that no search chose.
type otherRows struct{}

func (otherRows) ReadRow(_ int, dst rounding.Row) error {
	for i := range dst.Codes {
		dst.Codes[i] = int8(i % 5)
	}
	for i := range dst.Scales {
		dst.Scales[i] = 0.25
	}
	return nil
}

// TestReuseOtherVersion: an older file whose codes are not what this version makes is found out, although
// all that it says of itself is the same.
func TestReuseOtherVersion(t *testing.T) {
	dir := writeCheckpoint(t, reuseConfig, reuseTensors()...)
	p, want, _ := runJob(t, dir, Options{Recipe: quantizer.Recipe{Bits: 4, Group: 32}})
	m := make(memory, p.OutputBytes)
	j, err := p.newJob(t.Context(), &CalibratedCodes{Rows: func(m Matrix) RowReader {
		if m.Tensor == "h.0.mlp.c_fc.weight" {
			return otherRows{}
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	j.out = []io.WriterAt{m}
	if err := j.fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	old, err := gqf.OpenBytes(m, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, got := reused(t, p, old)
	if !bytes.Equal(got, want) || r.Tensors != 0 || len(r.Reasons) != 1 || !strings.Contains(r.Reasons[0].Reason, `rows of "h.0.mlp.c_fc.weight" are quantized otherwise now`) {
		t.Errorf("%s", r)
	}
}

// TestReuseDamaged: a damaged older file ends the job.
func TestReuseDamaged(t *testing.T) {
	dir := writeCheckpoint(t, reuseConfig, reuseTensors()...)
	p, b, f := runJob(t, dir, Options{Recipe: quantizer.Recipe{Bits: 4, Group: 32}})
	tensor, _ := f.Lookup("wte.weight")
	payload, _ := tensor.Payload(0, 0, gqf.KindWeights)
	b = bytes.Clone(b)
	b[payload.Offset+payload.Length-3] ^= 1
	old, err := gqf.OpenBytes(b, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	begin := func(int64) (func(int64), func()) { return func(int64) {}, func() {} }
	r, err := p.Reuse(t.Context(), old, "old.gqf", nil, begin)
	if err == nil { // no sample was in the damaged block
		var j *job
		if j, err = p.newJob(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		j.reuse, j.out = r, []io.WriterAt{make(memory, p.OutputBytes)}
		err = j.fill(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "checksum of the") {
		t.Errorf("%v", err)
	}
}

// TestReuseStreamed: weights that come from elsewhere are compared like local ones.
func TestReuseStreamed(t *testing.T) {
	testshared.SlowEmulated(t, "TestReuse and TestStream run there")
	for name, m := range streamed() {
		t.Run(name, func(t *testing.T) {
			dir := writeCheckpoint(t, m.config, m.tensors...)
			_, want, old := runJob(t, dir, Options{})
			for _, threads := range []int{1, 4} {
				r, got := reused(t, planElsewhere(t, elsewhere(t, dir, never), Options{Threads: threads}), old)
				if !bytes.Equal(got, want) || r.Made != 0 {
					t.Errorf("%d threads: other bytes, or not all copied: %s", threads, r)
				}
			}
		})
	}
}
