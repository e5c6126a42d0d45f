package forward

import (
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/rowmath"
)

// In models with sinks, each head has a learned logit. It takes a part of the softmax of the head's
// scores, but no value belongs to it: the probabilities of the tokens add up to less than 1.

// scoreWidth is the number of columns of a row of scores against this many tokens: with a place for
// the sink, if there are sinks.
func (m *Model) scoreWidth(tokens int) int {
	if m.config.Facts.Has(arch.Sinks) {
		tokens++
	}
	return padded(tokens)
}

// softmax turns the scores of a query head into probabilities. With sinks, softmax overwrites the
// column behind the row.
func softmax(set *rowmath.Set, row, sinks []float32, head int) {
	if sinks != nil {
		row = row[:len(row)+1]
		row[len(row)-1] = sinks[head]
	}
	set.Softmax(row)
}
