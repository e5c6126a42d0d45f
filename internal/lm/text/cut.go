package text

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// Input is a text or its token ids.
type Input struct {
	Data []byte
	IDs  bool // Data holds ids, see ParseIDs
}

// Cutting is a text divided into windows.
type Cutting struct {
	Windows []Window
	// Convention is Options.Convention, or its default for this text.
	Convention Convention
	// Markers counts the end-of-document markers in the text or its ids.
	Markers int
	// LeftOut counts the tokens of documents beyond their window.
	LeftOut int

	documents []int  // by window, the number of its document or page
	pages     []page // with LMEval
	unknown   int    // with LMEval, the number of "<unk>" in the text
}

// CutSequences makes a window of each sequence of a text that a model wrote, see WindowsOf.
func CutSequences(sequences [][]int32) *Cutting {
	c := &Cutting{Convention: Documents}
	for i, w := range WindowsOf(sequences) {
		c.append(i, []Window{w})
	}
	return c
}

func (c *Cutting) append(document int, windows []Window) {
	for _, w := range windows {
		c.Windows, c.documents = append(c.Windows, w), append(c.documents, document)
	}
}

// Warning returns a warning for readers of the figures: markers were read as text, or tokens were
// left out. Otherwise "".
func (c *Cutting) Warning() string {
	switch {
	case c.LeftOut > 0:
		return fmt.Sprintf("%d tokens lie beyond the window of their document and are left out: a longer window, or the convention windows, reads them", c.LeftOut)
	case c.unknown > 0:
		return fmt.Sprintf("the text has %d words <unk>: the task wikitext of lm-eval reads WikiText-2 raw (wiki.test.raw), and figures are comparable only on that", c.unknown)
	case c.Convention == Documents || c.Markers == 0:
		return ""
	}
	return fmt.Sprintf("the convention %s reads %d end-of-document markers as text: the convention documents cuts the text at them", c.Convention, c.Markers)
}

// Read divides the content of a file into sequences of at most window tokens, by the convention
// Documents, up to this many tokens including BOS. A file of numbers only holds token ids.
func Read(ctx context.Context, t *tokenizer.Tokenizer, data []byte, tokens, window int) (*Text, error) {
	sum := sha256.Sum256(data)
	text := &Text{Source: "text", SHA256: hex.EncodeToString(sum[:])}
	ids, err := ParseIDs(data)
	in := Input{Data: data, IDs: err == nil && len(ids) > 1}
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

// Cut divides a text into windows. vocab is the number of the model's ids. t may be nil for ids,
// which then have neither BOS nor markers. For a model without BOS, windows have none, and the
// first token of each window is only context.
func Cut(ctx context.Context, t *tokenizer.Tokenizer, vocab int, in Input, o Options) (*Cutting, error) {
	o = o.WithDefaults()
	if err := o.Check(); err != nil {
		return nil, err
	}
	var prefix []int32
	if t != nil {
		if bos, ok := t.BOS(); ok {
			prefix = []int32{bos}
		}
	}
	c := &Cutting{Convention: o.Convention}
	if o.Convention == LMEval {
		if in.IDs {
			t = nil
		}
		return c, c.cutPages(ctx, t, in.Data, o)
	}
	var list documents
	if in.IDs {
		ids, err := ParseIDs(in.Data)
		if err != nil {
			return nil, err
		}
		if list, err = splitIDs(t, vocab, ids, prefix, c); err != nil {
			return nil, err
		}
	} else {
		list = splitText(ctx, t, in.Data, c)
	}
	return c, c.cut(list, prefix, o)
}

// cut divides documents into windows until there are enough.
func (c *Cutting) cut(list documents, prefix []int32, o Options) error {
	if c.Convention == LlamaCpp {
		ids, err := list.encode(0, 0)
		if err != nil {
			return err
		}
		windows, err := chunk(prefix, ids, o)
		c.append(0, limit(windows, o.MaxTokens))
		return err
	}
	scored := 0
	for i := range list.n {
		left := 0
		if o.MaxTokens > 0 {
			if left = o.MaxTokens - scored; left <= 0 {
				break
			}
		}
		ids, err := list.encode(i, left)
		if err != nil {
			return err
		}
		windows := slide(prefix, ids, o)
		if c.Convention == Documents && !o.Continue && len(windows) > 1 {
			c.LeftOut += len(prefix) + len(ids) - len(windows[0].Tokens)
			windows = windows[:1]
		}
		scored += CountScored(windows)
		c.append(i, windows)
	}
	if scored == 0 {
		return errNoText
	}
	c.Windows = limit(c.Windows, o.MaxTokens)
	return nil
}

// documents are the pieces of a text between markers, or the whole text.
type documents struct {
	n int
	// encode returns the ids of a piece, or at least least of the ids if least is not 0.
	encode func(i, least int) ([]int32, error)
}

// splitText chooses the convention for a text and splits the text.
func splitText(ctx context.Context, t *tokenizer.Tokenizer, data []byte, c *Cutting) documents {
	c.Markers = bytes.Count(data, []byte(EndMarker))
	c.resolve()
	var starts, ends []int // offsets of pieces
	for at := 0; at >= 0; {
		end, next := len(data), -1
		if i := bytes.Index(data[at:], []byte(EndMarker)); i >= 0 && c.Convention == Documents {
			end, next = at+i, at+i+len(EndMarker)
		}
		starts, ends = append(starts, at), append(ends, end)
		at = next
	}
	return documents{len(starts), func(i, least int) ([]int32, error) {
		piece := data[starts[i]:ends[i]]
		if err := checkUTF8(piece, starts[i]); err != nil {
			return nil, err
		}
		if c.Convention == Documents {
			piece = bytes.TrimSpace(piece)
		}
		return encodeFirst(ctx, t, piece, least)
	}}
}

// splitIDs is splitText for ids. A BOS at the start of a piece is dropped, because windows begin
// with BOS anyway.
func splitIDs(t *tokenizer.Tokenizer, vocab int, ids, prefix []int32, c *Cutting) (documents, error) {
	for i, id := range ids {
		if int(id) >= vocab {
			return documents{}, fmt.Errorf("token %d is %d: the vocabulary has %d tokens", i, id, vocab)
		}
	}
	separator, ok := markerID(t)
	if ok {
		for _, id := range ids {
			if id == separator {
				c.Markers++
			}
		}
	}
	c.resolve()
	var pieces [][]int32
	start := 0
	for i := 0; i <= len(ids); i++ {
		if i == len(ids) || ok && c.Convention == Documents && ids[i] == separator {
			piece := ids[start:i]
			if len(prefix) > 0 && len(piece) > 0 && piece[0] == prefix[0] {
				piece = piece[1:]
			}
			pieces = append(pieces, piece)
			start = i + 1
		}
	}
	return documents{len(pieces), func(i, _ int) ([]int32, error) { return pieces[i], nil }}, nil
}

func (c *Cutting) resolve() {
	if c.Convention != "" {
		return
	}
	if c.Convention = Windows; c.Markers > 0 {
		c.Convention = Documents
	}
}

// markerID returns the id that ends a document in ids: the marker, or else EOS.
func markerID(t *tokenizer.Tokenizer) (int32, bool) {
	if t == nil {
		return 0, false
	}
	if id, ok := t.ID(EndMarker); ok {
		return id, true
	}
	return t.EOS()
}

// bytesPerToken is the number of bytes that are encoded at first for each required token.
const bytesPerToken = 64

// encodeFirst encodes a text, or if least is not 0, only the beginning of a long text, to more than
// least tokens.
func encodeFirst(ctx context.Context, t *tokenizer.Tokenizer, text []byte, least int) ([]int32, error) {
	for size := bytesPerToken * max(least, 64); ; size *= 4 {
		piece := text
		if least > 0 && len(text) > size {
			for size > 0 && !utf8.RuneStart(text[size]) {
				size--
			}
			piece = text[:size]
		}
		ids, err := t.EncodeContext(ctx, string(piece), tokenizer.Options{})
		if err != nil || len(ids) > least || len(piece) == len(text) {
			return ids, err
		}
	}
}

// checkUTF8 returns an error if the text, at offset start of a file, is not UTF-8.
func checkUTF8(text []byte, start int) error {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			return fmt.Errorf("byte %d is not UTF-8: a text is expected", start+at)
		}
		at += size
	}
	return nil
}

// ParseIDs parses ids: decimal numbers separated by white space or commas, optionally in brackets.
func ParseIDs(text []byte) ([]int32, error) {
	var ids []int32
	// Field by field, so that prose is recognized by its first word.
	for field := range bytes.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n,[]", r) }) {
		id, err := strconv.ParseInt(string(field[:min(len(field), 32)]), 10, 32)
		if err != nil || id < 0 || strconv.FormatInt(id, 10) != string(field) {
			return nil, fmt.Errorf("token %d is %.20q: token ids are integers of 0 or more", len(ids), field)
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}
