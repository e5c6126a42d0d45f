package forward

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/kernels"
)

// Group is a set of linear layers that share their input.
type Group struct {
	Block   int // of the layer
	Linears []string
	// Residual: the outputs are added to the hidden states unchanged. This is the last linear layer
	// of a block, unless a norm or a factor follows or the layer is an expert's.
	Residual bool
	// Expert is the number of the expert; -1 for linear layers that see every token.
	Expert int
	// Shared: the group belongs to the expert of all tokens in a mixture.
	Shared bool
}

// Stages lists the linear layers of a decoder layer in order of execution, without the router. The
// groups of a stage depend only on earlier stages. A stage belongs to a single block.
func (m *Model) Stages(layer int) (stages [][]Group) {
	for i, b := range m.layers[layer].blocks {
		for _, stage := range b.stages() {
			for j := range stage {
				g := &stage[j]
				g.Block = i
				g.Residual = b.last() != nil && g.Linears[0] == b.last().name && b.post == nil && b.scale == 1
			}
			stages = append(stages, stage)
		}
	}
	return stages
}

// groupOf lists linear layers that share an input.
func groupOf(list ...*linear) Group {
	g := Group{Expert: -1}
	for _, l := range list {
		g.Linears = append(g.Linears, l.name)
	}
	return g
}

func (a *attention) stages() [][]Group {
	stages := [][]Group{{groupOf(a.inputs()...)}}
	if l := a.latent; l != nil {
		second := []Group{groupOf(l.keyValue)}
		if l.queryDown != nil {
			second = append(second, groupOf(l.query))
		}
		stages = append(stages, second)
	}
	return append(stages, []Group{groupOf(a.out)})
}

func (r *recurrence) stages() [][]Group {
	stages := [][]Group{{groupOf(r.in...)}}
	var second []Group
	for _, up := range r.ups {
		second = append(second, groupOf(up.linear))
	}
	if second != nil {
		stages = append(stages, second)
	}
	return append(stages, []Group{groupOf(r.out)})
}

func (f *mlp) stages() [][]Group {
	return [][]Group{{groupOf(f.gateUp...)}, {groupOf(f.down)}}
}

func (l *mixture) stages() [][]Group {
	stages := make([][]Group, 2)
	add := func(f *mlp, expert int) {
		for i, stage := range f.stages() {
			stage[0].Expert, stage[0].Shared = expert, expert < 0
			stages[i] = append(stages[i], stage[0])
		}
	}
	for i, f := range l.experts {
		add(f, i)
	}
	if l.shared != nil {
		add(l.shared, -1)
	}
	if l.in == nil {
		return stages
	}
	// Shared: a mixture has no last linear layer.
	in, out := groupOf(l.in), groupOf(l.out)
	in.Shared, out.Shared = true, true
	return append(append([][]Group{{in}}, stages...), []Group{out})
}

// Head returns the name of the lm_head's linear layer. In a tied model, that is the embedding's
// tensor.
func (m *Model) Head() string { return m.head.name }

// LayerOf returns the number of the decoder layer of a tensor of the checkpoint, the number of
// decoder layers for a tensor of the lm_head alone, and -1 for any other tensor.
func (m *Model) LayerOf(tensor string) int {
	if rest, ok := strings.CutPrefix(tensor, m.tensors.Body+"layers."); ok {
		number, _, _ := strings.Cut(rest, ".")
		if layer, err := strconv.Atoi(number); err == nil && layer >= 0 && layer < len(m.layers) {
			return layer
		}
	}
	if tensor == m.tensors.Head && tensor != m.tensors.Embedding {
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
// When a Stream moves to another layer, mapped weights leave the memory of this process.
//
// A Stream is not for concurrent use. The caller must keep to the order of layers.
type Stream struct {
	m      *Model
	s      *Session
	starts []int     // offsets of the sequences in x, and the end
	x      []float32 // [tokens][HiddenSize]
	side   []float32 // rows of the side
	before []float32 // that blocks beside each other read; nil if no layer has any
	layer  int       // that has mapped weights in memory; -1: none
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
		if err := m.checkTokens(i, 0, ids); err != nil {
			return nil, err
		}
	}
	t := &Stream{m: m, s: m.NewSession(longest), x: make([]float32, n*c.HiddenSize), side: make([]float32, n*m.side.width), layer: -1}
	if m.parallel() {
		t.before = make([]float32, len(t.x))
	}
	return t, m.run(func() {
		n := 0
		for _, ids := range sequences {
			t.starts = append(t.starts, n)
			t.s.lookup(t.x[n*c.HiddenSize:][:len(ids)*c.HiddenSize], t.side[n*m.side.width:], ids)
			n += len(ids)
		}
		t.starts = append(t.starts, n)
	})
}

// ShareMemory makes a Stream compute in the memory of o, a Stream of the same sequences in a model
// of the same architecture and with as many threads. From then on, the two must not run at the same
// time, and o's model must stay open.
func (t *Stream) ShareMemory(o *Stream) { t.s.scratch = o.s.scratch }

// StreamBytes is the memory of a Stream of this many tokens, in sequences of up to longest tokens:
// the hidden states, keys and values, and the memory that ShareMemory shares.
func (m *Model) StreamBytes(tokens, longest int) (hidden, keys, shared int64) {
	c, h := &m.config, m.config.HiddenSize
	finished := max(longest, min(finishRows, tokens))
	s := &Session{m: m, scratch: &scratch{}}
	all := s.sizes(longest)
	all.add(size{&s.back, finished * h})
	shapes := []kernels.Shape{{M: longest, Rows: c.VocabSize, Cols: h}}
	for b := range m.blocks {
		if last := b.last(); last != nil {
			shapes = append(shapes, kernels.Shape{M: finished, Rows: h, Cols: last.spec.cols})
		}
	}
	states := tokens * h
	if m.parallel() {
		states *= 2
	}
	states += tokens * m.side.width
	return 4 * int64(states), m.cacheBytes(longest), all.bytes() + kernels.ForwardBytes(m.pool.Threads(), shapes)
}

// Len is the number of sequences, Tokens the number of tokens of all sequences.
func (t *Stream) Len() int    { return len(t.starts) - 1 }
func (t *Stream) Tokens() int { return t.starts[t.Len()] }

// Blocks is the number of blocks of a layer.
func (t *Stream) Blocks(layer int) int { return t.m.Blocks(layer) }

// Start is the number of tokens before a sequence.
func (t *Stream) Start(sequence int) int { return t.starts[sequence] }

// Hidden returns the hidden states of a sequence, [tokens][HiddenSize], before the next block.
func (t *Stream) Hidden(sequence int) []float32 {
	h := t.m.config.HiddenSize
	return t.x[t.starts[sequence]*h : t.starts[sequence+1]*h]
}

// Rows returns the values of a sequence's tokens between layers, as [LayerInput] has them.
func (t *Stream) Rows(sequence int) []float32 {
	x := t.Hidden(sequence)
	if t.m.side.width == 0 {
		return x
	}
	rows := make([]float32, (t.starts[sequence+1]-t.starts[sequence])*t.m.Width())
	t.m.pack(rows, x, t.sideOf(sequence))
	return rows
}

func (t *Stream) sideOf(sequence int) []float32 {
	n := t.m.side.width
	return t.side[t.starts[sequence]*n : t.starts[sequence+1]*n]
}

// errStop ends a block early.
var errStop = errors.New("model: stopped")

// Visit runs a sequence through a block of a layer without changing its hidden states. fn receives
// the input of each linear layer, before the product, until fn returns false.
func (t *Stream) Visit(sequence, layer, block int, fn func(*Input) bool) error {
	return t.block(sequence, layer, block, fn)
}

// Advance adds the outputs of a block to the hidden states of a sequence.
func (t *Stream) Advance(sequence, layer, block int) error {
	return t.AdvanceVisit(sequence, layer, block, nil)
}

// AdvanceVisit is Advance, and calls fn with the input of each linear layer before the product.
func (t *Stream) AdvanceVisit(sequence, layer, block int, fn func(*Input)) error {
	var visit func(*Input) bool
	if fn != nil {
		visit = func(in *Input) bool { fn(in); return true }
	}
	if err := t.block(sequence, layer, block, visit); err != nil {
		return err
	}
	h := t.m.config.HiddenSize
	t.add(layer, block, t.starts[sequence]*h, t.starts[sequence+1]*h)
	copy(t.sideOf(sequence), t.s.side)
	return nil
}

// enter states that the mapped weights of a layer, or of none (-1), are read from now on.
func (t *Stream) enter(layer int) {
	if layer != t.layer {
		t.layer = layer
		t.m.source.release()
	}
}

// add adds the outputs of a block to the hidden states from an element on.
func (t *Stream) add(layer, block, from, to int) {
	b, x := &t.m.layers[layer].blocks[block], t.x[from:to]
	if t.before != nil && !b.beside {
		copy(t.before[from:to], x)
	}
	t.s.add(x, t.s.back, b, len(x)/t.m.config.HiddenSize)
}

// Finishes reports whether [Stream.Finish] works.
func (m *Model) Finishes() bool { return m.side.width == 0 }

// finishRows is the number of tokens that Finish computes at a time.
const finishRows = 1024

// Finish is Advance for all sequences if the inputs of the block's last linear layer are known,
// [Tokens()][K]. Experts do not support Finish, nor do models whose blocks change more than hidden
// states: see [Model.Finishes].
func (t *Stream) Finish(layer, block int, inputs []float32) error {
	l := t.m.layers[layer].blocks[block].last()
	k, h := l.op.Cols(), t.m.config.HiddenSize
	return t.m.run(func() {
		for from := 0; from < t.Tokens(); from += finishRows {
			m := min(finishRows, t.Tokens()-from)
			t.s.multiply(buffer.Grow(&t.s.back, m*h), inputs[from*k:][:m*k], m, l)
			t.add(layer, block, from*h, (from+m)*h)
		}
	})
}

// Take copies the hidden states of a Stream of the same sequences in a model of the same
// architecture.
func (t *Stream) Take(o *Stream) {
	copy(t.x, o.x)
	copy(t.side, o.side)
	copy(t.before, o.before)
}

// releaseRows is the number of tokens from which the lm_head leaves memory after a product. To map
// the float32 lm_head of Gemma 3 (640 MiB) again takes 30 to 60 ms of CPU time on an EPYC, Linux
// 6.18. Without a release, the lm_heads of both models of a measurement are in memory together.
const releaseRows = 48

// Logits computes the logits of n tokens of a sequence, [n][VocabSize], from its hidden states
// behind the last layer.
func (t *Stream) Logits(sequence, from, n int, logits []float32) error {
	h := t.m.config.HiddenSize
	x := t.Hidden(sequence)[from*h:][:n*h]
	t.enter(len(t.m.layers))
	if n >= releaseRows {
		defer t.enter(-1)
	}
	return t.m.run(func() {
		t.s.logits(logits[:n*t.m.config.VocabSize], t.end(x, t.sideOf(sequence)[from*t.m.side.width:], n), n)
	})
}

// end returns the single stream of n tokens with the hidden states x behind the last layer.
func (t *Stream) end(x, side []float32, n int) []float32 {
	if t.m.side.streams == nil {
		return x
	}
	x = append(t.s.x[:0], x...)
	t.s.x = x
	t.s.endSide(x, side, n)
	return x
}

// HeadInput calls fn with the input of the lm_head for a sequence.
func (t *Stream) HeadInput(sequence int, fn func(*Input)) error {
	h := t.m.config.HiddenSize
	x := t.Hidden(sequence)
	m := len(x) / h
	err := t.m.run(func() {
		t.s.norm(buffer.Grow(&t.s.normed, m*h), t.end(x, t.sideOf(sequence), m), t.m.norm, m)
	})
	if err != nil {
		return err
	}
	t.input = Input{t.m.head.name, t.s.normed, m, h, nil}
	fn(&t.input)
	return nil
}

// block computes the outputs of a block for a sequence, t.s.back.
func (t *Stream) block(sequence, layer, block int, fn func(*Input) bool) error {
	s, x, b := t.s, t.Hidden(sequence), &t.m.layers[layer].blocks[block]
	m := len(x) / t.m.config.HiddenSize
	t.enter(layer)
	if b.beside {
		x = t.before[t.starts[sequence]*t.m.config.HiddenSize:]
	}
	err := t.m.run(func() {
		s.visit = t.visitor(fn)
		defer func() { s.visit, s.expert = nil, nil }()
		defer s.Reset()
		s.alone(m)
		s.side = append(s.side[:0], t.sideOf(sequence)...)
		s.begin(b, x, m)
		b.run(s, &s.record, s.back, s.normed, m)
	})
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// visitor adapts fn to the hook of a Session.
func (t *Stream) visitor(fn func(*Input) bool) func(name string, x []float32, m, k int) bool {
	if fn == nil {
		return nil
	}
	return func(name string, x []float32, m, k int) bool {
		t.input = Input{name, x, m, k, nil}
		if t.s.expert != nil {
			t.tokens = t.tokens[:0]
			for _, i := range t.s.expert {
				t.tokens = append(t.tokens, t.s.record.chosen[i].token)
			}
			t.input.Tokens = t.tokens
		}
		return fn(&t.input)
	}
}
