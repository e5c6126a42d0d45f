package alloc

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// weights opens a matrix of the checkpoint, or the fused experts of one.
func (j *Job) weights(name string) (*safetensors.Weights, error) {
	t, ok := j.Checkpoint.Lookup(name)
	if !ok || len(t.Shape) < 2 {
		return nil, fmt.Errorf("tensor %q is not a matrix of the checkpoint", name)
	}
	return j.Checkpoint.Weights(t, safetensors.WeightsOptions{Block: j.block})
}

// rounded holds a tensor's codes; it takes a little more than a byte a weight.
type rounded struct {
	scheme       rounding.Scheme
	cols, groups int
	codes        []int8
	scales       []float32
	zeros        []int8
}

// round quantizes all rows of a tensor.
func round(w *safetensors.Weights, s rounding.Scheme, threads int) (*rounded, error) {
	rows := w.Slices * w.Rows
	groups := s.Groups(w.Cols)
	r := &rounded{scheme: s, cols: w.Cols, groups: groups, codes: make([]int8, rows*w.Cols), scales: make([]float32, rows*groups)}
	if s.Mapping == gqf.MappingAsymmetric {
		r.zeros = make([]int8, rows*groups)
	}
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for t := range threads {
		wg.Go(func() {
			c, err := rounding.NewRounder(s, w.Cols)
			x := make([]float32, w.Cols)
			for row := t * rows / threads; row < (t+1)*rows/threads && err == nil; row++ {
				if err = w.Read(x, row, 1); err != nil {
					break
				}
				c.Codes, c.Scales, c.Zeros = r.row(row)
				if err = c.Quantize(x); err != nil {
					err = fmt.Errorf("tensor %q, row %d: %w", w.Tensor.Name, row, err)
				}
			}
			errs[t] = err
		})
	}
	wg.Wait()
	return r, cmp.Or(errs...)
}

// row is where the codes of a row lie.
func (r *rounded) row(row int) (codes []int8, scales []float32, zeros []int8) {
	if r.zeros != nil {
		zeros = r.zeros[row*r.groups:][:r.groups]
	}
	return r.codes[row*r.cols:][:r.cols], r.scales[row*r.groups:][:r.groups], zeros
}

// read is what the codes of a row stand for.
func (r *rounded) read(dst []float32, row int) {
	codes, scales, zeros := r.row(row)
	r.scheme.Widen(dst, codes, scales, zeros)
}

// Lookup makes it a model.Embedding.
func (r *rounded) Lookup(dst []float32, row int) error {
	r.read(dst, row)
	return nil
}
