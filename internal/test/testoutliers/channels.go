package testoutliers

import (
	"context"
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/orthogonal"
)

// Spread is the largest root mean square of a channel over that of the median channel. Median and
// Largest cover all places of a kind, such as the norm outputs of all layers.
type Spread struct {
	Median  float64 `json:"median"`
	Largest float64 `json:"largest"`
}

type Channels struct {
	Residual Spread `json:"residual"` // hidden states between the halves of layers
	Norms    Spread `json:"norms"`    // outputs of norms: inputs of q, k, v, gate and up
	Values   Spread `json:"values"`   // inputs of o
	Up       Spread `json:"up"`       // inputs of down
}

// kinds of places, in the order of the fields of Channels.
const (
	kindResidual = iota
	kindNorms
	kindValues
	kindUp
	kinds
)

// principalRows bounds the hidden states from which principal directions are computed.
const principalRows = 4096

type observer struct {
	ctx    context.Context
	m      *forward.Model
	stream *forward.Stream
	ratios [kinds][]float64
	stride int         // between the sampled hidden states; 0: none are sampled
	hidden [][]float64 // sampled hidden states, of length 1
	seen   int
}

// observe measures a model's activations on sequences of tokens. sample asks for hidden states.
func observe(ctx context.Context, m *forward.Model, sequences [][]int32, sample bool) (*observer, error) {
	o := &observer{ctx: ctx, m: m}
	var err error
	if o.stream, err = m.NewStream(sequences); err != nil {
		return nil, err
	}
	layers := len(m.Config().Layers)
	if sample {
		o.stride = max(1, (o.stream.Tokens()*(2*layers+1)+principalRows-1)/principalRows)
	}
	for layer := range layers {
		places := m.Scalings(layer)
		o.residual()
		if err := o.block(layer, 0, places[:2]); err != nil {
			return nil, err
		}
		o.residual()
		if err := o.block(layer, 1, places[2:]); err != nil {
			return nil, err
		}
	}
	o.residual()
	o.stream = nil
	return o, nil
}

func (o *observer) residual() {
	n := o.m.Config().HiddenSize
	squares := make([]float64, n)
	for seq := range o.stream.Len() {
		x := o.stream.Hidden(seq)
		for at := 0; at < len(x); at += n {
			row := x[at:][:n]
			addSquares(squares, row)
			if o.seen++; o.stride > 0 && o.seen%o.stride == 0 {
				o.hidden = append(o.hidden, unit(row))
			}
		}
	}
	o.add(kindResidual, squares)
}

// block takes the inputs of the linear layers of a block, and moves the stream behind the block.
func (o *observer) block(layer, block int, places []forward.Scaling) error {
	kind, squares := map[string]int{}, map[string][]float64{}
	var names []string
	for i := range places {
		name := places[i].Consumers[0].Linear
		names = append(names, name)
		switch {
		case places[i].Norm != nil:
			kind[name] = kindNorms
		case block == 0:
			kind[name] = kindValues
		default:
			kind[name] = kindUp
		}
	}
	for seq := range o.stream.Len() {
		if err := o.ctx.Err(); err != nil {
			return err
		}
		err := o.stream.AdvanceVisit(seq, layer, block, func(in *forward.Input) {
			if _, ok := kind[in.Name]; !ok {
				return
			}
			if squares[in.Name] == nil {
				squares[in.Name] = make([]float64, in.K)
			}
			for r := range in.Rows {
				addSquares(squares[in.Name], in.X[r*in.K:][:in.K])
			}
		})
		if err != nil {
			return err
		}
	}
	for _, name := range names {
		o.add(kind[name], squares[name])
	}
	return nil
}

func addSquares(sum []float64, x []float32) {
	for i, v := range x {
		sum[i] += float64(float64(v) * float64(v))
	}
}

// unit returns x divided by its length.
func unit(x []float32) []float64 {
	u := make([]float64, len(x))
	for i, v := range x {
		u[i] = float64(v)
	}
	orthogonal.Normalize(u)
	return u
}

// add adds the ratio of a place, unless no token reached the place or the median channel is 0.
func (o *observer) add(kind int, squares []float64) {
	if len(squares) == 0 {
		return
	}
	sorted := slices.Sorted(slices.Values(squares))
	if median := sorted[len(sorted)/2]; median > 0 {
		o.ratios[kind] = append(o.ratios[kind], math.Sqrt(sorted[len(sorted)-1]/median))
	}
}

func (o *observer) channels() (c Channels) {
	for kind, to := range []*Spread{&c.Residual, &c.Norms, &c.Values, &c.Up} {
		if list := slices.Sorted(slices.Values(o.ratios[kind])); len(list) > 0 {
			*to = Spread{list[len(list)/2], list[len(list)-1]}
		}
	}
	return c
}
