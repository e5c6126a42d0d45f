package accuracy

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/lowbit-go/gq/model/tokenizer"
)

// Convention is a way to cut a text into windows. Perplexities of different conventions cannot be compared.
type Convention string

const (
	// Windows: the text's tokens in pieces of Window-1, each behind a BOS token; every token of a piece is scored.
	// With a Stride, windows overlap: each begins Stride tokens behind the one before, and tokens that an earlier
	// window scored are context only.
	Windows Convention = "windows"
	// Documents: the text is split on <|endoftext|>, and each document is a window of its own: BOS and its tokens, cut
	// to Window.
	Documents Convention = "documents"
	// LlamaCpp is that of llama.cpp's perplexity tool: pieces of Window tokens, the first of each replaced by BOS, the
	// second half of each scored; a last piece that is not whole is left out.
	LlamaCpp Convention = "llama.cpp"
)

// Conventions are all of them.
var Conventions = []Convention{Windows, Documents, LlamaCpp}

// documentEnd separates documents in the texts of TinyStories and its like.
const documentEnd = "<|endoftext|>"

// defaultWindow is the number of tokens of a window.
const defaultWindow = 512

// TextOptions says how a text becomes windows.
type TextOptions struct {
	// Convention: default Windows.
	Convention Convention
	// Window is the number of tokens of a window, BOS included. Default 512; in a Job, the context of a model that is made for less.
	Window int
	// Stride is the number of tokens between the starts of windows, for Windows only. Default Window-1: no overlap.
	Stride int
	// MaxTokens ends the text behind so many scored tokens. Default 0: all.
	MaxTokens int
}

func (o TextOptions) withDefaults() TextOptions {
	if o.Convention == "" {
		o.Convention = Windows
	}
	if o.Window == 0 {
		o.Window = defaultWindow
	}
	if o.Stride == 0 {
		o.Stride = o.Window - 1
	}
	return o
}

// Check finds options that cannot be.
func (o TextOptions) Check() error { return o.withDefaults().check() }

func (o TextOptions) check() error {
	switch {
	case o.Convention != Windows && o.Convention != Documents && o.Convention != LlamaCpp:
		return fmt.Errorf("convention %q: use windows, documents or llama.cpp", o.Convention)
	case o.Window < 2 || o.Convention == LlamaCpp && o.Window < 4:
		return fmt.Errorf("a window of %d tokens: it needs 2 at least, and 4 for llama.cpp's convention", o.Window)
	case o.Stride < 1 || o.Stride > o.Window-1:
		return fmt.Errorf("a stride of %d tokens: use 1 to %d, one less than the window", o.Stride, o.Window-1)
	case o.Stride != o.Window-1 && o.Convention != Windows:
		return fmt.Errorf("a stride is for the convention windows, not %s", o.Convention)
	case o.MaxTokens < 0:
		return fmt.Errorf("%d tokens at most: use 0 for all of the text", o.MaxTokens)
	}
	return nil
}

// Window is a sequence of tokens that a model reads from an empty context.
type Window struct {
	// Tokens begins with BOS where the model has one.
	Tokens []int32
	// First is the index of the first token that is scored, at least 1: each is predicted from all before it.
	First int
}

// Scored is the number of scored tokens.
func (w Window) Scored() int { return len(w.Tokens) - w.First }

// CountScored is the number of scored tokens of all windows.
func CountScored(windows []Window) (n int) {
	for _, w := range windows {
		n += w.Scored()
	}
	return n
}

var errNoText = errors.New("the text has no tokens to score")

// CutText turns a text into windows. Models without a BOS token get windows without one; the first token of each is
// then context.
func CutText(t *tokenizer.Tokenizer, text []byte, o TextOptions) ([]Window, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	bos, hasBOS := t.BOS()
	var prefix []int32
	if hasBOS {
		prefix = []int32{bos}
	}
	encode := func(b []byte) ([]int32, error) {
		return t.Encode(string(b), tokenizer.Options{})
	}
	if o.Convention == Documents {
		var windows []Window
		for _, doc := range bytes.Split(text, []byte(documentEnd)) {
			doc = bytes.TrimSpace(doc)
			if len(doc) == 0 {
				continue
			}
			ids, err := encode(doc)
			if err != nil {
				return nil, err
			}
			windows = append(windows, cutDocument(prefix, ids, o)...)
		}
		return limit(windows, o.MaxTokens)
	}
	ids, err := encode(text)
	if err != nil {
		return nil, err
	}
	return cut(prefix, ids, o)
}

// CutTokens is CutText for ids; bos is -1 for a model that has none. Documents ends a document at each separator id; -1
// for none makes the whole one document.
func CutTokens(ids []int32, bos, separator int32, o TextOptions) ([]Window, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	var prefix []int32
	if bos >= 0 {
		prefix = []int32{bos}
	}
	if o.Convention != Documents {
		return cut(prefix, ids, o)
	}
	var windows []Window
	start := 0
	for i := 0; i <= len(ids); i++ {
		if i == len(ids) || ids[i] == separator {
			windows = append(windows, cutDocument(prefix, ids[start:i], o)...)
			start = i + 1
		}
	}
	return limit(windows, o.MaxTokens)
}

func cutDocument(prefix, ids []int32, o TextOptions) []Window {
	tokens := append(append([]int32{}, prefix...), ids...)
	tokens = tokens[:min(len(tokens), o.Window)]
	if len(tokens) < 2 {
		return nil
	}
	return []Window{{Tokens: tokens, First: 1}}
}

// cut is CutText for one long run of tokens.
func cut(prefix, ids []int32, o TextOptions) ([]Window, error) {
	var windows []Window
	if o.Convention == LlamaCpp {
		for ; len(ids) >= o.Window; ids = ids[o.Window:] {
			tokens := append([]int32{}, ids[:o.Window]...)
			copy(tokens, prefix)
			windows = append(windows, Window{Tokens: tokens, First: o.Window/2 + 1})
		}
		if windows == nil {
			return nil, fmt.Errorf("the text has %d tokens, fewer than one window of %d", len(ids), o.Window)
		}
		return limit(windows, o.MaxTokens)
	}
	room := o.Window - len(prefix)
	step := o.Stride
	if step == o.Window-1 {
		step = room
	}
	scored := 0 // ids before this are scored
	for start := 0; scored < len(ids); start += step {
		end := min(start+room, len(ids))
		tokens := append(append([]int32{}, prefix...), ids[start:end]...)
		first := max(len(prefix)+scored-start, 1)
		if first < len(tokens) {
			windows = append(windows, Window{Tokens: tokens, First: first})
		}
		scored = end
	}
	return limit(windows, o.MaxTokens)
}

// limit ends windows behind n scored tokens; 0 is no limit.
func limit(windows []Window, n int) ([]Window, error) {
	if CountScored(windows) == 0 {
		return nil, errNoText
	}
	if n == 0 {
		return windows, nil
	}
	for i := range windows {
		if s := windows[i].Scored(); s < n {
			n -= s
			continue
		}
		windows[i].Tokens = windows[i].Tokens[:windows[i].First+n]
		return windows[:i+1], nil
	}
	return windows, nil
}

// ParseTokens reads ids: decimal numbers parted by white space or commas, brackets around them allowed.
func ParseTokens(text []byte) ([]int32, error) {
	fields := strings.FieldsFunc(string(text), func(r rune) bool { return strings.ContainsRune(" \t\r\n,[]", r) })
	ids := make([]int32, 0, len(fields))
	for i, f := range fields {
		var id int32
		if _, err := fmt.Sscanf(f, "%d", &id); err != nil || fmt.Sprint(id) != f || id < 0 {
			return nil, fmt.Errorf("token %d is %.20q: ids are whole numbers of 0 and more", i, f)
		}
		ids = append(ids, id)
	}
	return ids, nil
}
