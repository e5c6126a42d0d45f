package fold

import (
	"context"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/orthogonal"
)

const (
	// A folded model is checked on checkTokens tokens, in sequences of at most checkWindow. A mixture
	// of experts has mixtureWindow: if two experts have nearly the same score, rounding may select the
	// other expert and change the rest of the sequence.
	checkTokens   = 256
	checkWindow   = 128
	mixtureWindow = 8
)

// tolerance is float32's error: the largest difference of logits, relative to the largest logit.
const tolerance = 1e-4

// ExactnessError says that a folded model does not compute the same logits as the original.
type ExactnessError struct{ Check }

func (e *ExactnessError) Error() string {
	return fmt.Sprintf("the folded model's logits differ from the checkpoint's by %.3g of the largest on %d tokens (%s), more than %g: it is not the same model, so nothing was written; quantize without folding, and report this", e.Difference, e.Tokens, e.Source, tolerance)
}

// Compare runs two models on the first tokens of sequences, by default on random tokens. If their
// logits differ by more than float32 rounding, the error is an *ExactnessError.
func Compare(ctx context.Context, original, folded string, sequences [][]int32, source string, o Options) (*Check, error) {
	options := forward.Options{Threads: o.Threads, Log: quiet}
	a, err := forward.OpenCheckpoint(original, options)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := forward.OpenCheckpoint(folded, options)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	config, window := a.Config(), WindowOf(a)
	if len(sequences) == 0 {
		source, sequences = "random", RandomTokens(a.VocabSize(), window)
	}
	if config.Experts != nil {
		window = min(window, mixtureWindow)
	}
	c := &Check{Source: source}
	p := &pair{a.NewSession(window), b.NewSession(window), a.VocabSize(), nil, nil}
	var differences []float64
	largest := 0.0
	for _, ids := range pieces(sequences, window) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		worst, top, err := p.compare(ids)
		if err != nil {
			return nil, err
		}
		c.Tokens += len(ids)
		differences, largest = append(differences, worst), max(largest, top)
	}
	for _, d := range differences {
		if largest > 0 {
			d /= largest
		}
		// At most a quarter may be rerouted: in a wrong model all sequences differ.
		if config.Experts != nil && d > tolerance && c.Rerouted < len(differences)/4 {
			c.Rerouted++
			continue
		}
		c.Difference = max(c.Difference, d) // NaN stays NaN
	}
	if !(c.Difference <= tolerance) {
		return nil, &ExactnessError{*c}
	}
	return c, nil
}

func WindowOf(m *forward.Model) int {
	if n := m.Config().MaxPositions; n > 0 {
		return min(checkWindow, n)
	}
	return checkWindow
}

func pieces(sequences [][]int32, window int) (list [][]int32) {
	left := checkTokens
	for _, ids := range sequences {
		for len(ids) > 0 && left > 0 {
			n := min(window, len(ids), left)
			list = append(list, ids[:n])
			ids, left = ids[n:], left-n
		}
	}
	return list
}

type pair struct {
	first, second *forward.Session
	vocab         int
	x, y          []float32
}

// compare returns the largest difference between the logits of a sequence, and the largest logit.
func (p *pair) compare(ids []int32) (worst, largest float64, err error) {
	const chunk = 16 // tokens
	p.first.Reset()
	p.second.Reset()
	for len(ids) > 0 {
		n := min(chunk, len(ids))
		x, y := buffer.Grow(&p.x, n*p.vocab), buffer.Grow(&p.y, n*p.vocab)
		if err := p.first.Forward(ids[:n], x, true); err != nil {
			return 0, 0, err
		}
		if err := p.second.Forward(ids[:n], y, true); err != nil {
			return 0, 0, err
		}
		for i, v := range x {
			largest = max(largest, math.Abs(float64(v)))
			worst = max(worst, math.Abs(float64(v)-float64(y[i]))) // NaN stays NaN
		}
		ids = ids[n:]
	}
	return worst, largest, nil
}

// RandomTokens depends on the vocabulary and the window alone.
func RandomTokens(vocab, window int) (list [][]int32) {
	random := orthogonal.Random(1, 0)
	for range (checkTokens + window - 1) / window {
		ids := make([]int32, window)
		for i := range ids {
			ids[i] = int32(random.Next() >> 33 % uint64(vocab))
		}
		list = append(list, ids)
	}
	return list
}
