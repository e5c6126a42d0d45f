package fromcheckpoint

import (
	"context"
	"fmt"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/write"
)

// Weights opens an item's tensor.
func (in *Input) Weights(src *safetensors.Tensor, transposed bool) (*safetensors.Weights, error) {
	return in.Ck.Weights(*src, safetensors.WeightsOptions{Block: in.scaleBlock, Transposed: transposed})
}

func (in *Input) Rows(it plan.Item) (func(dst []float32, slice int, row, n int64), error) {
	src, rows, transposed := it.Common().Src, int64(0), false
	switch it := it.(type) {
	case *plan.Unquantized:
		rows, transposed = it.Rows, it.Transposed
	case *plan.Quantized:
		rows, transposed = it.Rows, it.Transposed
	}
	if len(src.Shape) < 2 { // a vector, whose rows are its elements
		view, err := in.Ck.Bytes(*src)
		size := src.Size / max(src.Numel(), 1)
		return func(dst []float32, _ int, row, n int64) {
			safetensors.Widen(dst, view[row*size:(row+n)*size], src.Dtype)
		}, err
	}
	w, err := in.Weights(src, transposed)
	return func(dst []float32, slice int, row, n int64) { w.Widen(dst, slice*int(rows)+int(row), int(n)) }, err
}

// ReadBias reads the biases of the block's unit, if its item has a bias.
func ReadBias(ck *safetensors.Checkpoint, b *write.Block) error {
	t := b.Item.Bias
	if t == nil {
		return nil
	}
	view, err := ck.Bytes(*t)
	if err != nil {
		return err
	}
	rows, first := b.Rows(), int64(b.Unit.Slice)*b.Item.Rows+b.Row0()
	bias, size := b.GrowBias(rows), t.Size/t.Numel()
	safetensors.Widen(bias[:rows], view[first*size:(first+rows)*size], t.Dtype)
	for i, v := range bias[:rows] {
		if !floats.Finite(v) {
			return fmt.Errorf("%s: tensor %q: element %d is %v: a bias has to be finite", ck.Files()[t.File].Name, t.Name, first+int64(i), v)
		}
	}
	b.PadBias(rows)
	return nil
}

// sumScales sums the bytes of block scales that are multiplied into the item, in the item's first
// unit.
func (in *Input) sumScales(e *plan.Entry, u write.Unit, found *write.Result) error {
	if u.Slice != 0 || u.First != 0 || u.Sum {
		return nil
	}
	for _, n := range e.Aliases {
		if !n.Absorbed {
			continue
		}
		view, err := in.Ck.Bytes(n.Src)
		if err != nil {
			return err
		}
		found.ScaleCRC = crc32c.Checksum(view)
	}
	return nil
}

// readAhead begins to fetch the bytes of remote files that n units will read.
func (in *Input) readAhead(ctx context.Context, n int, at func(i int) write.Unit) *safetensors.ReadAhead {
	return in.Ck.ReadAhead(ctx, n, func(i int, list []safetensors.Range) []safetensors.Range { return in.ranges(list, at(i)) })
}

// ranges appends the ranges of the checkpoint that a unit of a .gqf file reads.
func (in *Input) ranges(list []safetensors.Range, u write.Unit) []safetensors.Range {
	it, ok := u.Item.(*plan.Quantized)
	src := u.Item.Common().Src
	switch {
	case !ok || u.Sum:
		return append(list, src.Range(u.First, u.Count))
	case it.Transposed: // gathered from all of the slice
		n := src.Size / int64(it.Slices)
		list = append(list, src.Range(int64(u.Slice)*n, n))
	default:
		row := int64(u.Slice)*it.Rows + u.First*write.BlockRows
		list = append(list, src.Range(row*it.RowBytes(), u.Rows(it)*it.RowBytes()))
	}
	for _, n := range it.Aliases {
		if n.Absorbed {
			list = append(list, n.Src.Range(0, n.Src.Size))
		}
	}
	if b := it.Bias; b != nil {
		size := b.Size / b.Numel()
		list = append(list, b.Range((int64(u.Slice)*it.Rows+u.First*write.BlockRows)*size, u.Rows(it)*size))
	}
	return list
}
