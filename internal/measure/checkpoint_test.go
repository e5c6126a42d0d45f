package measure

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/test/testquant"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// testTensor is a tensor of a synthetic checkpoint.
type testTensor struct {
	name  string
	dtype packing.Dtype
	shape []int64
	set   func(x []float32) // nil: random numbers, the same for the same name
}

func (tt testTensor) bytes() []byte {
	n := 1
	for _, d := range tt.shape {
		n *= int(d)
	}
	x := RandomInputs(tt.name, 1, n)
	if tt.set != nil {
		tt.set(x)
	}
	var b []byte
	for _, v := range x {
		switch bits := math.Float32bits(v); tt.dtype {
		case packing.F32:
			b = append(b, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
		case packing.BF16:
			u := floats.BF16FromF32(v)
			b = append(b, byte(u), byte(u>>8))
		case packing.F16:
			u := floats.F16FromF32(v)
			b = append(b, byte(u), byte(u>>8))
		default:
			b = append(b, byte(int(v*20)&0x77))
		}
	}
	return b
}

func writeCheckpoint(t testing.TB, config string, tensors ...testTensor) string {
	t.Helper()
	dir := t.TempDir()
	var list []testquant.Tensor
	for _, tt := range tensors {
		list = append(list, testquant.Tensor{Spec: safetensors.TensorSpec{Name: tt.name, Dtype: tt.dtype, Shape: tt.shape}, Data: tt.bytes()})
	}
	if err := testquant.Create(dir, list, nil); err != nil {
		t.Fatal(err)
	}
	if config != "" {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func openCheckpoint(t testing.TB, dir string) *safetensors.Checkpoint {
	t.Helper()
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	return ck
}

// quantize quantizes a checkpoint and returns the path of the .gqf and the job's report.
func quantize(t testing.TB, dir string, o conversion.Options) (string, *write.Report) {
	t.Helper()
	ck := openCheckpoint(t, dir)
	config, err := assets.ReadConfig(ck)
	if err != nil {
		t.Fatal(err)
	}
	p, err := conversion.NewPlan(ck, config, o)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.gqf")
	report, err := p.Write(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	return path, report
}

func openFile(t testing.TB, path string) *gqf.File {
	t.Helper()
	f, err := gqf.Open(path, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func tensorsOf(t testing.TB, dir, path string, o TensorOptions) []accuracy.TensorStats {
	t.Helper()
	stats, err := Tensors(context.Background(), openCheckpoint(t, dir), openFile(t, path), o)
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

func formats(t testing.TB, s string) []quantizer.LayoutRequest {
	t.Helper()
	f, err := quantizer.ParseLayouts(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// readAll reads a tensor of a checkpoint, FP8 block scales applied.
func readAll(t testing.TB, ck *safetensors.Checkpoint, name string) []float32 {
	t.Helper()
	src, ok := ck.Lookup(name)
	if !ok {
		t.Fatalf("no tensor %s", name)
	}
	x := make([]float32, src.Numel())
	weights, err := ck.Weights(src, safetensors.WeightsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := weights.Read(x, 0, weights.Slices*weights.Rows); err != nil {
		t.Fatal(err)
	}
	return x
}
