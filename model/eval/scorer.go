package eval

import (
	"context"
	"slices"

	"github.com/lowbit-go/gq/formats/logits"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/text"
)

// scorer is the sessions and buffers of one goroutine, one of each per model.
type scorer struct {
	models      []*model.Model
	sessions    []*model.Session
	logits      [][]float32
	predictions []prediction
	vocab       int
	chunk       int          // number of positions whose logits fit into a buffer
	saved       *logits.File // the first model's predictions, if the model is nil
}

func newScorer(models []*model.Model, longest int) *scorer {
	s := &scorer{models: models, predictions: make([]prediction, len(models)), vocab: models[len(models)-1].VocabSize()}
	s.chunk = min(max(logitsBytes/4/s.vocab, 1), longest)
	for _, m := range models {
		var session *model.Session
		if m != nil {
			session = m.NewSession(longest)
		}
		s.sessions = append(s.sessions, session)
		s.logits = append(s.logits, make([]float32, s.chunk*s.vocab))
	}
	return s
}

func (s *scorer) reset() {
	for _, session := range s.sessions {
		if session != nil {
			session.Reset()
		}
	}
}

// context feeds the models the tokens before the first prediction. The logits at First-1 predict
// token First.
func (s *scorer) context(w text.Window) error {
	context := w.Tokens[:w.First-1]
	if len(context) == 0 {
		return nil
	}
	for _, session := range s.sessions {
		if session == nil {
			continue
		}
		if err := session.Forward(context, nil, false); err != nil {
			return err
		}
	}
	return nil
}

// appendTokens feeds the models tokens whose predictions logits will ask for.
func (s *scorer) appendTokens(tokens []int32) error {
	for _, session := range s.sessions {
		if session == nil {
			continue
		}
		if err := session.Append(tokens); err != nil {
			return err
		}
	}
	return nil
}

// fill fills the buffers with the logits at n positions of window i, from at on. Position first is of the
// first token of the last appendTokens.
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

// predict runs the models on window i. For each scored token it calls scored with the token's
// position in the window, and with the row of the buffers that predicts the token. The layers take as many
// tokens at a time as they can, whose logits would not fit into the buffers.
func (s *scorer) predict(ctx context.Context, i int, w text.Window, scored func(position, row int) error) error {
	s.reset()
	if err := s.context(w); err != nil {
		return err
	}
	end := len(w.Tokens) - 1 // the last token predicts nothing that is scored
	for first := w.First - 1; first < end; first += model.MaxAppend {
		next := min(first+model.MaxAppend, end)
		if err := s.appendTokens(w.Tokens[first:next]); err != nil {
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

// window scores window i.
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

// collect lists one number per position, in order of window and position.
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
