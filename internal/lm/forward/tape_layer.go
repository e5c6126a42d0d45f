package forward

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// record holds everything of a block's forward pass that the derivatives need, for all tokens of
// all sequences.
type record struct {
	x      []float32 // the hidden states that the block reads
	in     []float32 // [tokens][hidden]: the same behind the norm
	normed []float32 // memory of in
	out    []float32 // [tokens][hidden]: outputs of the part
	behind []float32 // [tokens][hidden]: the hidden states behind the block

	// Of attention.
	rawQ, rawK []float32 // queries and keys before norm and rotation
	rawV       []float32 // values before their norm, if they have any
	q, k, v    []float32 // [tokens][heads][dim]: queries, keys and values
	heads      []float32 // [tokens][heads][dim]: input of the output projection, without gates
	gates      []float32 // [tokens][heads][dim]
	gatedHeads []float32 // [tokens][heads][dim]: the heads behind the gates

	// Of several streams, of layers' own inputs, and of a path of low rank.
	streams                       []float32 // [tokens][streams][hidden]: the prediction last
	modes, coefs                  []float32 // [tokens][...]
	routed, fed, projected, added []float32 // [tokens][hidden]

	// Of a recurrence, with heads as the inputs of the output projection.
	raw      []float32   // outputs of the input projections
	unnormed []float32   // outputs of a mixer with a norm behind
	inputs   [][]float32 // the same by projection

	gatedRecord              // of a network's tokens, or of the pairs of token and expert
	shared       gatedRecord // of a mixture
	down         []float32   // [rows][width]: outputs of experts
	sharedDown   []float32   // [tokens][hidden]: outputs of the shared expert
	sharedLogits []float32   // [tokens]
	sharedGates  []float32   // [tokens]: their sigmoids
	routerLogits []float32   // [tokens][experts]
	router       []float32   // [tokens][experts]: scores
	rows         []float32   // [rows][width]: inputs of experts
	latents      []float32   // [tokens][width]: what experts read, if they read latents
	sums         []float32   // [tokens][width]: sums of the experts' outputs, in that case

	chosen []choice // [tokens][PerToken]
	order  []int    // the rows of the experts: indices in chosen, by expert, then by token
	first  []int    // of each expert in order, and the end
}

// gatedRecord is the record of a gated feed-forward network.
type gatedRecord struct {
	gate, up []float32 // [rows][width]
	uncut    []float32 // [rows][width]: the gates of a sparse network before the cut
	act      []float32 // [rows][width]: input of the down projection
}

func (r *gatedRecord) sizes(f *mlp, rows int) []size {
	n := rows * f.width
	list := []size{{&r.gate, n}, {&r.up, n}, {&r.act, n}}
	if f.sparse {
		list = append(list, size{&r.uncut, n})
	}
	return list
}

// recordSizes is the memory of a layer's forward pass for n tokens.
func (t *Tape) recordSizes(n int) sizes {
	all, h := sizes{}, n*t.m.config.HiddenSize
	if t.m.side.width > 0 {
		all.add(size{&t.s.x, h}, size{&t.s.side, n * t.m.side.width})
	}
	for i := range t.m.layers {
		blocks := t.m.layers[i].blocks
		for j := range blocks {
			r := &t.records[j]
			if all.add(size{&r.out, h}); !blocks[j].beside {
				all.add(size{&r.normed, h})
			}
			if j+1 < len(blocks) || t.m.side.width > 0 {
				all.add(size{&r.behind, h})
			}
			if blocks[j].post != nil {
				all.add(size{&t.s.back, h})
			}
			all.add(blocks[j].recordSizes(t, r, n)...)
		}
	}
	return all
}

// layer runs all sequences through a layer, records it, and writes the hidden states behind the
// layer to out. If out is nil, layer skips the products that only out needs. experts, if not nil,
// is the choice of experts.
func (t *Tape) layer(i int, out, x []float32, experts []int32) error {
	t.forced = experts
	blocks := t.m.layers[i].blocks
	x = t.s.unpack(x, t.tokens())
	for j := range blocks {
		b, r := &blocks[j], &t.records[j]
		if b.beside {
			r.x, r.in = t.records[j-1].x, t.records[j-1].in
		} else {
			r.x, r.in = x, r.normed
			t.s.norm(r.in, x, b.norm, t.tokens())
		}
		dst, to := r.out, r.behind
		if j+1 == len(blocks) {
			if to = out; out == nil {
				dst = nil
			} else if t.m.side.width > 0 {
				to = r.behind
			}
		}
		if err := b.record(t, r, dst, r.in); err != nil {
			return err
		}
		if to != nil {
			t.residual(to, x, r.out, b)
		}
		x = to
	}
	if out != nil && t.m.side.width > 0 {
		t.m.pack(out, x, t.s.side)
	}
	return nil
}

// routed appends the choice of experts of the last layer that ran.
func (t *Tape) routed(i int, dst []int32) []int32 {
	for j, b := range t.m.layers[i].blocks {
		if _, ok := b.part.(*mixture); ok {
			for _, ch := range t.records[j].chosen {
				dst = append(dst, int32(ch.expert))
			}
		}
	}
	return dst
}

// residual writes x plus the outputs y of a block to dst; y itself stays.
func (t *Tape) residual(dst, x, y []float32, b *block) {
	n := t.tokens()
	if b.post != nil {
		normed := buffer.Grow(&t.s.back, len(x))
		t.s.norm(normed, y, b.post, n)
		y = normed
	}
	copy(dst, x)
	t.s.join(dst, y, b)
}

// alone runs fn for the tokens of each sequence, as the only segment of a pass.
func (t *Tape) alone(fn func(from, to int)) {
	t.s.n = 0
	for j, from := range t.starts[:len(t.starts)-1] {
		t.s.alone(t.starts[j+1] - from)
		fn(from, t.starts[j+1])
	}
}

func (a *attention) recordSizes(t *Tape, r *record, n int) []size {
	c := &t.m.config
	nq, nkv := a.sizes(c, n)
	list := []size{{&r.q, nq}, {&r.k, nkv}, {&r.v, nkv}, {&r.heads, nq}}
	if c.QKNorm != arch.NoQKNorm || t.o.Outputs || c.Latent != nil {
		list = append(list, size{&r.rawQ, nq}, size{&r.rawK, nkv})
	}
	if a.values != nil {
		list = append(list, size{&r.rawV, nkv})
	}
	if c.AttentionGate {
		list = append(list, size{&r.gates, nq}, size{&r.gatedHeads, nq})
	}
	return list
}

func (a *attention) record(t *Tape, r *record, dst, x []float32) error {
	s, c, n := t.s, &t.m.config, t.tokens()
	nq, nkv := a.sizes(c, n)
	// The layers that share the record may have other numbers of heads.
	q, k, v := r.q[:nq], r.k[:nkv], r.v[:nkv]
	if err := s.project(a, q, k, v, x, n); err != nil {
		return err
	}
	copy(r.rawQ, q)
	copy(r.rawK, k)
	copy(r.rawV, v)
	copy(r.gates, s.gates)
	nq, nkv = a.sizes(c, 1)
	t.alone(func(from, to int) {
		s.meet(a, r.heads[from*nq:to*nq], q[from*nq:to*nq], k[from*nkv:to*nkv], v[from*nkv:to*nkv])
		s.caches[a.cache].reset()
	})
	a.store(s, k, v, n)
	if c.AttentionGate {
		s.applyGates(r.gatedHeads, r.heads[:len(r.gatedHeads)], r.gates)
	}
	s.unpad(&s.latent.heads, r.heads, n)
	if dst == nil {
		return nil
	}
	return s.multiply(dst, a.outInput(t, r), n, a.out)
}

// outInput returns the input of the output projection.
func (a *attention) outInput(t *Tape, r *record) []float32 {
	switch {
	case a.latent != nil:
		return t.s.latent.heads
	case t.m.config.AttentionGate:
		return r.gatedHeads
	default:
		return r.heads
	}
}

func (f *mlp) recordSizes(t *Tape, r *record, n int) []size { return r.gatedRecord.sizes(f, n) }

func (f *mlp) record(t *Tape, r *record, dst, x []float32) error {
	return t.gated(f, &r.gatedRecord, dst, x, 0, t.tokens())
}

// gated computes n rows of a gated feed-forward network from row at of the record r on, without the
// down projection if dst is nil.
func (t *Tape) gated(f *mlp, r *gatedRecord, dst, x []float32, at, n int) error {
	s, width := t.s, f.width
	gate, up, act := r.gate[at*width:][:n*width], r.up[at*width:][:n*width], r.act[at*width:][:n*width]
	if err := s.gateUp(f, gate, up, x, n); err != nil {
		return err
	}
	if f.sparse {
		copy(r.uncut, gate)
		s.cut(f, gate, n)
	}
	copy(act, gate)
	s.activate(act, up)
	if dst == nil {
		return nil
	}
	return s.multiply(dst, act, n, f.down)
}

func (l *mixture) recordSizes(t *Tape, r *record, n int) []size {
	h, rows := t.m.config.HiddenSize, n*l.PerToken
	list := append(r.gatedRecord.sizes(l.experts[0], rows), size{&r.down, rows * l.width}, size{&r.rows, rows * l.width},
		size{&r.router, n * l.Count}, size{&r.routerLogits, n * l.Count})
	if l.in != nil {
		list = append(list, size{&r.latents, n * l.width}, size{&r.sums, n * l.width}, size{&r.projected, n * h})
	}
	if l.fed != nil {
		list = append(list, size{&r.routed, n * h}, size{&r.fed, n * h}, size{&r.projected, n * h}, size{&r.added, n * h}, size{&t.s.back, n * h})
	}
	if l.shared != nil {
		list = append(append(list, r.shared.sizes(l.shared, n)...), size{&r.sharedDown, n * h}, size{&r.sharedLogits, n}, size{&r.sharedGates, n})
	}
	return list
}

func (l *mixture) record(t *Tape, r *record, dst, x []float32) error {
	if err := t.experts(l, r, x); err != nil || dst == nil && l.out == nil {
		return err
	}
	sums, w := dst, l.width
	if l.out != nil {
		sums = r.sums
	}
	clear(sums)
	for row, i := range r.order {
		ch := r.chosen[i]
		l.addScaled(sums[ch.token*w:][:w], r.down[row*w:][:w], ch)
	}
	if dst == nil {
		return nil
	}
	if l.out != nil {
		if err := t.s.multiply(r.projected, sums, t.tokens(), l.out); err != nil {
			return err
		}
		copy(dst, r.projected)
	}
	if l.post != nil {
		copy(r.projected, dst)
		t.s.norm(dst, r.projected, l.post, t.tokens())
	}
	if l.shared != nil {
		addShared(l, dst, l.inputs(t.s, l.sharedPost, &t.s.back, r.sharedDown, t.tokens()), r.sharedGates)
	}
	return nil
}

// experts computes the outputs of all experts.
func (t *Tape) experts(l *mixture, r *record, x []float32) error {
	s, e, n, forced := t.s, l.ExpertConfig, t.tokens(), t.forced
	r.chosen = r.chosen[:0]
	if forced != nil && len(forced) != n*e.PerToken {
		return fmt.Errorf("model: %d choices of experts for %d tokens, want %d for each", len(forced), n, e.PerToken)
	}
	if err := s.multiply(r.routerLogits, l.inputs(s, l.routed, &r.routed, x, n), n, l.router); err != nil {
		return err
	}
	copy(r.router, r.routerLogits)
	for token := range n {
		scores := r.router[token*e.Count:][:e.Count]
		score(e, s.m.math, scores)
		if forced == nil {
			r.chosen = choose(e, l.correction, r.chosen, scores, token)
			continue
		}
		from := len(r.chosen)
		for _, i := range forced[token*e.PerToken:][:e.PerToken] {
			if i < 0 || int(i) >= e.Count {
				return fmt.Errorf("model: expert %d of %d", i, e.Count)
			}
			r.chosen = append(r.chosen, choice{token, int(i), scores[i]})
		}
		weigh(e, r.chosen[from:], scores)
	}
	r.sort(e.Count)
	sharedFed := l.inputs(s, l.sharedFed, &r.added, x, n)
	read, w := l.inputs(s, l.fed, &r.fed, x, n), l.width
	if l.in != nil {
		read = r.latents
		if err := s.multiply(read, x, n, l.in); err != nil {
			return err
		}
	}
	for row, i := range r.order {
		copyScaled(e, r.rows[row*w:][:w], read[r.chosen[i].token*w:], r.chosen[i])
	}
	for i := range l.experts {
		at, rows := r.first[i], r.first[i+1]-r.first[i]
		if rows == 0 {
			continue
		}
		if err := t.gated(l.experts[i], &r.gatedRecord, r.down[at*w:][:rows*w], r.rows[at*w:][:rows*w], at, rows); err != nil {
			return err
		}
	}
	if l.shared == nil {
		return nil
	}
	if l.sharedRouter != nil {
		if err := s.multiply(r.sharedLogits, x, n, l.sharedRouter); err != nil {
			return err
		}
		copy(r.sharedGates, r.sharedLogits)
		sigmoid(r.sharedGates)
	}
	return t.gated(l.shared, &r.shared, r.sharedDown, sharedFed, 0, n)
}

func (r *record) sort(experts int) {
	r.order, r.first = r.order[:0], r.first[:0]
	for i := range r.chosen {
		r.order = append(r.order, i)
	}
	slices.SortStableFunc(r.order, func(a, b int) int { return r.chosen[a].expert - r.chosen[b].expert })
	at := 0
	for i := range experts {
		r.first = append(r.first, at)
		for at < len(r.order) && r.chosen[r.order[at]].expert == i {
			at++
		}
	}
	r.first = append(r.first, at)
}
