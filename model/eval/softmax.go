package eval

import (
	"math"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/model/internal/rowmath"
)

// topN is the number of most likely tokens that are compared.
const topN = 5

// prediction is a model's distribution of the next token.
type prediction struct {
	logits []float32
	exp    []float64 // exp(logit - max)
	max    float64
	sum    float64 // sum of exp, in order of token
	logSum float64 // log(sum)
	top    [topN]int32
	finite bool
}

// set reads the logits of one position, which must not change until the next call. finite is false
// if a logit is NaN or infinite; the prediction is invalid then.
func (p *prediction) set(logits []float32) {
	p.logits = logits
	highest := float32(0)
	if highest, p.finite = p.rank(); !p.finite {
		return
	}
	p.max = float64(highest)
	p.sum = rowmath.Sets.Chosen().ExpSum(buffer.Grow(&p.exp, len(logits)), logits, highest)
	p.logSum = detmath.Log(p.sum)
}

// rank finds the most likely tokens. Of equal logits, the first ones count. finite is false if a
// logit is NaN or infinite.
func (p *prediction) rank() (highest float32, finite bool) {
	const exponent = 0xff << 23 // all ones: NaN or infinite
	best := [topN]float32{}
	for i := range best { // a small vocabulary leaves -1
		best[i], p.top[i] = float32(math.Inf(-1)), -1
	}
	worst := best[topN-1]
	for i, v := range p.logits {
		if math.Float32bits(v)&exponent == exponent {
			return 0, false
		}
		if v <= worst {
			continue
		}
		j := topN - 1
		for ; j > 0 && best[j-1] < v; j-- {
			best[j], p.top[j] = best[j-1], p.top[j-1]
		}
		best[j], p.top[j] = v, int32(i)
		worst = best[topN-1]
	}
	return best[0], true
}

// logProb returns the natural logarithm of a token's probability.
func (p *prediction) logProb(token int32) float64 {
	return float64(p.logits[token]) - p.max - p.logSum
}

// divergence returns KL(p || q) = sum of p_i (log p_i - log q_i), in nats. Rounding can make a zero
// slightly negative, which is corrected.
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

// overlap returns the number of tokens among the likeliest of both.
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
