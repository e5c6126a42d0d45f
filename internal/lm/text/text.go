package text

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode"

	"github.com/lowbit-go/gq/internal/lm/arch"
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
	Seed   *uint64 // for "self", and for the last Written tokens of other texts
	// Written counts the tokens that the model wrote after the tokens of a file.
	Written int `json:",omitempty"`
}

// And appends a text that the model wrote to the text of a file.
func (t *Text) And(self *Text) *Text {
	return &Text{slices.Concat(t.Sequences, self.Sequences), t.Source, t.SHA256, self.Seed, self.Tokens()}
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

// Spread returns the beginnings of sequences from all of a text, evenly, with at most n tokens.
// Neighbouring sequences often are of one kind.
func (t *Text) Spread(n int) [][]int32 {
	total := t.Tokens()
	if total <= n {
		return t.Sequences
	}
	step := max(n/spreadPieces, 1)
	longest := step
	enough := func() bool {
		sum := 0
		for _, s := range t.Sequences {
			sum += min(len(s), longest)
		}
		return sum >= n
	}
	for !enough() {
		longest += step
	}
	var list [][]int32
	seen, taken := 0, 0
	for _, s := range t.Sequences {
		seen += len(s)
		if taken*total < seen*n {
			s := s[:min(len(s), longest, n-taken)]
			list, taken = append(list, s), taken+len(s)
		}
	}
	return list
}

// spreadPieces is how many sequences Spread takes, if that many are long enough. Whole sequences
// choose as well on text of one kind.
const spreadPieces = 16

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

// Size is the size of a text in UTF-8 bytes and in words. A text of n runs of white space has n+1
// words, as in lm-evaluation-harness: len(re.split(r"\s+", text)) in Python.
type Size struct{ Bytes, Words int }

// sizeOf returns the size of a text that ends a document or, with open, goes on.
func sizeOf(s string, open bool, inSpace *bool) (z Size) {
	z.Bytes = len(s)
	for _, r := range s {
		space := IsSpace(r)
		if space && !*inSpace {
			z.Words++
		}
		*inSpace = space
	}
	if !open {
		z.Words++
	}
	return z
}

// IsSpace reports whether Python's \s matches r.
func IsSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

func documentSize(s string) Size {
	inSpace := false
	return sizeOf(s, false, &inSpace)
}

// Sizes returns the sizes of the decoded text of each window's scored tokens, or nil without a
// tokenizer. With LMEval, sizes are shares of the original page, by tokens: the sizes of a page's
// windows add up to the page.
func (c *Cutting) Sizes(t *tokenizer.Tokenizer) []Size {
	switch {
	case c.pages != nil:
		return c.pageSizes()
	case t == nil:
		return nil
	}
	sizes := make([]Size, len(c.Windows))
	for i := 0; i < len(sizes); {
		first := i
		for i++; i < len(sizes) && c.documents[i] == c.documents[first]; i++ {
		}
		decodedSizes(sizes[first:i], c.Windows[first:i], t)
	}
	return sizes
}

// decodedSizes sets the sizes of a document's windows. A single stream decodes all windows, because
// a character's tokens may lie in two windows.
func decodedSizes(sizes []Size, windows []Window, t *tokenizer.Tokenizer) {
	stream, inSpace := t.NewStream(false), false
	for i, w := range windows {
		for _, id := range w.Tokens[w.First:] {
			sizes[i].Add(sizeOf(stream.Next(id), true, &inSpace))
		}
	}
	sizes[len(sizes)-1].Add(sizeOf(stream.Flush(), false, &inSpace))
}

func (z *Size) Add(other Size) {
	z.Bytes += other.Bytes
	z.Words += other.Words
}

// pageSizes divides the sizes of pages among their windows.
func (c *Cutting) pageSizes() []Size {
	sizes := make([]Size, len(c.Windows))
	var done Size
	tokens := 0
	for i, w := range c.Windows {
		if i == 0 || c.documents[i] != c.documents[i-1] {
			done, tokens = Size{}, 0
		}
		page := c.pages[c.documents[i]]
		tokens += w.Scored()
		share := func(whole int) int { return int(int64(whole) * int64(tokens) / int64(page.tokens)) }
		sizes[i] = Size{share(page.size.Bytes) - done.Bytes, share(page.size.Words) - done.Words}
		done.Add(sizes[i])
	}
	return sizes
}

// Convention is a rule for dividing a text into windows. Perplexities of different conventions are
// not comparable.
type Convention string

const (
	// Windows: the tokens of the text are divided into pieces of Window-1 tokens, each after a BOS.
	// Every token of a piece is scored. With a Stride, windows overlap: each begins Stride tokens
	// after the previous window, and tokens that an earlier window scored are only context.
	Windows Convention = "windows"
	// Documents: the text is split at EndMarker, and white space around documents is removed. Each
	// document is a window. The rest of a document longer than Window is left out, unless Continue
	// is set.
	Documents Convention = "documents"
	// LlamaCpp is the convention of llama.cpp's perplexity tool. BOS and the tokens of the text are
	// divided into pieces of Window tokens, BOS replaces the first token of each piece, and the
	// second half of each piece is scored. An incomplete last piece is left out.
	LlamaCpp Convention = "llama.cpp"
	// LMEval is the task wikitext of lm-evaluation-harness: pages of WikiText begin at lines such as "
	// = Title = " and are detokenized. Every token of a page is scored, in pieces of Window tokens,
	// each after the token before the piece. Before the first piece is BOS, or else EOS. No other BOS
	// is added.
	LMEval Convention = "lm-eval"
)

// EndMarker ends a document in TinyStories and similar texts.
const EndMarker = "<|endoftext|>"

// DefaultWindow is the default length of a window in tokens.
const DefaultWindow = 512

// WindowOf returns the default length of a window for a model: its context, at most DefaultWindow.
func WindowOf(c arch.ForwardConfig) int {
	if c.MaxPositions > 0 {
		return min(c.MaxPositions, DefaultWindow)
	}
	return DefaultWindow
}

// Options are the options for dividing a text into windows.
type Options struct {
	// Convention is Documents by default if the text has an EndMarker, else Windows.
	Convention Convention
	// Window is the number of tokens of a window, including BOS; with LMEval, the number of tokens
	// that a model reads (max_length in lm-evaluation-harness). Default DefaultWindow.
	Window int
	// Stride is the number of tokens between the starts of windows; not for LlamaCpp and LMEval.
	// Default Window-1: no overlap.
	Stride int
	// Continue: with Documents, the rest of a document longer than Window goes into further
	// windows. Default: the rest is left out, and Cutting counts its tokens.
	Continue bool
	// MaxTokens ends the text after this many scored tokens. Default 0: no limit.
	MaxTokens int
}

// WithDefaults sets the defaults of Window and Stride.
func (o Options) WithDefaults() Options {
	o.Window = cmp.Or(o.Window, DefaultWindow)
	o.Stride = cmp.Or(o.Stride, o.Window-1)
	return o
}

// Check returns an error for invalid or contradictory options.
func (o Options) Check() error {
	o = o.WithDefaults()
	switch {
	case !slices.Contains([]Convention{"", Windows, Documents, LlamaCpp, LMEval}, o.Convention):
		return fmt.Errorf("convention %q: use windows, documents, llama.cpp or lm-eval", o.Convention)
	case o.Window < 2 || o.Convention == LlamaCpp && o.Window < 4:
		return fmt.Errorf("a window of %d tokens: it needs 2 at least, and 4 for llama.cpp's convention", o.Window)
	case o.Stride < 1 || o.Stride > o.Window-1:
		return fmt.Errorf("a stride of %d tokens: use 1 to %d, one less than the window", o.Stride, o.Window-1)
	case o.Stride != o.Window-1 && (o.Convention == LlamaCpp || o.Convention == LMEval):
		return fmt.Errorf("a stride is for the conventions windows and documents, not %s", o.Convention)
	case o.MaxTokens < 0:
		return fmt.Errorf("a limit of %d tokens: use a positive number, or 0 for the whole text", o.MaxTokens)
	}
	return nil
}

// Window is a sequence of tokens that a model reads from an empty context.
type Window struct {
	// Tokens begins with the model's BOS, if any.
	Tokens []int32
	// First is the index of the first scored token, at least 1. Each token is predicted from all
	// earlier tokens.
	First int
}

// Scored returns the number of scored tokens.
func (w Window) Scored() int { return len(w.Tokens) - w.First }

func CountScored(windows []Window) (n int) {
	for _, w := range windows {
		n += w.Scored()
	}
	return n
}

var errNoText = errors.New("the text has no tokens")

// slide divides ids into windows that begin with prefix, Stride tokens apart.
func slide(prefix, ids []int32, o Options) (windows []Window) {
	room := o.Window - len(prefix)
	step := o.Stride
	if step == o.Window-1 {
		step = room
	}
	scored := 0 // number of ids scored so far
	for start := 0; scored < len(ids); start += step {
		end := min(start+room, len(ids))
		tokens := append(append([]int32{}, prefix...), ids[start:end]...)
		first := max(len(prefix)+scored-start, 1)
		if first < len(tokens) {
			windows = append(windows, Window{Tokens: tokens, First: first})
		}
		scored = end
	}
	return windows
}

// chunk divides ids as llama.cpp does; prefix is empty for a model without BOS.
func chunk(prefix, ids []int32, o Options) (windows []Window, err error) {
	ids = append(append([]int32{}, prefix...), ids...)
	if len(ids) < o.Window {
		return nil, fmt.Errorf("the text has %d tokens, fewer than one window of %d", len(ids), o.Window)
	}
	for ; len(ids) >= o.Window; ids = ids[o.Window:] {
		tokens := append([]int32{}, ids[:o.Window]...)
		copy(tokens, prefix)
		windows = append(windows, Window{Tokens: tokens, First: o.Window/2 + 1})
	}
	return windows, nil
}

// limit drops scored tokens beyond the first n; 0 is no limit.
func limit(windows []Window, n int) []Window {
	if n == 0 {
		return windows
	}
	for i := range windows {
		if s := windows[i].Scored(); s < n {
			n -= s
			continue
		}
		windows[i].Tokens = windows[i].Tokens[:windows[i].First+n]
		return windows[:i+1]
	}
	return windows
}
