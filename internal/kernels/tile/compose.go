package tile

import (
	"encoding/binary"
	"unsafe"

	"github.com/lowbit-go/gq/internal/floats"
)

// compose makes the products that step lacks of Dots and the Set's epilogues.
func (s *Set) compose(step *Step) {
	if step.Dots == nil {
		return
	}
	mr, dots, set := step.MR, step.Dots, *s
	if step.Row == nil {
		step.Row = func(a *RowArgs) {
			runDots(dots, &a.Args, a.T, set.NR)
			for m := range mr {
				out, t := a.row(a.T, m, set.NR)
				set.EpilogueRow(&out[0], t, a.IntSums, a.Factor, at(a.NegInt, m), a.Scales, a.Bias, at(a.Rec, m))
			}
		}
	}
	if step.Blocks == nil {
		step.Blocks = func(a *BlocksArgs) {
			runDots(dots, &a.Args, a.T, set.NR)
			for m := range mr {
				out, t := a.row(a.T, m, set.NR)
				set.EpilogueFMA(&out[0], t, a.Groups, a.Scales, after(a.ActScales, m), 4*mr)
				finish(out, nil)
			}
		}
	}
	if step.BlocksQAI4 == nil {
		step.BlocksQAI4 = func(a *BlocksQAI4Args) {
			runDots(dots, &a.Args, a.T, set.NR)
			for m := range mr {
				out, t := a.row(a.T, m, set.NR)
				set.EpilogueQAI4(&out[0], t, a.Groups, a.Scales, a.Points, after(a.ActScales, m), after(a.ActSums, m), 4*mr)
				finish(out, a.Bias)
			}
		}
	}
	times := 1 // places of a number of a row of activations
	if step.Twice {
		times = 2
	}
	if step.BlocksMin == nil {
		step.BlocksMin = func(a *BlocksMinArgs) {
			runDots(dots, &a.Args, a.T, set.NR)
			for m := range mr {
				out, t := a.row(a.T, m, set.NR)
				set.EpilogueMin(&out[0], t, a.Groups, a.Scales, a.Mins, after(a.ActScales, times*m), after(a.ActSums, times*m), 4*times*mr)
				finish(out, nil)
			}
		}
	}
	if step.Subs == nil {
		step.Subs = func(a *SubsArgs) {
			runDots(dots, &a.Args, a.T, set.NR)
			for m := range mr {
				out, t := a.row(a.T, m, set.NR)
				set.EpilogueSubs(&out[0], t, a, a.Groups/a.Each, after(a.ActScales, times*m), after(a.Sums, m), 4*times*mr, 4*mr)
				finish(out, nil)
			}
		}
	}
	if step.TorchAO == nil {
		step.TorchAO = func(a *TorchAOArgs) {
			runDots(dots, &a.Args, a.T, set.NR)
			for m := range mr {
				out, t := a.row(a.T, m, set.NR)
				set.AddSums(t, a.IntSums, a.Groups, at(a.NegInt, m))
				set.EpilogueTorchAO(&out[0], t, a.Groups, a.Scales, at(a.Rec, m))
				finish(out, a.Bias)
			}
		}
	}
}

func runDots(dots func(*Args), a *Args, t *int32, nr int) {
	out, stride := a.Out, a.OutStride
	a.Out, a.OutStride = unsafe.Pointer(t), 4*a.Groups*nr
	dots(a)
	a.Out, a.OutStride = out, stride
}

// row returns the outputs of row m of activations, and its part of dots.
func (a *Args) row(dots *int32, m, nr int) (out []float32, t *int32) {
	out = unsafe.Slice((*float32)(unsafe.Add(a.Out, m*a.OutStride)), nr)
	return out, after(dots, m*a.Groups*nr)
}

func finish(out []float32, bias *float32) {
	for r, x := range out {
		if bias != nil {
			x += at(bias, r)
			out[r] = x
		}
		if x != x {
			out[r] = floats.NaN
		}
	}
}

// after is the address of element i of the numbers, of 4 bytes, at p.
func after[T int32 | float32](p *T, i int) *T { return (*T)(unsafe.Add(unsafe.Pointer(p), 4*i)) }

func at[T int32 | float32](p *T, i int) T { return *after(p, i) }

// The portable epilogues, for panels of genericNR rows.

func epilogueFMA(out *float32, t *int32, groups int, scales, as *float32, step int) {
	f := [genericNR]float32{}
	for g := range groups {
		a := at(as, g*step/4)
		for r := range f {
			i := g*genericNR + r
			f[r] = floats.FMA32(float32(at(t, i)), float32(a*at(scales, i)), f[r])
		}
	}
	*(*[genericNR]float32)(unsafe.Pointer(out)) = f
}

func epilogueQAI4(out *float32, t *int32, groups int, scales, zeros, as, asum *float32, step int) {
	f := [genericNR]float32{}
	for g := range groups {
		a, sum := at(as, g*step/4), at(asum, g*step/4)
		for r := range f {
			i := g*genericNR + r
			zero := floats.FMA32(at(zeros, i), sum, f[r])
			f[r] = floats.FMA32(float32(16*at(t, i)), float32(at(scales, i)*a), zero)
		}
	}
	*(*[genericNR]float32)(unsafe.Pointer(out)) = f
}

func epilogueMin(out *float32, t *int32, groups int, scales, mins, as, asum *float32, step int) {
	f := [genericNR]float32{}
	for g := range groups {
		a, sum := at(as, g*step/4), at(asum, g*step/4)
		for r := range f {
			i := g*genericNR + r
			f[r] = floats.FMA32(float32(at(t, i)), float32(a*at(scales, i)), f[r])
			f[r] = floats.FMA32(at(mins, i), sum, f[r])
		}
	}
	*(*[genericNR]float32)(unsafe.Pointer(out)) = f
}

func epilogueSubs(out *float32, t *int32, a *SubsArgs, blocks int, as *float32, sums *int32, step, sumStep int) {
	f := [genericNR]float32{}
	for b := range blocks {
		as := at(as, b*step/4)
		for r := range f {
			dots, rest, block := int32(0), int32(0), b*genericNR+r
			for g := b * a.Each; g < (b+1)*a.Each; g++ {
				i := g*genericNR + r
				dots += at(a.Factors, i) * at(t, i)
				if a.SubMins != nil {
					rest += at(a.SubMins, i) * at(sums, g*sumStep/4)
				}
			}
			f[r] = floats.FMA32(float32(dots), float32(as*at(a.Scales, block)), f[r])
			if a.SubMins != nil {
				f[r] = floats.FMA32(float32(rest), -float32(as*at(a.Mins, block)), f[r])
			}
		}
	}
	*(*[genericNR]float32)(unsafe.Pointer(out)) = f
}

func epilogueTorchAO(out *float32, t *int32, groups int, scales *float32, as float32) {
	f := [genericNR]float32{}
	for i := range groups * genericNR {
		f[i%genericNR] += float32(float32(at(scales, i)*as) * float32(at(t, i)))
	}
	*(*[genericNR]float32)(unsafe.Pointer(out)) = f
}

func epilogueRow(out *float32, t, sums *int32, factor, negZero int32, scales, bias *float32, rec float32) {
	for r := range genericNR {
		a := factor*at(t, r) + at(sums, r)*negZero
		x := float32(float32(a)*float32(at(scales, r)*rec)) + at(bias, r)
		if x != x {
			x = floats.NaN
		}
		*after(out, r) = x
	}
}

func addSums(t, sums *int32, groups int, factor int32) {
	for i := range groups * genericNR {
		*after(t, i) += factor * at(sums, i)
	}
}

func zip(dst *byte, n int) {
	le := binary.LittleEndian
	for b := unsafe.Slice(dst, 32*n); len(b) > 0; b = b[32:] {
		x := (*[32]byte)(b)
		a0, a1, b0, b1 := le.Uint64(x[:]), le.Uint64(x[8:]), le.Uint64(x[16:]), le.Uint64(x[24:])
		const low = 0xffffffff
		le.PutUint64(x[:], a0&low|b0<<32)
		le.PutUint64(x[8:], a0>>32|b0&^low)
		le.PutUint64(x[16:], a1&low|b1<<32)
		le.PutUint64(x[24:], a1>>32|b1&^low)
	}
}
