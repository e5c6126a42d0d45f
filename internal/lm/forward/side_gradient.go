package forward

import (
	"math"

	"github.com/lowbit-go/gq/internal/buffer"
)

// resizeBackward computes the gradients dx of x, and adds those of as to das, from the gradients dy
// of resize. With the root mean squares s of as and u of x, and n values:
//
//	y = x s/u,  ds = sum(dy x)/u,  das = ds as / (n s),  dx = dy s/u - x sum(dy x) s / (n u^3)
//
// The last term is 0 if x is smaller than the least size.
func resizeBackward(dx, das, dy, x, as []float32) {
	size, own, n := float64(rms(as, 0)), float64(rms(x, leastSquare)), float64(len(x))
	sum := float64(dot(dy, x))
	slope := 0.0
	if float64(own*own) > leastSquare {
		slope = float64(sum*size) / (n * float64(own*float64(own*own)))
	}
	for i, v := range x {
		dx[i] = float32(float64(float64(dy[i])*size)/own - float64(float64(v)*slope))
	}
	if size == 0 {
		return
	}
	slope = sum / (n * float64(own*size))
	for i, v := range as {
		das[i] += float32(float64(v) * slope)
	}
}

// endSideBackward computes the gradients of all streams behind the last layer from the gradients of
// the single stream, t.back.dx.
func (t *Tape) endSideBackward(g *Gradients) error {
	d, s, b, h, n := &t.m.side, t.s, &t.back, t.m.config.HiddenSize, t.tokens()
	if d.streams == nil {
		return nil
	}
	x := s.unpack(t.states[len(t.m.layers)], n)
	scale(b.dx, 1/float64(len(d.streams.outputs)+1))
	dy := append(b.drow[:0], b.dx...)
	in, raw := buffer.Grow(&s.normed, n*h), buffer.Grow(&s.back, n*h)
	for i, l := range d.streams.outputs {
		for token := range n {
			copy(in[token*h:], d.row(s.side, token, i*h, h))
		}
		if err := s.multiply(raw, in, n, l); err != nil {
			return err
		}
		t.rows(n, func(row func([]float32) []float32) {
			resizeBackward(row(b.dback), row(b.dx), row(dy), row(raw), row(x))
		})
		if err := t.through(g, l, b.dnormed, in, b.dback, raw, false); err != nil {
			return err
		}
		for token := range n {
			copy(d.row(b.dside, token, i*h, h), b.dnormed[token*h:])
		}
	}
	return nil
}

// rows calls f for each of n rows of hidden states. row returns the row of a matrix.
func (t *Tape) rows(n int, f func(row func([]float32) []float32)) {
	h := t.m.config.HiddenSize
	t.s.split(n, 16*h, func(_, from, to int) {
		for r := from; r < to; r++ {
			f(func(x []float32) []float32 { return x[r*h:][:h] })
		}
	})
}

// beginSideBackward adds the gradients of the looked-up and scaled rows of the embedding, from the
// gradients of the side at the first layer, to t.back.dx.
func (t *Tape) beginSideBackward(g *Gradients) error {
	d, s, b, h, n := &t.m.side, t.s, &t.back, t.m.config.HiddenSize, t.tokens()
	if d.width == 0 {
		return nil
	}
	x := s.unpack(t.states[0], n)
	if d.streams != nil {
		raw := buffer.Grow(&s.back, n*h)
		for i, l := range d.streams.projections {
			if err := s.multiply(raw, x, n, l); err != nil {
				return err
			}
			for token := range n {
				copy(b.dnormed[token*h:][:h], d.row(b.dside, token, i*h, h))
			}
			t.rows(n, func(row func([]float32) []float32) {
				resizeBackward(row(b.dback), row(b.dx), row(b.dnormed), row(raw), row(x))
			})
			if err := t.through(g, l, b.dx, x, b.dback, raw, true); err != nil {
				return err
			}
		}
	}
	p := d.perLayer
	if p == nil {
		return nil
	}
	width := d.layers * d.perInputs
	raw, dy := buffer.Grow(&s.both, n*width), buffer.Grow(&b.drow, n*t.m.Width())[:n*width]
	if err := s.multiply(raw, x, n, p.project); err != nil {
		return err
	}
	factor := 1 / math.Sqrt(float64(h))
	scale(raw, factor)
	for token := range n {
		copy(dy[token*width:][:width], d.row(b.dside, token, d.inputs, width))
	}
	scale(dy, math.Sqrt2/2)
	if err := t.norm(g, p.norm, dy, dy, raw, n*d.layers, false); err != nil {
		return err
	}
	scale(dy, factor)
	scale(raw, 1/factor) // the outputs again
	return t.through(g, p.project, b.dx, x, dy, raw, true)
}
