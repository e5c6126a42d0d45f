package accuracy

import (
	"context"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/text"
)

const (
	// calibrationRows is how many rows of real activations a layer is executed on, and calibrationBytes what those of all
	// layers may take: a model of 1B parameters stays below it, of a larger one fewer rows are kept.
	calibrationRows  = 64
	calibrationBytes = 64 << 20
	// calibrationChunk is how many tokens go through the model at a time: all their logits are computed, as only then the
	// head is executed on all.
	calibrationChunk = 16
)

// sample is rows of activations of one layer, or of several that share their input.
type sample struct {
	x []float32
	m int
}

// calibrate runs the model on the first windows and keeps what goes into its linears: rows of every second position, but
// never of a window's first, whose activations in large models are of another size than all others. An expert gets the
// rows that are routed to it. The result is what TensorOptions.Inputs asks for.
func calibrate(ctx context.Context, m *model.Model, windows []text.Window) (func(name string) ([]float32, int), error) {
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

// calibration is what the hook of the session fills.
type calibration struct {
	session *model.Session
	samples map[string]*sample
	rows    int
	chunk   int    // tokens in work
	bad     string // the first linear whose input is not finite

	// What was taken last: linears with the same input follow each other.
	input *float32
	from  *sample
}

// take keeps rows of the input of a linear.
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
		// Of an expert's rows it is not known whose they are.
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

// finite tells that x holds neither NaN nor an infinity.
func finite(x []float32) bool {
	for _, v := range x {
		if math.Float32bits(v)&0x7f800000 == 0x7f800000 {
			return false
		}
	}
	return true
}
