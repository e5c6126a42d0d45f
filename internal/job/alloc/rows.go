package alloc

import (
	"context"
	"fmt"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/job/rounding"
)

func (j *Job) weights(name string) (*safetensors.Weights, error) {
	t, ok := j.Checkpoint.Lookup(name)
	if !ok || len(t.Shape) < 2 {
		return nil, fmt.Errorf("tensor %q is not a matrix of the checkpoint", name)
	}
	return j.Checkpoint.Weights(t, safetensors.WeightsOptions{Block: j.block})
}

func round(ctx context.Context, w *safetensors.Weights, s rounding.Scheme, threads int) (*rounding.Codes, error) {
	rows := w.Slices * w.Rows
	codes := rounding.NewCodes(s.Shape(rows, w.Cols))
	err := cpu.Parallel(ctx, threads, rows, func() func(row int) error {
		c, err := rounding.NewRounder(s, w.Cols)
		if err == nil {
			c.Recover(w.Tensor.Precision())
		}
		x := make([]float32, w.Cols)
		return func(row int) error {
			if err == nil {
				err = w.Read(x, row, 1)
			}
			if err != nil {
				return err
			}
			if err = c.Quantize(codes.Row(row), x); err != nil {
				err = fmt.Errorf("tensor %q, row %d: %w", w.Tensor.Name, row, err)
			}
			return err
		}
	})
	return codes, err
}

type roundedEmbedding struct{ *rounding.Codes }

func (t roundedEmbedding) Lookup(dst []float32, row int) error {
	t.DequantizeRow(dst, row)
	return nil
}
