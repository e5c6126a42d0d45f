package accuracy

import (
	"context"
	"slices"

	"github.com/lowbit-go/gq/model"
)

// Reference is a text as a float model predicts it: what several quantized versions of it are measured against, one
// after the other.
type Reference struct {
	float   *model.Model
	windows []Window
	kept    []prediction // of the float model at all scored positions; nil: they are too many, and computed each time
	scorer  *scorer      // kept from one measurement to the next
	scored  *model.Model
}

// referenceBytes bounds what a Reference keeps: a logit and its exponential for each token of the vocabulary and position.
const referenceBytes = 384 << 20

// NewReference runs the float model on the windows, if its logits are few enough to be kept. The model must stay open as
// long as the Reference is used.
func NewReference(ctx context.Context, float *model.Model, windows []Window) (*Reference, error) {
	r := &Reference{float: float, windows: windows}
	vocab := float.VocabSize()
	if CountScored(windows) > referenceBytes/12/vocab {
		return r, nil
	}
	kept := make([]prediction, 0, CountScored(windows))
	s := newScorer([]*model.Model{float}, longest(windows))
	for i, w := range windows {
		err := s.each(ctx, w, func(position, row int) error {
			var p prediction
			if p.set(slices.Clone(s.logits[0][row*vocab:][:vocab])); !p.finite {
				return &NonFiniteError{Window: i, Position: position}
			}
			kept = append(kept, p)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	r.kept = kept
	return r, nil
}

// Kept tells that the float model's predictions are kept, so that it is not needed any more.
func (r *Reference) Kept() bool { return r.kept != nil }

func longest(windows []Window) (n int) {
	for _, w := range windows {
		n = max(n, len(w.Tokens))
	}
	return n
}

// KL is the mean over all scored tokens of the divergence KL(float || m), in nats. m may be the float model itself with
// some of its weights replaced only if they are Kept; else it has to be opened apart.
func (r *Reference) KL(ctx context.Context, m *model.Model) (float64, error) {
	if r.scorer == nil || r.scored != m {
		models := []*model.Model{m}
		if r.kept == nil {
			models = append(models, r.float)
		}
		r.scorer, r.scored = newScorer(models, longest(r.windows)), m
	}
	s, vocab := r.scorer, m.VocabSize()
	sum, n := 0.0, 0
	for i, w := range r.windows {
		err := s.each(ctx, w, func(position, row int) error {
			q, float := &s.predictions[0], &s.predictions[len(s.predictions)-1]
			if r.kept != nil {
				float = &r.kept[n]
			} else if float.set(s.logits[1][row*vocab:][:vocab]); !float.finite {
				return &NonFiniteError{Window: i, Position: position}
			}
			if q.set(s.logits[0][row*vocab:][:vocab]); !q.finite {
				return &NonFiniteError{Model: 1, Window: i, Position: position}
			}
			sum += divergence(float, q)
			n++
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return sum / float64(n), nil
}

// each runs the scorer's models over a window and calls fn for each scored position, with the row of its prediction in the
// buffers of logits.
func (s *scorer) each(ctx context.Context, w Window, fn func(position, row int) error) error {
	for _, session := range s.sessions {
		session.Reset()
	}
	if before := w.Tokens[:w.First-1]; len(before) > 0 {
		for _, session := range s.sessions {
			if err := session.Forward(before, nil, false); err != nil {
				return err
			}
		}
	}
	for at := w.First - 1; at < len(w.Tokens)-1; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(s.chunk, len(w.Tokens)-1-at)
		for k, session := range s.sessions {
			if err := session.Forward(w.Tokens[at:at+n], s.logits[k][:n*s.models[k].VocabSize()], true); err != nil {
				return err
			}
		}
		for j := range n {
			if err := fn(at+j+1, j); err != nil {
				return err
			}
		}
		at += n
	}
	return nil
}
