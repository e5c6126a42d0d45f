package alloc

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// probeGroup is the group size of probes.
const probeGroup = 64

// sampledRows is the number of rows of a matrix that its weighted error is computed on.
const sampledRows = 128

// moments runs the model once and returns the second moments of each linear layer's input, by
// column.
func (j *Job) moments(ctx context.Context) (map[string][]float64, error) {
	sums := map[string][]float64{}
	longest := 0
	for _, w := range j.Reference.Sequences() {
		longest = max(longest, len(w))
	}
	s := j.Model.NewSession(longest)
	s.OnInput(func(name string, x []float32, m, k int) {
		sum := sums[name]
		if sum == nil {
			sum = make([]float64, k)
			sums[name] = sum
		}
		for r := range m {
			for i, v := range x[r*k:][:k] {
				sum[i] += float64(float64(v) * float64(v))
			}
		}
	})
	for _, w := range j.Reference.Sequences() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.Reset()
		// All logits, not only the last token's: lm_head's input is only complete with all.
		if err := s.Forward(w, make([]float32, len(w)*j.Model.VocabSize()), true); err != nil {
			return nil, err
		}
		j.progress(1)
	}
	return sums, nil
}

// replaced lists the linear layers of the model that a tensor of the checkpoint holds, in order of
// slices.
func (d *Decision) replaced(w *safetensors.Weights, tensor string) []string {
	if w.Slices == 1 {
		return append([]string{tensor}, d.heads...)
	}
	list := make([]string, w.Slices)
	for i := range list {
		list[i] = fmt.Sprintf("%s[%d]", tensor, i)
	}
	return list
}

// probe measures the model with only the decision's tensors rounded.
func (j *Job) probe(ctx context.Context, d *Decision, s rounding.Scheme) (float64, error) {
	undo, err := j.replace(d, s)
	defer undo()
	if err != nil {
		return 0, err
	}
	layer := j.layer(d)
	if layer < 0 {
		return j.Reference.KL(ctx, j.Model)
	}
	return j.Reference.KLFrom(ctx, j.Model, layer)
}

// layer is the first layer that the decision affects: the number of layers for lm_head, -1 for the
// embedding.
func (j *Job) layer(d *Decision) int {
	if d.Embedding {
		return -1
	}
	n := len(j.Model.Config().Layers)
	for layer := range n {
		for _, stage := range j.Model.Stages(layer) {
			for _, group := range stage {
				for _, name := range group.Linears {
					name, _, _ := strings.Cut(name, "[") // of fused experts
					if slices.Contains(d.Tensors, name) {
						return layer
					}
				}
			}
		}
	}
	return n
}

// replace puts a decision's rounded tensors into the model.
func (j *Job) replace(d *Decision, s rounding.Scheme) (undo func(), err error) {
	var undos []func()
	undo = func() {
		for _, f := range undos {
			f()
		}
	}
	for _, name := range d.Tensors {
		w, err := j.weights(name)
		if err != nil {
			return undo, err
		}
		r, err := round(w, s, cpu.Threads(j.Options.Threads))
		if err != nil {
			return undo, err
		}
		if d.Embedding {
			undos = append(undos, j.Model.SetEmbedding(roundedEmbedding{r}))
		}
		for i, linear := range d.replaced(w, name) {
			old := j.Model.Linear(linear)
			if old == nil { // an untied embedding, or lm_head under another name
				continue
			}
			read := r.DequantizeRow
			if i, sliced := i*w.Rows, w.Slices > 1; sliced {
				read = func(dst []float32, row int) { r.DequantizeRow(dst, i+row) }
			}
			op, err := kernels.NewRows(w.Rows, w.Cols, read, nil, kernels.Options{Log: func(kernels.Choice) {}})
			if err != nil {
				return undo, err
			}
			back, err := j.Model.SetLinear(linear, op, false)
			if err != nil {
				return undo, err
			}
			undos = append(undos, back)
		}
	}
	return undo, nil
}

// errors predicts each option's KL from the probes.
func (j *Job) errors(ctx context.Context, list []*Decision, moments map[string][]float64) error {
	var next atomic.Int64
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for range cpu.Threads(j.Options.Threads) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1) - 1)
				if i >= len(list) {
					return
				}
				errs[i] = j.predict(list[i], moments)
				j.progress(1)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (j *Job) predict(d *Decision, moments map[string][]float64) error {
	n := len(d.Options)
	schemes := make([]rounding.Scheme, n, n+len(j.Widths))
	for i, o := range d.Options {
		schemes[i] = o.scheme
	}
	for _, bits := range j.Widths {
		schemes = append(schemes, d.probeScheme(bits))
	}
	e := make([]float64, len(schemes))
	for _, name := range d.Tensors {
		if err := j.weighted(e, d, name, schemes, moments); err != nil {
			return err
		}
	}
	for i := range d.Options {
		o := &d.Options[i]
		from := func(width int) float64 { // index of the nearest probe
			if e[n+width] == 0 {
				return d.ProbeKL[width]
			}
			return float64(d.ProbeKL[width] * (e[i] / e[n+width]))
		}
		k, exact := slices.BinarySearch(j.Widths, o.Bits)
		switch {
		case exact || k == 0:
			o.KL = from(k)
		case k == len(j.Widths):
			o.KL = from(k - 1)
		default:
			o.KL = math.Sqrt(float64(from(k-1) * from(k)))
		}
	}
	d.hull = lowerHull(d.Options)
	return nil
}

// probeScheme is the scheme of probes: the scheme of the options with the nearest bits and group, as
// far as these bits allow it.
func (d *Decision) probeScheme(bits int) rounding.Scheme {
	s := d.nearest(bits, probeGroup).scheme
	s.Bits, s.Group = bits, probeGroup
	// Half-step ends at 2 bits, and the blocks of a type may not divide a row.
	if s.Mapping == gqf.MappingHalfStep && bits > 2 || s.Type != 0 {
		s.Type = 0
		s.Mapping = gqf.MappingFullRange
	}
	s.Fractions = s.Fractions && s.FractionalZeroPoints()
	return s
}

// nearest is the option with the nearest bits, and of these the one with the nearest group.
func (d *Decision) nearest(bits, group int) Option {
	apart := func(a, b int) int { return max(a-b, b-a) }
	return slices.MinFunc(d.Options, func(a, b Option) int {
		return cmp.Or(cmp.Compare(apart(a.Bits, bits), apart(b.Bits, bits)), cmp.Compare(apart(a.Group, group), apart(b.Group, group)))
	})
}

// weighted adds a tensor's weighted errors with each scheme to e, from a sample of its rows. The
// first schemes are the options'.
func (j *Job) weighted(e []float64, d *Decision, name string, schemes []rounding.Scheme, moments map[string][]float64) error {
	w, err := j.weights(name)
	if err != nil {
		return err
	}
	rounders := make([]*rounding.Rounder, len(schemes))
	for i, s := range schemes {
		if rounders[i], err = rounding.NewRounder(s, w.Cols); err != nil {
			return err
		}
		if i < len(d.Options) && d.Options[i].floatZeros {
			rounders[i].UseFloatZeros()
		}
		rounders[i].Recover(w.Tensor.Precision())
	}
	inputs := d.replaced(w, name)
	x, y := make([]float32, w.Cols), make([]float32, w.Cols)
	for slice := range w.Slices {
		h := moments[inputs[slice]]
		if w.Slices == 1 {
			for _, in := range inputs {
				if moments[in] != nil {
					h = moments[in]
				}
			}
		}
		if h == nil && strings.Contains(name, ".experts.") {
			continue // an expert that no token reached
		}
		n := min(sampledRows, w.Rows)
		for i := range n {
			if err := w.Read(x, slice*w.Rows+i*w.Rows/n, 1); err != nil {
				return err
			}
			for c, q := range rounders {
				if err := q.Round(y, x); err != nil {
					return fmt.Errorf("tensor %q: %w", name, err)
				}
				sum := 0.0
				for k, v := range x {
					diff := float64(v) - float64(y[k])
					diff = float64(diff * diff)
					if h != nil {
						diff = float64(diff * h[k])
					}
					sum += diff
				}
				e[c] += sum
			}
		}
	}
	return nil
}
