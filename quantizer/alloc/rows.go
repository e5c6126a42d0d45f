package alloc

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// weights opens a matrix, or fused experts, of the checkpoint.
func (j *Job) weights(name string) (*safetensors.Weights, error) {
	t, ok := j.Checkpoint.Lookup(name)
	if !ok || len(t.Shape) < 2 {
		return nil, fmt.Errorf("tensor %q is not a matrix of the checkpoint", name)
	}
	return j.Checkpoint.Weights(t, safetensors.WeightsOptions{Block: j.block})
}

// round quantizes all rows of a tensor.
func round(w *safetensors.Weights, s rounding.Scheme, threads int) (*rounding.Codes, error) {
	rows := w.Slices * w.Rows
	codes := rounding.NewCodes(s.Shape(rows, w.Cols))
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for t := range threads {
		wg.Go(func() {
			c, err := rounding.NewRounder(s, w.Cols)
			if err == nil {
				c.Recover(w.Tensor.Precision())
			}
			x := make([]float32, w.Cols)
			for row := t * rows / threads; row < (t+1)*rows/threads && err == nil; row++ {
				if err = w.Read(x, row, 1); err != nil {
					break
				}
				if err = c.Quantize(codes.Row(row), x); err != nil {
					err = fmt.Errorf("tensor %q, row %d: %w", w.Tensor.Name, row, err)
				}
			}
			errs[t] = err
		})
	}
	wg.Wait()
	return codes, cmp.Or(errs...)
}

// roundedEmbedding makes codes a model.Embedding.
type roundedEmbedding struct{ *rounding.Codes }

func (t roundedEmbedding) Lookup(dst []float32, row int) error {
	t.DequantizeRow(dst, row)
	return nil
}
