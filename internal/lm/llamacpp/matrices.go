package llamacpp

import "github.com/lowbit-go/gq/internal/lm/arch"

// matrices have the numbers of outputs and inputs of the linear layers in a layer.
var matrices = map[arch.Kind]func(c *arch.ForwardConfig) (rows, cols int){
	arch.Query: func(c *arch.ForwardConfig) (int, int) {
		if c.AttentionGate {
			return 2 * c.Heads * c.HeadDim, c.HiddenSize // the gate of each head behind its queries
		}
		return c.Heads * c.HeadDim, c.HiddenSize
	},
	arch.Key:       func(c *arch.ForwardConfig) (int, int) { return c.KVHeads * c.HeadDim, c.HiddenSize },
	arch.Value:     func(c *arch.ForwardConfig) (int, int) { return c.KVHeads * c.HeadDim, c.HiddenSize },
	arch.FusedQKV:  func(c *arch.ForwardConfig) (int, int) { return (c.Heads + 2*c.KVHeads) * c.HeadDim, c.HiddenSize },
	arch.QueryDown: func(c *arch.ForwardConfig) (int, int) { return c.Latent.QueryRank, c.HiddenSize },
	arch.QueryUp:   func(c *arch.ForwardConfig) (int, int) { return c.Heads * c.HeadDim, c.Latent.QueryRank },
	arch.KeyDown:   func(c *arch.ForwardConfig) (int, int) { return c.Latent.KeyRank + c.Latent.Rope, c.HiddenSize },
	arch.KeyValueUp: func(c *arch.ForwardConfig) (int, int) {
		return c.Heads * (c.Latent.Nope + c.Latent.Value), c.Latent.KeyRank
	},
	arch.Output: func(c *arch.ForwardConfig) (int, int) {
		if c.Latent != nil {
			return c.HiddenSize, c.Heads * c.Latent.Value
		}
		return c.HiddenSize, c.Heads * c.HeadDim
	},
	arch.Gate:        func(c *arch.ForwardConfig) (int, int) { return c.Intermediate, c.HiddenSize },
	arch.Up:          func(c *arch.ForwardConfig) (int, int) { return c.Intermediate, c.HiddenSize },
	arch.FusedGateUp: func(c *arch.ForwardConfig) (int, int) { return 2 * c.Intermediate, c.HiddenSize },
	arch.Down:        func(c *arch.ForwardConfig) (int, int) { return c.HiddenSize, c.Intermediate },
	arch.SharedGate:  func(c *arch.ForwardConfig) (int, int) { return c.Experts.Shared, c.HiddenSize },
	arch.SharedUp:    func(c *arch.ForwardConfig) (int, int) { return c.Experts.Shared, c.HiddenSize },
	arch.SharedFused: func(c *arch.ForwardConfig) (int, int) { return 2 * c.Experts.Shared, c.HiddenSize },
	arch.SharedDown:  func(c *arch.ForwardConfig) (int, int) { return c.HiddenSize, c.Experts.Shared },
	arch.ConvIn:      func(c *arch.ForwardConfig) (int, int) { return 3 * c.HiddenSize, c.HiddenSize },
	arch.ConvOut:     func(c *arch.ForwardConfig) (int, int) { return c.HiddenSize, c.HiddenSize },
	arch.DeltaQKVZ: func(c *arch.ForwardConfig) (int, int) {
		return c.DeltaNet.Channels() + c.DeltaNet.Inner(), c.HiddenSize
	},
	arch.PerLayerGate: func(c *arch.ForwardConfig) (int, int) { return c.PerLayer.Width, c.HiddenSize }, arch.PerLayerProjection: func(c *arch.ForwardConfig) (int, int) { return c.HiddenSize, c.PerLayer.Width },
	arch.StreamRouter: func(c *arch.ForwardConfig) (int, int) { return c.AltUp.Streams, c.HiddenSize }, arch.StreamCorrect: func(c *arch.ForwardConfig) (int, int) { return c.AltUp.Streams, c.AltUp.Streams },
	arch.StreamPredict: func(c *arch.ForwardConfig) (int, int) { return c.AltUp.Streams * c.AltUp.Streams, c.AltUp.Streams },
	arch.LaurelLeft:    func(c *arch.ForwardConfig) (int, int) { return c.Laurel, c.HiddenSize }, arch.LaurelRight: func(c *arch.ForwardConfig) (int, int) { return c.HiddenSize, c.Laurel },
	arch.MambaIn: func(c *arch.ForwardConfig) (int, int) { return c.Mamba.Rows(), c.HiddenSize }, arch.MambaOut: func(c *arch.ForwardConfig) (int, int) { return c.HiddenSize, c.Mamba.Inner() },
	arch.ExpertsIn: func(c *arch.ForwardConfig) (int, int) { return c.Experts.Latent, c.HiddenSize }, arch.ExpertsOut: func(c *arch.ForwardConfig) (int, int) { return c.HiddenSize, c.Experts.Latent },
	arch.DeltaBA:  func(c *arch.ForwardConfig) (int, int) { return 2 * c.DeltaNet.ValueHeads, c.HiddenSize },
	arch.DeltaQKV: func(c *arch.ForwardConfig) (int, int) { return c.DeltaNet.Channels(), c.HiddenSize },
	arch.DeltaZ:   innerOfHidden, arch.DeltaQuery: innerOfHidden, arch.DeltaKey: innerOfHidden, arch.DeltaValue: innerOfHidden,
	arch.DeltaB: headsOfHidden, arch.DeltaA: headsOfHidden,
	arch.DeltaForgetDown: headOfHidden, arch.DeltaGateDown: headOfHidden, arch.DeltaForgetUp: innerOfHead, arch.DeltaGateUp: innerOfHead,
	arch.DeltaOut: func(c *arch.ForwardConfig) (int, int) { return c.HiddenSize, c.DeltaNet.Inner() },
}

// Shapes of matrices of delta nets.
func innerOfHidden(c *arch.ForwardConfig) (int, int) { return c.DeltaNet.Inner(), c.HiddenSize }
func headsOfHidden(c *arch.ForwardConfig) (int, int) { return c.DeltaNet.ValueHeads, c.HiddenSize }
func headOfHidden(c *arch.ForwardConfig) (int, int)  { return c.DeltaNet.KeyDim, c.HiddenSize }
func innerOfHead(c *arch.ForwardConfig) (int, int)   { return c.DeltaNet.Inner(), c.DeltaNet.KeyDim }

// splitLatents adds the keys and values of latents. at is the start of the names.
func (d *describer) splitLatents(at, ours string) {
	a, heads := d.config.Latent, d.config.Heads
	d.use(ours, heads*(a.Nope+a.Value), a.KeyRank)
	keys := Tensor{Name: at + "k_b.weight", Shape: []int64{int64(a.Nope), int64(a.KeyRank), int64(heads)}}
	values := Tensor{Name: at + "v_b.weight", Shape: []int64{int64(a.KeyRank), int64(a.Value), int64(heads)}}
	for i := range heads {
		first := i * (a.Nope + a.Value)
		keys.Parts = append(keys.Parts, Part{Source: ours, From: first, Rows: a.Nope, Turned: a.KeyRank})
		values.Parts = append(values.Parts, Part{Source: ours, From: first + a.Nope, Rows: a.Value})
	}
	d.list = append(d.list, keys, values)
}

// splitInputs adds the input projection of a delta net. The checkpoint has queries, keys, values
// and gates of each head of keys together.
func (d *describer) splitInputs(at, ours string) {
	n, h := d.config.DeltaNet, d.config.HiddenSize
	own := n.Inner() / n.KeyHeads
	d.use(ours, n.Channels()+n.Inner(), h)
	list := []Tensor{{Name: at + "qkv.weight", Shape: []int64{int64(h), int64(n.Channels())}}, {Name: at + "gate.weight", Shape: []int64{int64(h), int64(n.Inner())}}}
	for i, p := range [][2]int{{0, n.KeyDim}, {n.KeyDim, n.KeyDim}, {2 * n.KeyDim, own}, {2*n.KeyDim + own, own}} {
		for head := range n.KeyHeads {
			list[i/3].Parts = append(list[i/3].Parts, Part{Source: ours, From: head*2*(n.KeyDim+own) + p[0], Rows: p[1]})
		}
	}
	d.list = append(d.list, list...)
}

// valueOrders returns the orders of rows, and of the columns of DeltaOut, if heads of values that
// share a head of keys lie apart.
func (d *describer) valueOrders() map[arch.Kind]Order {
	n := d.config.DeltaNet
	if n.KeyHeads == n.ValueHeads {
		return nil
	}
	heads, values := Order{n.ValueHeads, n.KeyHeads, 1}, Order{n.Inner(), n.KeyHeads, n.ValueDim}
	return map[arch.Kind]Order{
		arch.DeltaQKV: values, arch.DeltaZ: values, arch.DeltaConv: values, arch.DeltaOut: values,
		arch.DeltaB: heads, arch.DeltaA: heads, arch.DeltaDecay: heads, arch.DeltaBias: heads,
	}
}
