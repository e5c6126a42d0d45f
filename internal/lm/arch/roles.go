package arch

import (
	"fmt"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
)

// MinRows is the number of outputs that a matrix must have to be quantized by default.
const MinRows = 32

// Class is gq's default treatment of a tensor.
type Class struct {
	Role gqf.Role
	// Quantize: the tensor is quantized unless a rule says otherwise.
	Quantize bool
	// Reason is why the tensor stays unquantized; "" if Quantize.
	Reason string
	// Transposed: the last two dimensions are inputs x outputs.
	Transposed bool
	// Experts is the first dimension of a 3-D tensor of fused experts, each a matrix, and 0 for every
	// other tensor. Unquantized tensors have Experts, too, if their order is known.
	Experts int
}

// Slices returns the number of matrices in the tensor: Experts, or 1.
func (c Class) Slices() int { return max(1, c.Experts) }

// Classify classifies a tensor by its name, its shape and the model's config; cfg may be nil.
// Classify does not know the dtype: integers cannot be quantized, whatever the result.
func Classify(cfg *Config, name string, shape []int64) Class {
	n := parseName(name)
	if c, ok := n.byName(len(shape)); ok {
		return c
	}
	switch len(shape) {
	case 2:
		return n.matrix(cfg, shape)
	case 3:
		return n.stack(cfg, shape)
	case 0, 1:
		return keep(gqf.RoleOther, "a vector")
	}
	return keep(gqf.RoleOther, fmt.Sprintf("a %d-D tensor, not a matrix", len(shape)))
}

func keep(role gqf.Role, reason string) Class { return Class{Role: role, Reason: reason} }

// byName finds the tensors of any shape that stay unquantized because of their names. The order
// matters: a router's bias is part of the router, and a norm in a vision tower is part of the
// tower.
func (n tensorName) byName(ndim int) (Class, bool) {
	if r := n.foreignPart(); r != "" {
		role := gqf.RoleOther
		if strings.HasSuffix(n.full, "_blocks") {
			role = gqf.RoleExpert
		}
		return keep(role, r), true
	}
	switch {
	case n.any(isTower) || n.segs[0] == "mlp1": // mlp1 is InternVL's projector
		return keep(gqf.RoleOther, "not part of the language model"), true
	case n.any(isPosition):
		return keep(gqf.RolePosition, "positions"), true
	case n.isRouter():
		return keep(gqf.RoleRouter, "a router"), true
	case isNorm(n.name()):
		return keep(gqf.RoleNorm, "a normalization"), true
	case n.name() == "masked_bias" || n.leaf == "bias" && ndim == 4:
		return keep(gqf.RoleOther, "a buffer of an attention mask"), true
	}
	if r := n.unquantized(); r != "" {
		return keep(gqf.RoleOther, r), true
	}
	switch {
	case biasLeaves[n.leaf] || strings.HasSuffix(n.name(), "_bias"):
		return keep(gqf.RoleBias, "a bias"), true
	case strings.Contains(n.name(), "conv"):
		return keep(gqf.RoleConv, "a convolution"), true
	}
	return Class{}, false
}

// matrix classifies a 2-D tensor that byName did not find.
func (n tensorName) matrix(cfg *Config, shape []int64) Class {
	c := Class{Role: n.matrixRole(), Quantize: true}
	o := outIn
	switch {
	case c.Role == gqf.RoleExpert && n.isStacked():
		if r := n.stackedInTwo(cfg); r != "" {
			return keep(gqf.RoleExpert, r)
		}
	case c.Role == gqf.RoleProjection && (n.leaf == "kernel" || n.leaf == "w_0" && strings.HasPrefix(n.name(), "linear_")):
		o = inOut // Flax's Dense and PaddlePaddle's Linear
	case c.Role == gqf.RoleProjection:
		if s, ok := gptNames[n.name()]; ok {
			if o = lookUp(gptOrders, cfg); o == orderUnknown {
				return keep(c.Role, unknownOrder(cfg))
			}
			if r := contradiction(cfg, o, s, shape[0], shape[1]); r != "" {
				return keep(c.Role, r)
			}
		}
	}
	c.Transposed = o == inOut
	return c.unlessSmall(shape)
}

// stack classifies a 3-D tensor that byName did not find: fused experts, or unknown.
func (n tensorName) stack(cfg *Config, shape []int64) Class {
	s, ok := expertNames[n.name()]
	if !ok {
		return keep(gqf.RoleOther, "a 3-D tensor that is not known as a stack of experts")
	}
	o := expertOrder(cfg)
	if o == orderUnknown {
		return keep(gqf.RoleExpert, unknownOrder(cfg))
	}
	if r := contradiction(cfg, o, s, shape[1], shape[2]); r != "" {
		return keep(gqf.RoleExpert, r)
	}
	if cfg.NumExperts != 0 && shape[0] != cfg.NumExperts {
		return keep(gqf.RoleExpert, fmt.Sprintf("a stack of %d, but config.json says that there are %d experts", shape[0], cfg.NumExperts))
	}
	c := Class{Role: gqf.RoleExpert, Quantize: true, Experts: int(shape[0]), Transposed: o == inOut}
	return c.unlessSmall(shape[1:])
}

// unlessSmall leaves matrices with too few outputs unquantized.
func (c Class) unlessSmall(matrix []int64) Class {
	rows := matrix[0]
	if c.Transposed {
		rows = matrix[1]
	}
	if rows < MinRows {
		c.Quantize, c.Reason = false, fmt.Sprintf("fewer than %d rows", MinRows)
	}
	return c
}

func (n tensorName) matrixRole() gqf.Role {
	under, numbered := n.expert()
	switch {
	case n.isHead():
		return gqf.RoleHead
	case n.isEmbedding():
		return gqf.RoleEmbedding
	case under && (numbered || n.isStacked()):
		return gqf.RoleExpert
	}
	return gqf.RoleProjection
}

// isStacked reports whether a 2-D matrix holds all experts, stacked or side by side.
func (n tensorName) isStacked() bool {
	under, numbered := n.expert()
	return under && !numbered
}

// stackedInTwo returns why a matrix of several experts stays unquantized. DBRX stacks its experts.
// w1 and v1 are out x in: each row is an output of an expert, as in any other matrix. w2 is in x
// out within each expert.
func (n tensorName) stackedInTwo(cfg *Config) string {
	const why = "several experts in one 2-D tensor"
	switch {
	case cfg == nil || cfg.TextType != "dbrx":
		return why + ", in an order that gq does not know"
	case n.name() == "w1" || n.name() == "v1":
		return ""
	}
	return why + ", each stored in x out"
}
