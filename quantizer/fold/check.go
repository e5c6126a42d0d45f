package fold

import (
	"context"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/model"
)

// checkTokens is how many tokens a folded model is checked on, in sequences of at most checkWindow.
const (
	checkTokens = 256
	checkWindow = 128
)

// tolerance is the largest difference of logits that is let pass, as a part of the largest logit: what is left of float32.
const tolerance = 1e-4

// ExactnessError says that a folded model does not compute what the original does.
type ExactnessError struct{ Check }

func (e *ExactnessError) Error() string {
	return fmt.Sprintf("the folded model's logits differ from the checkpoint's by %.3g of the largest on %d tokens (%s), more than %g: it is not the same model, so nothing was written; quantize without folding, and report this", e.Difference, e.Tokens, e.Source, tolerance)
}

// compareLogits runs the models of two directories on the first tokens of sequences; without any, on random ones.
func compareLogits(ctx context.Context, original, folded string, sequences [][]int32, source string, o Options) (*Check, error) {
	options := model.Options{Threads: o.threads(), Log: quiet}
	a, err := model.OpenCheckpoint(original, options)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := model.OpenCheckpoint(folded, options)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	window := checkWindow
	if most := a.Config().MaxPositions; most > 0 {
		window = min(window, most)
	}
	if len(sequences) == 0 {
		source, sequences = "random", randomTokens(a.VocabSize(), window)
	}
	c := &Check{Source: source}
	largest, worst := 0.0, 0.0
	vocab := a.VocabSize()
	const chunk = 16
	x, y := make([]float32, chunk*vocab), make([]float32, chunk*vocab)
	first, second := a.NewSession(window), b.NewSession(window)
	for _, ids := range sequences {
		ids = ids[:min(len(ids), window, checkTokens-c.Tokens)]
		c.Tokens += len(ids)
		first.Reset()
		second.Reset()
		for len(ids) > 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			n := min(chunk, len(ids))
			if err := first.Forward(ids[:n], x[:n*vocab], true); err != nil {
				return nil, err
			}
			if err := second.Forward(ids[:n], y[:n*vocab], true); err != nil {
				return nil, err
			}
			for i, v := range x[:n*vocab] {
				largest = max(largest, math.Abs(float64(v)))
				worst = max(worst, math.Abs(float64(v)-float64(y[i]))) // NaN stays NaN
			}
			ids = ids[n:]
		}
	}
	if c.Difference = worst; largest > 0 {
		c.Difference = worst / largest
	}
	if !(c.Difference <= tolerance) {
		return nil, &ExactnessError{*c}
	}
	return c, nil
}

// randomTokens are the same for the same vocabulary.
func randomTokens(vocab, window int) (list [][]int32) {
	random := newRandom(1, 0)
	for range (checkTokens + window - 1) / window {
		ids := make([]int32, window)
		for i := range ids {
			ids[i] = int32(random.next() >> 33 % uint64(vocab))
		}
		list = append(list, ids)
	}
	return list
}
