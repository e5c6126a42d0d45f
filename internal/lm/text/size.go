package text

import (
	"unicode"

	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

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
