package reference

import (
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// product computes an output: row w of the weights times row i of the activations.
type product func(o *Operator, w *weights, a *Activations, i int) float32

var products = map[packing.Layout]product{
	packing.LayoutLowbit:          lowbit,
	packing.LayoutTorchAOKleidiAI: lowbit,
	packing.LayoutQSI4CXP:         perRow,
	packing.LayoutQSI8CXP:         perRow,
	packing.LayoutQSU2CXP:         perRow,
	packing.LayoutQSI4C32PF16:     blocksF16,
	packing.LayoutQAI4C32P:        blocksF32,
	packing.LayoutTorchAOLinear:   torchAO,
}

func (o *Operator) eachGroup(w *weights, a *Activations, i int, f func(g int, q, codes []int8)) {
	q := a.Q[i*o.stride:][:o.cols]
	for g := range o.groups {
		from, to := g*o.group, min((g+1)*o.group, o.cols)
		f(g, q[from:to], w.codes[from:to])
	}
}

func dot(q, codes []int8) (sum int32) {
	codes = codes[:len(q)]
	for k, v := range q {
		sum += int32(v) * int32(codes[k])
	}
	return sum
}

func sumOf(q []int8) (sum int32) {
	for _, v := range q {
		sum += int32(v)
	}
	return sum
}

// lowbit is the product of gq's own layout, and of KleidiAI's qai8dxp x qsi4c32p, where the two are
// the same: f accumulates the groups without the activations' zero point, then adds the zero point
// times the sum of the row's weights.
func lowbit(o *Operator, w *weights, a *Activations, i int) float32 {
	f := float32(0)
	o.eachGroup(w, a, i, func(g int, q, codes []int8) {
		t := dot(q, codes)
		switch {
		case o.h.Grid == packing.GridHalfStep: // z is -1/2; half of an int32 is exact
			f = floats.FMA32(float32(float32(2*t+sumOf(q))*0.5), w.scales[g], f)
		case o.h.ZeroKind == packing.ZeroFraction: // a power of 2 times an int32
			t = t<<o.h.ZeroShift() - int32(w.zeros[g])*sumOf(q)
			f = floats.FMA32(float32(float32(t)*o.h.ZeroUnit()), w.scales[g], f)
		case w.zeros != nil:
			f = floats.FMA32(float32(t-int32(w.zeros[g])*sumOf(q)), w.scales[g], f)
		default:
			f = floats.FMA32(float32(t), w.scales[g], f)
		}
	})
	f = floats.FMA32(w.sum, float32(-a.Zero[i]), f)
	return float32(f*a.Rec[i]) + w.bias
}

// perRow is KleidiAI's qai8dxp x qsi4cxp, qsi8cxp and qsu2cxp: a sum in int32, times the product of
// the weights' and the activations' scales. For qsi4cxp, codes count times 16, as in KleidiAI's
// kernels; its scales are stored divided by 16.
//
// KleidiAI's qsu2cxp kernel for many rows multiplies by the two scales in turn, with other bits
// than its kernel for a single row. This function uses the order of the kernel for a single row.
func perRow(o *Operator, w *weights, a *Activations, i int) float32 {
	times := int32(1)
	if o.h.Layout == packing.LayoutQSI4CXP {
		times = 16
	}
	t := times*dot(a.Q[i*o.stride:][:o.cols], w.codes) - w.sumCodes*a.Zero[i]
	return float32(float32(t)*float32(w.scales[0]*a.Rec[i])) + w.bias
}

// blocksF16 is KleidiAI's qsi8d32p x qsi4c32p. Its weights have no bias.
func blocksF16(o *Operator, w *weights, a *Activations, i int) float32 {
	f := float32(0)
	o.eachGroup(w, a, i, func(g int, q, codes []int8) {
		f = floats.FMA32(float32(dot(q, codes)), float32(a.BlockScale[i*o.groups+g]*w.scales[g]), f)
	})
	return f
}

// blocksF32 is KleidiAI's qsi8d32p x qai4c32p. A weight is q*scale + zero term, so each block adds
// the zero term times the sum of the block's activations. Codes count times 16, because scales are
// stored divided by 16.
func blocksF32(o *Operator, w *weights, a *Activations, i int) float32 {
	f := float32(0)
	o.eachGroup(w, a, i, func(g int, q, codes []int8) {
		b := i*o.groups + g
		f = floats.FMA32(w.zeroTerms[g], a.BlockSum[b], f)
		f = floats.FMA32(float32(16*dot(q, codes)), float32(w.scales[g]*a.BlockScale[b]), f)
	})
	return f + w.bias
}

// torchAO is TorchAO's own kernel: the sum over a group of (activation code - zero point) * (weight
// code - zero point), times the product of the two scales. This product is rounded, then added.
func torchAO(o *Operator, w *weights, a *Activations, i int) float32 {
	f := float32(0)
	o.eachGroup(w, a, i, func(g int, q, codes []int8) {
		zero, t := int32(0), int32(0)
		if w.zeros != nil {
			zero = int32(w.zeros[g])
		}
		for k, v := range q {
			t += (int32(v) - a.Zero[i]) * (int32(codes[k]) - zero)
		}
		f += float32(float32(w.scales[g]*a.Rec[i]) * float32(t))
	})
	if o.h.Flags&packing.FlagBias == 0 {
		return f
	}
	return f + w.bias
}
