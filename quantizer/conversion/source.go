package conversion

import (
	"fmt"
	"math"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/crc32c"
)

// weights opens the item's tensor in the checkpoint.
func (p *Plan) weights(it *quantized) (*safetensors.Weights, error) {
	return p.ck.Weights(*it.src, safetensors.WeightsOptions{Block: p.scaleBlock, Transposed: it.transposed})
}

// rowReader gives row n of a unit as float32, in dst or in memory of its own.
type rowReader func(dst []float32, n int64) []float32

// rows prepares the reading of rows row0 .. row0+rows of a slice and sums their bytes in the
// checkpoint. Rows of a transposed slice are strided there and are all read at once.
func (w *worker) rows(it *quantized, slice int, row0, rows int64, r *unitResult) rowReader {
	first := int(int64(slice)*it.rows + row0)
	if it.transposed {
		block := buffer.Grow(&w.block, int(rows*it.cols))
		w.weights.Widen(block, first, int(rows))
		return func(_ []float32, n int64) []float32 { return block[n*it.cols : (n+1)*it.cols] }
	}
	r.crc = crc32c.Checksum(w.weights.Bytes(first, int(rows)))
	return func(dst []float32, n int64) []float32 {
		dst = dst[:it.cols]
		w.weights.Widen(dst, first+int(n), 1)
		return dst
	}
}

// readBias reads the biases of rows first .. first+rows of the tensor, padded to
// whole panels: rows past the end repeat the last one, as the panel's codes do.
func (w *worker) readBias(it *quantized, first, rows int64) error {
	if it.bias == nil {
		return nil
	}
	view, err := w.plan.ck.Bytes(*it.bias)
	if err != nil {
		return err
	}
	bias := buffer.Grow(&w.bias, int((rows+blockRows-1)/blockRows*blockRows))
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
