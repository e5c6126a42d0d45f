package eval

import (
	"context"
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/logits"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/rowmath"
)

// scorer is a goroutine's sessions and buffers, by model.
type scorer struct {
	models      []*forward.Model
	sessions    []*forward.Session
	logits      [][]float32
	predictions []prediction
	vocab       int
	chunk       int          // number of positions in a buffer of logits
	saved       *logits.File // the first model's predictions, if the model is nil
}

func newScorer(models []*forward.Model, longest int) *scorer {
	s := &scorer{models: models, predictions: make([]prediction, len(models)), vocab: models[len(models)-1].VocabSize()}
	s.chunk = min(max(logitsBytes/4/s.vocab, 1), longest)
	for _, m := range models {
		var session *forward.Session
		if m != nil {
			session = m.NewSession(longest)
		}
		s.sessions = append(s.sessions, session)
		s.logits = append(s.logits, make([]float32, s.chunk*s.vocab))
	}
	return s
}

// each calls do for the sessions of all models that run.
func (s *scorer) each(do func(session *forward.Session) error) error {
	for _, session := range s.sessions {
		if session == nil {
			continue
		}
		if err := do(session); err != nil {
			return err
		}
	}
	return nil
}

// fill fills the buffers with the logits at n positions of window i, from at on. first is the
// position of the first token of the last Append.
func (s *scorer) fill(i int, w text.Window, first, at, n int) error {
	for k, session := range s.sessions {
		to := s.logits[k][:n*s.vocab]
		if session != nil {
			if err := session.Logits(to, at-first, n); err != nil {
				return err
			}
			continue
		}
		for row := at - (w.First - 1); len(to) > 0; {
			rows, err := s.saved.Logits(to, i, row)
			if err != nil {
				return err
			}
			to, row = to[rows*s.vocab:], row+rows
		}
	}
	return nil
}

// predict runs the models on window i. scored gets each scored token's position in the window and
// the row of the buffers that predicts the token. The layers take as many tokens at a time as
// possible, more than the buffers have logits for.
func (s *scorer) predict(ctx context.Context, i int, w text.Window, scored func(position, row int) error) error {
	// The logits at First-1 predict token First.
	context := w.Tokens[:w.First-1]
	err := s.each(func(session *forward.Session) error {
		if session.Reset(); len(context) == 0 {
			return nil
		}
		return session.Forward(context, nil, false)
	})
	if err != nil {
		return err
	}
	end := len(w.Tokens) - 1 // the last token predicts nothing that is scored
	for first := w.First - 1; first < end; first += forward.MaxAppend {
		next := min(first+forward.MaxAppend, end)
		err := s.each(func(session *forward.Session) error { return session.Append(w.Tokens[first:next]) })
		if err != nil {
			return err
		}
		for at := first; at < next; at += s.chunk {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(s.chunk, next-at)
			if err := s.fill(i, w, first, at, n); err != nil {
				return err
			}
			for row := range n {
				if err := scored(at+row+1, row); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// score compares the models' predictions of a token, in row row of the buffers.
func (s *scorer) score(window, position, row int, token int32) (score, error) {
	for k := range s.models {
		p := &s.predictions[k]
		if p.set(s.logits[k][row*s.vocab:][:s.vocab]); !p.finite {
			return score{}, &NonFiniteError{Model: k, Window: window, Position: position}
		}
	}
	n := len(s.models)
	sc := score{nll: make([]float64, n), floatTop: s.predictions[0].top[0]}
	for k := range s.predictions {
		sc.nll[k] = -s.predictions[k].logProb(token)
	}
	if n == 1 {
		return sc, nil
	}
	sc.pairs = make([]pair, n-1)
	float := &s.predictions[0]
	for k := range sc.pairs {
		q := &s.predictions[k+1]
		sc.pairs[k] = pair{
			kl: divergence(float, q), dp: detmath.Exp(-sc.nll[k+1]) - detmath.Exp(-sc.nll[0]),
			top: q.top[0], shared: overlap(float, q),
		}
	}
	return sc, nil
}

// collect lists a number per position, in order of window and position.
func collect(scores [][]score, get func(*score) float64) []float64 {
	n := 0
	for _, w := range scores {
		n += len(w)
	}
	v := slices.Grow([]float64(nil), n)
	for _, w := range scores {
		for i := range w {
			v = append(v, get(&w[i]))
		}
	}
	return v
}

// PositionStats compares the predictions of tokens at positions From to To of their window; BOS is
// at position 0. The ranges double: 1, 2 to 3, 4 to 7, 8 to 15 ...
type PositionStats struct {
	From   int `json:"from"`
	To     int `json:"to"` // at most the last position of the longest window
	Tokens int `json:"tokens"`
	// KL is the mean divergence KL(float || quantized) in nats.
	KL       float64 `json:"kl"`
	KLStdErr StdErr  `json:"kl_std_err"`
	// FloatPerplexity and QuantizedPerplexity are of these tokens alone.
	FloatPerplexity     float64 `json:"float_perplexity"`
	QuantizedPerplexity float64 `json:"quantized_perplexity"`
}

// positions divides the scores of all tokens into ranges of positions and leaves out empty ranges.
func positions(float, quantized, kl []float64, windows []text.Window, clusters *Clusters) (list []PositionStats) {
	longest := longest(windows)
	for from := 1; from < longest; from *= 2 {
		s := PositionStats{From: from, To: min(2*from, longest) - 1}
		var nll [2][]float64
		var kls []float64
		sizes := make([]int, clusters.Count)
		at := 0 // the first scored token of the window
		for i, w := range windows {
			lo, hi := max(w.First, from)-w.First, min(len(w.Tokens), 2*from)-w.First
			if lo < hi {
				nll[0], nll[1] = append(nll[0], float[at+lo:at+hi]...), append(nll[1], quantized[at+lo:at+hi]...)
				kls = append(kls, kl[at+lo:at+hi]...)
				sizes[clusters.of[i]] += hi - lo
			}
			at += w.Scored()
		}
		if len(kls) == 0 {
			continue
		}
		s.Tokens = len(kls)
		s.KL, s.KLStdErr = meanOf(kls, sizes)
		a, _ := meanOf(nll[0], sizes)
		b, _ := meanOf(nll[1], sizes)
		s.FloatPerplexity, s.QuantizedPerplexity = finiteExp(a), finiteExp(b)
		list = append(list, s)
	}
	return list
}

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
