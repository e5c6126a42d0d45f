package tune

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/quantizer"
)

// Text is the text of a job. The last eighth, and at most mostHeldOut tokens, is held out from
// training.
type Text struct {
	*text.Text
	train   [][]int32 // pieces of at most StepTokens
	HeldOut []text.Window
}

const (
	heldOutShare = 8
	mostHeldOut  = 16384
)

// HeldOut is the number of tokens to hold out of so many.
func HeldOut(tokens int) int { return min(tokens/heldOutShare, mostHeldOut) }

// NewText divides a text.
func NewText(t *text.Text) (*Text, error) {
	n := t.Tokens()
	if s, _ := quantizer.SettingOf("tune-tokens"); n < s.Least {
		return nil, fmt.Errorf("a text of %d tokens to tune on: at least %d are needed", n, s.Least)
	}
	train := n - HeldOut(n)
	d := &Text{Text: t, HeldOut: t.After(train)}
	for _, s := range t.First(train) {
		for len(s) > 1 {
			piece := s[:min(len(s), StepTokens)]
			d.train, s = append(d.train, piece), s[len(piece):]
		}
	}
	if len(d.train) == 0 || text.CountScored(d.HeldOut) == 0 {
		return nil, fmt.Errorf("a text of %d tokens in %d sequences to tune on: longer sequences are needed", n, len(t.Sequences))
	}
	return d, nil
}

// TrainTokens is the number of tokens that are trained with.
func (t *Text) TrainTokens() (n int) {
	for _, s := range t.train {
		n += len(s)
	}
	return n
}

// batches divides the text, in another order in each pass, into n batches of at most StepTokens.
func (t *Text) batches(n int) [][][]int32 {
	lengths := make([]int, len(t.train))
	for i, s := range t.train {
		lengths[i] = len(s)
	}
	next := shuffled(lengths, 1)
	list := make([][][]int32, n)
	for i := range list {
		for _, k := range next() {
			list[i] = append(list[i], t.train[k])
		}
	}
	return list
}

// shuffled gives batches of sequences with these lengths, in another order in each pass. A batch
// has at most StepTokens, or a single sequence.
func shuffled(lengths []int, random detmath.Source) func() []int {
	order := make([]int, len(lengths))
	for i := range order {
		order[i] = i
	}
	at := len(order)
	return func() (batch []int) {
		for used := 0; ; at++ {
			if at == len(order) {
				for i := len(order) - 1; i > 0; i-- {
					k := int(random.Next() % uint64(i+1))
					order[i], order[k] = order[k], order[i]
				}
				at = 0
			}
			n := lengths[order[at]]
			if used > 0 && used+n > StepTokens {
				return batch
			}
			batch, used = append(batch, order[at]), used+n
		}
	}
}
