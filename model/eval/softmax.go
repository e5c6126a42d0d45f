package eval

import (
	"math"

	"github.com/lowbit-go/gq/internal/detmath"
)

// topN is how many of the likeliest tokens are compared.
const topN = 5

// prediction is what a model says of the next token.
type prediction struct {
	logits []float32
	exp    []float64 // exp(logit - max)
	max    float64
	sum    float64 // of exp, in order of token
	logSum float64 // log(sum)
	top    [topN]int32
	finite bool
}

// set takes over the logits of one position, which it keeps until the next call. finite is false if one is NaN or an
// infinity; nothing else is then valid.
func (p *prediction) set(logits []float32) {
	p.logits = logits
	if cap(p.exp) < len(logits) {
		p.exp = make([]float64, len(logits))
	}
	p.exp = p.exp[:len(logits)]
	p.finite = true
	best := [topN]float32{}
	n := 0
	for i, v := range logits {
		if !(math.Abs(float64(v)) <= math.MaxFloat32) {
			p.finite = false
			return
		}
		if n == topN && v <= best[n-1] {
			continue
		}
		j := min(n, topN-1)
		for ; j > 0 && best[j-1] < v; j-- {
			best[j], p.top[j] = best[j-1], p.top[j-1]
		}
		best[j], p.top[j] = v, int32(i)
		n = min(n+1, topN)
	}
	for ; n < topN; n++ { // a vocabulary of fewer tokens
		p.top[n] = -1
	}
	p.max = float64(best[0])
	p.sum = 0
	for i, v := range logits {
		e := detmath.ExpNarrow(float64(v) - p.max)
		p.exp[i] = e
		p.sum += e
	}
	p.logSum = detmath.Log(p.sum)
}

// logProb is the natural logarithm of a token's probability.
func (p *prediction) logProb(token int32) float64 {
	return float64(p.logits[token]) - p.max - p.logSum
}

// divergence is KL(p || q) = sum of p_i (log p_i - log q_i), in nats; rounding may make what is 0 a little less, which is
// put right.
func divergence(p, q *prediction) float64 {
	// log p_i - log q_i = (x_i - y_i) + shift
	shift := (q.max - p.max) + (q.logSum - p.logSum)
	kl := 0.0
	for i, e := range p.exp {
		d := float64(p.logits[i]) - float64(q.logits[i]) + shift
		kl += float64(e * d)
	}
	return max(kl/p.sum, 0)
}

// overlap is the number of tokens that are among the likeliest of both.
func overlap(p, q *prediction) (n int) {
	for _, a := range p.top {
		for _, b := range q.top {
			if a == b && a >= 0 {
				n++
			}
		}
	}
	return n
}
