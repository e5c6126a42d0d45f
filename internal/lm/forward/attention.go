package forward

import (
	"slices"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/rowmath"
)

// queryBlock is the number of tokens that attention multiplies with the keys at a time.
const queryBlock = 4

// attention is the part that lets a token see the keys and values of the tokens before it.
type attention struct {
	arch.LayerConfig
	cache        int // index among the caches
	qNorm, kNorm *norm
	latent       *latent   // in place of qkv, or nil
	qkv          []*linear // q, k, v; or a fused layer
	sinks        []float32 // of the heads, or nil
	out          *linear
	values       *norm // of each head of values, or nil
	lend, borrow int   // where keys and values go to, and come from, in a row of the side; -1: nowhere
}

func (o *opener) attention(l arch.LayerConfig, qNorm, kNorm *norm) *attention {
	c, layer := &o.config, len(o.layers)
	a := &attention{LayerConfig: l, cache: len(o.caches), qNorm: qNorm, kNorm: kNorm, lend: -1, borrow: -1}
	if at, lends := o.Model.side.lent[layer]; lends {
		a.lend = at
	}
	if l.Borrow > 0 {
		a.cache, a.borrow = o.attentionOf(layer-l.Borrow).cache, o.Model.side.lent[layer-l.Borrow]
	} else {
		o.caches = append(o.caches, cache{heads: l.KVHeads, dim: l.HeadDim, span: span{l.Window, l.Chunk}})
	}
	if c.UnitValues {
		a.values = o.unitNorm(l.HeadDim)
	}
	if c.Latent != nil {
		o.latent(a)
		return a
	}
	if c.Facts.Has(arch.Sinks) {
		a.sinks = o.vector(o.name(arch.Sinks), c.Heads)
	}
	q, kv := a.sizes(c, 1)
	if c.AttentionGate {
		q *= 2
	}
	var inputs []linearSpec
	for i, kind := range []arch.Kind{arch.Query, arch.Key, arch.Value} {
		if l.Uses(kind) {
			inputs = append(inputs, o.spec(kind, []int{q, kv, kv}[i], c.HiddenSize))
		}
	}
	if c.Facts.Has(arch.FusedQKV) {
		inputs = []linearSpec{o.spec(arch.FusedQKV, q+2*kv, c.HiddenSize)}
	}
	a.qkv = o.all(inputs...)
	a.out = o.linear(arch.Output, c.HiddenSize, c.Heads*l.HeadDim)
	return a
}

// attentionOf returns the attention of an open layer, or nil.
func (m *Model) attentionOf(layer int) *attention {
	for _, b := range m.layers[layer].blocks {
		if a, ok := b.part.(*attention); ok {
			return a
		}
	}
	return nil
}

// sizes returns the numbers of values of the queries, and of the keys, of m rows.
func (a *attention) sizes(c *arch.ForwardConfig, m int) (nq, nkv int) {
	return m * c.Heads * a.HeadDim, m * a.KVHeads * a.HeadDim
}

func (a *attention) last() *linear { return a.out }

// inputs returns the linear layers that read the hidden states.
func (a *attention) inputs() []*linear {
	if a.latent != nil {
		return a.latent.readers()
	}
	return a.qkv
}

func (a *attention) memory(s *Session, r *record, m int) []size {
	c := &s.m.config
	nq, nkv := a.sizes(c, m)
	list := []size{{&r.q, nq}, {&r.k, nkv}, {&r.v, nkv}, {&r.heads, nq}}
	if c.AttentionGate {
		list = append(list, size{&s.qkv, 2 * nq}, size{&r.gates, nq})
	}
	if c.Facts.Has(arch.FusedQKV) {
		list = append(list, size{&s.qkv, nq + 2*nkv})
	}
	if a.latent != nil {
		list = append(list, s.latent.sizes(c, m)...)
	}
	if !r.kept {
		return list
	}
	if c.QKNorm != arch.NoQKNorm || r.tape.o.Outputs || c.Latent != nil {
		list = append(list, size{&r.rawQ, nq}, size{&r.rawK, nkv})
	}
	if a.values != nil {
		list = append(list, size{&r.rawV, nkv})
	}
	if c.AttentionGate {
		list = append(list, size{&r.gatedHeads, nq})
	}
	return list
}

// attentionThreads is the memory of attention on all threads.
type attentionThreads struct {
	heads   int // of queries
	softcap float32
	math    *rowmath.Set
	workers []attentionWorker // by thread
}

// attentionWorker is the memory of a thread: queryBlock * group rows of each slice.
type attentionWorker struct {
	queries, out []float32 // [row][dim]
	scores       []float32 // [row][tokens], for all tokens that the row sees
	_            [64]byte  // keeps threads out of each other's cache lines
}

func (a *attentionThreads) init(c *arch.ForwardConfig, set *rowmath.Set, threads int) {
	*a = attentionThreads{heads: c.Heads, softcap: float32(c.AttentionSoftcap), math: set, workers: make([]attentionWorker, threads)}
}

// segment is the rows of a pass that continue the same sequence.
type segment struct {
	caches    []cache
	rotations []*rotation
	start     int // position of the first row
	row, rows int // of the pass
}

// unit is a group of rows of a segment that attention computes together.
type unit struct{ segment, from, to int }

// alone makes m more tokens of the Session's own sequence the only segment.
func (s *Session) alone(m int) {
	s.segments = append(s.segments[:0], segment{s.caches, s.rotations, s.n, 0, m})
	s.arrange()
}

// arrange divides the segments of a pass into units.
func (s *Session) arrange() {
	s.units, s.owners, s.work = s.units[:0], s.owners[:0], 0
	for i := range s.segments {
		g := &s.segments[i]
		for _, r := range g.rotations {
			r.reach(g.start + g.rows)
		}
		for row := range g.rows {
			if s.owners = append(s.owners, i); row%queryBlock == 0 {
				s.units = append(s.units, unit{i, row, min(g.rows, row+queryBlock)})
			}
		}
		s.work += g.rows * (g.start + g.rows)
	}
	cost := func(u unit) int { return (u.to - u.from) * (s.segments[u.segment].start + u.to) }
	slices.SortStableFunc(s.units, func(a, b unit) int { return cost(b) - cost(a) })
}

func (a *attention) run(s *Session, r *record, dst, x []float32, m int) {
	c := &s.m.config
	nq, nkv := a.sizes(c, 1)
	q, k, v, heads := buffer.Grow(&r.q, m*nq), buffer.Grow(&r.k, m*nkv), buffer.Grow(&r.v, m*nkv), buffer.Grow(&r.heads, m*nq)
	s.project(a, r, q, k, v, x, m)
	copy(r.rawQ, q) // of a Tape
	copy(r.rawK, k)
	copy(r.rawV, v)
	s.sequences(r, a.cache, m, func(from, to int) {
		s.meet(a, heads[from*nq:to*nq], q[from*nq:to*nq], k[from*nkv:to*nkv], v[from*nkv:to*nkv])
	})
	a.store(s, k, v, m)
	if r.attended = heads; c.AttentionGate {
		if r.kept {
			r.attended = buffer.Grow(&r.gatedHeads, m*nq)
		}
		s.split(len(heads), 32, func(_, from, to int) {
			for i := from; i < to; i++ {
				r.attended[i] = float32(heads[i] * logistic(r.gates[i]))
			}
		})
	}
	r.attended = s.unpad(&s.latent.heads, r.attended, m)
	if dst != nil {
		s.multiply(dst, r.attended, m, a.out)
	}
}

// meet normalizes, rotates and scales the queries and keys of all segments, stores keys and values,
// and computes the attention of each head.
func (s *Session) meet(a *attention, heads, q, k, v []float32) {
	c := &s.m.config
	nq, nkv := a.sizes(c, 1)
	for j := range s.segments {
		g := &s.segments[j]
		g.caches[a.cache].reach(g.start, g.start+g.rows)
	}
	s.split(len(s.owners), 8*(nq+nkv), func(_, from, to int) {
		for t := from; t < to; t++ {
			g := &s.segments[s.owners[t]]
			position := g.start + t - g.row
			keys, values := k[t*nkv:][:nkv], v[t*nkv:][:nkv]
			if s.prepare(a, g.rotations, q[t*nq:][:nq], keys, position); a.values != nil && a.borrow < 0 {
				for ; len(values) > 0; values = values[a.HeadDim:] {
					rmsNorm(values[:a.HeadDim], values[:a.HeadDim], a.values.weights, a.values.eps)
				}
			}
			g.caches[a.cache].store(position, k[t*nkv:][:nkv], v[t*nkv:][:nkv])
		}
	})
	run := func(worker, part int) {
		u := s.units[part/a.KVHeads]
		g := &s.segments[u.segment]
		s.attention.block(worker, &g.caches[a.cache], a.sinks, heads[g.row*nq:], q[g.row*nq:], part%a.KVHeads, u.from, u.to, g.start, nq)
	}
	s.each(len(s.units)*a.KVHeads, s.work*nq, run)
}

func (s *Session) project(a *attention, r *record, q, k, v, x []float32, m int) {
	if a.latent != nil {
		s.projectLatent(a.latent, q, k, v, x, m)
		return
	}
	if s.m.config.Facts.Has(arch.FusedQKV) {
		all := buffer.Grow(&s.qkv, len(q)+2*len(k))
		s.multiply(all, x, m, a.qkv[0])
		apart(all, m, q, k, v)
		return
	}
	for i, dst := range [][]float32{q, k, v} {
		if i == 0 && s.m.config.AttentionGate {
			s.gatedQueries(a, r, q, x, m)
			continue
		}
		switch {
		case i > 0 && a.borrow >= 0:
			n, side := len(k)/m, &s.m.side
			for t := range m {
				copy(dst[t*n:], side.row(s.side, t, a.borrow+(i-1)*n, n))
			}
		case i == len(a.qkv): // the values are the keys
			copy(v, k)
		default:
			s.multiply(dst, x, m, a.qkv[i])
		}
	}
}

// store copies the prepared keys and values of m rows to the side, if later layers read them.
func (a *attention) store(s *Session, k, v []float32, m int) {
	if a.lend < 0 {
		return
	}
	n := len(k) / m
	for t := range m {
		to := s.m.side.row(s.side, t, a.lend, 2*n)
		copy(to, k[t*n:][:n])
		copy(to[n:], v[t*n:][:n])
	}
}

// prepare normalizes and rotates a token's queries and keys, and scales the queries.
func (s *Session) prepare(a *attention, rotations []*rotation, q, k []float32, position int) {
	c := &s.m.config
	for _, part := range []struct {
		x    []float32
		norm *norm
	}{{q, a.qNorm}, {k, a.kNorm}} {
		x := part.x
		if part.norm == nil && a.borrow >= 0 {
			break // prepared by another layer
		}
		if c.QKNorm == arch.WholeNorms {
			rmsNorm(x, x, part.norm.weights, c.NormEps)
		}
		for ; len(x) > 0; x = x[a.HeadDim:] {
			if c.QKNorm == arch.HeadNorms {
				rmsNorm(x[:a.HeadDim], x[:a.HeadDim], part.norm.weights, c.NormEps)
			}
			if a.Rope >= 0 {
				rotations[a.Rope].turn(x[c.RopeStart:], position, 1)
			}
			if c.QKNorm >= arch.RotatedNorms && part.norm != nil {
				rmsNorm(x[:a.HeadDim], x[:a.HeadDim], part.norm.weights, c.NormEps)
			}
		}
	}
	scale(q, float64(c.AttentionScale*c.QueryFactor(&a.LayerConfig, position)))
}

// block computes the query heads of a key-value head for the tokens from..to-1 of a chunk that
// begins at position start. q and heads are [token][stride].
//
// Each score is a sum over dimensions, and each output a sum over tokens, in order and with every
// product rounded. So the bits do not depend on the division of tokens into chunks and blocks.
func (a *attentionThreads) block(worker int, c *cache, sinks, heads, q []float32, kvHead, from, to, start, stride int) {
	w := &a.workers[worker]
	first := c.first(start+from) / keyBlock * keyBlock
	last := start + to
	width := padded(last - first + min(1, len(sinks)))
	tokens, d, group := to-from, c.dim, a.heads/c.heads // query heads per key-value head
	rows := tokens * group                              // row t*group + g: token t, head g
	queries, scores, out := buffer.Grow(&w.queries, rows*d), buffer.Grow(&w.scores, rows*width), buffer.Grow(&w.out, rows*d)
	at := kvHead * group * d // offset of the group's first head in a token's row
	for t := range tokens {
		copy(queries[t*group*d:][:group*d], q[(from+t)*stride+at:])
	}

	clear(scores)
	for p := first; p < last; p += keyBlock {
		keys := c.pages[p/pageTokens].keyBlock(c, kvHead, p%pageTokens/keyBlock)
		a.math.MulAdd(scores[p-first:], width, queries, d, keys, keyBlock, rows, d, keyBlock)
	}
	for r := range rows {
		position := start + from + r/group
		row := scores[r*width:][c.first(position)-first : position+1-first]
		if a.softcap != 0 {
			softcap(row, a.softcap)
		}
		softmax(a.math, row, sinks, kvHead*group+r%group)
	}

	clear(out)
	// The positions that all tokens see lie in the middle.
	common := start + from + 1
	begin := min(c.first(last-1), common)
	for t := range tokens {
		a.values(out, scores, c, kvHead, t*group, (t+1)*group, c.first(start+from+t), begin, first, width)
	}
	a.values(out, scores, c, kvHead, 0, rows, begin, common, first, width)
	for t := range tokens {
		position := start + from + t
		a.values(out, scores, c, kvHead, t*group, (t+1)*group, max(c.first(position), common), position+1, first, width)
	}
	for t := range tokens {
		copy(heads[(from+t)*stride+at:][:group*d], out[t*group*d:])
	}
}

// values adds the values of positions from..to-1 times their scores to rows r0..r1-1 of out. The
// first column of the scores belongs to position first.
func (a *attentionThreads) values(out, scores []float32, c *cache, kvHead, r0, r1, from, to, first, width int) {
	for p := from; p < to; {
		end := min(to, (p/pageTokens+1)*pageTokens)
		values := c.pages[p/pageTokens].headValues(c, kvHead, p%pageTokens)
		a.math.MulAdd(out[r0*c.dim:], c.dim, scores[r0*width+p-first:], width, values, c.dim, r1-r0, end-p, c.dim)
		p = end
	}
}

// rotation holds the cosines and sines of the positions seen so far.
type rotation struct {
	*arch.RopeConfig
	freqs    []float32
	cos, sin []float32 // [position][len(freqs)]
}

func newRotation(r *arch.RopeConfig, maxTokens int) *rotation {
	return &rotation{RopeConfig: r, freqs: r.Frequencies(maxTokens)}
}

func (r *rotation) reach(n int) {
	for p := len(r.cos) / len(r.freqs); p < n; p++ {
		r.cos, r.sin = r.AppendRotation(r.cos, r.sin, r.freqs, p)
	}
}

// turn rotates the first 2*len(freqs) values of a head's vector x to position p, or with sign -1
// back from position p.
func (r *rotation) turn(x []float32, p int, sign float32) {
	n := len(r.freqs)
	cos, sin := r.cos[p*n:][:n], r.sin[p*n:][:n]
	step, other := 1, n // from a value to the next, and to the value with which it rotates
	if r.Neighbours {
		step, other = 2, 1
	}
	for i, c := range cos {
		j, s := i*step, float32(sin[i]*sign)
		a, b := x[j], x[j+other]
		x[j], x[j+other] = float32(a*c)-float32(b*s), float32(b*c)+float32(a*s)
	}
}
