package quantizer

import (
	"fmt"
	"hash/crc32"
	"math"

	"github.com/lowbit-go/gq/formats/safetensors"
)

// rowReader gives row n of a unit as float32, in dst or in memory of its own.
type rowReader func(dst []float32, n int64) []float32

// rows prepares the reading of rows row0 .. row0+rows of a slice and sums their
// bytes in the checkpoint. A slice stored in x out is gathered at once, as its
// rows are strided there.
func (w *worker) rows(it *item, slice int, row0, rows int64, r *unitResult) (rowReader, error) {
	view, err := w.plan.ck.Bytes(*it.src)
	if err != nil {
		return nil, err
	}
	if it.transposed {
		return w.gather(it, view, slice, row0, rows)
	}
	first := int64(slice)*it.rows + row0
	rb := it.rowBytes()
	raw := view[first*rb : (first+rows)*rb]
	r.crc = crc32.Checksum(raw, castagnoli)
	return func(dst []float32, n int64) []float32 {
		dst = dst[:it.cols]
		safetensors.Widen(dst, raw[n*rb:(n+1)*rb], it.src.Dtype)
		if it.blockScale != nil {
			it.blockScale.Apply(dst, int(first+n))
		}
		return dst
	}, nil
}

// gather transposes outputs row0 .. row0+rows of a slice stored as cols x rows.
func (w *worker) gather(it *item, view []byte, slice int, row0, rows int64) (rowReader, error) {
	es := it.src.Size / (int64(it.slices) * it.rows * it.cols)
	block := grow(&w.block, int(rows*it.cols))
	line := make([]float32, rows)
	base := int64(slice) * it.rows * it.cols
	for k := range it.cols {
		off := (base + k*it.rows + row0) * es
		safetensors.Widen(line, view[off:off+rows*es], it.src.Dtype)
		for i, v := range line {
			block[int64(i)*it.cols+k] = v
		}
	}
	return func(_ []float32, n int64) []float32 {
		return block[n*it.cols : (n+1)*it.cols]
	}, nil
}

// readBias reads the biases of rows first .. first+rows of the tensor, padded to
// whole panels: rows past the end repeat the last one, as the panel's codes do.
func (w *worker) readBias(it *item, first, rows int64) error {
	if it.bias == nil {
		return nil
	}
	view, err := w.plan.ck.Bytes(*it.bias)
	if err != nil {
		return err
	}
	bias := grow(&w.bias, int((rows+blockRows-1)/blockRows*blockRows))
	es := it.bias.Size / it.bias.Numel()
	safetensors.Widen(bias[:rows], view[first*es:(first+rows)*es], it.bias.Dtype)
	for i, v := range bias[:rows] {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%s: tensor %q: element %d is %v: a bias has to be finite", w.plan.ck.Files()[it.bias.File].Name, it.bias.Name, first+int64(i), v)
		}
	}
	for i := rows; i < int64(len(bias)); i++ {
		bias[i] = bias[rows-1]
	}
	return nil
}
