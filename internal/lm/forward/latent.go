package forward

import (
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// latentEps is what the norms of latents add to the mean square, whatever config.json says of the
// other norms.
const latentEps = 1e-6

// latent is the linear layers of attention that computes queries, keys and values from latents of
// few values (MLA: DeepSeek-V2, arXiv:2405.04434). Each head's key is its own part of keyValue's
// outputs, and a part that all heads share and that rotates.
//
// The keys and values of all heads are stored. Values are padded with zeros to the size of keys, so
// that attention is the same as without latents.
type latent struct {
	queryDown *linear // nil: query reads the hidden states
	queryNorm *norm
	query     *linear
	keyDown   *linear // rows: the latent of keys and values, then the shared part of the keys
	keyNorm   *norm
	keyValue  *linear // rows: of each head, its part of the key, then its value
}

// latentScratch is the activations of a latent, for all tokens of a pass.
type latentScratch struct {
	rawQuery, query  []float32 // [tokens][QueryRank]: before and behind the norm
	down             []float32 // [tokens][KeyRank+Rope]: keyDown's outputs
	rawLatent, keys  []float32 // [tokens][KeyRank]: before and behind the norm
	keyValue         []float32 // [tokens][heads][Nope+Value]
	heads            []float32 // [tokens][heads][Value]: attention's outputs without padding
	dDown, dKeyValue []float32 // gradients
	dQuery, dLatent  []float32
	dHeads           []float32
}

// latent opens the linear layers and norms of attention with latents.
func (o *opener) latent(by *attention) {
	c, a, l := &o.config, o.config.Latent, &latent{}
	q, in := c.Heads*c.HeadDim, c.HiddenSize
	if a.QueryRank > 0 {
		l.queryDown = o.linear(arch.QueryDown, a.QueryRank, in)
		l.queryNorm = o.norm(arch.LatentQueryNorm, a.QueryRank)
		l.queryNorm.eps = latentEps
		l.query = o.linear(arch.QueryUp, q, a.QueryRank)
	} else {
		l.query = o.linear(arch.Query, q, in)
	}
	l.keyDown = o.linear(arch.KeyDown, a.KeyRank+a.Rope, in)
	l.keyNorm = o.norm(arch.LatentKeyNorm, a.KeyRank)
	l.keyNorm.eps = latentEps
	l.keyValue = o.linear(arch.KeyValueUp, c.Heads*(a.Nope+a.Value), a.KeyRank)
	by.latent, by.out = l, o.linear(arch.Output, in, c.Heads*a.Value)
}

// readers returns the linear layers that read the hidden states.
func (a *latent) readers() []*linear {
	if a.queryDown == nil {
		return []*linear{a.query, a.keyDown}
	}
	return []*linear{a.queryDown, a.keyDown}
}

// projectLatent computes queries, keys and values of m rows.
func (s *Session) projectLatent(l *latent, q, k, v, x []float32, m int) {
	c, a, z := &s.m.config, s.m.config.Latent, &s.latent
	if down := l.queryDown; down != nil {
		raw, query := buffer.Grow(&z.rawQuery, m*a.QueryRank), buffer.Grow(&z.query, m*a.QueryRank)
		s.multiply(raw, x, m, down)
		s.norm(query, raw, l.queryNorm, m)
	}
	down, raw, keys := buffer.Grow(&z.down, m*(a.KeyRank+a.Rope)), buffer.Grow(&z.rawLatent, m*a.KeyRank), buffer.Grow(&z.keys, m*a.KeyRank)
	s.multiply(down, x, m, l.keyDown)
	for t := range m {
		copy(raw[t*a.KeyRank:][:a.KeyRank], down[t*(a.KeyRank+a.Rope):])
	}
	s.norm(keys, raw, l.keyNorm, m)
	queryInput := x
	if l.queryDown != nil {
		queryInput = z.query
	}
	s.multiply(q, queryInput, m, l.query)
	size := a.Nope + a.Value
	both := buffer.Grow(&z.keyValue, m*c.Heads*size)
	s.multiply(both, keys, m, l.keyValue)
	s.split(m, 2*c.Heads*c.HeadDim, func(_, from, to int) {
		clear(v[from*c.Heads*c.HeadDim : to*c.Heads*c.HeadDim])
		for t := from; t < to; t++ {
			shared := down[t*(a.KeyRank+a.Rope)+a.KeyRank:][:a.Rope]
			for h := range c.Heads {
				own, at := both[(t*c.Heads+h)*size:][:size], (t*c.Heads+h)*c.HeadDim
				copy(k[at:], own[:a.Nope])
				copy(k[at+a.Nope:][:a.Rope], shared)
				copy(v[at:], own[a.Nope:])
			}
		}
	})
}

// unpad returns the heads' outputs of m rows without the padding of values.
func (s *Session) unpad(dst *[]float32, heads []float32, m int) []float32 {
	c := &s.m.config
	if c.Latent == nil {
		return heads
	}
	n := c.Latent.Value
	out := buffer.Grow(dst, m*c.Heads*n)
	for i := range m * c.Heads {
		copy(out[i*n:][:n], heads[i*c.HeadDim:])
	}
	return out
}

// latentBackward computes the gradients of the layer's input behind its norm, t.back.dnormed, from
// the gradients of queries, keys and values.
func (t *Tape) latentBackward(l *latent, r *record, g *Gradients, input bool) {
	c, a, z, b, n := &t.m.config, t.m.config.Latent, &t.s.latent, &t.back, t.tokens()
	size, width := a.Nope+a.Value, a.KeyRank+a.Rope
	dBoth, dDown := buffer.Grow(&z.dKeyValue, n*c.Heads*size), buffer.Grow(&z.dDown, n*width)
	clear(dDown)
	for t := range n {
		shared := dDown[t*width+a.KeyRank:][:a.Rope]
		for h := range c.Heads {
			own, at := dBoth[(t*c.Heads+h)*size:][:size], (t*c.Heads+h)*c.HeadDim
			copy(own, b.dk[at:][:a.Nope])
			copy(own[a.Nope:], b.dv[at:][:a.Value])
			addTo(shared, b.dk[at+a.Nope:])
		}
	}
	dLatent := buffer.Grow(&z.dLatent, n*a.KeyRank)
	t.throughLatent(g, l.keyValue, l.keyNorm, dLatent, dBoth, z.keys, z.keyValue, z.rawLatent)
	for t := range n {
		copy(dDown[t*width:][:a.KeyRank], dLatent[t*a.KeyRank:])
	}
	dQuery, queries := b.dq, r.rawQ
	if l.queryDown != nil {
		dQuery, queries = buffer.Grow(&z.dQuery, n*a.QueryRank), z.rawQuery
		t.throughLatent(g, l.query, l.queryNorm, dQuery, b.dq, z.query, r.rawQ, z.rawQuery)
	}
	gradients, outputs := [][]float32{dQuery, dDown}, [][]float32{queries, z.down}
	t.fused(l.readers(), g, b.dnormed, r.in, gradients, outputs, n, input, nil)
}

// throughLatent takes the gradients dy of a linear layer's outputs y back through the linear layer
// and the norm of its inputs x: dst receives the gradients of the norm's inputs, raw.
func (t *Tape) throughLatent(g *Gradients, l *linear, by *norm, dst, dy, x, y, raw []float32) {
	t.through(g, l, dst, x, dy, y, false)
	t.norm(g, by, dst, dst, raw, t.tokens(), false)
}

// sizes lists the memory of a pass of m rows.
func (z *latentScratch) sizes(c *arch.ForwardConfig, m int) []size {
	a := c.Latent
	list := []size{
		{&z.down, m * (a.KeyRank + a.Rope)}, {&z.rawLatent, m * a.KeyRank}, {&z.keys, m * a.KeyRank},
		{&z.keyValue, m * c.Heads * (a.Nope + a.Value)}, {&z.heads, m * c.Heads * a.Value},
	}
	if a.QueryRank > 0 {
		list = append(list, size{&z.rawQuery, m * a.QueryRank}, size{&z.query, m * a.QueryRank})
	}
	return list
}

// gradientSizes lists the memory of gradients for n tokens.
func (z *latentScratch) gradientSizes(c *arch.ForwardConfig, n int) []size {
	a := c.Latent
	list := []size{
		{&z.dDown, n * (a.KeyRank + a.Rope)}, {&z.dLatent, n * a.KeyRank},
		{&z.dKeyValue, n * c.Heads * (a.Nope + a.Value)}, {&z.dHeads, n * c.Heads * a.Value},
	}
	if a.QueryRank > 0 {
		list = append(list, size{&z.dQuery, n * a.QueryRank})
	}
	return list
}
