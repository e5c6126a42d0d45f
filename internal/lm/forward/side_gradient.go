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
func (t *Tape) endSideBackward(g *Gradients) {
	d, s, b, h, n := &t.m.side, t.s, &t.back, t.m.config.HiddenSize, t.tokens()
	if d.streams == nil {
		return
	}
	x := s.unpack(t.states[len(t.m.layers)], n)
	scale(b.dx, 1/float64(len(d.streams.outputs)+1))
	dy := append(b.drow[:0], b.dx...)
	in := buffer.Grow(&s.normed, n*h)
	for i, l := range d.streams.outputs {
		d.gather(in, s.side, n, i*h, h)
		t.streamBackward(g, l, b.dnormed, in, dy, x, false)
		for token := range n {
			copy(d.row(b.dside, token, i*h, h), b.dnormed[token*h:])
		}
	}
}

// streamBackward computes the gradients dst of the inputs of a projection, or adds them. The
// outputs get the sizes of the rows of x, and then have the gradients dy. streamBackward adds the
// gradients of x to t.back.dx.
func (t *Tape) streamBackward(g *Gradients, l *linear, dst, in, dy, x []float32, add bool) {
	b, h, n := &t.back, t.m.config.HiddenSize, t.tokens()
	raw := buffer.Grow(&t.s.back, n*h)
	t.s.multiply(raw, in, n, l)
	t.s.split(n, 16*h, func(_, from, to int) {
		for at := from * h; at < to*h; at += h {
			resizeBackward(b.dback[at:][:h], b.dx[at:][:h], dy[at:][:h], raw[at:][:h], x[at:][:h])
		}
	})
	t.through(g, l, dst, in, b.dback, raw, add)
}

// beginSideBackward adds the gradients of the looked-up and scaled rows of the embedding, from the
// gradients of the side at the first layer, to t.back.dx.
func (t *Tape) beginSideBackward(g *Gradients) {
	d, s, b, h, n := &t.m.side, t.s, &t.back, t.m.config.HiddenSize, t.tokens()
	if d.width == 0 {
		return
	}
	x := s.unpack(t.states[0], n)
	if d.streams != nil {
		for i, l := range d.streams.projections {
			d.gather(b.dnormed, b.dside, n, i*h, h)
			t.streamBackward(g, l, b.dx, x, b.dnormed, x, true)
		}
	}
	p := d.perLayer
	if p == nil {
		return
	}
	width := d.layers * d.perInputs
	raw, dy := buffer.Grow(&s.both, n*width), buffer.Grow(&b.drow, n*t.m.Width())[:n*width]
	s.multiply(raw, x, n, p.project)
	factor := 1 / math.Sqrt(float64(h))
	scale(raw, factor)
	d.gather(dy, b.dside, n, d.inputs, width)
	scale(dy, math.Sqrt2/2)
	t.norm(g, p.norm, dy, dy, raw, n*d.layers, false)
	scale(dy, factor)
	scale(raw, 1/factor) // the outputs again
	t.through(g, p.project, b.dx, x, dy, raw, true)
}
