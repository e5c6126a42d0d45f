package forward

import (
	"slices"
)

// pageTokens is the number of tokens in a page of keys and values. Pages are allocated and shared
// whole. Smaller pages would share more and copy less; larger pages make longer sums of values in
// attention.
const pageTokens = 64

// keyBlock is the number of tokens with keys interleaved by dimension. Products with a query run
// over these tokens.
const keyBlock = 16

// cache holds the keys and values of an attention, or the state of a recurrence. With a window or
// chunks, pages that no later token sees are reused.
type cache struct {
	heads, dim int
	span
	state int // elements of the state; 0: there are keys and values
	pages []*page
	free  *[]*page // of all caches of a Session with pages of this size
}

// size returns the number of elements of a page.
func (c *cache) size() int { return c.state + 2*pageTokens*c.heads*c.dim }

// newCaches makes the caches of a Session.
func (m *Model) newCaches() []cache {
	list := slices.Clone(m.caches)
	for i := range list {
		c := &list[i]
		c.free = new([]*page)
		for _, before := range list[:i] {
			if before.state == c.state && before.size() == c.size() {
				c.free = before.free
			}
		}
	}
	return list
}

type page struct {
	keys   []float32 // [head][pageTokens/keyBlock][dim][keyBlock]
	values []float32 // [head][pageTokens][dim]
	state  []float32 // in place of both: the state behind the last token of the page
}

// cacheBytes is the memory of the pages of a Session for this many tokens that uses one cache at a
// time.
func (m *Model) cacheBytes(tokens int) (n int64) {
	seen := map[[2]int]bool{}
	for i := range m.caches {
		c, pages := &m.caches[i], pagesOf(tokens)
		if c.state > 0 {
			pages = 1
		}
		if kind := [2]int{c.state, c.size()}; !seen[kind] {
			seen[kind] = true
			n += 4 * int64(pages) * int64(c.size())
		}
	}
	return n
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

func (c *cache) release(p *page) {
	if p != nil {
		*c.free = append(*c.free, p)
	}
}

// span is the tokens that a token sees: the last tokens of a window, or its own chunk. Sizes of 0
// have no limit.
type span struct{ window, chunk int }

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
		c.pages = append(c.pages, c.take())
	}
}

// take returns a free page, or a new one.
func (c *cache) take() *page {
	if n := len(*c.free); n > 0 {
		p := (*c.free)[n-1]
		*c.free = (*c.free)[:n-1]
		return p
	}
	p := c.newPage()
	return &p
}

func (c *cache) newPage() page {
	elements := make([]float32, c.size())
	if c.state > 0 {
		return page{state: elements}
	}
	half := len(elements) / 2
	return page{keys: elements[:half:half], values: elements[half:]}
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
