package forward

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/kernels"
)

// Part is a half of a decoder layer. Each half reads the hidden states and adds its output.
type Part uint8

const (
	Attention Part = iota
	FeedForward
)

// Group is a set of linear layers that share their input.
type Group struct {
	Part    Part
	Linears []string
	// Residual: the outputs are added to the hidden states unchanged. This is the last linear layer of
	// a half, unless a norm or a factor follows or the layer is an expert's.
	Residual bool
	// Expert is the number of the expert; -1 for linear layers that see every token.
	Expert int
	// Shared: the group belongs to the expert of all tokens in a mixture.
	Shared bool
}

// Stages lists the linear layers of a decoder layer in order of execution, without the router. The
// groups of a stage depend only on earlier stages.
func (m *Model) Stages(layer int) [][]Group {
	l := &m.layers[layer]
	names := func(list ...*linear) (s []string) {
		for _, l := range list {
			s = append(s, l.name)
		}
		return s
	}
	plain := m.config.ResidualScale == 1
	first := [][]Group{{{Part: Attention, Linears: names(l.qkv...), Expert: -1}}}
	if a := l.latent; a != nil {
		second := []Group{{Part: Attention, Linears: names(a.keyValue), Expert: -1}}
		if a.queryDown != nil {
			second = append(second, Group{Part: Attention, Linears: names(a.query), Expert: -1})
		}
		first = [][]Group{{{Part: Attention, Linears: names(a.readers()...), Expert: -1}}, second}
	}
	stages := append(first,
		[]Group{{Part: Attention, Linears: names(l.out), Residual: l.postAttention == nil && plain, Expert: -1}})
	if !l.Experts {
		return append(stages,
			[]Group{{Part: FeedForward, Linears: names(l.mlp.gateUp...), Expert: -1}},
			[]Group{{Part: FeedForward, Linears: names(l.mlp.down), Residual: l.postMLP == nil && plain, Expert: -1}})
	}
	var in, out []Group
	for i, e := range l.experts {
		in = append(in, Group{Part: FeedForward, Linears: names(e.gateUp...), Expert: i})
		out = append(out, Group{Part: FeedForward, Linears: names(e.down), Expert: i})
	}
	if l.shared != nil {
		in = append(in, Group{Part: FeedForward, Linears: names(l.shared.gateUp...), Expert: -1, Shared: true})
		out = append(out, Group{Part: FeedForward, Linears: names(l.shared.down), Expert: -1, Shared: true})
	}
	return append(stages, in, out)
}

// Head returns the name of the lm_head's linear layer. In a tied model, that is the embedding's
// tensor.
func (m *Model) Head() string { return m.head.name }

// LayerOf returns the number of the decoder layer of a tensor of the checkpoint, the number of
// decoder layers for a tensor of the lm_head alone, and -1 for any other tensor.
func (m *Model) LayerOf(tensor string) int {
	if rest, ok := strings.CutPrefix(tensor, m.body+"layers."); ok {
		number, _, _ := strings.Cut(rest, ".")
		if layer, err := strconv.Atoi(number); err == nil && layer >= 0 && layer < len(m.layers) {
			return layer
		}
	}
	if tensor == m.headName && tensor != m.body+"embed_tokens.weight" {
		return len(m.layers)
	}
	return -1
}

// Input is the input of a linear layer for a sequence.
type Input struct {
	Name    string
	X       []float32 // [Rows][K], valid during the call
	Rows, K int
	// Tokens are the positions of the rows in the sequence, for linear layers of an expert; nil:
	// all positions in order.
	Tokens []int
}

// Stream runs many sequences through a Model layer by layer. It keeps hidden states only, no keys
// and values. So a caller can study and replace the linear layers of a decoder layer before the
// next layer runs. The bits are the same as in Session.Forward.
//
// A Stream is not for concurrent use. The caller must keep to the order of layers.
type Stream struct {
	m      *Model
	s      *Session
	starts []int     // offsets of the sequences in x, and the end
	x      []float32 // [tokens][HiddenSize]
	before []float32 // x before the layer, behind its attention, if both halves of a layer read it
	input  Input
	tokens []int
}

// NewStream looks up the embeddings of the sequences' tokens. The hidden states take 4 * HiddenSize
// bytes per token.
func (m *Model) NewStream(sequences [][]int32) (*Stream, error) {
	c := &m.config
	longest, n := 0, 0
	for i, ids := range sequences {
		if len(ids) == 0 {
			return nil, fmt.Errorf("model: sequence %d has no tokens", i)
		}
		longest, n = max(longest, len(ids)), n+len(ids)
		if err := m.checkTokens(i, ids); err != nil {
			return nil, err
		}
	}
	t := &Stream{m: m, s: m.NewSession(longest), x: make([]float32, n*c.HiddenSize)}
	if c.Parallel {
		t.before = make([]float32, len(t.x))
	}
	return t, m.run(func() error {
		n := 0
		for _, ids := range sequences {
			t.starts = append(t.starts, n)
			if err := t.s.lookup(t.x[n*c.HiddenSize:][:len(ids)*c.HiddenSize], ids); err != nil {
				return err
			}
			n += len(ids)
		}
		t.starts = append(t.starts, n)
		return nil
	})
}

// ShareMemory makes a Stream compute in the memory of o, a Stream of the same sequences in a model
// of the same architecture and with as many threads. From then on, the two must not run at the same
// time, and o's model must stay open.
func (t *Stream) ShareMemory(o *Stream) { t.s.scratch = o.s.scratch }

// StreamBytes is the memory of a Stream of this many tokens, in sequences of up to longest tokens:
// the hidden states, keys and values, and the memory that ShareMemory shares.
func (m *Model) StreamBytes(tokens, longest int) (hidden, keys, shared int64) {
	c := &m.config
	nq, nkv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	finished := max(longest, min(finishRows, tokens))
	raw, inner := m.middle()
	state := 0
	for i := range m.layers {
		state = max(state, stateSize(c, i))
	}
	gates := 0
	for i := range m.layers {
		_, width := m.feedForward(m.layers[i].Experts, longest)
		gates = max(gates, longest*width, longest*m.shared())
	}
	n := (longest+finished)*c.HiddenSize + 2*longest*(nq+nkv) + 2*gates + longest*(raw+max(0, inner-nq))
	if c.AttentionGate {
		n += 3 * longest * nq
	}
	if c.Facts.Has(arch.FusedQKV) {
		n += longest * (nq + 2*nkv)
	}
	if m.fusedGateUp() {
		n += 2 * gates
	}
	shapes := []kernels.Shape{{M: finished, Rows: c.HiddenSize, Cols: max(nq, inner)}, {M: longest, Rows: c.VocabSize, Cols: c.HiddenSize}}
	if gates > 0 {
		shapes = append(shapes, kernels.Shape{M: finished, Rows: c.HiddenSize, Cols: gates / longest})
	}
	pages := (longest + pageTokens - 1) / pageTokens
	states := tokens * c.HiddenSize
	if c.Parallel {
		states *= 2
	}
	return 4 * int64(states), 4 * int64(2*pages*pageTokens*nkv+state), 4*int64(n) + m.latentBytes(longest, false) + kernels.ForwardBytes(m.pool.Threads(), shapes)
}

// Len is the number of sequences, Tokens the number of tokens of all sequences.
func (t *Stream) Len() int    { return len(t.starts) - 1 }
func (t *Stream) Tokens() int { return t.starts[t.Len()] }

// Start is the number of tokens before a sequence.
func (t *Stream) Start(sequence int) int { return t.starts[sequence] }

// Hidden returns the hidden states of a sequence, [tokens][HiddenSize], before the next half layer.
func (t *Stream) Hidden(sequence int) []float32 {
	h := t.m.config.HiddenSize
	return t.x[t.starts[sequence]*h : t.starts[sequence+1]*h]
}

// errStop ends a half layer early.
var errStop = errors.New("model: stopped")

// Visit runs a sequence through half a layer without changing its hidden states. fn receives the
// input of each linear layer, before the product, until fn returns false.
func (t *Stream) Visit(sequence, layer int, part Part, fn func(*Input) bool) error {
	_, err := t.half(sequence, layer, part, fn)
	return err
}

// Advance adds the output of half a layer to the hidden states of a sequence.
func (t *Stream) Advance(sequence, layer int, part Part) error {
	return t.AdvanceVisit(sequence, layer, part, nil)
}

// AdvanceVisit is Advance, and calls fn with the input of each linear layer before the product.
func (t *Stream) AdvanceVisit(sequence, layer int, part Part, fn func(*Input)) error {
	var visit func(*Input) bool
	if fn != nil {
		visit = func(in *Input) bool { fn(in); return true }
	}
	back, err := t.half(sequence, layer, part, visit)
	if err != nil {
		return err
	}
	x := t.Hidden(sequence)
	if part == Attention {
		copy(t.earlier(sequence, FeedForward), x)
	}
	_, post := t.m.layers[layer].last(part)
	t.s.add(x, back, post, len(x)/t.m.config.HiddenSize)
	return nil
}

// last is the last linear layer of a half, unless that belongs to experts, and the norm of its
// outputs or nil.
func (l *layer) last(part Part) (*linear, *norm) {
	if part == Attention {
		return l.out, l.postAttention
	}
	return l.mlp.down, l.postMLP
}

// finishRows is the number of tokens that Finish computes at a time.
const finishRows = 1024

// Finish is Advance for all sequences if the inputs of the half's last linear layer are known,
// [Tokens()][K]. Experts do not support Finish.
func (t *Stream) Finish(layer int, part Part, inputs []float32) error {
	if part == Attention {
		copy(t.before, t.x)
	}
	l, post := t.m.layers[layer].last(part)
	k, h := l.op.Cols(), t.m.config.HiddenSize
	return t.m.run(func() error {
		for from := 0; from < t.Tokens(); from += finishRows {
			m := min(finishRows, t.Tokens()-from)
			back := buffer.Grow(&t.s.back, m*h)
			if err := t.s.multiply(back, inputs[from*k:][:m*k], m, l); err != nil {
				return err
			}
			t.s.add(t.x[from*h:][:m*h], back, post, m)
		}
		return nil
	})
}

// Take copies the hidden states of a Stream of the same sequences in a model of the same
// architecture.
func (t *Stream) Take(o *Stream) {
	copy(t.x, o.x)
	copy(t.before, o.before)
}

// earlier returns the layer's input if half a layer reads that, or nil if it reads Hidden.
func (t *Stream) earlier(sequence int, part Part) []float32 {
	if part == Attention || t.before == nil {
		return nil
	}
	h := t.m.config.HiddenSize
	return t.before[t.starts[sequence]*h : t.starts[sequence+1]*h]
}

// Logits computes the logits of n tokens of a sequence, [n][VocabSize], from its hidden states
// behind the last layer.
func (t *Stream) Logits(sequence, from, n int, logits []float32) error {
	h := t.m.config.HiddenSize
	x := t.Hidden(sequence)[from*h:][:n*h]
	return t.m.run(func() error { return t.s.logits(logits[:n*t.m.config.VocabSize], x, n) })
}

// HeadInput calls fn with the input of the lm_head for a sequence.
func (t *Stream) HeadInput(sequence int, fn func(*Input)) {
	h := t.m.config.HiddenSize
	x := t.Hidden(sequence)
	m := len(x) / h
	normed := buffer.Grow(&t.s.normed, m*h)
	t.m.mu.Lock()
	t.s.norm(normed, x, t.m.norm, m)
	t.m.mu.Unlock()
	t.input = Input{t.m.head.name, normed, m, h, nil}
	fn(&t.input)
}

func (t *Stream) half(sequence, layer int, part Part, fn func(*Input) bool) (back []float32, err error) {
	s, x := t.s, t.Hidden(sequence)
	if before := t.earlier(sequence, part); before != nil {
		x = before
	}
	m := len(x) / t.m.config.HiddenSize
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	s.visit = t.visitor(fn)
	defer func() { s.visit = nil }()
	err = t.m.source.guard(func() error {
		if part == Attention {
			defer s.caches[layer].reset()
			s.alone(m)
		}
		back, err = s.half(layer, part, x, m)
		return err
	})
	// The pages of a layer are reused for the next layer of the same kind.
	next := layer + 1
	for next < len(s.caches) && s.caches[next].state != s.caches[layer].state {
		next++
	}
	if part == Attention && next < len(s.caches) && len(s.caches[next].free) == 0 {
		s.caches[next].free, s.caches[layer].free = s.caches[layer].free, nil
	}
	if errors.Is(err, errStop) {
		err = nil
	}
	return back, err
}

// visitor adapts fn to the hook of a Session.
func (t *Stream) visitor(fn func(*Input) bool) func(name string, x []float32, m, k int) bool {
	if fn == nil {
		return nil
	}
	return func(name string, x []float32, m, k int) bool {
		t.input = Input{name, x, m, k, nil}
		if mix := &t.s.mixture; mix.running {
			t.tokens = t.tokens[:0]
			for _, ch := range mix.tokens {
				t.tokens = append(t.tokens, ch.token)
			}
			t.input.Tokens = t.tokens
		}
		return fn(&t.input)
	}
}
