package toonnx

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/lm/arch"
)

// unsupported names what a model has that the graph's operators do not compute, or that nobody has
// shown them to compute; "" if there is nothing.
func unsupported(c *arch.ForwardConfig) string {
	switch {
	case c.Latent != nil:
		return "attention with latents"
	case c.PerLayer != nil || c.AltUp != nil || c.Laurel > 0:
		return "inputs of single layers"
	case c.AttentionGate:
		return "gates of attention"
	case c.UnitValues || c.QKNorm == arch.UnitNorms:
		return "norms without gains"
	case c.Facts.Has(arch.Sinks):
		return "attention sinks"
	case c.Temperature != 0:
		return "queries with a temperature"
	case c.RopeStart != 0:
		return "heads whose first dimensions do not rotate"
	case c.Activation != "silu" && c.Activation != "gelu_pytorch_tanh" || c.GateSlope != 1:
		return "the activation " + c.Activation
	case c.MaxPositions == 0:
		return "no max_position_embeddings in config.json, by which tables of rotations are made"
	}
	for i := range c.Layers {
		l := &c.Layers[i]
		what := ""
		switch {
		case l.Mixer != arch.AttentionMixer || l.Beside || l.NoFeedForward:
			what = "layers with a state"
		case l.Experts:
			what = "mixtures of experts"
		case l.Chunk > 0:
			what = "attention in chunks"
		case l.Borrow > 0 || l.KeyValues:
			what = "keys or values of other layers"
		case l.Sparse:
			what = "sparse gates"
		case l.HeadDim%8 != 0:
			what = fmt.Sprintf("heads of %d dimensions, and GroupQueryAttention only multiples of 8", l.HeadDim)
		}
		if what != "" {
			return what
		}
	}
	return ""
}

// context is the most tokens of a sequence in the graph: tables of rotations have a row for each.
// The second frequencies of longrope, of longer sequences, would need tables of their own.
func context(c *arch.ForwardConfig) int {
	n := c.MaxPositions
	for _, r := range c.Ropes {
		if r.Type == "longrope" {
			n = min(n, r.OriginalPositions)
		}
	}
	return n
}
