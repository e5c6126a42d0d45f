package forward

import "github.com/lowbit-go/gq/internal/buffer"

// block is a step of a layer. It reads the hidden states through a norm, computes a part, and adds
// the part's outputs to the hidden states.
type block struct {
	part
	norm, post *norm   // of the inputs, and of the outputs; or nil
	scale      float64 // factor of the outputs behind post
	beside     bool    // the block reads the inputs of the block before it
	replace    bool    // the outputs are the hidden states, and are not added to them
	times      float64 // factor of the hidden states behind the block
}

// part is what a block computes: attention, a recurrence, a feed-forward network or a mixture.
type part interface {
	// run computes the outputs dst of m rows, given their normalized inputs x. r has the memory,
	// and keeps what backward needs if it is a Tape's. If dst is nil, run skips the products that
	// only the outputs need.
	run(s *Session, r *record, dst, x []float32, m int)
	// memory lists the memory of run for m rows.
	memory(s *Session, r *record, m int) []size
	// backward computes gradients from the gradients dy of the outputs. If input is set,
	// t.back.dnormed receives the gradients of the inputs.
	backward(t *Tape, r *record, g *Gradients, dy []float32, input bool)
	// gradientSizes lists the memory of backward for n tokens.
	gradientSizes(t *Tape, n int) []size

	// stages lists the linear layers: see [Model.Stages].
	stages() [][]Group
	// last is the linear layer that computes the outputs; nil if several linear layers do.
	last() *linear
	// scalings lists the places for factors inside the part.
	scalings(m *Model) []Scaling
	// readers lists the linear layers that read the inputs; nil if factors cannot move into them.
	readers(m *Model) []Block
	// writers lists the linear layers that compute outputs.
	writers() []Block
}

// Blocks returns the number of blocks of a layer.
func (m *Model) Blocks(layer int) int { return len(m.layers[layer].blocks) }

// blocks goes through the blocks of all layers.
func (m *Model) blocks(yield func(*block) bool) {
	for i := range m.layers {
		for j := range m.layers[i].blocks {
			if !yield(&m.layers[i].blocks[j]) {
				return
			}
		}
	}
}

// parallel reports whether blocks of a layer read the same inputs.
func (m *Model) parallel() bool {
	for b := range m.blocks {
		if b.beside {
			return true
		}
	}
	return false
}

// A size is a buffer with the number of its elements.
type size struct {
	b *[]float32
	n int
}

// sizes has the largest size of each buffer.
type sizes map[*[]float32]int

func (s sizes) add(list ...size) {
	for _, v := range list {
		s[v.b] = max(s[v.b], v.n)
	}
}

func (s sizes) allocate() {
	for b, n := range s {
		buffer.Grow(b, n)
	}
}

func (s sizes) bytes() (n int64) {
	for _, elements := range s {
		n += 4 * int64(elements)
	}
	return n
}

// sizes returns the memory of a pass of m rows, without the hidden states and logits.
func (s *Session) sizes(m int) sizes {
	all, h := sizes{}, m*s.m.config.HiddenSize
	all.add(size{&s.normed, h}, size{&s.back, h}, size{&s.side, m * s.m.side.width})
	if d := &s.m.side; d.perLayer != nil {
		all.add(size{&s.both, m * d.layers * d.perInputs})
	}
	for b := range s.m.blocks {
		all.add(b.memory(s, &s.record, m)...)
	}
	return all
}
