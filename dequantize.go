package gq

import (
	"context"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/packing"
)

// DequantizeOptions are the options of Dequantize. The zero value is ready to use.
type DequantizeOptions struct {
	// Dtype of the tensors that were quantized: BF16, or F32, which is exact. Default (zero): BF16.
	Dtype packing.Dtype
	// Threads is how many workers run. Default (0): GOMAXPROCS. The checkpoint does not depend on
	// it.
	Threads int
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress
}

// Dequantize writes the weights of a .gqf file, a GGUF file or a quantized checkpoint as an
// unquantized safetensors checkpoint in the directory dir, with their original names. The directory
// is made if it does not exist, and must be empty.
func Dequantize(ctx context.Context, file, dir string, o DequantizeOptions) (*tocheckpoint.DequantizeReport, error) {
	stages := stages{to: o.Progress}
	from, err := resolveSource(ctx, file, true, stages)
	if err != nil {
		return nil, err
	}
	defer from.Release()
	file = from.Path
	var s files.Set
	s.Input("the source", file)
	s.Output("output", "the checkpoint", dir)
	if err := collisions(&s); err != nil {
		return nil, err
	}
	var r *tocheckpoint.DequantizeReport
	err = withView(ctx, file, o.Threads, stages, false, func(m readable) error {
		f, err := m.open()
		if err != nil {
			return err
		}
		defer f.Close()
		q := conversion.DequantizeOptions{Threads: o.Threads, Dtype: o.Dtype}
		if m.imported != nil {
			q.Widened = func(name string) bool { return m.imported.Tensors[name].Quantized }
		}
		add, end := stages.begin("dequantizing", "bytes", conversion.DequantizedBytes(f))
		defer end()
		q.Progress = add
		r, err = conversion.Dequantize(ctx, f, m.path, dir, q)
		return err
	})
	return r, err
}
