package eval

import (
	"context"
	"slices"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/logits"
	"github.com/lowbit-go/gq/internal/lm/text"
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

func (s *scorer) window(ctx context.Context, i int, w text.Window) ([]score, error) {
	scores := make([]score, 0, w.Scored())
	err := s.predict(ctx, i, w, func(position, row int) error {
		sc, err := s.score(i, position, row, w.Tokens[position])
		scores = append(scores, sc)
		return err
	})
	return scores, err
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
