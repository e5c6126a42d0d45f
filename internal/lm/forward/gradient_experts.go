package forward

import (
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// backward: the choice of experts is constant.
//
// A mixture is y = sum w_j y_j over a token's experts j. The weight w_j is the scale c times the
// router's score p_j, or c p_j / sum p_j if the model normalizes the weights:
//
//	dy_j = w_j dy,  dw_j = dy y_j
//	dp_j = c dw_j,  or  c (dw_j - sum dw_k w_k / c) / sum p_k
//	dlogit_i = p_i (dp_i - sum dp_k p_k), or p_i (1-p_i) dp_i for sigmoids
//
// dp_i is 0 for experts that were not chosen. In a sparse mixer, each of a token's experts has a
// softmax p of its own, and w_j is c p_j:
//
//	dlogit_i = sum dw_j w_j ([i = j] - p_i)
//
// If weights are factors of inputs, y = sum f_j(w_j x), with the gradients dx_j of f_j's inputs:
//
//	dy_j = dy,  dw_j = dx_j x,  dx = sum w_j dx_j
func (l *mixture) backward(t *Tape, r *record, g *Gradients, dy []float32, _ bool) {
	e, b, h, n, w := l.ExpertConfig, &t.back, t.m.config.HiddenSize, t.tokens(), l.width
	dsums, read, dread := dy, r.in, b.dnormed
	if l.post != nil {
		dsums = b.dfed[:n*h]
		t.norm(g, l.post, dsums, dy, r.projected, n, false)
	}
	if l.fed != nil {
		read, dread = r.fed, b.dfed[:n*h]
	}
	if l.out != nil {
		dsums, read, dread = b.dsums, r.latents, b.dlatents
		t.through(g, l.out, dsums, r.sums, dy, r.projected, false)
	}
	t.s.split(len(r.order), 4*w, func(_, from, to int) {
		for row := from; row < to; row++ {
			ch, out := r.chosen[r.order[row]], dsums[r.chosen[r.order[row]].token*w:][:w]
			if e.ScaleInputs {
				copy(b.ddown[row*w:][:w], out)
				continue
			}
			weight := float32(ch.weight * l.factor(ch))
			for j, v := range out {
				b.ddown[row*w+j] = float32(v * weight)
			}
			b.dweights[r.order[row]] = float32(dot(out, r.down[row*w:][:w]) * l.factor(ch))
		}
	})
	for i := range l.experts {
		at, rows := r.first[i], r.first[i+1]-r.first[i]
		if rows == 0 {
			continue
		}
		tokens := buffer.Grow(&b.tokens, rows)
		for row := range tokens {
			tokens[row] = r.chosen[r.order[at+row]].token
		}
		part := func(x []float32) []float32 { return x[at*w:][:rows*w] }
		t.gatedBackward(l.experts[i], &r.gatedRecord, g, part(b.drows), part(r.rows), part(b.ddown), part(r.down), at, rows, tokens, true)
	}
	if e.ScaleInputs {
		t.s.split(len(r.order), 4*w, func(_, from, to int) {
			for row := from; row < to; row++ {
				ch, dx := r.chosen[r.order[row]], b.drows[row*w:][:w]
				b.dweights[r.order[row]] = dot(dx, read[ch.token*w:][:w])
				scale(dx, float64(ch.weight))
			}
		})
	}
	t.s.split(n, 16*e.Count, func(_, from, to int) {
		for token := from; token < to; token++ {
			routerBackward(e, r, b, token)
		}
	})
	in := r.in
	if l.routed != nil {
		in = r.routed
	}
	t.through(g, l.router, b.dnormed, in, b.drouter, r.routerLogits, false)
	if l.routed != nil {
		t.norm(g, l.routed, b.dnormed, b.dnormed, r.in, n, false)
	}
	if l.fed != nil || l.in != nil {
		clear(dread)
	}
	for row, i := range r.order {
		addTo(dread[r.chosen[i].token*w:][:w], b.drows[row*w:])
	}
	if l.fed != nil {
		t.norm(g, l.fed, b.dnormed, dread, r.in, n, true)
	}
	if l.in != nil {
		t.through(g, l.in, b.dnormed, r.in, dread, read, true)
	}
	t.sharedBackward(l, r, g, dy)
}

// sharedBackward adds the gradients of the shared expert's inputs to t.back.dnormed. The outputs
// are y = s(z) y_s, with the sigmoid s of a router's logit z, or 1:
//
//	dy_s = s dy,  dz = s (1-s) dy y_s
func (t *Tape) sharedBackward(l *mixture, r *record, g *Gradients, dy []float32) {
	if l.shared == nil {
		return
	}
	b, n, h := &t.back, t.tokens(), t.m.config.HiddenSize
	dshared := dy
	if l.sharedRouter != nil {
		dshared = b.ddown[:n*h]
		for token, gate := range r.sharedGates {
			out := dy[token*h:][:h]
			b.dgates[token] = float32(float32(gate*(1-gate)) * dot(out, r.sharedDown[token*h:][:h]))
			for j, v := range out {
				dshared[token*h+j] = float32(v * gate)
			}
		}
	}
	in, dx := r.in, b.drows[:n*h]
	if l.sharedFed != nil {
		in, dshared = r.added, b.dfed[:n*h]
		t.norm(g, l.sharedPost, dshared, dy, r.sharedDown, n, false)
	}
	t.gatedBackward(l.shared, &r.shared, g, dx, in, dshared, r.sharedDown, 0, n, nil, true)
	t.norm(g, l.sharedFed, b.dnormed, dx, r.in, n, true)
	if l.sharedRouter != nil {
		t.through(g, l.sharedRouter, b.dnormed, r.in, b.dgates, r.sharedLogits, true)
	}
}

func routerBackward(e *arch.ExpertConfig, r *record, b *backward, token int) {
	at := token * e.PerToken
	chosen, dweights := r.chosen[at:][:e.PerToken], b.dweights[at:][:e.PerToken]
	p, dlogits := r.router[token*e.Count:][:e.Count], b.drouter[token*e.Count:][:e.Count]
	if e.Sparse {
		sparseBackward(e, dlogits, dweights, chosen, p)
		return
	}
	mean, sum := 0.0, 1.0
	if e.Normalize {
		sum = 0
		for j, ch := range chosen {
			mean += float64(float64(dweights[j]) * float64(ch.weight))
			sum += float64(p[ch.expert])
		}
	}
	mean /= e.Scale
	// Gradients of probabilities, and their mean.
	all := 0.0
	clear(dlogits)
	for j, ch := range chosen {
		dp := (float64(dweights[j]) - mean) / sum * e.Scale
		dlogits[ch.expert] = float32(dp)
		all += float64(dp * float64(p[ch.expert]))
	}
	for i, v := range dlogits {
		if e.Sigmoid {
			dlogits[i] = float32(float64(v) * float64(float64(p[i])*(1-float64(p[i]))))
			continue
		}
		dlogits[i] = float32(float64(p[i]) * (float64(v) - all))
	}
}

// sparseBackward is routerBackward for a sparse mixer, given the logits.
func sparseBackward(e *arch.ExpertConfig, dlogits, dweights []float32, chosen []choice, logits []float32) {
	sums := make([]float64, len(dlogits))
	for j, ch := range chosen {
		d := float64(float64(dweights[j]) * float64(ch.weight))
		sums[ch.expert] += d
		for i, p := range sparseShares(e, chosen[:j+1], logits) {
			sums[i] -= float64(d * p)
		}
	}
	for i, v := range sums {
		dlogits[i] = float32(v)
	}
}
