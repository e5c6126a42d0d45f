package measure

import (
	"context"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
)

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
	if c.bad == "" && !finite(x[:m*k]) {
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

func finite(x []float32) bool {
	return !slices.ContainsFunc(x, func(v float32) bool { return !floats.Finite(v) })
}
