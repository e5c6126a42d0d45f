package forward

import (
	"cmp"
	"fmt"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/kernels"
)

// TapeOptions are the sizes of a Tape.
type TapeOptions struct {
	// MaxTokens is the number of tokens of all sequences of a Forward together.
	MaxTokens int
	// MaxLength is the number of tokens of the longest sequence; default MaxTokens. As in
	// [Model.NewSession], MaxLength decides the frequencies of models with longrope.
	MaxLength int
	// LogitRows is the number of tokens per block of logits. The lm_head is read twice for each block.
	// Default 128.
	LogitRows int
	// Outputs: LinearGradient.Factors works, because a LinearGradient also has the layer's outputs.
	// This takes another product (the down projection) and memory for another block of logits.
	Outputs bool
}

// Tape runs sequences forward and backward. [Tape.Forward] keeps the hidden states before each
// layer. [Tape.Backward] goes through the layers from the last to the first, runs each layer again
// with all that its derivatives need, and gives the gradients of a loss to callbacks.
//
// The forward pass has the bits of [Session.Forward]. Gradients are float32 with sums in a fixed
// order, so the bits are the same on every CPU and for any number of threads. The operators of the
// linear layers ([Model.SetLinear]) supply the weights and must be [kernels.RowReader]s. If an
// operator quantizes activations to int8, gradients pass through this rounding unchanged.
//
// Memory is bounded by a layer and the hidden states: see [Tape.Bytes].
//
// A Tape is not for concurrent use. Callbacks must not use the Model.
type Tape struct {
	m          *Model
	s          *Session
	o          TapeOptions
	transposed *kernels.Transposed

	// The sequences of the last Forward, or of a single layer.
	starts    []int // offsets of the sequences in tokens, and the end
	positions []int // of each token in its sequence
	// states are the hidden states of all tokens before each layer, and behind the last layer.
	states  [][]float32
	routing [][]int32 // see Routing; of each layer
	valid   bool      // states are complete

	records []record // of the blocks of a layer
	back    backward
	workers []attentionGradient
}

// Gradients receives the gradients of a backward pass. A nil function's gradients are not computed.
// Slices are valid during the call. The first error ends the pass.
type Gradients struct {
	// Linear is called for each linear layer, from the lm_head to the first layer. The lm_head has a
	// call for each block of logits; these gradients add up. Experts without tokens have no call.
	Linear func(*LinearGradient) error
	// Norm gets d loss / d gain of a norm, once.
	Norm func(tensor string, gradient []float32) error
	// Embedding gets the gradient of a sequence's looked-up rows of the embedding, before the model
	// scales the rows by EmbeddingScale: d loss / d row, [tokens][HiddenSize]. In a tied model, the
	// gradient of the embedding's matrix is the sum of these and of the lm_head's.
	Embedding func(sequence int, gradient []float32) error
}

// LinearGradient has the factors of a linear layer's gradient.
type LinearGradient struct {
	Name string    // as for SetLinear
	M    int       // number of tokens
	K, N int       // number of inputs and outputs of the linear layer
	X    []float32 // [M][K]: inputs
	DY   []float32 // [M][N]: gradients of the outputs
	// Y are the outputs, [M][N], including the bias, if TapeOptions.Outputs is set.
	Y []float32
	// Tokens are the indices of the rows among the tokens of all sequences, for the linear layers
	// of an expert. nil: the M tokens from First on.
	Tokens []int
	First  int

	t      *Tape
	linear *linear
}

// Weights computes rows from to from+n-1 of the gradient of the weights, DY^T X, into dst, [n][K].
// Each element is a chain of fused multiply-adds in order of the tokens. n of 64 and more is
// efficient.
func (g *LinearGradient) Weights(dst []float32, from, n int) error {
	return g.t.transposed.Outer(g.t.s.workspace, dst, g.DY, g.X, g.M, g.N, g.K, from, n)
}

// Factors computes d loss / d f of a factor f of each row of the weights, at f = 1: the sum over
// tokens of the output's gradient times the output without bias. Factors needs TapeOptions.Outputs.
// dst has N elements.
func (g *LinearGradient) Factors(dst []float32) error {
	if g.Y == nil {
		return fmt.Errorf("linear %q: factors of rows need a tape with outputs", g.Name)
	}
	if len(dst) != g.N {
		return fmt.Errorf("linear %q: factors of %d rows: there is room for %d", g.Name, g.N, len(dst))
	}
	bias := g.linear.bias
	if bias == nil {
		bias = make([]float32, g.N)
		if g.linear.hasBias { // in op's outputs
			stored, err := g.t.m.storedBias(g.linear)
			if err != nil {
				return err
			}
			bias = stored
		}
	}
	// Threads divide the rows of the weights, not the tokens.
	g.t.s.split(g.N, 4*g.M, func(_, from, to int) {
		sums := make([]float64, to-from)
		for i := range g.M {
			y, dy := g.Y[i*g.N+from:][:len(sums)], g.DY[i*g.N+from:][:len(sums)]
			for j := range sums {
				sums[j] += float64(float64(dy[j]) * float64(y[j]-bias[from+j]))
			}
		}
		for j, v := range sums {
			dst[from+j] = float32(v)
		}
	})
	return nil
}

// NewTape makes a Tape for sequences of these sizes. Forward allocates the memory.
func (m *Model) NewTape(o TapeOptions) (*Tape, error) {
	if o.MaxTokens < 1 || o.MaxLength < 0 || o.LogitRows < 0 {
		return nil, fmt.Errorf("model: a tape for %d tokens in sequences of up to %d, logits of %d at a time", o.MaxTokens, o.MaxLength, o.LogitRows)
	}
	if o.MaxLength == 0 || o.MaxLength > o.MaxTokens {
		o.MaxLength = o.MaxTokens
	}
	o.LogitRows = cmp.Or(o.LogitRows, 128)
	o.LogitRows = min(o.LogitRows, o.MaxLength)
	transposed, err := kernels.NewTransposed(kernels.Options{CPU: m.cpu})
	if err != nil {
		return nil, err
	}
	most := 0
	for i := range m.layers {
		most = max(most, m.Blocks(i))
	}
	t := &Tape{m: m, s: m.NewSession(o.MaxLength), o: o, transposed: transposed, workers: make([]attentionGradient, m.pool.Threads()), records: make([]record, most)}
	for i := range t.records {
		r := &t.records[i]
		r.tape, r.kept, r.shared.kept = t, true, true
	}
	t.states = make([][]float32, len(m.layers)+1)
	t.routing = make([][]int32, len(m.layers))
	return t, nil
}

// Bytes is the memory that Forward and Backward allocate for sequences of the largest size: the
// hidden states before each layer, and the activations and gradients of a layer. Operators that
// quantize activations, and the caller's operators, take memory of their own.
func (t *Tape) Bytes() int64 {
	return t.LayerBytes(true) + int64(len(t.m.layers)+1)*int64(t.o.MaxTokens)*int64(t.m.Width())*4
}

// LayerBytes is the memory that LayerForward allocates, and LayerBackward if backward is set.
func (t *Tape) LayerBytes(backward bool) int64 {
	m, c, tokens, threads := t.m, &t.m.config, t.o.MaxTokens, t.m.pool.Threads()
	var w attentionGradient
	n := t.recordSizes(tokens).bytes()
	if backward {
		n += t.gradientSizes(tokens).bytes()
	}
	n += 8*int64(tokens+m.widestNorm()) + m.cacheBytes(t.o.MaxLength) + 8*int64(cap(t.back.partGains))

	s, mixing, attending, rows := 0, 0, sizes{}, 0
	for b := range m.blocks {
		switch part := b.part.(type) {
		case *recurrence:
			mixing = max(mixing, part.workerSize(t.o.MaxLength))
		case *attention:
			for buffer, elements := range w.sizes(t, part, t.o.MaxLength) {
				attending.add(size{buffer, elements})
			}
			rows = max(rows, queryBlock*c.Heads/part.KVHeads*(2*part.HeadDim+m.scoreWidth(t.o.MaxLength)+keyBlock))
		}
	}
	s += threads * (mixing + rows)
	if backward {
		n += int64(threads) * attending.bytes()
	}
	for _, rope := range t.s.rotations {
		s += 4 * len(rope.freqs) * t.o.MaxLength // the tables grow by doubling
	}
	n += 4 * int64(s)
	if c.Experts != nil {
		n += int64(tokens) * int64(c.Experts.PerToken) * (24 + 8 + 4*int64(len(m.layers)))
	}

	if !backward {
		return n
	}
	var shapes []kernels.Shape
	for _, l := range m.linears {
		rows := tokens
		if l == m.head {
			rows = t.o.LogitRows
		}
		shapes = append(shapes, kernels.Shape{M: rows, Rows: l.op.Rows(), Cols: l.op.Cols()})
	}
	return n + t.transposed.Bytes(threads, shapes)
}

func (t *Tape) begin(lengths []int) error {
	t.starts, t.positions = append(t.starts[:0], 0), t.positions[:0]
	longest := 0
	for i, n := range lengths {
		switch {
		case n < 1:
			return fmt.Errorf("model: sequence %d has no tokens", i)
		case n > t.o.MaxLength || n > t.o.MaxTokens-t.tokens():
			return fmt.Errorf("model: sequence %d of %d tokens after %d: the tape is for %d tokens in sequences of up to %d", i, n, t.tokens(), t.o.MaxTokens, t.o.MaxLength)
		}
		for p := range n {
			t.positions = append(t.positions, p)
		}
		t.starts = append(t.starts, len(t.positions))
		longest = max(longest, n)
	}
	if t.tokens() == 0 {
		return fmt.Errorf("model: no sequences")
	}
	for _, r := range t.s.rotations {
		r.reach(longest)
	}
	t.recordSizes(t.tokens()).allocate()
	return nil
}

func (t *Tape) tokens() int { return t.starts[len(t.starts)-1] }

// Forward runs sequences through all layers and keeps the hidden states before each layer.
//
// routing, if not nil, is the choice of experts of each layer, in the form of [Tape.Routing] for
// the same sequences in another model. The experts' weights still come from this model's router,
// and gradients flow through these weights.
func (t *Tape) Forward(sequences [][]int32, routing [][]int32) error {
	t.valid = false
	c := &t.m.config
	lengths := make([]int, len(sequences))
	for i, ids := range sequences {
		lengths[i] = len(ids)
		if err := t.m.checkTokens(i, 0, ids); err != nil {
			return err
		}
	}
	if routing != nil && len(routing) != len(t.m.layers) {
		return fmt.Errorf("model: the routing of %d layers: the model has %d", len(routing), len(t.m.layers))
	}
	if err := t.begin(lengths); err != nil {
		return err
	}
	for i := range t.states {
		buffer.Grow(&t.states[i], t.tokens()*t.m.Width())
	}
	return t.m.run(func() {
		for i, ids := range sequences {
			rows, h, width := t.states[0][t.starts[i]*t.m.Width():t.starts[i+1]*t.m.Width()], c.HiddenSize, t.m.side.width
			x := rows
			if width > 0 {
				x = buffer.Grow(&t.s.x, len(ids)*h)
			}
			t.s.lookup(x, buffer.Grow(&t.s.side, len(ids)*width), ids)
			if width > 0 {
				t.m.pack(rows, x, t.s.side)
			}
		}
		for i := range t.m.layers {
			var experts []int32
			if routing != nil {
				experts = routing[i]
			}
			t.layer(i, t.states[i+1], t.states[i], experts)
			t.routing[i] = t.routing[i][:0]
			for j, b := range t.m.layers[i].blocks {
				if _, ok := b.part.(*mixture); ok {
					for _, ch := range t.records[j].chosen {
						t.routing[i] = append(t.routing[i], int32(ch.expert))
					}
				}
			}
		}
		t.valid = true
	})
}

// Routing returns the experts of the last Forward: for each layer with experts, the experts of each
// token of all sequences, [tokens][PerToken].
func (t *Tape) Routing() [][]int32 {
	routing := make([][]int32, len(t.routing))
	for i, r := range t.routing {
		if len(r) > 0 {
			routing[i] = append([]int32{}, r...)
		}
	}
	return routing
}

// Hidden returns the values of a sequence of the last Forward before a layer, or behind the last
// layer, as [LayerInput] has them. The caller must not change the slice.
func (t *Tape) Hidden(layer, sequence int) []float32 {
	h := t.m.Width()
	return t.states[layer][t.starts[sequence]*h : t.starts[sequence+1]*h]
}

// Logits computes the logits of n tokens of a sequence of the last Forward, [n][VocabSize].
func (t *Tape) Logits(sequence, from, n int, logits []float32) error {
	if err := t.forwarded(); err != nil {
		return err
	}
	return t.LogitsOf(t.Hidden(len(t.m.layers), sequence)[from*t.m.Width():], n, logits)
}

// LogitsOf computes the logits of n tokens, [n][VocabSize], from their values behind the last
// layer, as LayerForward gives them.
func (t *Tape) LogitsOf(rows []float32, n int, logits []float32) error {
	return t.m.run(func() { t.s.logits(logits[:n*t.m.config.VocabSize], t.ended(rows, n), n) })
}

func (t *Tape) forwarded() error {
	if !t.valid {
		return fmt.Errorf("model: this needs a Forward that succeeded")
	}
	return nil
}

// LayerInput is the input of a layer that runs alone.
type LayerInput struct {
	Lengths []int // tokens of each sequence
	// X has the values of all tokens between layers: the hidden states, [tokens][HiddenSize], in
	// some models with further values of each token behind its hidden states.
	X []float32
	// Experts is the choice of experts, [tokens][PerToken]; nil: the layer's own choice.
	Experts []int32
}

func (t *Tape) beginLayer(layer int, in *LayerInput) error {
	t.valid = false
	if layer < 0 || layer >= len(t.m.layers) {
		return fmt.Errorf("model: layer %d of %d", layer, len(t.m.layers))
	}
	if err := t.begin(in.Lengths); err != nil {
		return err
	}
	if want := t.tokens() * t.m.Width(); len(in.X) != want {
		return fmt.Errorf("model: %d hidden states for %d tokens, want %d", len(in.X), t.tokens(), want)
	}
	return nil
}

// LayerForward computes the hidden states behind a layer, [tokens][HiddenSize], from the hidden
// states before the layer. Afterwards Backward needs another Forward.
func (t *Tape) LayerForward(layer int, in *LayerInput, out []float32) error {
	if err := t.beginLayer(layer, in); err != nil {
		return err
	}
	if len(out) != len(in.X) {
		return fmt.Errorf("model: %d hidden states: there is room for %d", len(in.X), len(out))
	}
	return t.m.run(func() { t.layer(layer, out, in.X, in.Experts) })
}

// LayerBackward runs a layer forward and backward. loss replaces the hidden states behind the
// layer, [tokens][HiddenSize], by their gradients. dx, if not nil, receives the gradients of in.X.
// g.Embedding is not called. Afterwards Backward needs another Forward.
func (t *Tape) LayerBackward(layer int, in *LayerInput, loss func(out []float32) error, g *Gradients, dx []float32) error {
	if err := t.beginLayer(layer, in); err != nil {
		return err
	}
	if dx != nil && len(dx) != len(in.X) {
		return fmt.Errorf("model: the gradients of %d hidden states: there is room for %d", len(in.X), len(dx))
	}
	return t.m.run(func() {
		t.growGradients()
		rows := t.back.drow
		t.layer(layer, rows, in.X, in.Experts)
		fail(loss(rows))
		t.m.unpack(t.back.dx, t.back.dside, rows)
		t.layerBackward(layer, g, dx != nil)
		t.m.pack(dx, t.back.dx, t.back.dside)
	})
}

// Backward computes the gradients of a loss of the logits of the last Forward. loss is called for
// blocks of at most LogitRows tokens, in order. It replaces the logits of tokens from to from+n-1
// of a sequence, [n][VocabSize], by d loss / d logits. Weights must be the same as in Forward.
func (t *Tape) Backward(loss func(sequence, from, n int, logits []float32) error, g *Gradients) error {
	if err := t.forwarded(); err != nil {
		return err
	}
	return t.m.run(func() {
		t.growGradients()
		t.headBackward(loss, g)
		for i := len(t.m.layers) - 1; i >= 0; i-- {
			var out []float32
			if blocks := t.m.layers[i].blocks; t.o.Outputs || blocks[len(blocks)-1].post != nil {
				out = t.states[i+1] // the same bits again
			}
			t.layer(i, out, t.states[i], t.routing[i])
			t.layerBackward(i, g, i > 0 || g.Embedding != nil || t.m.side.width > 0)
		}
		t.embeddingBackward(g)
	})
}
