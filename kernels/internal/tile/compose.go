package tile

import (
	"math"
	"unsafe"
)

// compose makes the products that step lacks of Dots and the Set's epilogues.
func (s *Set) compose(step *Step) {
	mr, dots, set := step.MR, step.Dots, *s
	if step.Row == nil {
		step.Row = func(a *Args) {
			runDots(dots, a, set.NR)
			for m := range mr {
				out, t := a.row(m, set.NR)
				set.EpilogueRow(&out[0], t, a.IntSums, a.Factor, at(a.NegInt, m), a.Scales, a.Bias, at(a.Rec, m))
			}
		}
	}
	if step.Blocks == nil {
		step.Blocks = func(a *Args) {
			runDots(dots, a, set.NR)
			for m := range mr {
				out, t := a.row(m, set.NR)
				set.EpilogueFMA(&out[0], t, a.Groups, a.Scales, after(a.ActScales, m), 4*mr)
				finish(out, nil)
			}
		}
	}
	if step.BlocksQAI4 == nil {
		step.BlocksQAI4 = func(a *Args) {
			runDots(dots, a, set.NR)
			for m := range mr {
				out, t := a.row(m, set.NR)
				set.EpilogueQAI4(&out[0], t, a.Groups, a.Scales, a.Points, after(a.ActScales, m), after(a.ActSums, m), 4*mr)
				finish(out, a.Bias)
			}
		}
	}
	if step.TorchAO == nil {
		step.TorchAO = func(a *Args) {
			runDots(dots, a, set.NR)
			for m := range mr {
				out, t := a.row(m, set.NR)
				set.AddSums(t, a.IntSums, a.Groups, at(a.NegInt, m))
				set.EpilogueTorchAO(&out[0], t, a.Groups, a.Scales, at(a.Rec, m))
				finish(out, a.Bias)
			}
		}
	}
}

// runDots has dots write t to a.T.
func runDots(dots func(*Args), a *Args, nr int) {
	out, stride := a.Out, a.OutStride
	a.Out, a.OutStride = unsafe.Pointer(a.T), 4*a.Groups*nr
	dots(a)
	a.Out, a.OutStride = out, stride
}

// row returns the outputs of a row of activations, and its t.
func (a *Args) row(m, nr int) (out []float32, t *int32) {
	out = unsafe.Slice((*float32)(unsafe.Add(a.Out, m*a.OutStride)), nr)
	return out, after(a.T, m*a.Groups*nr)
}

// finish adds the biases, if any, and replaces every NaN.
func finish(out []float32, bias *float32) {
	for r, x := range out {
		if bias != nil {
			x += at(bias, r)
			out[r] = x
		}
		if x != x {
			out[r] = math.Float32frombits(canonicalNaN)
		}
	}
}

// after is the address of element i of the numbers, of 4 bytes, at p.
func after[T int32 | float32](p *T, i int) *T { return (*T)(unsafe.Add(unsafe.Pointer(p), 4*i)) }

// at is element i of the numbers at p.
func at[T int32 | float32](p *T, i int) T { return *after(p, i) }
