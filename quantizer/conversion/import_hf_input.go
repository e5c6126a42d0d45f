package conversion

import (
	"fmt"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// hfInput is the quantized checkpoint that a plan imports.
type hfInput struct {
	imported
	ck      *safetensors.Checkpoint
	weights []*hfWeight // by item; nil: not quantized in the checkpoint
}

func (in *hfInput) guard(fn func() error) error { return in.ck.Guard(fn) }

func (in *hfInput) file(e *entry) string { return in.ck.Files()[e.src.File].Name }

func (in *hfInput) scaleAdvice(*quantized, *rounding.ScaleError) string {
	return "--dequantize stores such tensors in float32"
}

// assets are config.json, without its entry about quantization, and the files beside it.
func (in *hfInput) assets(*planner) ([]gqf.PackedAsset, error) {
	specs, err := checkpointInput{in.plan}.modelFiles()
	if err != nil {
		return nil, err
	}
	return packAssets(specs)
}

// piece returns bytes of an unquantized tensor as they are stored. For a dequantized tensor it dequantizes
// the rows that hold the bytes.
func (in *hfInput) piece(e *entry, first, count int64, buf *[]byte) ([]byte, error) {
	w := in.weights[e.index]
	if w == nil {
		view, err := in.ck.Bytes(*e.src)
		if err != nil {
			return nil, err
		}
		return view[first:][:count], nil
	}
	k := w.Shape[1]
	size := 4 * k
	from, to := first/size, (first+count-1)/size+1
	out := buffer.Grow(buf, int((to-from)*size))
	x := make([]float32, k)
	var row hfquant.Row
	for n := from; n < to; n++ {
		if err := w.Read(&row, n); err != nil {
			return nil, fmt.Errorf("%s: %w", in.file(e), err)
		}
		dequantizeRow(x, &row, w.Scheme.Group)
		for c, v := range x {
			if !floats.Finite(v) {
				return nil, fmt.Errorf("%s: tensor %q, row %d: the weight in column %d is %v: want finite weights", in.file(e), w.Name, n, c, v)
			}
		}
		putFloats(out[(n-from)*size:][:size], x, 0)
	}
	return out[first-from*size:][:count], nil
}

// dequantizeRow sets dst to (code - zero) * scale, or to code * scale + offset.
func dequantizeRow(dst []float32, row *hfquant.Row, group int64) {
	if group == 0 {
		group = int64(len(dst))
	}
	for k, q := range row.Codes {
		g := int64(k) / group
		switch s := row.Scales[g]; {
		case len(row.Zeros) > 0:
			dst[k] = float32(float32(int32(q)-int32(row.Zeros[g])) * s)
		case len(row.Offsets) > 0:
			dst[k] = float32(float32(q)*s) + row.Offsets[g]
		default:
			dst[k] = float32(float32(q) * s)
		}
	}
}

// filler puts codes, scales and zero points of rows into the worker's block. A scale of several of the
// item's groups is repeated.
func (in *hfInput) filler(w *worker, it *quantized, u unit, _ *unitResult) (func(n, i int64) error, error) {
	row0, rows := u.first*blockRows, u.rows(it)
	if err := w.readBias(it, row0, rows); err != nil {
		return nil, err
	}
	weight := in.weights[it.index]
	source := weight.Scheme.Group
	if source == 0 || source > it.cols {
		source = it.cols
	}
	var row hfquant.Row
	return func(n, i int64) error {
		if err := weight.Read(&row, row0+n); err != nil {
			return fmt.Errorf("%s: %w", in.file(&it.entry), err)
		}
		copy(w.codes[int(i)*w.stride:], row.Codes)
		for g := range w.groups {
			from, to := int64(g)*weight.group/source, int(i)*w.groups+g
			w.scales[to] = row.Scales[from]
			switch it.zeros {
			case packing.ZeroF32:
				w.floatZeros[to] = row.Offsets[from]
			case packing.ZeroInt8:
				w.zeros[to] = row.Zeros[from]
			}
		}
		if err := w.holds(i); err != nil {
			return w.rowError(it, u.slice, row0+n, err)
		}
		return nil
	}, nil
}
