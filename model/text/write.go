package text

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/splitmix"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/tokenizer"
)

// writers is how many sequences a model writes at a time.
const writers = 16

// Write has a model write a number of tokens: sequences that begin with BOS, each token drawn with the probability that the
// model gives it, until the model ends its document or the sequence has window tokens. start is BOS, or its substitute;
// ends are the tokens that end a document; see Start. progress is called with the number of tokens since the last call;
// nil for none.
//
// A seed gives the same text on any machine: each sequence has its own random numbers, and logits are the same everywhere.
func Write(ctx context.Context, m *model.Model, start int32, ends []int32, tokens, window int, seed uint64, progress func(n int)) (*Text, error) {
	text := &Text{Source: "self", Seed: &seed}
	vocab := m.VocabSize()
	slots := min(writers, max(1, tokens/window))
	b := m.NewBatch(slots, window)
	isEnd := map[int32]bool{start: true}
	for _, id := range ends {
		isEnd[id] = true
	}
	current := make([][]int32, slots)
	random := make([]splitmix.Source, slots)
	number, total := 0, 0
	begin := func(slot int) {
		b.Reset(slot)
		current[slot] = []int32{start}
		random[slot] = newRandom(seed, uint64(number))
		number++
	}
	rows, ids := make([]int, slots), make([]int32, slots)
	for slot := range slots {
		begin(slot)
		rows[slot] = slot
	}
	logits := make([]float32, slots*vocab)
	weights := make([]float64, vocab)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for slot := range slots {
			ids[slot] = current[slot][len(current[slot])-1]
		}
		if err := b.Step(rows, ids, logits); err != nil {
			return nil, err
		}
		if progress != nil {
			progress(slots)
		}
		for slot := range slots {
			id, err := draw(&random[slot], logits[slot*vocab:][:vocab], weights)
			if err != nil {
				return nil, err
			}
			ended := isEnd[id]
			if !ended {
				current[slot] = append(current[slot], id)
			}
			if !ended && len(current[slot]) < window {
				continue
			}
			if len(current[slot]) > 1 {
				text.Sequences = append(text.Sequences, current[slot])
				total += len(current[slot])
			} else {
				total++ // a model that writes nothing comes to an end too
			}
			begin(slot)
		}
		running := 0
		for _, c := range current {
			running += len(c)
		}
		if total+running >= tokens {
			for _, c := range current {
				if len(c) > 1 {
					text.Sequences = append(text.Sequences, c)
				}
			}
			break
		}
	}
	if len(text.Sequences) == 0 {
		return nil, errNoText
	}
	text.SHA256 = HashIDs(text.Sequences)
	return text, nil
}

// HashIDs is the SHA-256 of the ids as little-endian int32 in their order.
func HashIDs(sequences [][]int32) string {
	h := sha256.New()
	for _, s := range sequences {
		_ = binary.Write(h, binary.LittleEndian, s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// draw takes a token with the probability that its logit gives it.
func draw(r *splitmix.Source, logits []float32, weights []float64) (int32, error) {
	top := logits[0]
	for _, v := range logits {
		if v != v {
			return 0, errors.New("the model gives a logit that is NaN")
		}
		top = max(top, v)
	}
	sum := 0.0
	for i, v := range logits {
		weights[i] = detmath.Exp(float64(v) - float64(top))
		sum += weights[i]
	}
	at := float64(r.Float() * sum)
	for i, w := range weights {
		if at -= w; at < 0 {
			return int32(i), nil
		}
	}
	return int32(len(logits) - 1), nil
}

// newRandom starts the n-th sequence of a seed.
func newRandom(seed, n uint64) splitmix.Source {
	r := splitmix.Source(seed)
	first := r.Next()
	r = splitmix.Source(first ^ n*0xd1342543de82ef95)
	r.Next()
	return r
}

// Start is the token that the model begins to write from; ends are the tokens that end its text.
func Start(t *tokenizer.Tokenizer) (start int32, ends []int32) {
	ends = t.EOSIDs()
	if bos, ok := t.BOS(); ok {
		return bos, ends
	}
	if eos, ok := t.EOS(); ok {
		return eos, ends
	}
	return 0, ends
}
