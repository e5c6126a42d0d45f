package text

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/lowbit-go/gq/model/tokenizer"
)

// Text is calibration text: token sequences and their origin.
type Text struct {
	Sequences [][]int32
	// Source is "text", "tokens" or "self".
	Source string
	// SHA256 is the checksum of the file or, for "self", of the ids as little-endian int32 in
	// order.
	SHA256 string
	Seed   *uint64 // for "self"
}

// Tokens returns the number of tokens in all sequences.
func (t *Text) Tokens() (n int) {
	for _, s := range t.Sequences {
		n += len(s)
	}
	return n
}

// First returns the first n tokens of a text.
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

// After makes windows from the text after its first n tokens. A sequence that begins earlier is
// read from its beginning and scored after token n.
func (t *Text) After(n int) []Window {
	var windows []Window
	for _, s := range t.Sequences {
		if first := max(n, 1); first < len(s) {
			windows = append(windows, Window{Tokens: s, First: first})
		}
		n = max(n-len(s), 0)
	}
	return windows
}

// WindowsOf makes windows of sequences. Every token of a sequence but the first is scored.
func WindowsOf(sequences [][]int32) []Window {
	windows := make([]Window, 0, len(sequences))
	for _, s := range sequences {
		if len(s) > 1 {
			windows = append(windows, Window{Tokens: s, First: 1})
		}
	}
	return windows
}

// Read divides the content of a file into sequences of at most window tokens, by the convention
// Documents, up to this many tokens including BOS. A file of numbers only holds token ids.
func Read(ctx context.Context, t *tokenizer.Tokenizer, data []byte, tokens, window int) (*Text, error) {
	sum := sha256.Sum256(data)
	text := &Text{Source: "text", SHA256: hex.EncodeToString(sum[:])}
	in := Input{Data: data, IDs: holdsIDs(data)}
	if in.IDs {
		text.Source = "tokens"
	}
	c, err := Cut(ctx, t, t.VocabSize(), in, Options{Convention: Documents, Continue: true, Window: window, MaxTokens: tokens})
	if err != nil {
		return nil, err
	}
	for _, w := range c.Windows {
		n := min(len(w.Tokens), tokens-text.Tokens())
		if n <= w.First {
			break // only BOS, or nothing
		}
		text.Sequences = append(text.Sequences, w.Tokens[:n])
	}
	if len(text.Sequences) == 0 {
		return nil, errNoText
	}
	return text, nil
}
