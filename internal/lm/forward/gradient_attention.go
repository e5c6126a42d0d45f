package forward

import (
	"math"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// attentionGradient is the memory of a thread: a block of rows, each a token's query head, against
// all tokens of a sequence.
type attentionGradient struct {
	keys, values  []float32 // [dim][tokens]: of a head, by dimension
	queries, dOut []float32 // [row][dim]
	dQueries      []float32 // [row][dim]
	scores, dS    []float32 // [row][tokens]
	uncapped      []float32 // [tokens]: a row of scores before the soft cap
	turned        []float32 // [token][row]
	_             [64]byte  // keeps threads out of each other's cache lines
}

// gradientRows is the number of rows of a block, unless a token has more query heads.
const gradientRows = 32

// padded is the number of columns of a row of scores.
func padded(tokens int) int { return (tokens + keyBlock - 1) &^ (keyBlock - 1) }

func (w *attentionGradient) sizes(t *Tape, a *attention, tokens int) sizes {
	c := &t.m.config
	group, width := c.Heads/a.KVHeads, t.m.scoreWidth(tokens)
	rows := max(gradientRows/group, 1) * group
	all := sizes{}
	all.add([]size{
		{&w.keys, a.HeadDim * width}, {&w.values, a.HeadDim * width}, {&w.queries, rows * a.HeadDim}, {&w.dOut, rows * a.HeadDim}, {&w.dQueries, rows * a.HeadDim},
		{&w.scores, rows * width}, {&w.dS, rows * width}, {&w.turned, rows * width},
	}...)
	if c.AttentionSoftcap != 0 {
		all.add(size{&w.uncapped, width})
	}
	return all
}

func (a *attention) gradientSizes(t *Tape, n int) []size {
	c, b := &t.m.config, &t.back
	nq, nkv := a.sizes(c, n)
	list := []size{{&b.dheads, nq}, {&b.dq, nq}, {&b.dk, nkv}, {&b.dv, nkv}}
	if c.AttentionGate {
		list = append(list, size{&b.dqGates, nq}, size{&b.joined, 2 * nq}, size{&b.outputs, 2 * nq})
	}
	if c.Facts.Has(arch.FusedQKV) {
		list = append(list, size{&b.joined, nq + 2*nkv}, size{&b.outputs, nq + 2*nkv})
	}
	if a.latent != nil {
		list = append(list, t.s.latent.gradientSizes(c, n)...)
	}
	return list
}

func (a *attention) backward(t *Tape, r *record, g *Gradients, dy []float32, input bool) {
	c, dheads := &t.m.config, t.back.dheads
	if a.latent != nil {
		dheads = buffer.Grow(&t.s.latent.dHeads, t.tokens()*c.Heads*c.Latent.Value)
	}
	t.through(g, a.out, dheads, r.attended, dy, r.out, false)
	if c.AttentionGate {
		t.gatesBackward(r)
	}
	if a.latent != nil {
		clear(t.back.dheads)
		for i := range t.tokens() * c.Heads {
			copy(t.back.dheads[i*c.HeadDim:][:c.Latent.Value], dheads[i*c.Latent.Value:])
		}
	}
	// Threads divide sequences and key-value heads.
	t.s.each((len(t.starts)-1)*a.KVHeads, math.MaxInt, func(worker, part int) { t.headGradient(a, r, worker, part/a.KVHeads, part%a.KVHeads) })
	t.storeBackward(a, r, g)
	t.prepareBackward(a, r, g)
	t.projectBackward(a, r, g, input)
}

// headGradient computes the gradients of the scaled and rotated queries, the rotated keys and the
// values of a key-value head in a sequence, given the gradients of the heads' outputs. With the
// scores S = Q K^T, capped to S', the probabilities P = softmax(S') and the outputs O = P V:
//
//	dV = P^T dO,  dP = dO V^T,  dS' = P (dP - sum(dO O)),  dS = dS' slope,  dQ = dS K,  dK = dS^T Q
//
// A block of rows adds its terms to dK and dV after the blocks before it.
func (t *Tape) headGradient(a *attention, r *record, worker, sequence, head int) {
	c, w := &t.m.config, &t.workers[worker]
	from, n := t.starts[sequence], t.starts[sequence+1]-t.starts[sequence]
	w.sizes(t, a, n).allocate()
	d, nkv, width := a.HeadDim, a.KVHeads*a.HeadDim, t.m.scoreWidth(n)
	at := from*nkv + head*d // of the first key and value
	clear(w.keys)
	clear(w.values)
	for p := range n {
		row := at + p*nkv
		for j, v := range r.k[row:][:d] {
			w.keys[j*width+p] = v
		}
		for j, v := range r.v[row:][:d] {
			w.values[j*width+p] = v
		}
		clear(t.back.dk[row:][:d])
		clear(t.back.dv[row:][:d])
	}
	block := max(gradientRows/(c.Heads/a.KVHeads), 1)
	for p := 0; p < n; p += block {
		t.blockGradient(a, r, w, head, from, p, min(p+block, n), width)
	}
}

// blockGradient is headGradient for the tokens from p to end-1 of the sequence that begins at token
// start.
func (t *Tape) blockGradient(a *attention, r *record, w *attentionGradient, head, start, p, end, stride int) {
	c, set := &t.m.config, t.m.math
	group, d, nq, nkv := c.Heads/a.KVHeads, a.HeadDim, c.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	rows := (end - p) * group
	for j := range end - p {
		at := (start+p+j)*nq + head*group*d
		copy(w.queries[j*group*d:][:group*d], r.q[at:])
		copy(w.dOut[j*group*d:][:group*d], t.back.dheads[at:])
	}
	cache := &t.s.caches[a.cache]
	first := cache.first(p) / keyBlock * keyBlock
	seen := end - first // tokens
	width := t.m.scoreWidth(seen)
	scores, dS := w.scores[:rows*width], w.dS[:rows*width]
	clear(scores)
	clear(dS)
	set.MulAdd(scores, width, w.queries, d, w.keys[first:], stride, rows, d, width)
	set.MulAdd(dS, width, w.dOut, d, w.values[first:], stride, rows, d, width)
	for i := range rows {
		position := p + i/group
		at := (start+p)*nq + head*group*d + i/group*nq + i%group*d
		t.rowGradient(w, a.sinks, head*group+i%group, i*width, cache.first(position)-first, position+1-first, width, dot(w.dOut[i*d:][:d], r.heads[at:][:d]))
	}

	clear(w.dQueries[:rows*d])
	at := (start+first)*nkv + head*d
	set.MulAdd(w.dQueries, d, dS, width, r.k[at:], nkv, rows, seen, d)
	for j := range end - p {
		copy(t.back.dq[(start+p+j)*nq+head*group*d:][:group*d], w.dQueries[j*group*d:])
	}
	turned := buffer.Grow(&w.turned, rows*seen)
	turn(turned, dS, rows, seen, width)
	set.MulAdd(t.back.dk[at:], nkv, turned, rows, w.queries, d, seen, rows, d)
	turn(turned, scores, rows, seen, width)
	set.MulAdd(t.back.dv[at:], nkv, turned, rows, w.dOut, d, seen, rows, d)
}

// rowGradient turns the scores of a row into probabilities, and the gradients of the probabilities
// into gradients of the scores. The row begins at offset at and sees the columns lo to hi-1. sum is
// the sum of dO O.
func (t *Tape) rowGradient(w *attentionGradient, sinks []float32, queryHead, at, lo, hi, width int, sum float32) {
	scores, dS := w.scores[at:][:width], w.dS[at:][:width]
	seen := scores[lo:hi]
	limit := float32(t.m.config.AttentionSoftcap)
	if limit != 0 {
		copy(w.uncapped, seen)
		softcap(seen, limit)
	}
	softmax(t.m.math, seen, sinks, queryHead)
	clear(scores[:lo])
	clear(scores[hi:])
	clear(dS[:lo])
	clear(dS[hi:])
	for j, p := range seen {
		dS[lo+j] = float32(p * (dS[lo+j] - sum))
	}
	if limit != 0 {
		softcapBackward(dS[lo:hi], w.uncapped[:hi-lo], limit)
	}
}

// turn transposes the first columns of a matrix.
func turn(dst, src []float32, rows, cols, stride int) {
	for r := range rows {
		for j, v := range src[r*stride:][:cols] {
			dst[j*rows+r] = v
		}
	}
}

// dot sums products in 8 lanes of float64.
func dot(a, b []float32) float32 {
	var lanes [8]float64
	for i, v := range a {
		lanes[i&7] += float64(float64(v) * float64(b[i]))
	}
	return float32(sum8(&lanes))
}

// storeBackward moves gradients of keys and values through the side, from the layers that borrow to
// the layer that computes keys and values. Gradients of values go back through the values' norm.
func (t *Tape) storeBackward(a *attention, r *record, g *Gradients) {
	b, n, side := &t.back, t.tokens(), &t.m.side
	_, nkv := a.sizes(&t.m.config, 1)
	for token := range n {
		for i, d := range [][]float32{b.dk[token*nkv:][:nkv], b.dv[token*nkv:][:nkv]} {
			if a.borrow >= 0 {
				addTo(side.row(b.dside, token, a.borrow+i*nkv, nkv), d)
			}
			if a.lend >= 0 {
				from := side.row(b.dside, token, a.lend+i*nkv, nkv)
				addTo(d, from)
				clear(from)
			}
		}
	}
	if a.values == nil || a.borrow >= 0 {
		return
	}
	t.norm(g, a.values, b.dv, b.dv, r.rawV, n*a.KVHeads, false)
}

// prepareBackward takes the gradients of the queries and keys back through scale, rotation and
// norm.
func (t *Tape) prepareBackward(l *attention, r *record, g *Gradients) {
	c, b, n := &t.m.config, &t.back, t.tokens()
	nq, nkv := l.sizes(c, 1)
	turn := func(q, k []float32, sign float32) {
		if l.Rope < 0 {
			return
		}
		t.s.split(n, 4*(nq+nkv), func(_, from, to int) {
			for token := from; token < to; token++ {
				for i, x := range [][]float32{q[token*nq:][:nq], k[token*nkv:][:nkv]} {
					if i > 0 && l.borrow >= 0 {
						break
					}
					for ; len(x) > 0; x = x[l.HeadDim:] {
						t.s.rotations[l.Rope].turn(x[c.RopeStart:], t.positions[token], sign)
					}
				}
			}
		})
	}
	norms := func(q, k []float32) {
		t.norm(g, l.qNorm, b.dq, b.dq, q, n*nq/l.qNorm.Width, false)
		if l.borrow < 0 {
			t.norm(g, l.kNorm, b.dk, b.dk, k, n*nkv/l.kNorm.Width, false)
		}
	}
	t.s.split(n, nq, func(_, from, to int) {
		for token := from; token < to; token++ {
			scale(b.dq[token*nq:][:nq], float64(c.AttentionScale*c.QueryFactor(&l.LayerConfig, t.positions[token])))
		}
	})
	if c.QKNorm >= arch.RotatedNorms && l.qNorm != nil {
		// The attention's gradients are done: its queries and keys become the norms' inputs again.
		copy(r.q, r.rawQ)
		copy(r.k, r.rawK)
		turn(r.q, r.k, 1)
		norms(r.q, r.k)
	}
	turn(b.dq, b.dk, -1)
	if c.QKNorm == arch.HeadNorms || c.QKNorm == arch.WholeNorms {
		norms(r.rawQ, r.rawK)
	}
}

func (t *Tape) projectBackward(l *attention, r *record, g *Gradients, input bool) {
	if l.latent != nil {
		t.latentBackward(l.latent, r, g, input)
		return
	}
	b, n := &t.back, t.tokens()
	gradients, outputs := [][]float32{b.dq, b.dk, b.dv}, [][]float32{r.rawQ, r.rawK, r.v}
	if l.values != nil {
		outputs[2] = r.rawV
	}
	if !t.m.config.Facts.Has(arch.FusedQKV) {
		if l.KeyValues {
			_, nkv := l.sizes(&t.m.config, n)
			addTo(b.dk[:nkv], b.dv)
		}
		gradients, outputs = gradients[:len(l.qkv)], outputs[:len(l.qkv)]
	}
	if d := l.HeadDim; t.m.config.AttentionGate {
		heads := len(b.dq) / d
		gradients[0] = join(b.joined, [][]float32{b.dq, b.dqGates}, heads)
		if t.o.Outputs {
			outputs[0] = join(b.outputs, [][]float32{r.rawQ, r.gates}, heads)
		}
	}
	t.fused(l.qkv, g, b.dnormed, r.in, gradients, outputs, n, input, nil)
}
