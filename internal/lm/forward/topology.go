package forward

import (
	"fmt"
	"slices"

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
	Layer int
	Part  Part
	// Exactly one of Norm and Rows is set: the norm, or the rows of the linear layer, that feeds the
	// consumers.
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

// values returns the block that computes the values of a layer.
func (m *Model) values(l *layer) Block {
	rows := m.config.KVHeads * m.config.HeadDim
	last := blockOf(l.qkv[len(l.qkv)-1])
	return last.part(last.Rows-rows, rows)
}

// up returns the block of a gated network that feeds the down projection without a nonlinear
// function.
func (f *mlp) up() Block {
	last := blockOf(f.gateUp[len(f.gateUp)-1])
	if len(f.gateUp) == 1 {
		return last.part(last.Rows/2, last.Rows/2)
	}
	return last
}

// sharedReaders returns the linear layers of the shared expert that read the hidden states.
func (l *layer) sharedReaders() []*linear {
	readers := slices.Clone(l.shared.gateUp)
	if l.sharedRouter != nil {
		readers = append(readers, l.sharedRouter)
	}
	return readers
}

// Scalings lists a layer's places for factors in order of computation. Linear layers that read the
// hidden states without a norm of their half have none. Norms that add a bias have none, nor have
// experts stored inputs x outputs and their norm.
func (m *Model) Scalings(layer int) []Scaling {
	c, l := &m.config, &m.layers[layer]
	if l.latent != nil {
		return append(m.latentScalings(layer), m.feedForwardScalings(layer)...)
	}
	var list []Scaling
	switch l.Mixer {
	case arch.AttentionMixer:
		values := m.values(l)
		list = append(list, Scaling{Layer: layer, Rows: &values, Consumers: blocksOf(l.out), Width: values.Rows, HeadDim: c.HeadDim, Repeat: c.Heads / c.KVHeads})
	case arch.ShortConvMixer: // C multiplies the convolution's outputs
		rows := blockOf(l.qkv[0]).part(c.HiddenSize, c.HiddenSize)
		list = append(list, Scaling{Layer: layer, Rows: &rows, Consumers: blocksOf(l.out), Width: rows.Rows})
	}
	if l.inputNorm != nil && !c.Parallel && !c.NormBias {
		list = slices.Insert(list, 0, Scaling{Layer: layer, Norm: &l.inputNorm.Norm, Consumers: blocksOf(l.qkv...), Width: c.HiddenSize})
	}
	return append(list, m.feedForwardScalings(layer)...)
}

// latentScalings lists the places of attention with latents. The values have none: their rows lie
// between those of keys.
func (m *Model) latentScalings(layer int) []Scaling {
	l := &m.layers[layer]
	place := func(by *norm, readers ...*linear) Scaling {
		return Scaling{Layer: layer, Norm: &by.Norm, Consumers: blocksOf(readers...), Width: by.Width}
	}
	list := []Scaling{place(l.inputNorm, l.latent.readers()...), place(l.latent.keyNorm, l.latent.keyValue)}
	if l.latent.queryDown != nil {
		list = append(list, place(l.latent.queryNorm, l.latent.query))
	}
	return list
}

func (m *Model) feedForwardScalings(layer int) (list []Scaling) {
	c, l := &m.config, &m.layers[layer]
	if c.Activation == arch.ClampedSilu {
		return nil // a factor would move the limit
	}
	gated := []mlp{l.mlp}
	norm := Scaling{Layer: layer, Part: FeedForward, Width: c.HiddenSize}
	if l.Experts {
		gated = l.experts
		norm.Consumers = blocksOf(l.router)
	}
	if l.shared != nil {
		norm.Consumers = append(norm.Consumers, blocksOf(l.sharedReaders()...)...)
	}
	var inner []Scaling
	for i := range gated {
		f := &gated[i]
		if l.Experts && c.ExpertsTransposed() {
			break // a Block has the rows of a tensor
		}
		read, up, down := blocksOf(f.gateUp...), f.up(), blocksOf(f.down)
		if l.Experts {
			for k := range read {
				read[k].Expert = i
			}
			up.Expert, down[0].Expert = i, i
		}
		norm.Consumers = append(norm.Consumers, read...)
		inner = append(inner, Scaling{Layer: layer, Part: FeedForward, Rows: &up, Consumers: down, Width: up.Rows})
	}
	if l.shared != nil {
		up := l.shared.up()
		inner = append(inner, Scaling{Layer: layer, Part: FeedForward, Rows: &up, Consumers: blocksOf(l.shared.down), Width: up.Rows})
	}
	if turned := l.Experts && c.ExpertsTransposed(); l.attentionNorm != nil && !c.Parallel && !c.NormBias && !turned {
		norm.Norm = &l.attentionNorm.Norm
		list = append(list, norm)
	}
	return append(list, inner...)
}

// Residual describes everything that a rotation of the hidden states must rotate. For an
// architecture that cannot be rotated, the error is an *UnsupportedError with the reason.
func (m *Model) Residual() (*Residual, error) {
	c := &m.config
	if c.LayerNorm {
		return nil, &arch.UnsupportedError{Msg: fmt.Sprintf("the hidden states of model_type %s cannot be rotated: norms subtract the mean of the channels, and a rotation changes the mean", c.Architecture)}
	}
	if c.ExpertsTransposed() {
		return nil, &arch.UnsupportedError{Msg: fmt.Sprintf("models of model_type %s are not rotated: experts are stored inputs x outputs, and a rotation changes rows of outputs", c.Architecture)}
	}
	if c.Latent != nil {
		return nil, &arch.UnsupportedError{Msg: fmt.Sprintf("the hidden states of model_type %s cannot be rotated: the rows of values lie between those of keys, and heads of values are rotated, too", c.Architecture)}
	}
	if !c.Facts.Has(arch.InputNorm) || !c.Facts.Has(arch.FeedForwardNorm) {
		return nil, &arch.UnsupportedError{Msg: fmt.Sprintf("the hidden states of model_type %s cannot be rotated: attention and feed-forward network read them without a norm that could take up the rotation", c.Architecture)}
	}
	if c.Facts.Has(arch.PostAttentionNorm) || c.Facts.Has(arch.PostFeedForwardNorm) {
		return nil, &arch.UnsupportedError{Msg: fmt.Sprintf("the hidden states of model_type %s cannot be rotated: norms with gains of their own follow attention and feed-forward network, and a gain and a rotation do not change places", c.Architecture)}
	}
	if c.HasStates() {
		return nil, &arch.UnsupportedError{Msg: fmt.Sprintf("models of model_type %s are not rotated: the heads of values would have to rotate in each layer, and layers with a state have none that could", c.Architecture)}
	}
	r := &Residual{
		Width: c.HiddenSize, HeadDim: c.HeadDim, Vocab: c.VocabSize,
		Embedding: m.body + "embed_tokens.weight", Head: m.head.spec.name, Final: m.norm.Norm,
	}
	if r.Head == r.Embedding {
		r.Head, r.Tied = m.headName, true
	}
	for i := range m.layers {
		l := &m.layers[i]
		attention, feedForward := l.inputNorm.Norm, l.attentionNorm.Norm
		for _, b := range blocksOf(l.qkv...) {
			r.Reads = append(r.Reads, Read{attention, b})
		}
		out := blockOf(l.out)
		r.Writes = append(r.Writes, out)
		r.Values, r.Outputs = append(r.Values, m.values(l)), append(r.Outputs, out)
		gated := []mlp{l.mlp}
		if l.Experts {
			gated = l.experts
			r.Reads = append(r.Reads, Read{feedForward, blockOf(l.router)})
		}
		if l.shared != nil {
			for _, b := range blocksOf(l.sharedReaders()...) {
				r.Reads = append(r.Reads, Read{feedForward, b})
			}
			r.Writes = append(r.Writes, blockOf(l.shared.down))
		}
		for _, f := range gated {
			for _, b := range blocksOf(f.gateUp...) {
				r.Reads = append(r.Reads, Read{feedForward, b})
			}
			r.Writes = append(r.Writes, blockOf(f.down))
		}
	}
	return r, nil
}
