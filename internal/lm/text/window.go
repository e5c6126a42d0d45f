package text

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/internal/lm/arch"
)

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
