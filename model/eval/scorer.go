package eval

import (
	"slices"

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
	chunk       int // number of positions whose logits fit into a buffer
}

func newScorer(models []*model.Model, longest int) *scorer {
	s := &scorer{models: models, predictions: make([]prediction, len(models))}
	vocab := models[0].VocabSize()
	s.chunk = min(max(logitsBytes/4/vocab, 1), longest)
	for _, m := range models {
		s.sessions = append(s.sessions, m.NewSession(longest))
		s.logits = append(s.logits, make([]float32, s.chunk*vocab))
	}
	return s
}

// window scores window i.
func (s *scorer) window(i int, w text.Window) ([]score, error) {
	scores := make([]score, 0, w.Scored())
	for _, session := range s.sessions {
		session.Reset()
	}
	// The logits at First-1 predict token First; earlier tokens are context.
	if context := w.Tokens[:w.First-1]; len(context) > 0 {
		for _, session := range s.sessions {
			if err := session.Forward(context, nil, false); err != nil {
				return nil, err
			}
		}
	}
	for at := w.First - 1; at < len(w.Tokens)-1; {
		n := min(s.chunk, len(w.Tokens)-1-at)
		for k, session := range s.sessions {
			if err := session.Forward(w.Tokens[at:at+n], s.logits[k][:n*s.models[k].VocabSize()], true); err != nil {
				return nil, err
			}
		}
		for j := range n {
			sc, err := s.score(i, at+j+1, j, w.Tokens[at+j+1])
			if err != nil {
				return nil, err
			}
			scores = append(scores, sc)
		}
		at += n
	}
	return scores, nil
}

// score compares the models' predictions of a token, in row row of the buffers.
func (s *scorer) score(window, position, row int, token int32) (score, error) {
	for k := range s.models {
		vocab := s.models[k].VocabSize()
		p := &s.predictions[k]
		if p.set(s.logits[k][row*vocab:][:vocab]); !p.finite {
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
