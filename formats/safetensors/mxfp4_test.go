package safetensors

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// mxfp4File writes the tensors of testdata/mxfp4.json under the names of experts.
func mxfp4File(t *testing.T, scales []int64) (path string, blocks []byte, want struct{ Shape, Weights []float64 }) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "mxfp4.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Blocks, Scales []int
		Shape, Weights []float64
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	specs := []TensorSpec{
		{Name: "a.x_bias", Dtype: packing.F32, Shape: []int64{1}},
		{Name: "a.x_blocks", Dtype: packing.U8, Shape: []int64{2, 3, 2, 16}},
		{Name: "a.x_scales", Dtype: packing.U8, Shape: scales},
	}
	dir := t.TempDir()
	w, err := Create(dir, specs, WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	bytes := func(list []int) (b []byte) {
		for _, x := range list {
			b = append(b, byte(x))
		}
		return b
	}
	for i, b := range [][]byte{make([]byte, 4), bytes(v.Blocks), bytes(v.Scales)} {
		if err := w.WriteAt(i, b, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	want.Shape, want.Weights = v.Shape, v.Weights
	return dir, bytes(v.Blocks), want
}

// TestMXFP4 reads experts as Transformers does.
func TestMXFP4(t *testing.T) {
	dir, blocks, want := mxfp4File(t, []int64{2, 3, 2})
	c, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	x, ok := c.Lookup("a.x")
	if _, old := c.Lookup("a.x_blocks"); !ok || old || x.Dtype != f4 || !x.MXFP4() || !slices.Equal(x.Shape, []int64{2, 64, 3}) || want.Shape[1] != 64 {
		t.Fatalf("%+v", c.Tensors())
	}
	if names := c.Tensors(); names[0].Name != "a.x" || names[1].Name != "a.x_bias" || names[2].Name != "a.x_scales" {
		t.Errorf("%+v", names)
	}
	if raw, err := c.Bytes(x); err != nil || !slices.Equal(raw, blocks) {
		t.Errorf("bytes %d, %v", len(raw), err)
	}
	w, err := c.Weights(x, WeightsOptions{Transposed: true})
	if err != nil {
		t.Fatal(err)
	}
	if w.Slices != 2 || w.Rows != 3 || w.Cols != 64 {
		t.Fatalf("%d matrices of %d x %d", w.Slices, w.Rows, w.Cols)
	}
	got := make([]float32, 5*64)
	if err := w.Read(got, 1, 5); err != nil { // rows 1 and 2 of the first expert, all of the second
		t.Fatal(err)
	}
	for i, v := range got {
		row, col := 1+i/64, i%64
		if judge := want.Weights[(row/3*64+col)*3+row%3]; math.Float32bits(v) != math.Float32bits(float32(judge)) {
			t.Fatalf("row %d, column %d: %v, want %v", row, col, v, judge)
		}
	}
	row := make([]float32, 64)
	if err := w.Read(row, 0, 1); err != nil || row[0] != float32(want.Weights[0]) || row[0] == 0 {
		t.Errorf("with the smallest scale: %v, want %v, %v", row[0], want.Weights[0], err)
	}
	var ranges []int64
	for _, r := range w.Ranges(nil, 1, 2) {
		ranges = append(ranges, r.Size)
	}
	if !slices.Equal(ranges, []int64{4, 64}) {
		t.Errorf("two rows have ranges of %d bytes", ranges)
	}
	if _, err := c.Weights(x, WeightsOptions{}); err == nil || !strings.Contains(err.Error(), "stored inputs x outputs") {
		t.Errorf("as outputs x inputs: %v", err)
	}
}

// TestMXFP4Unfit leaves blocks alone where the scales do not fit.
func TestMXFP4Unfit(t *testing.T) {
	dir, _, _ := mxfp4File(t, []int64{2, 2, 3})
	c, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if x, ok := c.Lookup("a.x_blocks"); !ok || x.Dtype != packing.U8 {
		t.Errorf("%+v", c.Tensors())
	}
}
