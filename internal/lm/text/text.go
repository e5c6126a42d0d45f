package text

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/lowbit-go/gq/internal/lm/tokenizer"
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

const (
	ngramLength = 4   // tokens
	ngramBlock  = 512 // n-grams
)

// LeastDistinct is the share of distinct n-grams, see Distinct, below which a text is degenerate:
// the text repeats itself.
//
// Three small models write texts with shares of .959 and more, and of .399 and less if they almost
// always take the likeliest token. Real text has .900 and more, byte by byte .778 and more.
const LeastDistinct = 0.7

// Distinct returns the share of distinct 4-grams of tokens in a text: the number of different
// 4-grams over the number of all. The longer a text, the smaller its share, so Distinct counts in
// blocks of 512 n-grams. The share of a text of less than a block is larger.
//
// Each scored token ends an n-gram; at the start of a window the n-gram is shorter. So many windows
// of a few tokens count as repetition, too.
func Distinct(windows []Window) float64 {
	distinct, total := 0, 0
	seen := make(map[[ngramLength]int32]bool, ngramBlock)
	for _, w := range windows {
		for end := w.First + 1; end <= len(w.Tokens); end++ {
			if total%ngramBlock == 0 {
				clear(seen)
			}
			gram := [ngramLength]int32{-1, -1, -1, -1}
			copy(gram[:], w.Tokens[max(end-ngramLength, 0):end])
			if !seen[gram] {
				seen[gram] = true
				distinct++
			}
			total++
		}
	}
	if total == 0 {
		return 1
	}
	return float64(distinct) / float64(total)
}

// Format returns the content of a file from which Read makes the text again: plain text, or with
// ids the token ids. Each sequence is a document of its own. Plain text gives other tokens where
// the tokenizer would not have chosen the tokens of the sequences, and where documents begin or end
// with white space; Equal compares.
func (t *Text) Format(tok *tokenizer.Tokenizer, ids bool) []byte {
	var b []byte
	bos, begins := tok.BOS()
	separator, separated := markerID(tok)
	for _, s := range t.Sequences {
		if ids {
			for _, id := range s {
				b = append(strconv.AppendInt(b, int64(id), 10), ' ')
			}
			if separated {
				b = strconv.AppendInt(b, int64(separator), 10)
			}
			b = append(bytes.TrimRight(b, " "), '\n')
			continue
		}
		if begins && len(s) > 0 && s[0] == bos {
			s = s[1:]
		}
		b = append(append(b, tok.Decode(s, false)...), "\n"+EndMarker+"\n"...)
	}
	return b
}

func (t *Text) Equal(o *Text) bool {
	return slices.EqualFunc(t.Sequences, o.Sequences, slices.Equal[[]int32])
}
