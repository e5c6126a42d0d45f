package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// A stored tensor has a description and its bytes.
type stored struct {
	TensorSpec
	data []byte
}

// writeCheckpoint writes tensors to dir with a Writer.
func writeCheckpoint(t testing.TB, dir string, opts WriteOptions, tensors ...stored) {
	t.Helper()
	specs := make([]TensorSpec, len(tensors))
	for i := range tensors {
		specs[i] = tensors[i].TensorSpec
	}
	w, err := Create(dir, specs, opts)
	if err != nil {
		t.Fatal(err)
	}
	for i := range tensors {
		if err := w.WriteAt(i, tensors[i].data, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

// fileOf returns the file that a Writer would write for tensors, without waiting for the disk.
func fileOf(t testing.TB, tensors ...stored) []byte {
	t.Helper()
	specs := make([]TensorSpec, len(tensors))
	for i := range tensors {
		specs[i] = tensors[i].TensorSpec
	}
	l := &Layout{specs: specs, Places: make([]Place, len(specs))}
	if err := errors.Join(l.distribute(0), l.place()); err != nil {
		t.Fatal(err)
	}
	var header bytes.Buffer
	if err := l.WriteHeader(0, &header); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, l.Shards[0].Size)
	copy(b, header.Bytes())
	for i := range tensors {
		copy(b[l.Places[i].Offset:], tensors[i].data)
	}
	return b
}

// openTensors opens a checkpoint of these tensors.
func openTensors(t testing.TB, tensors ...stored) *Checkpoint {
	t.Helper()
	c, err := openImage(t, fileOf(t, tensors...), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// encode stores values as d; FP8 values are given as codes.
func encode(d packing.Dtype, values ...float64) []byte {
	var b []byte
	for _, v := range values {
		switch d {
		case packing.F64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		case packing.F32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		case packing.F16:
			b = binary.LittleEndian.AppendUint16(b, floats.F16FromF32(float32(v)))
		case packing.BF16:
			b = binary.LittleEndian.AppendUint16(b, floats.BF16FromF32(float32(v)))
		default:
			b = append(b, byte(v))
		}
	}
	return b
}

func TestReadRows(t *testing.T) {
	inf := math.Inf(1)
	for _, tt := range []struct {
		d    packing.Dtype
		in   []float64
		want []float32
	}{
		{packing.F64, []float64{1, 0.1, 1e300, -1e-300, inf, 0x1.0000010000001p0}, []float32{1, 0.1, float32(inf), float32(math.Copysign(0, -1)), float32(inf), 0x1.000002p0}},
		{packing.F32, []float64{1, 0.1, 0x1p-149, -0x1p-126, inf, 3}, []float32{1, 0.1, 0x1p-149, -0x1p-126, float32(inf), 3}},
		{packing.F16, []float64{1, -65504, 0x1p-24, 0x1p-14, inf, 3}, []float32{1, -65504, 0x1p-24, 0x1p-14, float32(inf), 3}},
		{packing.BF16, []float64{1, -0.5, 0x1p-133, 0x1p127, inf, 3}, []float32{1, -0.5, 0x1p-133, 0x1p127, float32(inf), 3}},
		{packing.F8E4M3, []float64{0x38, 0xb8, 0x7e, 0x01, 0x80, 0x08}, []float32{1, -1, 448, 0x1p-9, float32(math.Copysign(0, -1)), 0x1p-6}},
		{packing.F8E5M2, []float64{0x3c, 0xbc, 0x7b, 0x01, 0x7c, 0x04}, []float32{1, -1, 57344, 0x1p-16, float32(inf), 0x1p-14}},
	} {
		t.Run(tt.d.String(), func(t *testing.T) {
			c := openTensors(t, stored{TensorSpec{"x", tt.d, []int64{3, 1, 2}}, encode(tt.d, tt.in...)})
			ts := c.Tensors()[0]
			for row := range 4 {
				for n := range 4 - row {
					got := make([]float32, 2*n)
					if err := c.ReadRows(got, ts, row, n); err != nil {
						t.Fatal(err)
					}
					for i, v := range got {
						if w := tt.want[2*row+i]; math.Float32bits(v) != math.Float32bits(w) {
							t.Errorf("value %d of row %d is %v, want %v", i, row, v, w)
						}
					}
				}
			}
			for _, bad := range [][3]int{{-1, 1, 2}, {0, -1, 0}, {3, 1, 2}, {0, 4, 8}, {4, 0, 0}, {0, 1, 3}, {0, 1, 1}, {math.MaxInt, math.MaxInt, 2}} {
				if err := c.ReadRows(make([]float32, bad[2]), ts, bad[0], bad[1]); err == nil {
					t.Errorf("rows %d+%d into %d values", bad[0], bad[1], bad[2])
				}
			}
		})
	}
}

func TestReadRowsUnsupported(t *testing.T) {
	c := openTensors(t, stored{TensorSpec{"x", packing.I32, []int64{1}}, make([]byte, 4)})
	var ue *UnsupportedError
	if err := c.ReadRows(make([]float32, 1), c.Tensors()[0], 0, 1); !errors.As(err, &ue) {
		t.Errorf("error is %v", err)
	}
}

func TestMatrix(t *testing.T) {
	for _, tt := range []struct {
		shape            []int64
		rows, cols, size int64
	}{
		{nil, 1, 1, 1}, {[]int64{7}, 1, 7, 7}, {[]int64{2, 3}, 2, 3, 6}, {[]int64{2, 3, 4, 5}, 24, 5, 120}, {[]int64{0}, 1, 0, 0}, {[]int64{4, 0}, 4, 0, 0},
	} {
		ts := Tensor{Shape: tt.shape}
		if rows, cols := ts.Matrix(); rows != tt.rows || cols != tt.cols || ts.Numel() != tt.size {
			t.Errorf("%v is %d x %d = %d", tt.shape, rows, cols, ts.Numel())
		}
	}
}

// fp8 makes weights of this shape with codes 0, 1, 2, ... (no NaN), and scales 1, 2, 3, ... of
// dtype d and shape scaleShape.
func fp8(name string, w packing.Dtype, shape []int64, d packing.Dtype, scaleShape []int64) (weights, scales stored) {
	weights = stored{TensorSpec: TensorSpec{name, w, shape}}
	for i := range (Tensor{Shape: shape}).Numel() {
		weights.data = append(weights.data, byte(i%120))
	}
	scales = stored{TensorSpec: TensorSpec{name + "_scale_inv", d, scaleShape}}
	for i := range (Tensor{Shape: scaleShape}).Numel() {
		scales.data = append(scales.data, encode(d, float64(1+i))...)
	}
	return weights, scales
}

func TestBlockScales(t *testing.T) {
	for _, tt := range []struct {
		name              string
		w, d              packing.Dtype
		shape, scaleShape []int64
		block             [2]int
	}{
		{"one block", packing.F8E4M3, packing.F32, []int64{128, 128}, []int64{1, 1}, [2]int{}},
		{"default block", packing.F8E4M3, packing.F32, []int64{256, 384}, []int64{2, 3}, [2]int{}},
		{"partial edge blocks", packing.F8E4M3, packing.F32, []int64{130, 257}, []int64{2, 3}, [2]int{128, 128}},
		{"smaller than a block", packing.F8E5M2, packing.BF16, []int64{3, 5}, []int64{1, 1}, [2]int{128, 128}},
		{"other block", packing.F8E5M2, packing.F16, []int64{5, 7}, []int64{3, 2}, [2]int{2, 4}},
		{"rows as blocks", packing.F8E4M3, packing.F32, []int64{5, 7}, []int64{5, 1}, [2]int{1, 128}},
		{"experts", packing.F8E4M3, packing.F32, []int64{3, 5, 7}, []int64{3, 3, 2}, [2]int{2, 4}},
		{"one number", packing.F8E4M3, packing.F32, []int64{130, 257}, []int64{}, [2]int{}},
		{"vector of one number", packing.F8E4M3, packing.F32, []int64{3, 130, 20}, []int64{1}, [2]int{}},
		{"empty", packing.F8E4M3, packing.F32, []int64{0, 5}, []int64{0, 1}, [2]int{}},
		{"empty rows", packing.F8E4M3, packing.F32, []int64{5, 0}, []int64{1, 0}, [2]int{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, s := fp8("l.weight", tt.w, tt.shape, tt.d, tt.scaleShape)
			c := openTensors(t, w, s)
			ts, _ := c.Lookup("l.weight")
			weights, err := c.Weights(ts, WeightsOptions{Block: tt.block})
			if err != nil {
				t.Fatal(err)
			}
			rows, cols := ts.Matrix()
			if weights.Scale.Name != "l.weight_scale_inv" {
				t.Errorf("scales are %q", weights.Scale.Name)
			}
			got := make([]float32, rows*cols)
			for r := range int(rows) { // row by row and, below, all at once
				if err := weights.Read(got[r*int(cols):][:cols], r, 1); err != nil {
					t.Fatal(err)
				}
			}
			want := slowScaled(w, tt.scaleShape, tt.block)
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			if err := weights.Read(got, 0, int(rows)); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// slowScaled computes each value of fp8's weights from its indices.
func slowScaled(w stored, scaleShape []int64, block [2]int) []float32 {
	for i := range block {
		if block[i] == 0 {
			block[i] = 128
		}
	}
	n := len(w.Shape)
	rows, cols := w.Shape[n-2], w.Shape[n-1]
	out := make([]float32, 0, len(w.data))
	for i, code := range w.data {
		row, k := int64(i)/cols, int64(i)%cols
		scale := int64(0)
		if len(scaleShape) == n {
			down, across := scaleShape[n-2], scaleShape[n-1]
			scale = (row/rows*down+row%rows/int64(block[0]))*across + k/int64(block[1])
		}
		v := floats.F8E4M3ToF32(code)
		if w.Dtype == packing.F8E5M2 {
			v = floats.F8E5M2ToF32(code)
		}
		out = append(out, float32(v*float32(1+scale)))
	}
	return out
}

func TestBlockScalesRefused(t *testing.T) {
	weight := []int64{256, 130}
	for _, tt := range []struct {
		name      string
		w, d      packing.Dtype
		shape     []int64
		scale     string
		scales    []int64
		block     [2]int
		malformed bool
		want      string
	}{
		{"too few", packing.F8E4M3, packing.F32, weight, "l.weight_scale_inv", []int64{2, 1}, [2]int{}, true, "does not hold the scales"},
		{"transposed", packing.F8E4M3, packing.F32, []int64{256, 384}, "l.weight_scale_inv", []int64{3, 2}, [2]int{}, true, "does not hold the scales"},
		{"other block", packing.F8E4M3, packing.F32, weight, "l.weight_scale_inv", []int64{2, 2}, [2]int{64, 128}, true, "blocks of 64 x 128"},
		{"one rank less", packing.F8E4M3, packing.F32, []int64{2, 128, 128}, "l.weight_scale_inv", []int64{2, 1}, [2]int{}, true, "does not hold the scales"},
		{"vector weights", packing.F8E4M3, packing.F32, []int64{130}, "l.weight_scale_inv", []int64{2}, [2]int{}, true, "does not hold the scales"},
		{"weights not FP8", packing.BF16, packing.F32, weight, "l.weight_scale_inv", []int64{2, 2}, [2]int{}, false, "not FP8"},
		{"scales of integers", packing.F8E4M3, packing.I32, weight, "l.weight_scale_inv", []int64{2, 2}, [2]int{}, false, "block scales of dtype I32"},
		{"compressed-tensors", packing.F8E4M3, packing.BF16, weight, "l.weight_scale", []int64{256, 1}, [2]int{}, false, `only "l.weight_scale_inv" is read`},
		{"Mistral", packing.F8E4M3, packing.BF16, weight, "l.qscale_weight", []int64{}, [2]int{}, false, `scales in "l.qscale_weight"`},
		{"plain scale", packing.F8E4M3, packing.F32, weight, "l.scale", []int64{2, 2}, [2]int{}, false, `scales in "l.scale"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			size := func(d packing.Dtype, shape []int64) []byte {
				n, _ := dataSize(d, shape)
				return make([]byte, n)
			}
			c := openTensors(t,
				stored{TensorSpec{"l.weight", tt.w, tt.shape}, size(tt.w, tt.shape)},
				stored{TensorSpec{tt.scale, tt.d, tt.scales}, size(tt.d, tt.scales)})
			_, err := c.BlockScales("l.weight", tt.block)
			var fe *FormatError
			var ue *UnsupportedError
			if errors.As(err, &fe) != tt.malformed || errors.As(err, &ue) == tt.malformed || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("error is %T: %v, want %q", err, err, tt.want)
			}
		})
	}
	w, s := fp8("l.weight", packing.F8E4M3, []int64{4, 4}, packing.F32, []int64{1, 1})
	c := openTensors(t, w, s, stored{TensorSpec{"m.weight", packing.F8E4M3, []int64{4, 4}}, make([]byte, 16)})
	if b, err := c.BlockScales("m.weight", [2]int{}); b != nil || err != nil {
		t.Errorf("weights without scales: %v, %v", b, err)
	}
	if _, err := c.BlockScales("n.weight", [2]int{}); err == nil {
		t.Error("no error for weights that are not there")
	}
	if _, err := c.BlockScales("l.weight", [2]int{-1, 1}); err == nil {
		t.Error("a negative block")
	}
	l, _ := c.Lookup("l.weight")
	if _, err := c.Weights(l, WeightsOptions{Transposed: true}); err == nil {
		t.Error("block scales of a transposed tensor")
	}
}

func BenchmarkReadRows(b *testing.B) {
	const rows, cols = 256, 4096
	for _, d := range []packing.Dtype{packing.F64, packing.F32, packing.F16, packing.BF16, packing.F8E4M3} {
		b.Run(d.String(), func(b *testing.B) {
			size := rows * cols * d.Bits() / 8
			c := openTensors(b, stored{TensorSpec{"x", d, []int64{rows, cols}}, make([]byte, size)})
			ts, dst := c.Tensors()[0], make([]float32, 8*cols)
			b.SetBytes(int64(8 * cols * d.Bits() / 8))
			for i := 0; b.Loop(); i++ {
				if err := c.ReadRows(dst, ts, i%(rows/8)*8, 8); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
