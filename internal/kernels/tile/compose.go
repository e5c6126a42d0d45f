package tile

import (
	"encoding/binary"
	"math"
	"slices"
	"unsafe"

	"github.com/lowbit-go/gq/internal/floats"
)

// compose makes the products that step lacks of Dots and the Set's epilogues.
func (s *Set) compose(step *Step) {
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
			out[r] = math.Float32frombits(canonicalNaN)
		}
	}
}

// after is the address of element i of the numbers, of 4 bytes, at p.
func after[T int32 | float32](p *T, i int) *T { return (*T)(unsafe.Add(unsafe.Pointer(p), 4*i)) }

func at[T int32 | float32](p *T, i int) T { return *after(p, i) }

func (s *Set) fill() {
	nr := s.NR
	if s.Zip == nil {
		s.Zip = zip
	}
	if s.EpilogueFMA == nil {
		s.EpilogueFMA = func(out *float32, t *int32, groups int, scales, as *float32, step int) {
			epilogueFMA(unsafe.Slice(out, nr), unsafe.Slice(t, nr*groups), unsafe.Slice(scales, nr*groups), as, step)
		}
	}
	if s.EpilogueQAI4 == nil {
		s.EpilogueQAI4 = func(out *float32, t *int32, groups int, scales, zeros, as, asum *float32, step int) {
			epilogueQAI4(unsafe.Slice(out, nr), unsafe.Slice(t, nr*groups), unsafe.Slice(scales, nr*groups), unsafe.Slice(zeros, nr*groups),
				as, asum, step)
		}
	}
	if s.EpilogueMin == nil {
		s.EpilogueMin = func(out *float32, t *int32, groups int, scales, mins, as, asum *float32, step int) {
			epilogueMin(unsafe.Slice(out, nr), unsafe.Slice(t, nr*groups), unsafe.Slice(scales, nr*groups), unsafe.Slice(mins, nr*groups), as, asum, step)
		}
	}
	if s.EpilogueSubs == nil {
		s.EpilogueSubs = func(out *float32, t *int32, a *SubsArgs, blocks int, as *float32, sums *int32, step, sumStep int) {
			epilogueSubs(unsafe.Slice(out, nr), t, a, blocks, as, sums, step, sumStep)
		}
	}
	if s.EpilogueTorchAO == nil {
		s.EpilogueTorchAO = func(out *float32, t *int32, groups int, scales *float32, as float32) {
			epilogueTorchAO(unsafe.Slice(out, nr), unsafe.Slice(t, nr*groups), unsafe.Slice(scales, nr*groups), as)
		}
	}
	if s.EpilogueRow == nil {
		s.EpilogueRow = func(out *float32, t, sums *int32, factor, negZero int32, scales, bias *float32, rec float32) {
			epilogueRow(unsafe.Slice(out, nr), unsafe.Slice(t, nr), unsafe.Slice(sums, nr), factor, negZero, unsafe.Slice(scales, nr), unsafe.Slice(bias, nr), rec)
		}
	}
	if s.AddSums == nil {
		s.AddSums = func(t, sums *int32, groups int, factor int32) {
			addSums(unsafe.Slice(t, nr*groups), unsafe.Slice(sums, nr*groups), factor)
		}
	}
	s.Steps = slices.Clone(s.Steps)
	for i := range s.Steps {
		s.compose(&s.Steps[i])
	}
}

func epilogueFMA(out []float32, t []int32, scales []float32, as *float32, step int) {
	clear(out)
	for g := 0; len(t) > 0; g++ {
		a := at(as, g*step/4)
		for r := range out {
			out[r] = floats.FMA32(float32(t[r]), float32(a*scales[r]), out[r])
		}
		t, scales = t[len(out):], scales[len(out):]
	}
}

func epilogueQAI4(out []float32, t []int32, scales, zeros []float32, as, asum *float32, step int) {
	clear(out)
	for g := 0; len(t) > 0; g++ {
		a, sum := at(as, g*step/4), at(asum, g*step/4)
		for r := range out {
			f := floats.FMA32(zeros[r], sum, out[r])
			out[r] = floats.FMA32(float32(16*t[r]), float32(scales[r]*a), f)
		}
		t, scales, zeros = t[len(out):], scales[len(out):], zeros[len(out):]
	}
}

func epilogueMin(out []float32, t []int32, scales, mins []float32, as, asum *float32, step int) {
	clear(out)
	for g := 0; len(t) > 0; g++ {
		a, sum := at(as, g*step/4), at(asum, g*step/4)
		for r := range out {
			f := floats.FMA32(float32(t[r]), float32(a*scales[r]), out[r])
			out[r] = floats.FMA32(mins[r], sum, f)
		}
		t, scales, mins = t[len(out):], scales[len(out):], mins[len(out):]
	}
}

func epilogueSubs(out []float32, p *int32, a *SubsArgs, blocks int, as *float32, sums *int32, step, sumStep int) {
	nr := len(out)
	all := blocks * a.Each * nr
	t, factors, scales := unsafe.Slice(p, all), unsafe.Slice(a.Factors, all), unsafe.Slice(a.Scales, blocks*nr)
	var subMins []int32
	var mins []float32
	if a.SubMins != nil {
		subMins, mins = unsafe.Slice(a.SubMins, all), unsafe.Slice(a.Mins, blocks*nr)
	}
	clear(out)
	for b := range blocks {
		as := at(as, b*step/4)
		for r := range out {
			total := int32(0)
			for i := b*a.Each*nr + r; i < (b+1)*a.Each*nr; i += nr {
				total += factors[i] * t[i]
			}
			f := floats.FMA32(float32(total), float32(as*scales[b*nr+r]), out[r])
			if subMins != nil {
				total = 0
				for g := b * a.Each; g < (b+1)*a.Each; g++ {
					total += subMins[g*nr+r] * at(sums, g*sumStep/4)
				}
				f = floats.FMA32(float32(total), -float32(as*mins[b*nr+r]), f)
			}
			out[r] = f
		}
	}
}

func epilogueTorchAO(out []float32, t []int32, scales []float32, as float32) {
	clear(out)
	for len(t) > 0 {
		for r := range out {
			out[r] += float32(float32(scales[r]*as) * float32(t[r]))
		}
		t, scales = t[len(out):], scales[len(out):]
	}
}

func epilogueRow(out []float32, t, sums []int32, factor, negZero int32, scales, bias []float32, rec float32) {
	t, sums, scales, bias = t[:len(out)], sums[:len(out)], scales[:len(out)], bias[:len(out)]
	for r := range out {
		a := factor*t[r] + sums[r]*negZero
		x := float32(float32(a)*float32(scales[r]*rec)) + bias[r]
		if x != x {
			x = math.Float32frombits(canonicalNaN)
		}
		out[r] = x
	}
}

func addSums(t, sums []int32, factor int32) {
	sums = sums[:len(t)]
	for i := range t {
		t[i] += factor * sums[i]
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
