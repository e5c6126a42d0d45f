package forward

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// record holds everything of a layer's forward pass that the derivatives need, for all tokens of
// all sequences.
type record struct {
	x            []float32   // the layer's input
	normed       []float32   // [tokens][hidden]: input of q, k and v
	rawQ, rawK   []float32   // queries and keys before norm and rotation
	q, k, v      []float32   // [tokens][heads][dim]: queries, keys and values
	heads        []float32   // [tokens][heads][dim]: input of the output projection, without gates
	gates        []float32   // [tokens][heads][dim]: of attention
	gatedHeads   []float32   // [tokens][heads][dim]: the heads behind the gates
	raw          []float32   // outputs of a mixer's input projections
	in           [][]float32 // the same by projection
	attention    []float32   // [tokens][hidden]: its output
	middle       []float32   // [tokens][hidden]: the hidden states after attention
	fed          []float32   // [tokens][hidden]: input of the feed-forward network
	gatedRecord              // of the tokens, or of the pairs of token and expert
	shared       gatedRecord
	sharedLogits []float32 // [tokens]
	sharedGates  []float32 // [tokens]: their sigmoids
	routerLogits []float32 // [tokens][experts]
	router       []float32 // [tokens][experts]: scores
	rows         []float32 // [rows][hidden]: inputs of experts
	mixed        []float32 // [tokens][hidden]: the mixture

	chosen   []choice // [tokens][PerToken]
	perToken int
	order    []int // the rows of the experts: indices in chosen, by expert, then by token
	first    []int // of each expert in order, and the end
}

// gatedRecord is the record of a gated feed-forward network.
type gatedRecord struct {
	gate, up []float32 // [rows][intermediate]
	act      []float32 // [rows][intermediate]: input of the down projection
	down     []float32 // [rows][hidden]: its output
}

// A size is a buffer with the number of its elements.
type size struct {
	b *[]float32
	n int
}

func allocate(sizes []size) {
	for _, s := range sizes {
		buffer.Grow(s.b, s.n)
	}
}

func bytesOf(sizes []size) (n int64) {
	for _, s := range sizes {
		n += 4 * int64(s.n)
	}
	return n
}

// feedForward returns the number of rows of the feed-forward network and its width, in layers with
// and without experts.
func (m *Model) feedForward(experts bool, tokens int) (rows, width int) {
	if experts {
		return tokens * m.config.Experts.PerToken, m.config.Experts.Intermediate
	}
	return tokens, m.config.Intermediate
}

// wide returns the elements of the widest feed-forward network's gates.
func (m *Model) wide(tokens int) (gates, rows int) {
	for i := range m.layers {
		r, width := m.feedForward(m.layers[i].Experts, tokens)
		gates, rows = max(gates, r*width), max(rows, r)
	}
	return max(gates, tokens*m.shared()), rows
}

// shared returns the width of the shared expert, or 0.
func (m *Model) shared() int {
	if m.config.Experts == nil {
		return 0
	}
	return m.config.Experts.Shared
}

func (r *record) sizes(t *Tape, tokens int) []size {
	c := &t.m.config
	h, nq, nkv := tokens*c.HiddenSize, tokens*c.Heads*c.HeadDim, tokens*c.KVHeads*c.HeadDim
	gates, rows := t.m.wide(tokens)
	raw, inner := t.m.middle()
	list := []size{
		{&r.normed, h}, {&r.q, nq}, {&r.k, nkv}, {&r.v, nkv}, {&r.heads, max(nq, tokens*inner)}, {&r.raw, tokens * raw}, {&r.attention, h}, {&r.middle, h}, {&r.fed, h},
		{&r.gate, gates}, {&r.up, gates}, {&r.act, gates}, {&r.down, rows * c.HiddenSize},
	}
	if c.QKNorm != arch.NoQKNorm || t.o.Outputs || c.Latent != nil {
		list = append(list, size{&r.rawQ, nq}, size{&r.rawK, nkv})
	}
	if c.AttentionGate {
		list = append(list, size{&r.gates, nq}, size{&r.gatedHeads, nq})
	}
	if e := c.Experts; e != nil {
		list = append(list, size{&r.router, tokens * e.Count}, size{&r.routerLogits, tokens * e.Count}, size{&r.rows, rows * c.HiddenSize}, size{&r.mixed, h})
		if e.Shared > 0 {
			n := tokens * e.Shared
			list = append(list, size{&r.shared.gate, n}, size{&r.shared.up, n}, size{&r.shared.act, n}, size{&r.shared.down, h}, size{&r.sharedLogits, tokens}, size{&r.sharedGates, tokens})
		}
	}
	return list
}

func (r *record) grow(t *Tape) { allocate(r.sizes(t, t.tokens())) }

func (r *record) routing(dst []int32) []int32 {
	for _, ch := range r.chosen {
		dst = append(dst, int32(ch.expert))
	}
	return dst
}

// layer runs all sequences through a layer, records it, and writes the hidden states behind the
// layer to out. If out is nil, layer skips the products that only out needs.
func (t *Tape) layer(i int, out, x []float32, experts []int32) error {
	s, l, r, n := t.s, &t.m.layers[i], &t.record, t.tokens()
	r.x = x
	s.norm(r.normed, x, l.inputNorm, n)
	if err := t.middle(i); err != nil {
		return err
	}
	if err := s.multiply(r.attention, t.outInput(l), n, l.out); err != nil {
		return err
	}
	t.residual(r.middle, x, r.attention, l.postAttention)
	fed := r.middle
	if t.m.config.Parallel {
		fed = x
	}
	s.norm(r.fed, fed, l.attentionNorm, n)
	r.chosen = r.chosen[:0]
	if l.Experts {
		if err := t.experts(l, experts); err != nil {
			return err
		}
		if out != nil {
			t.mix(l)
			t.residual(out, r.middle, r.mixed, l.postMLP)
		}
		return nil
	}
	if err := t.gated(&l.mlp, &r.gatedRecord, r.fed, 0, n, t.m.config.Intermediate, out != nil); err != nil || out == nil {
		return err
	}
	t.residual(out, r.middle, r.down, l.postMLP)
	return nil
}

// middle computes what is between a layer's input and its output projection.
func (t *Tape) middle(i int) error {
	s, l, r, n := t.s, &t.m.layers[i], &t.record, t.tokens()
	if l.mixer != nil {
		return t.recur(i)
	}
	if err := s.project(l, r.q, r.k, r.v, r.normed, n); err != nil {
		return err
	}
	copy(r.rawQ, r.q)
	copy(r.rawK, r.k)
	copy(r.gates, s.gates)
	t.attend(i)
	if t.m.config.AttentionGate {
		s.applyGates(r.gatedHeads, r.heads[:len(r.gatedHeads)], r.gates)
	}
	s.unpad(&s.latent.heads, r.heads, n)
	return nil
}

// outInput returns the input of a layer's output projection.
func (t *Tape) outInput(l *layer) []float32 {
	switch r := &t.record; {
	case l.latent != nil:
		return t.s.latent.heads
	case l.mixer == nil && len(r.gatedHeads) > 0:
		return r.gatedHeads
	default:
		return r.heads
	}
}

func (t *Tape) attend(i int) {
	s, r, c := t.s, &t.record, &t.m.config
	nq, nkv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	s.n = 0
	s.caches[i].free, t.pages = t.pages, nil
	for j, from := range t.starts[:len(t.starts)-1] {
		to := t.starts[j+1]
		s.alone(to - from)
		s.meet(i, r.heads[from*nq:to*nq], r.q[from*nq:to*nq], r.k[from*nkv:to*nkv], r.v[from*nkv:to*nkv])
		s.caches[i].reset()
	}
	t.pages, s.caches[i].free = s.caches[i].free, nil
}

// residual writes x plus y, scaled, to dst. If there is a norm, y is normalized first; y itself
// stays.
func (t *Tape) residual(dst, x, y []float32, post *norm) {
	n := t.tokens()
	if post != nil {
		normed := buffer.Grow(&t.s.back, len(x))
		t.s.norm(normed, y, post, n)
		y = normed
	}
	copy(dst, x)
	t.s.add(dst, y, nil, n)
}

// gated computes n rows of a gated feed-forward network of this width, from row at of the record r
// on, without the down projection unless down is set.
func (t *Tape) gated(f *mlp, r *gatedRecord, x []float32, at, n, width int, down bool) error {
	s, h := t.s, t.m.config.HiddenSize
	gate, up, act := r.gate[at*width:][:n*width], r.up[at*width:][:n*width], r.act[at*width:][:n*width]
	if err := s.gateUp(f, gate, up, x, n, width); err != nil {
		return err
	}
	copy(act, gate)
	s.activate(act, up)
	if !down {
		return nil
	}
	return s.multiply(r.down[at*h:][:n*h], act, n, f.down)
}

// experts computes the outputs of all experts. forced, if not nil, is the choice of experts.
func (t *Tape) experts(l *layer, forced []int32) error {
	s, r, e, h, n := t.s, &t.record, t.m.config.Experts, t.m.config.HiddenSize, t.tokens()
	if forced != nil && len(forced) != n*e.PerToken {
		return fmt.Errorf("model: %d choices of experts for %d tokens, want %d for each", len(forced), n, e.PerToken)
	}
	if err := s.multiply(r.routerLogits, r.fed, n, l.router); err != nil {
		return err
	}
	copy(r.router, r.routerLogits)
	r.perToken = e.PerToken
	for token := range n {
		scores := r.router[token*e.Count:][:e.Count]
		s.m.score(scores)
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
	for row, i := range r.order {
		copyScaled(e, r.rows[row*h:][:h], r.fed[r.chosen[i].token*h:], r.chosen[i])
	}
	for i := range l.experts {
		at, rows := r.first[i], r.first[i+1]-r.first[i]
		if rows == 0 {
			continue
		}
		if err := t.gated(&l.experts[i], &r.gatedRecord, r.rows[at*h:][:rows*h], at, rows, e.Intermediate, true); err != nil {
			return err
		}
	}
	if l.shared == nil {
		return nil
	}
	if l.sharedRouter != nil {
		if err := s.multiply(r.sharedLogits, r.fed, n, l.sharedRouter); err != nil {
			return err
		}
		copy(r.sharedGates, r.sharedLogits)
		sigmoid(r.sharedGates)
	}
	return t.gated(l.shared, &r.shared, r.fed, 0, n, e.Shared, true)
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

// mix adds the outputs of each token's experts, in order of expert, and of the shared expert.
func (t *Tape) mix(l *layer) {
	r, h := &t.record, t.m.config.HiddenSize
	clear(r.mixed)
	for row, i := range r.order {
		ch := r.chosen[i]
		addScaled(t.m.config.Experts, r.mixed[ch.token*h:][:h], r.down[row*h:][:h], ch)
	}
	if l.shared != nil {
		addShared(l, r.mixed, r.shared.down, r.sharedGates)
	}
}
