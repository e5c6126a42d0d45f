package eval

import (
	"context"
	"math"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/choice"
	"github.com/lowbit-go/gq/internal/lm/forward"
)

// Answers measures a model's answers to multiple-choice questions, as lm-evaluation-harness does.
type Answers struct {
	// Acc is the share of questions for which the right ending has the highest log-likelihood. AccNorm
	// divides log-likelihoods by the endings' lengths in characters first.
	Acc           float64 `json:"acc"`
	AccStdErr     StdErr  `json:"acc_std_err"`
	AccNorm       float64 `json:"acc_norm"`
	AccNormStdErr StdErr  `json:"acc_norm_std_err"`
}

// ChoiceComparison compares the answers of a quantized model with its float model's.
type ChoiceComparison struct {
	Questions int     `json:"questions"`
	Float     Answers `json:"float"`
	Quantized Answers `json:"quantized"`
	// AccDrop is the float model's Acc minus the quantized model's, with the standard error of the
	// paired differences; AccNormDrop likewise.
	AccDrop           float64 `json:"acc_drop"`
	AccDropStdErr     StdErr  `json:"acc_drop_std_err"`
	AccNormDrop       float64 `json:"acc_norm_drop"`
	AccNormDropStdErr StdErr  `json:"acc_norm_drop_std_err"`
	// Changed is the share of questions to which the models give different answers by Acc's rule,
	// right or wrong; ChangedNorm by AccNorm's rule.
	Changed       float64 `json:"changed"`
	ChangedStdErr StdErr  `json:"changed_std_err"`
	ChangedNorm   float64 `json:"changed_norm"`
	// KL is the divergence KL(float || quantized) of the distribution over a question's endings, in
	// nats: their likelihoods divided by the sum of their likelihoods.
	KL Distribution `json:"kl"`
}

// ChoiceOptions are the options of CompareChoices. The zero value has the defaults.
type ChoiceOptions struct {
	// Sessions is the number of questions that are scored concurrently. Default 1. The result does not
	// depend on Sessions.
	Sessions int
	// Progress is called, from several goroutines, after each question. Default (nil): none.
	Progress func()
}

// CompareChoices answers questions with the float model and with candidates. A NonFiniteError's
// Window is the index of the question.
func CompareChoices(ctx context.Context, float *forward.Model, candidates []*forward.Model, items []*choice.Item, o ChoiceOptions) ([]ChoiceComparison, error) {
	if err := sameVocabulary(float.VocabSize(), candidates); err != nil {
		return nil, err
	}
	models := append([]*forward.Model{float}, candidates...)
	longest := 0
	for _, item := range items {
		for _, e := range item.Endings {
			longest = max(longest, len(item.Context)-e.Skip+len(e.Tokens))
		}
	}
	likelihoods := make([][][]float64, len(items)) // [item][model][ending]
	err := cpu.Parallel(ctx, o.Sessions, len(items), func() func(i int) error {
		s := newScorer(models, longest)
		return func(i int) (err error) {
			if likelihoods[i], err = s.endings(i, items[i]); err == nil && o.Progress != nil {
				o.Progress()
			}
			return err
		}
	})
	if err != nil {
		return nil, err
	}
	out := make([]ChoiceComparison, len(candidates))
	for c := range out {
		out[c] = answers(items, likelihoods, c+1)
	}
	return out, nil
}

// endings returns the log-likelihoods of a question's endings, by model.
func (s *scorer) endings(number int, item *choice.Item) ([][]float64, error) {
	list := make([][]float64, len(s.models))
	for k := range s.models {
		list[k] = make([]float64, len(item.Endings))
		read := -1 // Skip of the context that the session holds; -1: none
		for i := range item.Endings {
			sum, err := s.ending(number, k, item, i, &read)
			if err != nil {
				return nil, err
			}
			list[k][i] = sum
		}
	}
	return list, nil
}

// ending returns the log-likelihood of an ending with model k. The session keeps the keys and
// values of the context, except its last token, for the next ending.
func (s *scorer) ending(number, k int, item *choice.Item, i int, read *int) (float64, error) {
	e, session := &item.Endings[i], s.sessions[k]
	context := item.Context[e.Skip:]
	n := len(context) - 1
	if *read != e.Skip || !session.Truncate(n) {
		session.Reset()
		if n > 0 {
			if err := session.Forward(context[:n], nil, false); err != nil {
				return 0, err
			}
		}
		*read = e.Skip
	}
	tokens := append([]int32{context[n]}, e.Tokens...)
	sum := 0.0
	for at := 0; at < len(tokens)-1; {
		rows := min(s.chunk, len(tokens)-1-at)
		logits := s.logits[k][:rows*s.vocab]
		if err := session.Forward(tokens[at:at+rows], logits, true); err != nil {
			return 0, err
		}
		for row := range rows {
			p := &s.predictions[k]
			if p.set(logits[row*s.vocab:][:s.vocab]); !p.finite {
				return 0, &NonFiniteError{Model: k, Window: number, Position: n + at + row + 1}
			}
			sum += p.logProb(tokens[at+row+1])
		}
		at += rows
	}
	return sum, nil
}

// answers compares model number c with the float model, number 0.
func answers(items []*choice.Item, likelihoods [][][]float64, c int) ChoiceComparison {
	n := len(items)
	right, rightNorm := [2][]float64{make([]float64, n), make([]float64, n)}, [2][]float64{make([]float64, n), make([]float64, n)}
	drop, dropNorm, changed, changedNorm := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	kl := make([]float64, n)
	for i, item := range items {
		var best, bestNorm [2]int
		for m, values := range [2][]float64{likelihoods[i][0], likelihoods[i][c]} {
			best[m], bestNorm[m] = largest(values), largest(perCharacter(values, item))
			right[m][i], rightNorm[m][i] = one(best[m] == item.Answer), one(bestNorm[m] == item.Answer)
		}
		drop[i], dropNorm[i] = right[0][i]-right[1][i], rightNorm[0][i]-rightNorm[1][i]
		changed[i], changedNorm[i] = one(best[0] != best[1]), one(bestNorm[0] != bestNorm[1])
		kl[i] = endingsKL(likelihoods[i][0], likelihoods[i][c])
	}
	out := ChoiceComparison{Questions: n, KL: describe(kl, nil)}
	for m, a := range []*Answers{&out.Float, &out.Quantized} {
		a.Acc, a.AccStdErr = meanOf(right[m], nil)
		a.AccNorm, a.AccNormStdErr = meanOf(rightNorm[m], nil)
	}
	out.AccDrop, out.AccDropStdErr = meanOf(drop, nil)
	out.AccNormDrop, out.AccNormDropStdErr = meanOf(dropNorm, nil)
	out.Changed, out.ChangedStdErr = meanOf(changed, nil)
	out.ChangedNorm, _ = meanOf(changedNorm, nil)
	return out
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// largest returns the index of the largest number, the first of equals.
func largest(v []float64) int {
	at := 0
	for i, x := range v {
		if x > v[at] {
			at = i
		}
	}
	return at
}

// perCharacter divides log-likelihoods by the lengths of the endings. An ending without characters
// is never the answer.
func perCharacter(v []float64, item *choice.Item) []float64 {
	list := make([]float64, len(v))
	for i, x := range v {
		if list[i] = math.Inf(-1); item.Endings[i].Characters > 0 {
			list[i] = x / float64(item.Endings[i].Characters)
		}
	}
	return list
}

// endingsKL returns KL(p || q) for unnormalized log-probabilities a of p and b of q.
func endingsKL(a, b []float64) float64 {
	logSum := func(v []float64) float64 {
		most, sum := v[largest(v)], 0.0
		for _, x := range v {
			sum += detmath.Exp(x - most)
		}
		return most + detmath.Log(sum)
	}
	sumA, sumB, kl := logSum(a), logSum(b), 0.0
	for i := range a {
		p := a[i] - sumA
		kl += float64(detmath.Exp(p) * (p - (b[i] - sumB)))
	}
	return max(kl, 0)
}
