package model

// pageTokens is how many tokens' keys and values are allocated at a time.
const pageTokens = 256

// keyBlock is how many tokens' keys lie interleaved: one dimension of all, then the next, so that products with a query
// run over tokens.
const keyBlock = 16

// cache holds the keys and values of one layer. Where the layer has a window, pages that no token sees any more are
// used again.
type cache struct {
	heads, dim int
	window     int
	pages      []*page
	free       []*page
}

// page holds pageTokens tokens.
type page struct {
	keys   []float32 // [head][pageTokens/keyBlock][dim][keyBlock]
	values []float32 // [head][pageTokens][dim]
}

func (c *cache) reset() {
	for _, p := range c.pages {
		c.release(p)
	}
	c.pages = c.pages[:0]
}

// seen gives the positions that the token at a position attends to: from lo to hi-1.
func (c *cache) seen(position int) (lo, hi int) {
	if c.window > 0 {
		lo = max(0, position+1-c.window)
	}
	return lo, position + 1
}

func (c *cache) release(p *page) {
	if p != nil {
		c.free = append(c.free, p)
	}
}

// reach makes room for tokens up to position n-1, and gives up what the token at from and those behind it don't see.
func (c *cache) reach(from, n int) {
	if c.window > 0 {
		for i := 0; i < (from-c.window+1)/pageTokens; i++ {
			c.release(c.pages[i])
			c.pages[i] = nil
		}
	}
	for len(c.pages)*pageTokens < n {
		if len(c.free) > 0 {
			c.pages = append(c.pages, c.free[len(c.free)-1])
			c.free = c.free[:len(c.free)-1]
			continue
		}
		size := c.heads * pageTokens * c.dim
		both := make([]float32, 2*size)
		c.pages = append(c.pages, &page{both[:size:size], both[size:]})
	}
}

// store keeps the keys and values, [head][dim], of a token.
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

// keyBlock is the keys of a head and keyBlock tokens, [dim][keyBlock].
func (p *page) keyBlock(c *cache, head, block int) []float32 {
	size := c.dim * keyBlock
	return p.keys[(head*(pageTokens/keyBlock)+block)*size:][:size]
}

// headValues is the values of a head from a token of the page on, [token][dim].
func (p *page) headValues(c *cache, head, token int) []float32 {
	return p.values[(head*pageTokens+token)*c.dim : (head+1)*pageTokens*c.dim]
}
