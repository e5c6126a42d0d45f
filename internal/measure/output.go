package measure

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// textInputs is the OutputStats.Source of activations of a text.
const textInputs = "calibration"

const (
	// randomRows is the number of rows of random activations.
	randomRows = 16
	// maxOutputs is the number of rows of weights above which outputs are sampled.
	maxOutputs = 8192
	// inputRows is how many rows of activations are multiplied at a time.
	inputRows = 256
)

type outputSums struct{ all, weights, activations signalSums }

type inputs struct {
	x      []float32
	m      int
	source string
}

// multiplied reports whether a payload is multiplied with activations, and if not, why: rows of an
// embedding that does not serve as lm_head too are only looked up, and some layouts have no kernel.
func multiplied(t gqf.Tensor, h packing.Header, o kernels.Options) (bool, string) {
	if (t.Role == gqf.RoleEmbedding && len(t.Names()) == 1) || t.Role == gqf.RolePosition {
		return false, "rows are looked up, not multiplied"
	}
	if _, err := kernels.KernelFor(h, 1, o); err != nil {
		return false, err.Error()
	}
	return true, ""
}

// outputs multiplies a block of n rows, the checkpoint's weights b.x and the stored weights b.y,
// with in. first is the beginning of a panel.
func (b *block) outputs(h packing.Header, data []byte, first, n int64, in *inputs, o kernels.Options) (*outputSums, error) {
	var panels []int
	nr := int64(panelHeight(h))
	for row := first; row < first+n; row += nr {
		panels = append(panels, int(row/nr))
	}
	h, data, err := somePanels(h, data, panels)
	if err != nil {
		return nil, err
	}
	packed, err := kernels.NewLinear(h, data, o)
	if err != nil {
		return nil, err
	}
	rows, k := int(n), int(h.Cols)
	var bias []float32
	if h.Flags&packing.FlagBias != 0 {
		bias = make([]float32, rows)
		for r := range bias {
			bias[r] = b.rows.RowBias(int(first) + r)
		}
	}
	var float [2]*kernels.Rows
	for i, w := range [][]float32{b.x, b.y} {
		read := func(dst []float32, row int) { copy(dst, w[row*k:][:k]) }
		if float[i], err = kernels.NewRows(rows, k, read, bias, o); err != nil {
			return nil, err
		}
	}
	s := &outputSums{}
	for i := 0; i < in.m; i += inputRows {
		m := min(in.m-i, inputRows)
		x := in.x[i*k:][:m*k]
		var out [3][]float32
		for j, op := range []kernels.Operator{float[0], float[1], packed} {
			out[j] = buffer.Grow(&b.out[j], m*rows)
			if err := op.Forward(b.workspace, out[j], x, m); err != nil {
				return nil, err
			}
		}
		s.all.add(out[0], out[2])
		s.weights.add(out[0], out[1])
		s.activations.add(out[1], out[2])
	}
	if sum := s.all.noise + s.activations.noise + s.weights.noise; math.IsNaN(sum) || math.IsInf(sum, 0) {
		return nil, fmt.Errorf("the outputs of rows %d to %d are not finite", first, first+n-1)
	}
	return s, nil
}

const (
	// A layer is executed on up to calibrationRows rows of real activations. Above about 1B parameters
	// calibrationBytes, the limit for all layers together, allows fewer rows.
	calibrationRows  = 64
	calibrationBytes = 64 << 20
	// calibrationChunk is how many tokens go through the model at a time. All need logits for the
	// hook, because lm_head is only executed where logits are computed.
	calibrationChunk = 16
)

// sample holds activations of a layer, or of several layers with the same input.
type sample struct {
	x []float32
	m int
}

// calibrate runs the model on the first windows and samples the inputs of its linear layers: every
// second position except the first of a window. In large models, activations of the first position
// are far larger than the rest. An expert gets the rows routed there.
func calibrate(ctx context.Context, m *forward.Model, windows []text.Window) (func(name string) ([]float32, int), error) {
	width := 0
	for _, name := range m.Linears() {
		width += m.Linear(name).Cols()
	}
	rows := max(4, min(calibrationRows, calibrationBytes/4/max(1, width)))
	longest := 0
	for _, w := range windows {
		longest = max(longest, min(len(w.Tokens), 2*rows+1))
	}
	c := &calibration{samples: map[string]*sample{}, rows: rows, session: m.NewSession(longest)}
	c.session.OnInput(c.take)
	logits := make([]float32, calibrationChunk*m.VocabSize())
	for kept, i := 0, 0; kept < rows && i < len(windows); i++ {
		c.session.Reset()
		tokens := windows[i].Tokens
		tokens = tokens[:min(len(tokens), 2*(rows-kept)+1)]
		kept += len(tokens) / 2
		for len(tokens) > 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			n := min(len(tokens), calibrationChunk)
			c.chunk = n
			if err := c.session.Forward(tokens[:n], logits[:n*m.VocabSize()], true); err != nil {
				return nil, err
			}
			if c.bad != "" {
				return nil, fmt.Errorf("the float model computes numbers that are not finite: they go into %q", c.bad)
			}
			tokens = tokens[n:]
		}
	}
	return func(name string) ([]float32, int) {
		if s := c.samples[name]; s != nil {
			return s.x, s.m
		}
		return nil, 0
	}, nil
}

type calibration struct {
	session *forward.Session
	samples map[string]*sample
	rows    int
	chunk   int    // tokens per step
	bad     string // the first linear layer with an input that is not finite

	// The last sampled input: linear layers with the same input follow each other.
	input *float32
	from  *sample
}

// take keeps rows of the input of a linear layer.
func (c *calibration) take(name string, x []float32, m, k int) {
	if c.bad == "" && slices.ContainsFunc(x[:m*k], func(v float32) bool { return !floats.Finite(v) }) {
		c.bad = name
	}
	s := c.samples[name]
	if shared := &x[0] == c.input; shared && (s == nil || s == c.from) {
		c.samples[name] = c.from
		return
	}
	if s == nil {
		s = &sample{}
		c.samples[name] = s
	}
	c.input, c.from = &x[0], s
	for r := range m {
		// The positions of an expert's rows are not known, so all are taken.
		if m == c.chunk && (c.session.Len()+r)%2 == 0 {
			continue
		}
		if s.m == c.rows {
			return
		}
		s.x = append(s.x, x[r*k:][:k]...)
		s.m++
	}
}
