package conversion

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/imports"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

func newPlan(t testing.TB, path string, opts Options) (*write.Job, error) {
	t.Helper()
	ck := openCheckpoint(t, path)
	config, err := assets.ReadConfig(ck)
	if err != nil {
		t.Fatal(err)
	}
	return quantizing(ck, config, opts)
}

// memory is a file in memory.
type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

// runJob quantizes in memory and opens the result.
func runJob(t testing.TB, path string, opts Options) (*write.Job, []byte, *gqf.File) {
	t.Helper()
	p, err := newPlan(t, path, opts)
	if err != nil {
		t.Fatal(err)
	}
	return fillPlan(t, p)
}

// quantizing is NewPlan for tests that only write.
func quantizing(ck *safetensors.Checkpoint, config []byte, o Options) (*write.Job, error) {
	p, err := NewPlan(ck, config, o)
	if err != nil {
		return nil, err
	}
	return p.Job, nil
}

// importing is NewImport for tests that only write.
func importing(f imports.Foreign, o RepackOptions) (*write.Job, error) {
	p, err := NewImport(f, o)
	if err != nil {
		return nil, err
	}
	return p.Job, nil
}

// fillPlan runs a plan in memory and opens the result, which must verify.
func fillPlan(t testing.TB, p *write.Job) (*write.Job, []byte, *gqf.File) {
	t.Helper()
	m := make(memory, p.OutputBytes)
	j, err := p.NewRun(context.Background(), write.Options{})
	if err != nil {
		t.Fatal(err)
	}
	j.Out = []io.WriterAt{m}
	if err := j.Fill(context.Background()); err != nil {
		t.Fatal(err)
	}
	f, err := gqf.OpenBytes(m, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	report, err := f.Verify(context.Background(), gqf.VerifyOptions{Deep: true})
	if err != nil || !report.OK() {
		t.Fatalf("the new file does not verify: %v, %+v", err, report)
	}
	return p, m, f
}

func TestSameBytesForAnyThreadCount(t *testing.T) {
	dir := writeCheckpoint(t, llamaConfig, llama()...)
	_, want, f := runJob(t, dir, Options{Threads: 1})
	for _, threads := range []int{2, 3, 16} {
		if _, got, _ := runJob(t, dir, Options{Threads: threads}); !bytes.Equal(got, want) {
			t.Errorf("%d threads give another file than 1", threads)
		}
	}
	// Layers lie in the order of their numbers.
	var order []string
	for i := range f.Len() {
		if n := f.Tensor(i).Name; strings.HasSuffix(n, "q_proj.weight") {
			order = append(order, n)
		}
	}
	if len(order) != 11 || order[2] != "model.layers.2.self_attn.q_proj.weight" || order[10] != "model.layers.10.self_attn.q_proj.weight" {
		t.Errorf("order of layers: %v", order)
	}
	// The bias is in the panels and kept as a tensor.
	gt, _ := f.Lookup("model.layers.3.self_attn.q_proj.weight")
	p := gt.Payloads()[0]
	data, err := f.Data(p)
	if err != nil {
		t.Fatal(err)
	}
	lb, err := packing.NewLowbit(p.Header)
	if err != nil {
		t.Fatal(err)
	}
	bias := testTensor{name: "model.layers.3.self_attn.q_proj.bias", dtype: packing.BF16, shape: []int64{64}}
	if p.Header.Flags&packing.FlagBias == 0 || lb.Bias(data, 17) != bias.values()[17] {
		t.Errorf("row 17's bias is %v, want %v", lb.Bias(data, 17), bias.values()[17])
	}
	checkKept(t, f, bias)
	if link := gt.Bias; link < 0 || f.Tensor(link).Name != bias.name {
		t.Errorf("the weight is linked to tensor %d, want %s", link, bias.name)
	}
	if norm, ok := f.Lookup("model.norm.weight"); !ok || norm.Bias != -1 {
		t.Errorf("the norm, which has no bias, is linked to tensor %d", norm.Bias)
	}
}

// TestWriteIsAtomic: an error leaves the old file and no temporary.
func TestWriteIsAtomic(t *testing.T) {
	bad := testTensor{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{40, 64}, value: func(i int) float32 {
		if i == 33*64+7 {
			return float32(math.NaN())
		}
		return float32(i%13) - 6
	}}
	p, err := newPlan(t, writeCheckpoint(t, "", bad), Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out := filepath.Join(dir, "model.gqf")
	if err := os.WriteFile(out, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = p.Write(context.Background(), out)
	var te *quantizer.TensorError
	var nf *rounding.NonFiniteError
	if !errors.As(err, &te) || !errors.As(err, &nf) || te.Tensor != bad.name || te.Row != 33 || nf.Column != 7 {
		t.Errorf("error %v, want one that names tensor, row 33, column 7", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.WriteWith(ctx, out, write.Options{Progress: func(int64) { cancel() }}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled job: %v", err)
	}
	// a plan can be written again
	if _, err := p.Write(context.Background(), out); !errors.As(err, &te) {
		t.Errorf("the second job: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if old, _ := os.ReadFile(out); string(old) != "old" || len(entries) != 1 {
		t.Errorf("the old file holds %q, the directory %v", old, entries)
	}
}

func TestOutputIsInput(t *testing.T) {
	dir := writeCheckpoint(t, "", llama()...)
	p, err := newPlan(t, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(dir, "model.safetensors")
	before, _ := os.ReadFile(src)
	if _, err := p.Write(context.Background(), src); err == nil || !strings.Contains(err.Error(), "is an input") {
		t.Errorf("writing over the input: %v", err)
	}
	if after, _ := os.ReadFile(src); !bytes.Equal(before, after) {
		t.Error("the input was changed")
	}
}

// TestTruncatedSource: a checkpoint that shrinks while it is read is an error, and nothing is
// written.
func TestTruncatedSource(t *testing.T) {
	big := testTensor{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{4096, 1024}, value: func(i int) float32 { return float32(i%29) - 14 }}
	dir := writeCheckpoint(t, "", big)
	p, err := newPlan(t, dir, Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	first := true
	progress := func(int64) {
		if first {
			first = false
			if err := os.Truncate(filepath.Join(dir, "model.safetensors"), 4<<20); err != nil {
				t.Error(err)
			}
		}
	}
	out := filepath.Join(t.TempDir(), "model.gqf")
	_, err = p.WriteWith(context.Background(), out, write.Options{Progress: progress})
	var fe *safetensors.FormatError
	if !errors.As(err, &fe) {
		t.Errorf("error %v, want a FormatError that says that the file was truncated", err)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Error("an output was left")
	}
}
