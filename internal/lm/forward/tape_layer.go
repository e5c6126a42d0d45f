package forward

import (
	"slices"

	"github.com/lowbit-go/gq/internal/buffer"
)

// record is the memory of a block's forward pass. A Tape's record keeps everything that the
// derivatives need, for all tokens of all sequences; a Session's is used again by each block.
type record struct {
	tape   *Tape     // nil in a Session
	forced []int32   // the choice of experts, or nil
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
	attended   []float32 // input of the output projection

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
	kept     bool      // the record is a Tape's
	gate, up []float32 // [rows][width]
	uncut    []float32 // [rows][width]: the gates of a sparse network before the cut, if kept
	act      []float32 // [rows][width]: input of the down projection, if kept
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
			all.add(blocks[j].memory(t.s, r, n)...)
		}
	}
	return all
}

// layer runs all sequences through a layer, records it, and writes the hidden states behind the
// layer to out. If out is nil, layer skips the products that only out needs. experts, if not nil,
// is the choice of experts.
func (t *Tape) layer(i int, out, x []float32, experts []int32) {
	blocks := t.m.layers[i].blocks
	x = t.s.unpack(x, t.tokens())
	for j := range blocks {
		b, r := &blocks[j], &t.records[j]
		if r.forced = experts; b.beside {
			r.x, r.in = t.records[j-1].x, t.records[j-1].in
		} else {
			r.x, r.in = x, r.normed
			t.s.norm(r.in, x, b.norm, t.tokens())
		}
		dst, to := r.out, r.behind
		if j+1 == len(blocks) {
			if to = out; out == nil && !b.replace {
				dst = nil
			} else if out != nil && t.m.side.width > 0 {
				to = r.behind
			}
		}
		b.run(t.s, r, dst, r.in, t.tokens())
		if to != nil { // x plus the outputs of the block, which stay
			y := r.out
			if b.post != nil {
				y = buffer.Grow(&t.s.back, len(x))
				t.s.norm(y, r.out, b.post, t.tokens())
			}
			copy(to, x)
			t.s.join(to, y, b)
		}
		x = to
	}
	if out != nil && t.m.side.width > 0 {
		t.m.pack(out, x, t.s.side)
	}
}

// sequences runs fn for all rows of a pass, or for the tokens of each sequence of a Tape, as the
// only segment of a pass.
func (s *Session) sequences(r *record, cache, m int, fn func(from, to int)) {
	if r.tape == nil {
		fn(0, m)
		return
	}
	s.n = 0
	starts := r.tape.starts
	for j, from := range starts[:len(starts)-1] {
		s.alone(starts[j+1] - from)
		fn(from, starts[j+1])
		s.caches[cache].reset()
	}
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
