package forward

import "github.com/lowbit-go/gq/internal/buffer"

// expertsBackward computes the gradients of a mixture's inputs, t.back.dnormed, given the gradients
// of its outputs. The choice of experts is constant.
//
// A mixture is y = sum w_j y_j over a token's experts j. The weight w_j is the router's probability
// p_j, or p_j / sum p_j if the model normalizes the weights:
//
//	dy_j = w_j dy,  dw_j = dy y_j
//	dp_j = dw_j,  or  (dw_j - sum dw_k w_k) / sum p_k
//	dlogit_i = p_i (dp_i - sum dp_k p_k), dp_i = 0 of experts that were not chosen
func (t *Tape) expertsBackward(l *layer, g *Gradients, dy []float32) error {
	c, e, r, b := &t.m.config, t.m.config.Experts, &t.record, &t.back
	h, n := c.HiddenSize, t.tokens()
	t.s.split(len(r.order), 4*h, func(_, from, to int) {
		for row := from; row < to; row++ {
			ch, out := r.chosen[r.order[row]], dy[r.chosen[r.order[row]].token*h:][:h]
			for j, v := range out {
				b.ddown[row*h+j] = float32(v * ch.weight)
			}
			b.dweights[r.order[row]] = dot(out, r.down[row*h:][:h])
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
		part := func(x []float32) []float32 { return x[at*h:][:rows*h] }
		if err := t.gatedBackward(&l.experts[i], g, part(b.drows), part(b.ddown), part(r.rows), at, rows, e.Intermediate, tokens); err != nil {
			return err
		}
	}
	t.s.split(n, 16*e.Count, func(_, from, to int) {
		for token := from; token < to; token++ {
			t.routerBackward(token)
		}
	})
	if err := t.visit(g, l.router, 0, n, r.fed, b.drouter, r.routerLogits, nil); err != nil {
		return err
	}
	if err := t.multiplyBack(b.dnormed, b.drouter, n, l.router, false); err != nil {
		return err
	}
	for row, i := range r.order {
		to := b.dnormed[r.chosen[i].token*h:][:h]
		for j, v := range b.drows[row*h:][:h] {
			to[j] += v
		}
	}
	return nil
}

func (t *Tape) routerBackward(token int) {
	e, r, b := t.m.config.Experts, &t.record, &t.back
	at := token * e.PerToken
	chosen, dweights := r.chosen[at:][:e.PerToken], b.dweights[at:][:e.PerToken]
	p, dlogits := r.router[token*e.Count:][:e.Count], b.drouter[token*e.Count:][:e.Count]
	mean, sum := 0.0, 1.0
	if e.Normalize {
		sum = 0
		for j, ch := range chosen {
			mean += float64(float64(dweights[j]) * float64(ch.weight))
			sum += float64(p[ch.expert])
		}
	}
	// Gradients of probabilities, and their mean.
	all := 0.0
	clear(dlogits)
	for j, ch := range chosen {
		dp := (float64(dweights[j]) - mean) / sum
		dlogits[ch.expert] = float32(dp)
		all += float64(dp * float64(p[ch.expert]))
	}
	for i, v := range dlogits {
		dlogits[i] = float32(float64(p[i]) * (float64(v) - all))
	}
}
