package conversion

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/model/llamacpp"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// ggufInput is the GGUF file that a plan imports. The checkpoint's tensors are the plan's items, in
// the same order.
type ggufInput struct {
	imported
	gguf       *gguf.File
	checkpoint *llamacpp.Checkpoint
	byName     map[string]*llamacpp.CheckpointTensor
}

func (in *ggufInput) guard(fn func() error) error { return in.gguf.Guard(fn) }

func (in *ggufInput) scaleAdvice(it *quantized, e *rounding.ScaleError) string {
	if e == nil || floats.Abs(e.Scale) > e.Dtype.Max() || e.Scale < 0 && it.scheme.Positive() {
		return fmt.Sprintf("a .gqf file cannot hold such blocks of %s", in.tensor(&it.entry).Stored.Type)
	}
	return "repack to --layout lowbit, which holds all scales of F16 down to 0"
}

// assets are config.json and the tokenizer's files, made of the metadata.
func (in *ggufInput) assets(*planner) (list []gqf.PackedAsset, err error) {
	for _, a := range in.checkpoint.Assets {
		kind := gqf.AssetFile
		if a.Name == "config.json" {
			kind = gqf.AssetConfig
		}
		packed, err := gqf.PackAsset(gqf.AssetSpec{Kind: kind, Name: a.Name, Data: a.Data})
		if err != nil {
			return nil, err
		}
		list = append(list, packed)
	}
	return list, nil
}

func (in *ggufInput) tensor(e *entry) *llamacpp.CheckpointTensor {
	return &in.checkpoint.Tensors[e.index]
}

// piece returns bytes of an unquantized item: a view of the file if the file stores them as they are.
// Else it converts the rows that hold the bytes.
func (in *ggufInput) piece(e *entry, first, count int64, buf *[]byte) ([]byte, error) {
	t := in.tensor(e)
	data, kind := in.gguf.Data(t.Stored), t.Stored.Type
	cols := int64(1) // of a vector, whose rows are its elements
	if len(t.Shape) > 1 {
		cols = t.Shape[len(t.Shape)-1]
	}
	if unquantizedTypes[kind] == e.src.Dtype && !t.Permuted() && t.Add == 0 {
		return data[int64(t.First)*kind.Size(cols)+first:][:count], nil
	}
	size := cols * int64(e.src.Dtype.Bits()/8)
	from, to := first/size, (first+count-1)/size+1
	out := buffer.Grow(buf, int((to-from)*size))
	if len(t.Shape) == 1 && kind.BlockWeights() > 1 { // blocks hold many rows
		x := make([]float32, to-from)
		if err := in.elements(x, t, from); err != nil {
			return nil, err
		}
		putFloats(out, x, t.Add)
		return out[first-from*size:][:count], nil
	}
	rowBytes := kind.Size(cols)
	x := make([]float32, cols)
	for i := from; i < to; i++ {
		row := data[int64(t.Row(int(i)))*rowBytes:][:rowBytes]
		if unquantizedTypes[kind] == e.src.Dtype && t.Add == 0 {
			copy(out[(i-from)*size:], row)
			continue
		}
		if err := in.decode(x, t.Stored, t.Row(int(i)), 0, row); err != nil {
			return nil, err
		}
		putFloats(out[(i-from)*size:][:size], x, t.Add)
	}
	return out[first-from*size:][:count], nil
}

// elements puts the elements of a vector from first on into x, in the order of the checkpoint. It
// dequantizes only the blocks that hold them.
func (in *ggufInput) elements(x []float32, t *llamacpp.CheckpointTensor, first int64) error {
	data, kind := in.gguf.Data(t.Stored), t.Stored.Type
	n := kind.BlockWeights()
	size := int(kind.Size(int64(n)))
	block, have := make([]float32, n), -1
	for i := range x {
		at := t.Row(int(first) + i)
		if b := at / n; b != have {
			if err := in.decode(block, t.Stored, 0, b*n, data[b*size:][:size]); err != nil {
				return err
			}
			have = b
		}
		x[i] = block[at%n]
	}
	return nil
}

// decode dequantizes a row from a column on. It fails if a weight of a quantized type is not finite, as
// filler does for scales: NaN in place of a weight is damage, not a value.
func (in *ggufInput) decode(x []float32, t *gguf.Tensor, row, column int, data []byte) error {
	if err := t.Type.Decode(x, data); err != nil {
		return fmt.Errorf("%s: tensor %q: %w", in.src.path, t.Name, err)
	}
	if t.Type.BlockWeights() == 1 {
		return nil
	}
	if i := slices.IndexFunc(x, func(v float32) bool { return !floats.Finite(v) }); i >= 0 {
		return fmt.Errorf("%s: tensor %q, row %d: the %s weight in column %d is %v: want finite weights", in.src.path, t.Name, row, t.Type, column+i, x[i])
	}
	return nil
}

// putFloats stores x + add as float32.
func putFloats(out []byte, x []float32, add float32) {
	for i, v := range x {
		if add != 0 {
			v += add
		}
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(v))
	}
}

// filler takes the codes of rows apart.
func (in *ggufInput) filler(w *worker, it *quantized, u unit, _ *unitResult) (func(n, i int64) error, error) {
	t := in.tensor(&it.entry)
	row0, rows := u.first*blockRows, u.rows(it)
	if err := in.readBias(w, it, row0, rows); err != nil {
		return nil, err
	}
	data, rowBytes := in.gguf.Data(t.Stored), t.Stored.RowBytes()
	var f gguf.Fields
	return func(n, i int64) error {
		if err := t.Stored.Type.Unpack(&f, data[int64(t.Row(int(row0+n)))*rowBytes:][:rowBytes]); err != nil {
			return w.rowError(it, u.slice, row0+n, err)
		}
		copy(w.codes[int(i)*w.stride:], f.Codes)
		copy(w.scales[int(i)*w.groups:], f.Scales)
		if err := w.holds(i); err != nil {
			return w.rowError(it, u.slice, row0+n, err)
		}
		return nil
	}, nil
}

// holds checks that the layouts hold the scales of row i of the block.
func (w *worker) holds(i int64) error {
	dtype := w.item.scheme.ScaleDtype
	for g, s := range w.scales[int(i)*w.groups : (int(i)+1)*w.groups] {
		if floats.Abs(s) > dtype.Max() || s < 0 && w.item.scheme.Positive() {
			return &rounding.ScaleError{Group: g, Scale: s, Dtype: dtype, Smallest: w.smallest}
		}
	}
	return w.tooSmall(i)
}

// readBias reads the biases of rows first .. first+rows, padded to whole panels as worker.readBias
// does.
func (in *ggufInput) readBias(w *worker, it *quantized, first, rows int64) error {
	bias := buffer.Grow(&w.bias, int((rows+blockRows-1)/blockRows*blockRows))
	clear(bias)
	t := in.byName[biasName(it.name())]
	if t == nil {
		return nil
	}
	if err := in.elements(bias[:rows], t, first); err != nil {
		return err
	}
	if i := slices.IndexFunc(bias[:rows], func(v float32) bool { return !floats.Finite(v) }); i >= 0 {
		return fmt.Errorf("%s: tensor %q: element %d is %v: a bias has to be finite", in.src.path, t.Stored.Name, t.Row(int(first)+i), bias[i])
	}
	for i := rows; i < int64(len(bias)); i++ {
		bias[i] = bias[rows-1]
	}
	return nil
}
