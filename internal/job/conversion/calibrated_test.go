package conversion

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// zeroRows are codes and scales of rows, all the same.
type zeroRows struct{}

func (zeroRows) ReadRow(_ int, dst rounding.Row) error {
	clear(dst.Codes)
	for i := range dst.Scales {
		dst.Scales[i] = 1
	}
	clear(dst.Zeros)
	return nil
}

// TestCodesLeaveThePlan writes a plan with codes chosen elsewhere between two times without: the
// plan is the same afterwards, and so is the file.
func TestCodesLeaveThePlan(t *testing.T) {
	dir := writeCheckpoint(t, "",
		testTensor{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{40, 64}},
		testTensor{name: "layers.0.k_proj.weight", dtype: packing.F32, shape: []int64{32, 64}})
	p, err := newPlan(t, dir, Options{Recipe: quantizer.Recipe{Bits: 3, Algorithm: gqf.AlgorithmGPTQ}})
	if err != nil {
		t.Fatal(err)
	}
	put := func(o write.Options) ([]byte, *write.Report) {
		path := filepath.Join(t.TempDir(), "model.gqf")
		r, err := p.WriteWith(context.Background(), path, o)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(b)) != r.OutputBytes {
			t.Errorf("the report says %d bytes, the file has %d", r.OutputBytes, len(b))
		}
		return b, r
	}
	before, plain := put(write.Options{})
	warnings, bytes := slices.Clone(p.Warnings), p.OutputBytes
	account := &provenance.Calibration{Algorithm: "gptq", Source: "text"}
	with, report := put(write.Options{Codes: &plan.Codes{
		Rows: func(m plan.Matrix) plan.RowReader {
			if strings.Contains(m.Tensor, "q_proj") {
				return zeroRows{}
			}
			return nil
		},
		Calibration: account, Warnings: []string{"of calibration"},
	}})
	if size, err := p.SizeWith(account, nil); err != nil || size != int64(len(with)) {
		t.Errorf("SizeWith: %d, %v; the file has %d bytes", size, err, len(with))
	}
	if want := append(slices.Clone(warnings), "of calibration"); !slices.Equal(report.Warnings, want) {
		t.Errorf("warnings %q, want %q", report.Warnings, want)
	}
	if got := report.Tensors[1]; got.Name != "layers.0.q_proj.weight" || got.SQNR == nil || *got.SQNR != 0 {
		t.Errorf("codes of zeros have the loss %+v, want 0 dB", got)
	}
	f, err := gqf.OpenBytes(with, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, want := range map[string]gqf.Algorithm{"layers.0.q_proj.weight": gqf.AlgorithmGPTQ, "layers.0.k_proj.weight": gqf.AlgorithmSearch} {
		if got, _ := f.Lookup(name); got.Algorithm != want {
			t.Errorf("%s: the file says %s, want %s", name, got.Algorithm, want)
		}
	}
	after, again := put(write.Options{})
	if !slices.Equal(before, after) || slices.Equal(before, with) {
		t.Error("the file without codes depends on what was written before")
	}
	if !slices.Equal(p.Warnings, warnings) || p.OutputBytes != bytes || !reflect.DeepEqual(again.Tensors, plain.Tensors) {
		t.Errorf("the plan has changed: %q, %d bytes; %+v, %+v", p.Warnings, p.OutputBytes, plain.Tensors, again.Tensors)
	}
}

// TestCodesOfFloatZeroPoints refuses codes, which have integer zero points, for tensors with
// floating-point ones.
func TestCodesOfFloatZeroPoints(t *testing.T) {
	dir := writeCheckpoint(t, "", testTensor{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{40, 64}})
	p, err := newPlan(t, dir, Options{Recipe: quantizer.Recipe{
		Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32, Layouts: []quantizer.LayoutRequest{{Family: quantizer.FamilyKleidiAI}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.gqf")
	codes := &plan.Codes{Rows: func(plan.Matrix) plan.RowReader { return zeroRows{} }}
	if _, err := p.WriteWith(context.Background(), path, write.Options{Codes: codes}); err == nil || !strings.Contains(err.Error(), "floating-point zero points") {
		t.Errorf("error %v", err)
	}
}
