package calib

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/splitmix"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/model/tokenizer"
)

// DefaultTokens is how many tokens calibration takes by default: with more the results hardly improve.
const DefaultTokens = 8192

// Text is what a model is calibrated on.
type Text struct {
	Sequences [][]int32
	// Source is "text", "tokens" or "self", SHA256 that of the file, or of the ids as little-endian int32 in their order if
	// the model wrote them.
	Source, SHA256 string
	Seed           *uint64 // of "self"
}

// Tokens counts the tokens of all sequences.
func (t *Text) Tokens() (n int) {
	for _, s := range t.Sequences {
		n += len(s)
	}
	return n
}

// Window is the length of a model's sequences: its context, at most 512.
func Window(c arch.ForwardConfig) int {
	if c.MaxPositions > 0 {
		return min(c.MaxPositions, 512)
	}
	return 512
}

// documentEnd separates documents in the texts of TinyStories and its like.
const documentEnd = "<|endoftext|>"

var errNoText = errors.New("the calibration text has no tokens")

// ReadText turns the content of a file into sequences of at most window tokens, so many tokens in all: each begins with
// BOS where the model has one, and none goes beyond a document's end. Text that is nothing but numbers is token ids.
func ReadText(t *tokenizer.Tokenizer, data []byte, tokens, window int) (*Text, error) {
	sum := sha256.Sum256(data)
	text := &Text{Source: "text", SHA256: hex.EncodeToString(sum[:])}
	var prefix []int32
	if bos, ok := t.BOS(); ok {
		prefix = []int32{bos}
	}
	left := tokens
	cut := func(ids []int32) {
		room := window - len(prefix)
		for len(ids) > 0 && left > len(prefix) {
			n := min(room, len(ids), left-len(prefix))
			text.Sequences = append(text.Sequences, append(append([]int32{}, prefix...), ids[:n]...))
			ids, left = ids[n:], left-n-len(prefix)
		}
	}
	if ids, ok := parseIDs(data); ok {
		text.Source = "tokens"
		for i, id := range ids {
			if int(id) >= t.VocabSize() {
				return nil, fmt.Errorf("calibration token %d is %d: the vocabulary has %d", i, id, t.VocabSize())
			}
		}
		if len(prefix) > 0 && len(ids) > 0 && ids[0] == prefix[0] {
			ids = ids[1:]
		}
		cut(ids)
	} else {
		// A piece at a time: of a large file only the beginning is needed.
		for _, doc := range bytes.Split(data, []byte(documentEnd)) {
			doc = bytes.TrimSpace(doc)
			if most := 64 * max(left, 64); len(doc) > most {
				doc = bytes.ToValidUTF8(doc[:most], nil)
			}
			if len(doc) == 0 || left <= len(prefix) {
				continue
			}
			ids, err := t.Encode(string(doc), tokenizer.Options{})
			if err != nil {
				return nil, err
			}
			cut(ids)
		}
	}
	if len(text.Sequences) == 0 {
		return nil, errNoText
	}
	return text, nil
}

// parseIDs reads decimal numbers parted by white space or commas, brackets around them allowed.
func parseIDs(data []byte) ([]int32, bool) {
	fields := strings.FieldsFunc(string(data), func(r rune) bool { return strings.ContainsRune(" \t\r\n,[]", r) })
	ids := make([]int32, 0, len(fields))
	for _, f := range fields {
		id, err := strconv.ParseInt(f, 10, 32)
		if err != nil || id < 0 {
			return nil, false
		}
		ids = append(ids, int32(id))
	}
	return ids, len(ids) > 1
}

// writers is how many sequences a model writes at a time.
const writers = 16

// WriteText has a model write so many tokens: sequences from BOS on, each token drawn with the probability that the model
// gives it, until the model ends its document or window tokens are there. start is BOS, or what stands for it; ends are
// the tokens that end a document. progress is called with the number of tokens since the last call; nil: not.
//
// Text and seed belong together: each sequence has random numbers of its own, and the logits are the same on any machine.
func WriteText(ctx context.Context, m *model.Model, start int32, ends []int32, tokens, window int, seed uint64, progress func(n int)) (*Text, error) {
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
	text.SHA256 = hashIDs(text.Sequences)
	return text, nil
}

// First gives the first n tokens of a text.
func (t *Text) First(n int) [][]int32 {
	var list [][]int32
	for _, s := range t.Sequences {
		if n <= 0 {
			break
		}
		list = append(list, s[:min(n, len(s))])
		n -= len(s)
	}
	return list
}

func hashIDs(sequences [][]int32) string {
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
			return 0, errors.New("the model gives a logit that is no number")
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

// Start is what the model begins to write from, and ends what it ends with.
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
