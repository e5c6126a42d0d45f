package forward

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/internal/buffer"
)

// Batch continues several sequences at a time. A pass takes single tokens of some sequences and
// chunks of the prompts of others, and reads the weights once for all. Each sequence gets the same
// logits as in a Session of its own, bit for bit, whatever else is in the pass.
//
// Keys and values lie in pages of 64 tokens. Pages of ended sequences stay until the memory is
// needed. A sequence that begins like another sequence of its scope shares the whole pages of the
// common prefix. It copies the page in which the two part.
//
// In a model with states, a page of such a layer is the state behind the last token of the page. A
// state cannot go back to an earlier token. So sequences share whole pages only, up to a page with
// a state that is still there: the states of the last few pages stay.
//
// A Batch is not for concurrent use.
type Batch struct {
	// WholePages lets sequences share whole pages only. Default: all common tokens.
	WholePages bool

	s         *Session
	context   int
	sequences []sequence
	pool      pagePool
	classes   []*class
	hidden    []float32 // rows that need logits
}

type sequence struct {
	class  *class
	root   *node // of the class and the sequence's scope
	max, n int
	path   []*node // the nodes of its tokens, and of tokens to come
	from   []int   // by group: index in path of the first node with pages that the sequence holds
	caches []cache
	// lost is the sequence's tokens after a pass that failed: the states are behind other tokens.
	lost []int32
}

// Chunk is the tokens that a sequence brings to a pass.
type Chunk struct {
	Sequence int
	Tokens   []int32 // not empty
	Logits   int     // number of last tokens that need logits
}

// NewBatch makes room for this many sequences of at most maxTokens tokens each.
func (m *Model) NewBatch(sequences, maxTokens int) *Batch {
	b := &Batch{s: m.NewSession(maxTokens), context: max(0, maxTokens), sequences: make([]sequence, sequences)}
	b.pool.init(b.s.caches, sequences, b.context)
	for i := range b.sequences {
		q := &b.sequences[i]
		q.caches = append([]cache(nil), b.s.caches...)
		q.from = make([]int, len(b.pool.groups))
		b.Begin(i, b.context, nil, "")
	}
	return b
}

// MaxRows is the number of tokens that a pass may take.
func (b *Batch) MaxRows() int { return prefillChunk + len(b.sequences) }

// Bytes is the memory of keys, values and activations when all sequences are full.
func (b *Batch) Bytes() int64 {
	c := &b.s.m.config
	n := 2 * b.MaxRows() * c.HiddenSize // hidden states, and their rows that need logits
	worker := 0
	for i := range b.s.caches {
		if own := &b.s.caches[i]; own.state == 0 {
			worker = max(worker, c.Heads/own.heads*(b.context+2*own.dim))
		}
	}
	n += len(b.s.attention.workers) * queryBlock * worker
	all := 4*int64(n) + b.s.sizes(b.MaxRows()).bytes()
	for _, g := range b.pool.groups {
		for _, i := range g.caches {
			all += 4 * int64(g.most) * int64(b.pool.caches[i].size())
		}
	}
	return all
}

// PageStats counts pages of keys and values.
type PageStats struct {
	Used   int // held by open sequences
	Cached int // that hold tokens of ended sequences
	Total  int // limit of both together
}

func (b *Batch) Pages() PageStats { return b.pool.stats() }

// Begin ends a sequence and begins another of at most maxTokens tokens in its place. prompt is what
// the caller is going to append, or nil if that is unknown. Begin returns the number of tokens of
// the prompt that the sequence already holds; the caller must not append those. At least the last
// token is left, for its logits. Only sequences of the same scope share keys and values.
//
// As in NewSession, maxTokens decides the frequencies of longrope.
func (b *Batch) Begin(sequence, maxTokens int, prompt []int32, scope string) int {
	b.End(sequence)
	q := &b.sequences[sequence]
	if q.root != nil {
		q.root.open--
	}
	q.max = min(maxTokens, b.context)
	q.class = b.classOf(maxTokens)
	q.root = q.class.root(scope)
	q.root.open++
	b.share(q, prompt)
	return q.n
}

// Known returns the number of tokens that Begin would return.
func (b *Batch) Known(maxTokens int, prompt []int32, scope string) int {
	_, n := b.known(b.classOf(maxTokens).root(scope), prompt, min(maxTokens, b.context))
	return n
}

// End empties a sequence. Its pages stay for sequences that begin alike.
func (b *Batch) End(sequence int) { b.end(&b.sequences[sequence]) }

func (b *Batch) end(q *sequence) {
	for g := range b.pool.groups {
		for i := len(q.path) - 1; i >= q.from[g]; i-- { // so that the last pages are reused first
			b.pool.drop(q.path[i], g)
		}
		q.from[g] = 0
	}
	for i := len(q.path) - 1; i >= 0; i-- {
		q.path[i].open--
		b.pool.prune(q.path[i])
	}
	q.path, q.n, q.lost = q.path[:0], 0, nil
	for i := range q.caches {
		q.caches[i].pages = q.caches[i].pages[:0]
	}
}

func (b *Batch) Len(sequence int) int {
	q := &b.sequences[sequence]
	return max(q.n, len(q.lost))
}

// Forward appends the chunks' tokens to distinct sequences. logits receives the wanted logits in
// order, [sum of Logits][VocabSize]. After an error all sequences are as before. In a model with
// states, the next pass of a sequence computes the states again.
func (b *Batch) Forward(chunks []Chunk, logits []float32) error {
	s, c := b.s, &b.s.m.config
	for _, chunk := range chunks {
		if n := chunk.Sequence; n >= 0 && n < len(b.sequences) && b.sequences[n].lost != nil {
			if err := b.restore(n); err != nil {
				return err
			}
		}
	}
	rows, wanted, err := b.check(chunks)
	if err != nil {
		return err
	}
	if len(logits) != wanted*c.VocabSize {
		return fmt.Errorf("model: %d logits: there is room for %d", wanted*c.VocabSize, len(logits))
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.segments = s.segments[:0]
	at := 0
	for _, chunk := range chunks {
		q := &b.sequences[chunk.Sequence]
		if err := b.reserve(q, q.n+len(chunk.Tokens)); err != nil {
			return err
		}
		s.segments = append(s.segments, segment{q.caches, q.class.rotations, q.n, at, len(chunk.Tokens)})
		at += len(chunk.Tokens)
	}
	s.arrange()
	if err := s.m.pass(func() { b.pass(chunks, rows, wanted, logits) }); err != nil {
		if c.HasStates() {
			for _, chunk := range chunks {
				q := &b.sequences[chunk.Sequence]
				q.lost = make([]int32, 0, q.n+1)
				for _, n := range q.path {
					q.lost = append(q.lost, n.tokens...)
				}
			}
		}
		return err
	}
	for _, chunk := range chunks {
		q := &b.sequences[chunk.Sequence]
		for _, id := range chunk.Tokens {
			n := q.path[q.n/pageTokens]
			n.tokens = append(n.tokens, id)
			q.n++
		}
		if c.HasStates() {
			b.release(q) // other sequences need the memory of states
		}
	}
	return nil
}

// restore computes the states of a sequence again, from the last whole page with a state.
func (b *Batch) restore(sequence int) error {
	q := &b.sequences[sequence]
	tokens := q.lost
	b.end(q)
	b.share(q, append(tokens, 0)) // any token may follow
	for q.n < len(tokens) {
		n := min(prefillChunk, len(tokens)-q.n)
		if err := b.Forward([]Chunk{{Sequence: sequence, Tokens: tokens[q.n : q.n+n]}}, nil); err != nil {
			q.lost = tokens
			return err
		}
	}
	return nil
}

func (b *Batch) check(chunks []Chunk) (rows, wanted int, err error) {
	for i, chunk := range chunks {
		n := chunk.Sequence
		if n < 0 || n >= len(b.sequences) {
			return 0, 0, fmt.Errorf("model: sequence %d of %d", n, len(b.sequences))
		}
		q := &b.sequences[n]
		switch {
		case slices.ContainsFunc(chunks[:i], func(other Chunk) bool { return other.Sequence == n }):
			return 0, 0, fmt.Errorf("model: sequence %d is twice in a pass", n)
		case len(chunk.Tokens) == 0:
			return 0, 0, fmt.Errorf("model: no tokens for sequence %d", n)
		case len(chunk.Tokens) > q.max-q.n:
			return 0, 0, fmt.Errorf("model: sequence %d: %d tokens after %d: it was made for %d", n, len(chunk.Tokens), q.n, q.max)
		case chunk.Logits < 0 || chunk.Logits > len(chunk.Tokens):
			return 0, 0, fmt.Errorf("model: sequence %d: logits of %d of %d tokens", n, chunk.Logits, len(chunk.Tokens))
		}
		if err := b.s.m.checkTokens(n, q.n, chunk.Tokens); err != nil {
			return 0, 0, err
		}
		rows, wanted = rows+len(chunk.Tokens), wanted+chunk.Logits
	}
	if rows == 0 || rows > b.MaxRows() {
		return 0, 0, fmt.Errorf("model: %d tokens in a pass: 1 to %d were expected", rows, b.MaxRows())
	}
	return rows, wanted, nil
}

func (b *Batch) pass(chunks []Chunk, rows, wanted int, logits []float32) {
	s, h := b.s, b.s.m.config.HiddenSize
	x := buffer.Grow(&s.x, rows*h)
	at, width := 0, s.m.side.width
	side := buffer.Grow(&s.side, rows*width)
	for _, chunk := range chunks {
		s.lookup(x[at*h:][:len(chunk.Tokens)*h], side[at*width:], chunk.Tokens)
		at += len(chunk.Tokens)
	}
	for i := range s.m.layers {
		s.layer(i, x, rows)
	}
	s.endSide(x, side, rows)
	if wanted == 0 {
		return
	}
	hidden := buffer.Grow(&b.hidden, wanted*h)[:0]
	at = 0
	for _, chunk := range chunks {
		at += len(chunk.Tokens)
		hidden = append(hidden, x[(at-chunk.Logits)*h:at*h]...)
	}
	s.logits(logits, hidden, wanted)
}

// release gives up pages that no later token sees.
func (b *Batch) release(q *sequence) {
	for g, group := range b.pool.groups {
		for ; q.from[g] < group.firstPage(q.n); q.from[g]++ {
			b.pool.drop(q.path[q.from[g]], g)
			for _, i := range group.caches {
				q.caches[i].pages[q.from[g]] = nil
			}
		}
	}
}

// reserve makes room for tokens up to n and gives up pages that no later token sees.
func (b *Batch) reserve(q *sequence, n int) error {
	b.release(q)
	for len(q.path)*pageTokens < n {
		parent := q.root
		if len(q.path) > 0 {
			parent = q.path[len(q.path)-1]
		}
		next, err := b.pool.add(parent)
		if err != nil {
			return err
		}
		b.extend(q, next)
	}
	return nil
}

// extend appends a node. The sequence must already hold its pages.
func (b *Batch) extend(q *sequence, n *node) {
	n.open++
	i := len(q.path)
	q.path = append(q.path, n)
	for g, group := range b.pool.groups {
		for j, at := range group.caches {
			p := (*page)(nil)
			if i >= q.from[g] {
				p = &n.blocks[g].pages[j]
			}
			q.caches[at].pages = append(q.caches[at].pages, p)
		}
	}
}
