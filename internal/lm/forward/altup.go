package forward

import (
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// altUp is the common part of prediction and correction of a layer's streams. A router gives each
// token a mode m for each stream:
//
//	m = tanh(R norm(x) / n),  n: the number of values of x
//
// Prediction replaces the streams s_i by s_i + sum_j (P m)_ij s_j. Correction, with the layer's
// output x in place of the prediction s_0, adds (1 + (C m)_i) (x - s_0) to each s_i. R, P, C and
// the gains of the norm are constants.
type altUp struct {
	whole
	streams        int
	by             *norm
	router, matrix []float32 // R; P or C
}

// altUp opens the tensors of the prediction or the correction of a layer.
func (o *opener) altUp(kind arch.Kind, rows int) *altUp {
	n, h := o.config.AltUp.Streams, o.config.HiddenSize
	a := &altUp{streams: n, by: o.unitNorm(h)}
	a.by.weights = o.vector(o.name(arch.StreamNorm)+".weight", h)
	a.router = o.values(o.name(arch.StreamRouter)+".weight", int64(n), int64(h))
	a.matrix = o.values(o.name(kind)+".weight", int64(rows), int64(n))
	return a
}

func (a *altUp) stages() [][]Group { return nil }

func (a *altUp) memory(s *Session, r *record, m int) []size {
	return []size{{&r.streams, m * a.streams * s.m.config.HiddenSize}, {&r.modes, m * a.streams}, {&r.coefs, m * len(a.matrix) / a.streams}}
}

func (a *altUp) gradientSizes(t *Tape, n int) []size {
	return []size{{&t.back.dcoefs, n * len(a.matrix) / a.streams}, {&t.back.dfed, n * t.m.config.HiddenSize}}
}

// begin keeps the further streams and the prediction of m rows, and computes the products of the
// matrix with their modes.
func (a *altUp) begin(s *Session, r *record, x []float32, m int) {
	n, h, rows := a.streams, s.m.config.HiddenSize, len(a.matrix)/a.streams
	streams, modes, coefs := buffer.Grow(&r.streams, m*n*h), buffer.Grow(&r.modes, m*n), buffer.Grow(&r.coefs, m*rows)
	s.split(m, 4*h*n, func(_, from, to int) {
		normed := make([]float32, h)
		for t := from; t < to; t++ {
			copy(streams[t*n*h:][:n*h], s.m.side.row(s.side, t, 0, n*h))
			rmsNorm(normed, x[t*h:][:h], a.by.weights, a.by.eps)
			own := modes[t*n:][:n]
			for i := range own {
				own[i] = detmath.Tanh32(dot(normed, a.router[i*h:][:h]) / float32(h))
			}
			for i := range rows {
				coefs[t*rows+i] = dot(own, a.matrix[i*n:][:n])
			}
		}
	})
}

// kept returns a stream of a token before the part: the first in x; the last is the prediction of
// the first.
func (a *altUp) kept(r *record, x []float32, token, i, h int) []float32 {
	if i == 0 {
		return x[token*h:][:h]
	}
	return r.streams[(token*a.streams+i-1)*h:][:h]
}

// stream returns a stream of a token: the first in x, the others in rows of the side.
func (a *altUp) stream(d *side, rows, x []float32, token, i, h int) []float32 {
	if i == 0 {
		return x[token*h:][:h]
	}
	return d.row(rows, token, (i-1)*h, h)
}

// endBackward adds the gradients of the router's inputs to t.back.dnormed.
func (a *altUp) endBackward(t *Tape, r *record, g *Gradients) {
	b, n, h, rows := &t.back, a.streams, t.m.config.HiddenSize, len(a.matrix)/a.streams
	dnormed := b.dfed[:t.tokens()*h]
	clear(dnormed)
	t.s.split(t.tokens(), 4*h*n, func(_, from, to int) {
		for token := from; token < to; token++ {
			for i, mode := range r.modes[token*n:][:n] {
				d := float32(0)
				for j := range rows {
					d += float32(b.dcoefs[token*rows+j] * a.matrix[j*n+i])
				}
				addTimes(dnormed[token*h:][:h], a.router[i*h:], float32(d*float32(1-float32(mode*mode)))/float32(h))
			}
		}
	})
	t.norm(g, a.by, b.dnormed, dnormed, r.in, t.tokens(), true)
}

// prediction is the first part of a layer: it predicts all streams.
type prediction struct{ *altUp }

func (p *prediction) run(s *Session, r *record, dst, x []float32, m int) {
	n, h, d := p.streams, s.m.config.HiddenSize, &s.m.side
	p.begin(s, r, x, m)
	s.split(m, 2*h*n*n, func(_, from, to int) {
		for t := from; t < to; t++ {
			for i := range n {
				to := p.stream(d, s.side, dst, t, i, h)
				copy(to, p.kept(r, x, t, i, h))
				for j := range n {
					addTimes(to, p.kept(r, x, t, j, h), r.coefs[(t*n+i)*n+j])
				}
			}
			copy(p.stream(d, s.side, nil, t, n, h), dst[t*h:])
		}
	})
}

func (p *prediction) backward(t *Tape, r *record, g *Gradients, dy []float32, _ bool) {
	b, n, h, d := &t.back, p.streams, t.m.config.HiddenSize, &t.m.side
	t.s.split(t.tokens(), 4*h*n*n, func(_, from, to int) {
		all := make([]float32, n*h) // gradients of the predictions
		for token := from; token < to; token++ {
			predicted := p.stream(d, b.dside, nil, token, n, h)
			addTo(predicted, dy[token*h:])
			copy(all, predicted)
			copy(all[h:], d.row(b.dside, token, 0, (n-1)*h))
			clear(predicted)
			copy(b.dnormed[token*h:][:h], all)
			for j := range n {
				to, before := p.stream(d, b.dside, b.dnormed, token, j, h), p.kept(r, r.in, token, j, h)
				for i := range n {
					at := (token*n+i)*n + j
					b.dcoefs[at] = dot(all[i*h:][:h], before)
					addTimes(to, all[i*h:], r.coefs[at])
				}
			}
		}
	})
	p.endBackward(t, r, g)
}

// correction is the last part of a layer. All streams are corrected. Then the layer's own input
// computes values from the first stream. Times a factor for each channel, they are added to the
// other streams.
type correction struct {
	*altUp
	own   *ownInput
	post  *norm     // of the outputs of own
	scale []float32 // or nil
}

func (p *correction) stages() [][]Group { return p.own.stages() }

func (p *correction) memory(s *Session, r *record, m int) []size {
	h := m * s.m.config.HiddenSize
	return append(append(p.altUp.memory(s, r, m), p.own.memory(s, r, m)...), size{&r.fed, h}, size{&r.projected, h}, size{&r.added, h})
}

func (p *correction) gradientSizes(t *Tape, n int) []size {
	return append(p.altUp.gradientSizes(t, n), p.own.gradientSizes(t, n)...)
}

// scaled multiplies the channels of rows by their factors.
func (p *correction) scaled(rows []float32) {
	for i := range rows {
		if p.scale != nil {
			rows[i] *= p.scale[i%len(p.scale)]
		}
	}
}

func (p *correction) run(s *Session, r *record, dst, x []float32, m int) {
	n, h, d := p.streams, s.m.config.HiddenSize, &s.m.side
	p.begin(s, r, x, m)
	fed, projected, added := buffer.Grow(&r.fed, m*h), buffer.Grow(&r.projected, m*h), buffer.Grow(&r.added, m*h)
	s.split(m, 4*h*n, func(_, from, to int) {
		for t := from; t < to; t++ {
			predicted := p.kept(r, x, t, n, h)
			copy(dst[t*h:][:h], predicted)
			for i := range n {
				to, coef := p.stream(d, s.side, dst, t, i, h), r.coefs[t*n+i]+1
				for k, v := range x[t*h:][:h] {
					to[k] += float32(coef * (v - predicted[k]))
				}
			}
		}
	})
	copy(fed, dst)
	p.scaled(fed)
	p.own.run(s, r, projected, fed, m)
	s.norm(added, projected, p.post, m)
	for t := range m {
		for i := 1; i < n; i++ {
			addTo(p.stream(d, s.side, nil, t, i, h), added[t*h:])
		}
	}
}

func (p *correction) backward(t *Tape, r *record, g *Gradients, dy []float32, _ bool) {
	b, m, n, h, d := &t.back, t.tokens(), p.streams, t.m.config.HiddenSize, &t.m.side
	dback := b.dback[:m*h]
	clear(dback)
	for token := range m {
		for i := 1; i < n; i++ {
			addTo(dback[token*h:][:h], p.stream(d, b.dside, nil, token, i, h))
		}
	}
	t.norm(g, p.post, dback, dback, r.projected, m, false)
	p.own.gradients(t, r, g, r.fed, dback, r.projected)
	p.scaled(b.dnormed[:m*h])
	addTo(dy[:m*h], b.dnormed)
	t.s.split(m, 8*h*n, func(_, from, to int) {
		diff := make([]float32, h)
		for token := from; token < to; token++ {
			dx := b.dnormed[token*h:][:h]
			copy(diff, r.in[token*h:])
			addTimes(diff, p.kept(r, r.in, token, n, h), -1)
			clear(dx)
			for i := range n {
				of := p.stream(d, b.dside, dy, token, i, h)
				b.dcoefs[token*n+i] = dot(of, diff)
				addTimes(dx, of, r.coefs[token*n+i]+1)
			}
			predicted := p.stream(d, b.dside, nil, token, n, h)
			addTo(predicted, dy[token*h:])
			addTimes(predicted, dx, -1)
		}
	})
	p.endBackward(t, r, g)
}
