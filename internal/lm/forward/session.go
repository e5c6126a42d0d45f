package forward

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/kernels"
)

// prefillChunk is the number of tokens that go through the layers at a time. A larger chunk reads
// the weights fewer times, but its activations need more memory (150 KB per token of a 1B model).
const prefillChunk = 256

// Session is a sequence of tokens in a Model, with the keys and values of all tokens so far: 2 *
// layers * key-value heads * head dimensions float32 per token. Layers with a state have the state
// of the last token only.
//
// A Session is not for concurrent use.
type Session struct {
	m         *Model
	max       int
	n         int
	kept      int // rows of x that are the hidden states of the last Append
	rotations []*rotation
	caches    []cache
	hook      func(name string, x []float32, m, k int)
	visit     func(name string, x []float32, m, k int) bool // set by a Stream; false ends the block
	segments  []segment                                     // of the current pass
	owners    []int                                         // [row], the index of its segment
	units     []unit                                        // of the current pass, slowest first
	work      int                                           // keys that all rows meet
	expert    []int                                         // rows of the running expert; or nil

	attention attentionThreads
	mixers    []mixerWorker // by thread
	*scratch
}

// scratch is memory that matters only while a pass runs, except x.
type scratch struct {
	workspace *kernels.Workspace
	// Activations of a chunk, [tokens][...].
	x, normed, back []float32
	heads           []float32 // what a late gate reads, on the way back
	side            []float32 // rows of a side
	qkv, both       []float32 // outputs of fused linear layers
	record          record    // of a part
	latent          latentScratch
}

// NewSession makes an empty session for at most maxTokens tokens. In models with longrope, sessions
// for more tokens than the original context have other frequencies. As in llama.cpp, the size of
// the session decides, so that results do not depend on the number of tokens per call.
func (m *Model) NewSession(maxTokens int) *Session {
	c := &m.config
	s := &Session{m: m, max: max(0, maxTokens), caches: m.newCaches(), scratch: &scratch{workspace: kernels.NewWorkspace(m.pool)}}
	for i := range c.Ropes {
		s.rotations = append(s.rotations, newRotation(&c.Ropes[i], maxTokens))
	}
	s.attention.init(c, m.math, m.pool.Threads())
	return s
}

func (s *Session) Reset() {
	s.n, s.kept = 0, 0
	for i := range s.caches {
		s.caches[i].reset()
	}
}

// Truncate removes all tokens but the first n. It returns false if layers with a window have
// released keys and values that the next token sees, and if layers have a state, which belongs to
// all tokens; the session must then be Reset.
func (s *Session) Truncate(n int) bool {
	if n < 0 || n > s.n || n != s.n && n != 0 && s.m.config.HasStates() {
		return false
	}
	for i := range s.caches {
		if !s.caches[i].holds(n) {
			return false
		}
	}
	s.n = n
	return true
}

func (s *Session) Len() int { return s.n }

// Cap returns the maximum number of tokens.
func (s *Session) Cap() int { return s.max }

// OnInput registers a function that receives the input of each linear layer before it is quantized
// and multiplied: m rows of k values, valid during the call. Linear layers that share their input
// follow each other. nil unregisters.
func (s *Session) OnInput(fn func(name string, x []float32, m, k int)) { s.hook = fn }

// Forward appends tokens to the sequence. If all is set, logits receives the logits behind each
// token, [len(tokens)][VocabSize]. Otherwise logits is nil or receives the logits behind the last
// token, [VocabSize].
//
// The bits do not depend on the division of the tokens into calls. After an error the session must
// be Reset.
func (s *Session) Forward(tokens []int32, logits []float32, all bool) error {
	c := &s.m.config
	want := c.VocabSize
	if all {
		want *= len(tokens)
	}
	if len(logits) != want && (logits != nil || all) {
		return fmt.Errorf("model: %d logits: there is room for %d", want, len(logits))
	}
	if err := s.check(tokens); err != nil {
		return err
	}
	return s.m.run(func() {
		for len(tokens) > 0 {
			chunk := tokens[:min(prefillChunk, len(tokens))]
			tokens = tokens[len(chunk):]
			var out []float32
			switch {
			case all:
				out, logits = logits[:len(chunk)*c.VocabSize], logits[len(chunk)*c.VocabSize:]
			case len(tokens) == 0:
				out = logits
			}
			s.chunk(chunk, out, all)
		}
	})
}

func (s *Session) check(tokens []int32) error {
	switch {
	case len(tokens) == 0:
		return fmt.Errorf("model: no tokens")
	case len(tokens) > s.max-s.n:
		return fmt.Errorf("model: %d tokens after %d: the session was made for %d", len(tokens), s.n, s.max)
	}
	return s.m.checkTokens(-1, s.n, tokens)
}

// MaxAppend is the greatest number of tokens that Append takes.
const MaxAppend = prefillChunk

// Append appends 1 to MaxAppend tokens to the sequence, and keeps their hidden states for Logits.
// After an error the session must be Reset.
func (s *Session) Append(tokens []int32) error {
	if len(tokens) > MaxAppend {
		return fmt.Errorf("model: %d tokens at a time: at most %d", len(tokens), MaxAppend)
	}
	if err := s.check(tokens); err != nil {
		return err
	}
	err := s.m.run(func() { s.chunk(tokens, nil, false) })
	if err == nil {
		s.kept = len(tokens)
	}
	return err
}

// Logits writes the logits behind n tokens, from token first of the last Append on, to logits,
// [n][VocabSize]. Append and Logits give the bits of Forward, and need room for a few logits only.
func (s *Session) Logits(logits []float32, first, n int) error {
	c := &s.m.config
	switch {
	case first < 0 || n < 1 || n > s.kept-first:
		return fmt.Errorf("model: logits of %d tokens from %d on: the last Append had %d", n, first, s.kept)
	case len(logits) != n*c.VocabSize:
		return fmt.Errorf("model: %d logits: there is room for %d", n*c.VocabSize, len(logits))
	}
	return s.m.run(func() { s.logits(logits, s.x[first*c.HiddenSize:], n) })
}

func (s *Session) chunk(tokens []int32, logits []float32, all bool) {
	c := &s.m.config
	m, h := len(tokens), c.HiddenSize
	s.kept = 0
	x := buffer.Grow(&s.x, m*h)
	s.lookup(x, buffer.Grow(&s.side, m*s.m.side.width), tokens)
	s.alone(m)
	for i := range s.m.layers {
		s.layer(i, x, m)
	}
	s.endSide(x, s.side, m)
	s.n += m
	if logits == nil {
		return
	}
	if !all {
		x, m = x[(m-1)*h:], 1
	}
	s.logits(logits, x, m)
}

// lookup writes the tokens' rows of the embedding to x, scaled, and their rows of the side.
func (s *Session) lookup(x, side []float32, tokens []int32) {
	c := &s.m.config
	h := c.HiddenSize
	for i, id := range tokens {
		fail(s.m.embed.Lookup(x[i*h:][:h], int(id)))
	}
	scale(x, c.EmbeddingScale)
	s.beginSide(side, x, tokens)
}

func (s *Session) logits(logits, x []float32, m int) {
	c := &s.m.config
	normed := buffer.Grow(&s.normed, m*c.HiddenSize)
	s.norm(normed, x, s.m.norm, m)
	s.multiply(logits, normed, m, s.m.head)
	s.capLogits(logits[:m*c.VocabSize])
}

// capLogits applies the model's factor and softcap to outputs of the lm_head.
func (s *Session) capLogits(logits []float32) {
	c := &s.m.config
	scale(logits, c.LogitScale)
	if c.LogitSoftcap != 0 {
		s.split(len(logits), 16, func(_, from, to int) { softcap(logits[from:to], float32(c.LogitSoftcap)) })
	}
}

func (s *Session) layer(i int, x []float32, m int) {
	blocks := s.m.layers[i].blocks
	for j := range blocks {
		b := &blocks[j]
		if !b.beside {
			s.begin(b, x, m)
		}
		b.run(s, &s.record, s.back, s.normed, m)
		s.add(x, s.back, b, m)
	}
}

// begin computes the inputs of a block from the m rows x of hidden states.
func (s *Session) begin(b *block, x []float32, m int) {
	buffer.Grow(&s.back, m*s.m.config.HiddenSize)
	s.norm(buffer.Grow(&s.normed, m*s.m.config.HiddenSize), x, b.norm, m)
}

// add adds the outputs y of a block to x, behind the block's norm and times its factor.
func (s *Session) add(x, y []float32, b *block, m int) {
	if b.post != nil {
		s.norm(y, y, b.post, m)
	}
	s.join(x, y, b)
}

// join joins the hidden states x and the outputs y of a block, in x.
func (s *Session) join(x, y []float32, b *block) {
	s.split(len(x), 2, func(_, from, to int) {
		x, y := x[from:to], y[from:to]
		if b.replace {
			copy(x, y)
		} else {
			addTimes(x, y, float32(b.scale))
		}
		scale(x, b.times)
	})
}

// norm normalizes m rows, or copies them if there is no norm.
func (s *Session) norm(dst, x []float32, by *norm, m int) {
	if by == nil {
		copy(dst, x[:m*s.m.config.HiddenSize])
		return
	}
	groups, n, eps := by.parts()
	s.split(m*groups, n, func(_, from, to int) {
		for r := from; r < to; r++ {
			row, in := dst[r*n:][:n], x[r*n:][:n]
			if s.m.config.LayerNorm {
				mean, inverse := moments(in, eps)
				for i, v := range in {
					row[i] = float32(float32((v-mean)*inverse) * by.weights[i])
				}
			} else {
				rmsNorm(row, in, by.weights[r%groups*n:], eps)
			}
			addTo(row[:len(by.bias)], by.bias)
		}
	})
}

func (s *Session) multiply(dst, x []float32, m int, l *linear) {
	k, n := l.op.Cols(), l.op.Rows()
	x, dst = x[:m*k], dst[:m*n]
	if s.hook != nil {
		s.hook(l.name, x, m, k)
	}
	if s.visit != nil && !s.visit(l.name, x, m, k) {
		fail(errStop)
	}
	if err := l.op.Forward(s.workspace, dst, x, m); err != nil {
		fail(fmt.Errorf("linear %q: %w", l.name, err))
	}
	if l.bias != nil {
		for r := range m {
			addTo(dst[r*n:][:n], l.bias)
		}
	}
}

func (s *Session) activate(gate, up []float32) {
	s.split(len(gate), 4, func(_, from, to int) { s.m.activate(gate[from:to], up[from:to]) })
}

// split divides n items of work, each of about cost float operations, among the threads if that
// pays.
func (s *Session) split(n, cost int, f func(worker, from, to int)) {
	const least = 1 << 14 // number of operations that take longer than waking a thread
	parts := min(s.m.pool.Threads()*2, n, n*cost/least)
	if parts <= 1 {
		f(0, 0, n)
		return
	}
	s.m.pool.Run(parts, func(worker, part int) { f(worker, part*n/parts, (part+1)*n/parts) })
}
