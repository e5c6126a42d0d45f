package forward

import (
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// altUp is what the prediction of a layer's streams and their correction have in common. A router
// gives each token a mode m for each stream:
//
//	m = tanh(R norm(x) / n),  n: the number of values of x
//
// Prediction replaces the streams s_i by s_i + sum_j (P m)_ij s_j. Correction, with the layer's
// output x in place of the prediction s_0, adds (1 + (C m)_i) (x - s_0) to each s_i. The small
// matrices R, P and C stay in float32.
type altUp struct {
	unfolded
	streams                  int
	by                       *norm
	router, predict, correct []float32
	scale                    []float32 // factors of the corrected first stream, as the input of ownInput; or nil
}

func (m *Model) loadAltUp(at string) (*altUp, error) {
	c, n := &m.config, m.config.AltUp.Streams
	a := &altUp{streams: n}
	var err error
	if a.by, err = m.loadNorm(at+c.NameOf(arch.StreamNorm)+".weight", c.HiddenSize); err != nil {
		return nil, err
	}
	for _, t := range []struct {
		kind       arch.Kind
		dst        *[]float32
		rows, cols int
	}{{arch.StreamRouter, &a.router, n, c.HiddenSize}, {arch.StreamPredict, &a.predict, n * n, n}, {arch.StreamCorrect, &a.correct, n, n}} {
		name := at + c.NameOf(t.kind) + ".weight"
		m.used[name] = true
		if *t.dst, err = m.source.tensor(name, int64(t.rows), int64(t.cols)); err != nil {
			return nil, err
		}
	}
	name := at + c.NameOf(arch.StreamScale)
	m.used[name] = true
	if c.AltUp.Scaled {
		a.scale, err = m.source.vector(name, c.HiddenSize)
	}
	return a, err
}

func (a *altUp) scratch(s *Session, m int) []size {
	return []size{{&s.modes, m * a.streams}, {&s.coefs, m * a.streams * a.streams}}
}

// route computes the modes of m rows, and their products with a matrix of a row for each
// coefficient.
func (a *altUp) route(s *Session, modes, coefs, matrix, x []float32, m int) {
	n, h := a.streams, s.m.config.HiddenSize
	rows := len(matrix) / n
	s.split(m, 4*h*n, func(_, from, to int) {
		normed := make([]float32, h)
		for t := from; t < to; t++ {
			rmsNorm(normed, x[t*h:][:h], a.by.weights, a.by.eps)
			own := modes[t*n:][:n]
			for i := range own {
				own[i] = detmath.Tanh32(dot(normed, a.router[i*h:][:h]) / float32(h))
			}
			for i := range rows {
				coefs[t*rows+i] = dot(own, matrix[i*n:][:n])
			}
		}
	})
}

// routeBackward adds the gradients of the router's inputs x to dx, from the gradients dcoefs of
// route's products. Both parts of a layer have the same norm: its gains get their gradient with the
// second part, the prediction.
func (a *altUp) routeBackward(t *Tape, g *Gradients, dx, dcoefs, modes, matrix, x []float32, second bool) error {
	b, n, h := &t.back, a.streams, t.m.config.HiddenSize
	rows := len(matrix) / n
	dnormed := b.drow[:t.tokens()*h]
	t.s.split(t.tokens(), 4*h*n, func(_, from, to int) {
		for token := from; token < to; token++ {
			row := dnormed[token*h:][:h]
			clear(row)
			for i, mode := range modes[token*n:][:n] {
				d := float32(0)
				for j := range rows {
					d += float32(dcoefs[token*rows+j] * matrix[j*n+i])
				}
				d = float32(d*float32(1-float32(mode*mode))) / float32(h)
				for k, v := range a.router[i*h:][:h] {
					row[k] += float32(d * v)
				}
			}
		}
	})
	if second {
		for i, v := range b.routed {
			b.gains[i] += v
		}
		b.routed = b.routed[:0]
		return t.norm(g, a.by, dx, dnormed, x, t.tokens(), true)
	}
	t.normBackward(a.by, dx, dnormed, x, t.tokens(), g.Norm != nil, true)
	b.routed = append(b.routed[:0], b.gains[:h]...)
	clear(b.gains[:h])
	return nil
}

// stream returns a stream of a token: the first in x, the others in the side.
func (a *altUp) stream(d *side, rows, x []float32, token, i, h int) []float32 {
	if i == 0 {
		return x[token*h:][:h]
	}
	return d.row(rows, token, (i-1)*h, h)
}

// predicted returns the prediction of the first stream, behind the other streams in the side.
func (a *altUp) predicted(d *side, rows []float32, token, h int) []float32 {
	return d.row(rows, token, (a.streams-1)*h, h)
}

func (a *altUp) recordSizes(t *Tape, r *record, n int) []size {
	h := n * t.m.config.HiddenSize
	return []size{{&r.streams, h * a.streams}, {&r.modes, n * a.streams}, {&r.coefs, n * a.streams * a.streams}}
}

// keepStreams copies the further streams and the prediction before the part.
func (a *altUp) keepStreams(t *Tape, r *record) {
	n := a.streams * t.m.config.HiddenSize
	for token := range t.tokens() {
		copy(r.streams[token*n:][:n], t.m.side.row(t.s.side, token, 0, n))
	}
}

func (a *altUp) gradientSizes(t *Tape, n int) []size {
	return []size{{&t.back.dcoefs, n * a.streams * a.streams}}
}

// prediction is the part of a layer that predicts all streams.
type prediction struct{ *altUp }

func (p *prediction) stages() [][]Group { return nil }

func (p *prediction) forward(s *Session, dst, x []float32, m int) error {
	p.run(s, dst, x, buffer.Grow(&s.modes, m*p.streams), buffer.Grow(&s.coefs, m*p.streams*p.streams), m)
	return nil
}

func (p *prediction) run(s *Session, dst, x, modes, coefs []float32, m int) {
	n, h, d := p.streams, s.m.config.HiddenSize, &s.m.side
	p.route(s, modes, coefs, p.predict, x, m)
	s.split(m, 2*h*n*n, func(_, from, to int) {
		all := make([]float32, n*h)
		for t := from; t < to; t++ {
			for i := range n {
				to := all[i*h:][:h]
				copy(to, p.stream(d, s.side, x, t, i, h))
				for j := range n {
					coef := coefs[(t*n+i)*n+j]
					for k, v := range p.stream(d, s.side, x, t, j, h) {
						to[k] += float32(coef * v)
					}
				}
			}
			copy(dst[t*h:], all[:h])
			for i := 1; i < n; i++ {
				copy(p.stream(d, s.side, x, t, i, h), all[i*h:])
			}
			copy(p.predicted(d, s.side, t, h), all[:h])
		}
	})
}

func (p *prediction) record(t *Tape, r *record, dst, x []float32) error {
	p.keepStreams(t, r)
	p.run(t.s, dst, x, r.modes, r.coefs, t.tokens())
	return nil
}

func (p *prediction) backward(t *Tape, r *record, g *Gradients, dy []float32, input bool) error {
	b, n, h, d := &t.back, p.streams, t.m.config.HiddenSize, &t.m.side
	t.s.split(t.tokens(), 4*h*n*n, func(_, from, to int) {
		all := make([]float32, n*h)
		for token := from; token < to; token++ {
			// The gradients of the predictions.
			first, predicted := dy[token*h:][:h], p.predicted(d, b.dside, token, h)
			for k, v := range first {
				predicted[k] += v
			}
			of := func(i int) []float32 {
				if i == 0 {
					return predicted
				}
				return p.stream(d, b.dside, nil, token, i, h)
			}
			for j := range n {
				from := r.in[token*h:][:h]
				if j > 0 {
					from = r.streams[token*n*h+(j-1)*h:][:h]
				}
				to := all[j*h:][:h]
				copy(to, of(j))
				for i := range n {
					coef := r.coefs[(token*n+i)*n+j]
					b.dcoefs[(token*n+i)*n+j] = dot(of(i), from)
					for k, v := range of(i) {
						to[k] += float32(coef * v)
					}
				}
			}
			copy(b.dnormed[token*h:][:h], all)
			for i := 1; i < n; i++ {
				copy(of(i), all[i*h:])
			}
			clear(predicted)
		}
	})
	return p.routeBackward(t, g, b.dnormed, b.dcoefs, r.modes, p.predict, r.in, true)
}

// correction is the last part of a layer: it corrects all streams, and adds what the layer's own
// input makes of the first stream to the others.
type correction struct {
	*altUp
	*ownInput
	post *norm // of the outputs of ownInput
}

func (p *correction) last() *linear             { return nil }
func (p *correction) scalings(*Model) []Scaling { return nil }
func (p *correction) readers(*Model) []Block    { return nil }
func (p *correction) writers() []Block          { return nil }

func (p *correction) scratch(s *Session, m int) []size {
	h := m * s.m.config.HiddenSize
	return append(append(p.altUp.scratch(s, m), p.ownInput.scratch(s, m)...), size{&s.fed, h}, size{&s.projected, h})
}

// correct corrects the streams of m rows. dst is the first stream, fed the input of ownInput.
func (p *correction) run(s *Session, dst, fed, x, modes, coefs []float32, m int) {
	n, h, d := p.streams, s.m.config.HiddenSize, &s.m.side
	p.route(s, modes, coefs, p.correct, x, m)
	s.split(m, 4*h*n, func(_, from, to int) {
		for t := from; t < to; t++ {
			predicted, row := p.predicted(d, s.side, t, h), x[t*h:][:h]
			for i := range n {
				coef, before := coefs[t*n+i]+1, predicted
				if i > 0 {
					before = p.stream(d, s.side, x, t, i, h)
				}
				to := p.stream(d, s.side, dst, t, i, h)
				for k, v := range row {
					to[k] = before[k] + float32(coef*(v-predicted[k]))
				}
			}
			for k, v := range dst[t*h:][:h] {
				if p.scale != nil {
					v = float32(v * p.scale[k])
				}
				fed[t*h+k] = v
			}
		}
	})
}

// add adds the normalized outputs y of ownInput to the further streams of m rows.
func (p *correction) add(s *Session, y []float32, m int) {
	h := s.m.config.HiddenSize
	for t := range m {
		for i := 1; i < p.streams; i++ {
			to := p.stream(&s.m.side, s.side, nil, t, i, h)
			for k, v := range y[t*h:][:h] {
				to[k] += v
			}
		}
	}
}

func (p *correction) forward(s *Session, dst, x []float32, m int) error {
	h := m * s.m.config.HiddenSize
	fed, projected := buffer.Grow(&s.fed, h), buffer.Grow(&s.projected, h)
	p.run(s, dst, fed, x, buffer.Grow(&s.modes, m*p.streams), buffer.Grow(&s.coefs, m*p.streams), m)
	if err := p.ownInput.forward(s, projected, fed, m); err != nil {
		return err
	}
	s.norm(projected, projected, p.post, m)
	p.add(s, projected, m)
	return nil
}

func (p *correction) recordSizes(t *Tape, r *record, n int) []size {
	h := n * t.m.config.HiddenSize
	return append(append(p.altUp.recordSizes(t, r, n), p.ownInput.recordSizes(t, r, n)...), size{&r.fed, h}, size{&r.projected, h}, size{&t.s.back, h})
}

func (p *correction) record(t *Tape, r *record, dst, x []float32) error {
	s, n := t.s, t.tokens()
	p.keepStreams(t, r)
	p.run(s, r.out, r.fed, x, r.modes, r.coefs, n)
	if err := p.ownInput.record(t, r, r.projected, r.fed); err != nil || dst == nil {
		return err
	}
	normed := buffer.Grow(&s.back, len(x))
	s.norm(normed, r.projected, p.post, n)
	p.add(s, normed, n)
	return nil
}

func (p *correction) gradientSizes(t *Tape, n int) []size {
	return append(p.altUp.gradientSizes(t, n), p.ownInput.gradientSizes(t, n)...)
}

func (p *correction) backward(t *Tape, r *record, g *Gradients, dy []float32, input bool) error {
	b, m, n, h, d := &t.back, t.tokens(), p.streams, t.m.config.HiddenSize, &t.m.side
	of := func(token, i int) []float32 { return p.stream(d, b.dside, dy, token, i, h) }
	// The outputs of ownInput go to all streams but the first.
	dback := b.dback[:m*h]
	clear(dback)
	for token := range m {
		for i := 1; i < n; i++ {
			for k, v := range of(token, i) {
				dback[token*h+k] += v
			}
		}
	}
	if err := t.norm(g, p.post, dback, dback, r.projected, m, false); err != nil {
		return err
	}
	if err := p.inputGradients(t, r, g, b.dnormed, r.fed, dback, r.projected); err != nil {
		return err
	}
	t.s.split(m, 8*h*n, func(_, from, to int) {
		diff := make([]float32, h)
		for token := from; token < to; token++ {
			first, dx := of(token, 0), b.dnormed[token*h:][:h]
			for k, v := range dx {
				if p.scale != nil {
					v = float32(v * p.scale[k])
				}
				first[k] += v
			}
			predicted := r.streams[(token*n+n-1)*h:][:h]
			for k, v := range r.in[token*h:][:h] {
				diff[k] = v - predicted[k]
			}
			clear(dx)
			for i := range n {
				coef := r.coefs[token*n+i] + 1
				b.dcoefs[token*n+i] = dot(of(token, i), diff)
				for k, v := range of(token, i) {
					dx[k] += float32(coef * v)
				}
			}
			dpredicted := p.predicted(d, b.dside, token, h)
			for k, v := range first {
				dpredicted[k] += v - dx[k]
			}
		}
	})
	return p.routeBackward(t, g, b.dnormed, b.dcoefs, r.modes, p.correct, r.in, false)
}
