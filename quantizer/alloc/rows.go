package alloc

import (
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

// coder quantizes rows of a scheme.
type coder struct {
	scheme quantizer.Scheme
	q      *quantizer.RowQuantizer
	group  int
	half   float32 // the weight of code 0 in steps
	codes  []int8
	scales []float32
	zeros  []int8
}

func newCoder(s quantizer.Scheme, k int) (*coder, error) {
	q, err := quantizer.NewRowQuantizer(s, k)
	if err != nil {
		return nil, err
	}
	c := &coder{scheme: s, q: q, group: s.Group, codes: make([]int8, k), scales: make([]float32, s.Groups(k))}
	if s.Group == 0 || s.Group > k {
		c.group = k
	}
	if s.Mapping == gqf.MappingAsymmetric {
		c.zeros = make([]int8, len(c.scales))
	}
	c.half = halfStep(s)
	return c, nil
}

// row quantizes x and puts what its codes stand for into dst, which may be x.
func (c *coder) row(dst, x []float32) error {
	if err := c.q.Quantize(c.codes, c.scales, c.zeros, x, nil); err != nil {
		return err
	}
	c.widen(dst)
	return nil
}

func (c *coder) widen(dst []float32) {
	dequantize(dst, c.codes, c.scales, c.zeros, c.half, c.group)
}

func halfStep(s quantizer.Scheme) float32 {
	if s.Mapping == gqf.MappingHalfStep {
		return 0.5
	}
	return 0
}

// dequantize gives (q - z + half) * s.
func dequantize(dst []float32, codes []int8, scales []float32, zeros []int8, half float32, group int) {
	for g, s := range scales {
		z := half
		if zeros != nil {
			z = -float32(zeros[g])
		}
		last := min((g+1)*group, len(codes))
		for k := g * group; k < last; k++ {
			dst[k] = float32((float32(codes[k]) + z) * s)
		}
	}
}

// rounded holds a tensor's codes; it takes a little more than a byte a weight.
type rounded struct {
	cols, groups, group int
	codes               []int8
	scales              []float32
	zeros               []int8
	half                float32
}

// round quantizes all rows of a tensor.
func (w *weights) round(s quantizer.Scheme, threads int) (*rounded, error) {
	rows := w.slices * w.rows
	groups := s.Groups(w.cols)
	r := &rounded{cols: w.cols, groups: groups, codes: make([]int8, rows*w.cols), scales: make([]float32, rows*groups), half: halfStep(s)}
	if s.Mapping == gqf.MappingAsymmetric {
		r.zeros = make([]int8, rows*groups)
	}
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for t := range threads {
		wg.Go(func() {
			c, err := newCoder(s, w.cols)
			x := make([]float32, w.cols)
			for row := t * rows / threads; row < (t+1)*rows/threads && err == nil; row++ {
				if err = w.read(x, row); err != nil {
					break
				}
				c.codes, c.scales = r.codes[row*w.cols:][:w.cols], r.scales[row*groups:][:groups]
				if r.zeros != nil {
					c.zeros = r.zeros[row*groups:][:groups]
				}
				if err = c.q.Quantize(c.codes, c.scales, c.zeros, x, nil); err != nil {
					err = fmt.Errorf("tensor %q, row %d: %w", w.tensor.Name, row, err)
				}
			}
			errs[t] = err
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	if r.group = s.Group; r.group == 0 || r.group > w.cols {
		r.group = w.cols
	}
	return r, nil
}

// read is what the codes of a row stand for.
func (r *rounded) read(dst []float32, row int) {
	var zeros []int8
	if r.zeros != nil {
		zeros = r.zeros[row*r.groups:][:r.groups]
	}
	dequantize(dst, r.codes[row*r.cols:][:r.cols], r.scales[row*r.groups:][:r.groups], zeros, r.half, r.group)
}

// Lookup makes it a model.Table.
func (r *rounded) Lookup(dst []float32, row int) error {
	r.read(dst, row)
	return nil
}
