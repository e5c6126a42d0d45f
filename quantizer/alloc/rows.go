package alloc

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/quantizer"
)

// weights reads a tensor of the checkpoint as rows; those of fused experts follow each other.
type weights struct {
	ck         *safetensors.Checkpoint
	tensor     safetensors.Tensor
	scale      *safetensors.BlockScale
	slices     int
	rows, cols int // of a slice
}

func (j *Job) weights(name string) (*weights, error) {
	t, ok := j.Checkpoint.Lookup(name)
	if !ok || len(t.Shape) < 2 {
		return nil, fmt.Errorf("tensor %q is not a matrix of the checkpoint", name)
	}
	n := len(t.Shape)
	w := &weights{ck: j.Checkpoint, tensor: t, slices: 1, rows: int(t.Shape[n-2]), cols: int(t.Shape[n-1])}
	if n == 3 {
		w.slices = int(t.Shape[0])
	}
	var err error
	if d := t.DtypeName; d == "F8_E4M3" || d == "F8_E5M2" {
		w.scale, err = j.Checkpoint.BlockScales(name, j.block)
	}
	return w, err
}

// read reads one row.
func (w *weights) read(dst []float32, row int) error {
	if w.scale != nil {
		return w.ck.ReadScaledRows(dst, w.tensor, w.scale, row, 1)
	}
	return w.ck.ReadRows(dst, w.tensor, row, 1)
}

// rounded holds a tensor's codes; it takes a little more than a byte a weight.
type rounded struct {
	scheme       quantizer.Scheme
	cols, groups int
	codes        []int8
	scales       []float32
	zeros        []int8
}

// round quantizes all rows of a tensor.
func (w *weights) round(s quantizer.Scheme, threads int) (*rounded, error) {
	rows := w.slices * w.rows
	groups := s.Groups(w.cols)
	r := &rounded{scheme: s, cols: w.cols, groups: groups, codes: make([]int8, rows*w.cols), scales: make([]float32, rows*groups)}
	if s.Mapping == gqf.MappingAsymmetric {
		r.zeros = make([]int8, rows*groups)
	}
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for t := range threads {
		wg.Go(func() {
			c, err := quantizer.NewRounder(s, w.cols)
			x := make([]float32, w.cols)
			for row := t * rows / threads; row < (t+1)*rows/threads && err == nil; row++ {
				if err = w.read(x, row); err != nil {
					break
				}
				c.Codes, c.Scales, c.Zeros = r.row(row)
				if err = c.Quantize(x); err != nil {
					err = fmt.Errorf("tensor %q, row %d: %w", w.tensor.Name, row, err)
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

// Lookup makes it a model.Table.
func (r *rounded) Lookup(dst []float32, row int) error {
	r.read(dst, row)
	return nil
}
