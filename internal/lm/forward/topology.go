package forward

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/lm/arch"
)

// Block is a range of rows of a tensor, seen as a matrix of its last dimension: the slices of fused
// experts lie below each other.
type Block struct {
	Tensor     string
	From, Rows int
	Cols       int
	// Bias is the tensor of the rows' biases, with as many elements as the tensor has rows; ""
	// without a bias.
	Bias string
	// Expert is the expert of the rows; -1: none.
	Expert int
	// Linear is the linear layer that contains the rows, named as for SetLinear.
	Linear string
}

// Norm is the weights of an RMSNorm.
type Norm struct {
	Tensor string
	// PlusOne: the norm multiplies by 1 + weight.
	PlusOne bool
	Width   int
}

// Scaling is a place where factors can be moved through a model without changing its function:
// dividing the producer's outputs by the factors and multiplying the columns of the consumers
// cancel.
type Scaling struct {
	Layer, Block int
	// Exactly one of Norm and Rows is set: the norm, or the rows of the linear layer, that feeds
	// the consumers.
	Norm *Norm
	Rows *Block
	// Consumers are all readers of the producer's output.
	Consumers []Block
	// Width is the number of factors: the norm's width, or the number of Rows.
	Width int
	// HeadDim and Repeat are set if the consumers have more columns than there are factors, because
	// each head of values serves Repeat heads of queries: column c has factor c / (HeadDim Repeat)
	// HeadDim + c % HeadDim. If HeadDim is 0, column c has factor c.
	HeadDim, Repeat int
}

// Factor returns the index of the factor for a consumer's column.
func (s *Scaling) Factor(column int) int {
	if s.Repeat < 2 {
		return column
	}
	return column/(s.HeadDim*s.Repeat)*s.HeadDim + column%s.HeadDim
}

// Read is a matrix that reads the hidden states through a norm.
type Read struct {
	Norm Norm
	Block
}

// Residual lists where a model reads the hidden states and where it adds to the hidden states. A
// rotation of the hidden states must rotate all these places.
type Residual struct {
	Width, HeadDim int
	// Embedding is looked up, Head computes the logits. Tied: the checkpoint has no tensor for
	// Head, and the embedding serves.
	Embedding, Head string
	Tied            bool
	Vocab           int
	Final           Norm // before the lm_head
	Reads           []Read
	Writes          []Block
	// By layer: Values are the blocks of rows that compute the values, in heads of HeadDim rows;
	// Outputs read the values.
	Values, Outputs []Block
}

func blockOf(l *linear) Block {
	b := Block{Tensor: l.spec.name, From: l.spec.slice * l.spec.rows, Rows: l.spec.rows, Cols: l.spec.cols, Expert: -1, Linear: l.name}
	if l.hasBias {
		b.Bias = l.biasName
	}
	return b
}

// part returns a range of the block's rows, counted from its first row.
func (b Block) part(from, rows int) Block {
	b.From, b.Rows = b.From+from, rows
	return b
}

func blocksOf(list ...*linear) (blocks []Block) {
	for _, l := range list {
		blocks = append(blocks, blockOf(l))
	}
	return blocks
}

// valueRows returns the block that computes the values.
func (a *attention) valueRows() Block {
	rows := a.KVHeads * a.HeadDim
	last := blockOf(a.qkv[len(a.qkv)-1])
	return last.part(last.Rows-rows, rows)
}

// Scalings lists a layer's places for factors in order of computation. Blocks without a norm of
// their own have none for their inputs. Norms that add a bias have none, nor have experts stored
// inputs x outputs and their norm.
func (m *Model) Scalings(layer int) (list []Scaling) {
	blocks := m.layers[layer].blocks
	for i, b := range blocks {
		var own []Scaling
		alone := !b.beside && (i+1 == len(blocks) || !blocks[i+1].beside)
		if readers := b.readers(m); alone && b.norm != nil && b.norm.bias == nil && readers != nil {
			own = append(own, scalingBy(b.norm, readers))
		}
		for _, s := range append(own, b.scalings(m)...) {
			s.Layer, s.Block = layer, i
			list = append(list, s)
		}
	}
	return list
}

func scalingBy(by *norm, readers []Block) Scaling {
	return Scaling{Norm: &by.Norm, Consumers: readers, Width: by.Width}
}

func (a *attention) readers(*Model) []Block { return blocksOf(a.inputs()...) }
func (a *attention) writers() []Block       { return blocksOf(a.out) }

// scalings: with latents, the values have no place, because their rows lie between those of keys.
func (a *attention) scalings(m *Model) []Scaling {
	if l := a.latent; l != nil {
		list := []Scaling{scalingBy(l.keyNorm, blocksOf(l.keyValue))}
		if l.queryDown != nil {
			list = append(list, scalingBy(l.queryNorm, blocksOf(l.query)))
		}
		return list
	}
	if a.values != nil {
		return nil // their norm undoes factors
	}
	values := a.valueRows()
	return []Scaling{{Rows: &values, Consumers: blocksOf(a.out), Width: values.Rows, HeadDim: a.HeadDim, Repeat: m.config.Heads / a.KVHeads}}
}

func (r *recurrence) readers(*Model) []Block { return blocksOf(r.in...) }
func (r *recurrence) writers() []Block       { return blocksOf(r.out) }

func (r *recurrence) scalings(*Model) []Scaling {
	if r.behind != nil {
		return []Scaling{scalingBy(r.behind, r.writers())}
	}
	var list []Scaling
	for _, up := range r.ups {
		latent := blockOf(r.in[up.from])
		list = append(list, Scaling{Rows: &latent, Consumers: blocksOf(up.linear), Width: latent.Rows})
	}
	if rows := r.scaled(r.in); rows != nil {
		list = append(list, Scaling{Rows: rows, Consumers: blocksOf(r.out), Width: rows.Rows})
	}
	return list
}

func (f *mlp) readers(*Model) []Block { return blocksOf(f.gateUp...) }
func (f *mlp) writers() []Block       { return blocksOf(f.down) }

func (f *mlp) scalings(m *Model) []Scaling {
	if m.config.Activation == arch.ClampedSilu || f.plain {
		return nil // a factor would move the limit, or through the activation
	}
	up := blockOf(f.gateUp[len(f.gateUp)-1])
	if len(f.gateUp) == 1 {
		up = up.part(up.Rows/2, up.Rows/2)
	}
	return []Scaling{{Rows: &up, Consumers: f.writers(), Width: up.Rows}}
}

func (l *mixture) readers(m *Model) []Block {
	if m.config.ExpertsTransposed() {
		return nil // a Block has the rows of a tensor
	}
	list := blocksOf(l.router)
	if l.shared != nil {
		list = append(list, l.shared.readers(m)...)
	}
	if l.sharedRouter != nil {
		list = append(list, blockOf(l.sharedRouter))
	}
	if l.in != nil {
		return append(list, blockOf(l.in))
	}
	return append(list, l.expertReaders(m)...)
}

// expertReaders lists the linear layers that read the experts' inputs.
func (l *mixture) expertReaders(m *Model) (list []Block) {
	for i, f := range l.experts {
		for _, b := range f.readers(m) {
			b.Expert = i
			list = append(list, b)
		}
	}
	return list
}

func (l *mixture) writers() (list []Block) {
	if l.shared != nil {
		list = l.shared.writers()
	}
	if l.out != nil {
		return append(list, blockOf(l.out))
	}
	for i, f := range l.experts {
		down := blockOf(f.down)
		down.Expert = i
		list = append(list, down)
	}
	return list
}

func (l *mixture) scalings(m *Model) (list []Scaling) {
	if l.in != nil {
		latents := blockOf(l.in)
		list = append(list, Scaling{Rows: &latents, Consumers: l.expertReaders(m), Width: latents.Rows})
	}
	for i, f := range l.experts {
		if m.config.ExpertsTransposed() {
			break
		}
		for _, s := range f.scalings(m) {
			s.Rows.Expert, s.Consumers[0].Expert = i, i
			list = append(list, s)
		}
	}
	if l.shared != nil {
		list = append(list, l.shared.scalings(m)...)
	}
	return list
}

// Residual describes everything that a rotation of the hidden states must rotate. For an
// architecture that cannot be rotated, the error is an *UnsupportedError with the reason.
func (m *Model) Residual() (*Residual, error) {
	c := &m.config
	for _, refused := range []struct {
		is  bool
		why string
	}{
		{c.LayerNorm, "the hidden states of model_type %s cannot be rotated: norms subtract the mean of the channels, and a rotation changes the mean"},
		{c.ExpertsTransposed(), "models of model_type %s are not rotated: experts are stored inputs x outputs, and a rotation changes rows of outputs"},
		{c.Latent != nil, "the hidden states of model_type %s cannot be rotated: the rows of values lie between those of keys, and heads of values are rotated, too"},
		{!c.Facts.Has(arch.InputNorm) || !c.Facts.Has(arch.FeedForwardNorm), "the hidden states of model_type %s cannot be rotated: attention and feed-forward network read them without a norm that could take up the rotation"},
		{c.Facts.Has(arch.PostAttentionNorm) || c.Facts.Has(arch.PostFeedForwardNorm), "the hidden states of model_type %s cannot be rotated: norms with gains of their own follow attention and feed-forward network, and a gain and a rotation do not change places"},
		{c.HasStates(), "models of model_type %s are not rotated: the heads of values would have to rotate in each layer, and layers with a state have none that could"},
	} {
		if refused.is {
			return nil, &arch.UnsupportedError{Msg: fmt.Sprintf(refused.why, c.Architecture)}
		}
	}
	r := &Residual{
		Width: c.HiddenSize, HeadDim: c.HeadDim, Vocab: c.VocabSize,
		Embedding: m.tensors.Embedding, Head: m.head.spec.name, Final: m.norm.Norm,
	}
	if r.Head == r.Embedding {
		r.Head, r.Tied = m.tensors.Head, true
	}
	for b := range m.blocks {
		for _, read := range b.readers(m) {
			r.Reads = append(r.Reads, Read{b.norm.Norm, read})
		}
		r.Writes = append(r.Writes, b.writers()...)
		if a, ok := b.part.(*attention); ok {
			r.Values, r.Outputs = append(r.Values, a.valueRows()), append(r.Outputs, blockOf(a.out))
		}
	}
	return r, nil
}
