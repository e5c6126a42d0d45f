package forward

import "github.com/lowbit-go/gq/internal/lm/arch"

// pageTokens is the number of tokens in a page of keys and values. Pages are allocated and shared
// whole. Smaller pages would share more and copy less; larger pages make longer sums of values in
// attention.
const pageTokens = 64

// keyBlock is the number of tokens with keys interleaved by dimension. Products with a query run
// over these tokens.
const keyBlock = 16

// cache holds the keys and values of a layer. In a layer with a window or chunks, pages that no
// later token sees are reused.
type cache struct {
	heads, dim int
	span
	state int // elements of the state of a layer that has one; such a layer has no keys
	pages []*page
	free  []*page
}

type page struct {
	keys   []float32 // [head][pageTokens/keyBlock][dim][keyBlock]
	values []float32 // [head][pageTokens][dim]
	state  []float32 // in place of both: the state behind the last token of the page
}

func (c *cache) reset() {
	if c.state > 0 && len(c.pages) > 0 { // all pages are the same
		c.pages = c.pages[:1]
	}
	for _, p := range c.pages {
		c.release(p)
	}
	c.pages = c.pages[:0]
}

// seen returns the positions lo to hi-1 to which the token at position attends.
func (c *cache) seen(position int) (lo, hi int) {
	return c.first(position), position + 1
}

func (c *cache) release(p *page) {
	if p != nil {
		c.free = append(c.free, p)
	}
}

// span is the tokens that a token sees: the last tokens of a window, or its own chunk. Sizes of 0
// have no limit.
type span struct{ window, chunk int }

func spanOf(l *arch.LayerConfig) span { return span{l.Window, l.Chunk} }

// first returns the first position that the token at a position sees.
func (s span) first(position int) int {
	switch {
	case s.window > 0:
		return max(0, position+1-s.window)
	case s.chunk > 0:
		return position - position%s.chunk
	}
	return 0
}

// firstPage returns the first page that the token at a position sees.
func (s span) firstPage(position int) int { return s.first(position) / pageTokens }

// reach makes room for tokens up to position n-1 and releases pages that no token from position
// from on sees. Sequences of a Batch need nothing here: Batch.reserve has done both.
func (c *cache) reach(from, n int) {
	for i := range c.firstPage(from) {
		c.release(c.pages[i])
		c.pages[i] = nil
	}
	for len(c.pages)*pageTokens < n {
		if len(c.free) > 0 {
			c.pages = append(c.pages, c.free[len(c.free)-1])
			c.free = c.free[:len(c.free)-1]
			continue
		}
		p := newPage(c.heads, c.dim)
		c.pages = append(c.pages, &p)
	}
}

func newPage(heads, dim int) page {
	size := heads * pageTokens * dim
	both := make([]float32, 2*size)
	return page{keys: both[:size:size], values: both[size:]}
}

// holds reports whether the pages from the first token that the token at a position sees are there.
func (c *cache) holds(position int) bool {
	for i := c.firstPage(position); i < len(c.pages); i++ {
		if c.pages[i] == nil {
			return false
		}
	}
	return true
}

// store stores the keys and values, [head][dim], of a token.
func (c *cache) store(position int, k, v []float32) {
	p, at := c.pages[position/pageTokens], position%pageTokens
	for h := range c.heads {
		copy(p.values[(h*pageTokens+at)*c.dim:][:c.dim], v[h*c.dim:])
		block := p.keyBlock(c, h, at/keyBlock)
		for d, x := range k[h*c.dim:][:c.dim] {
			block[d*keyBlock+at%keyBlock] = x
		}
	}
}

// keyBlock returns the keys of a head for keyBlock tokens, [dim][keyBlock].
func (p *page) keyBlock(c *cache, head, block int) []float32 {
	size := c.dim * keyBlock
	return p.keys[(head*(pageTokens/keyBlock)+block)*size:][:size]
}

// headValues returns the values of a head from a token of the page on, [token][dim].
func (p *page) headValues(c *cache, head, token int) []float32 {
	return p.values[(head*pageTokens+token)*c.dim : (head+1)*pageTokens*c.dim]
}
