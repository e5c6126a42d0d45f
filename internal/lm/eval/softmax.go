package eval

import (
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/rowmath"
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

// set reads the logits of a position. The logits must not change until the next call. finite is
// false if a logit is NaN or infinite; the prediction is invalid then.
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

// rank finds the most likely tokens. Of equal logits, the first count. finite is false if a logit
// is NaN or infinite.
func (p *prediction) rank() (highest float32, finite bool) {
	const exponent = 0xff << 23 // all bits set: NaN or infinite
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

// divergence returns KL(p || q) = sum of p_i (log p_i - log q_i), in nats. Rounding errors below 0
// become 0.
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

// Distribution describes a set of numbers. Percentiles are by nearest rank: p is the smallest
// number that is not less than p percent of the numbers.
type Distribution struct {
	Mean      float64 `json:"mean"`
	StdErr    StdErr  `json:"std_err"` // standard error of the mean
	RMS       float64 `json:"rms"`
	RMSStdErr StdErr  `json:"rms_std_err"`
	Min       float64 `json:"min"`
	P1        float64 `json:"p1"`
	P5        float64 `json:"p5"`
	P10       float64 `json:"p10"`
	Median    float64 `json:"median"`
	P90       float64 `json:"p90"`
	P95       float64 `json:"p95"`
	P99       float64 `json:"p99"`
	P999      float64 `json:"p99_9"`
	Max       float64 `json:"max"`
}

// describe describes v. Sums are in order of v, so the result does not depend on the threads. sizes
// are the numbers of values per cluster, as in meanOf.
func describe(v []float64, sizes []int) Distribution {
	if len(v) == 0 {
		return Distribution{}
	}
	mean, stdErr := meanOf(v, sizes)
	squares := make([]float64, len(v))
	for i, x := range v {
		squares[i] = float64(x * x)
	}
	square, squareErr := meanOf(squares, sizes)
	sorted := slices.Clone(v)
	slices.Sort(sorted)
	rank := func(permille int) float64 {
		return sorted[(permille*len(sorted)+999)/1000-1]
	}
	d := Distribution{
		Mean: mean, StdErr: stdErr, RMS: math.Sqrt(square),
		Min: sorted[0], P1: rank(10), P5: rank(50), P10: rank(100), Median: rank(500), P90: rank(900), P95: rank(950), P99: rank(990), P999: rank(999),
		Max: sorted[len(sorted)-1],
	}
	if d.RMS > 0 {
		d.RMSStdErr = squareErr.times(1 / (2 * d.RMS)) // by the derivative of the square root
	}
	return d
}

// klEdges are the edges of the histogram of KL divergences in nats: powers of ten and their halves
// from 1e-8 to 10.
var klEdges = func() (edges []float64) {
	for _, decade := range []float64{1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1} {
		edges = append(edges, decade, 2*decade, 5*decade)
	}
	return append(edges, 10)
}()

// Histogram counts numbers between edges. Counts[i] counts numbers from Edges[i-1] up to Edges[i].
// Counts[0] counts numbers below the first edge, the last count numbers from the last edge on.
type Histogram struct {
	Edges  []float64 `json:"edges"`
	Counts []int64   `json:"counts"`
}

func histogram(v, edges []float64) Histogram {
	h := Histogram{Edges: edges, Counts: make([]int64, len(edges)+1)}
	for _, x := range v {
		i, found := slices.BinarySearch(edges, x)
		if found {
			i++
		}
		h.Counts[i]++
	}
	return h
}
