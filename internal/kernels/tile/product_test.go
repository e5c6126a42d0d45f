package tile

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// product holds random arguments of a Step and the expected results.
type product struct {
	args               Args // in the arguments of epilogues only when a product runs
	shifted            ShiftedArgs
	rowArgs            RowArgs
	qai4               BlocksQAI4Args
	torch              TorchAOArgs
	mr, nr, groups     int
	steps, sums, zeros []int32
	acts               []int8
	codes              []byte
	scales             []float32
	rowSums, bias      []float32
	negZero, rec       []float32
	intSums, negInt    []int32
	points             []float32
	actScales, actSums []float32 // [groups][mr]
}

// fill is the choice of numbers in a product.
type fill struct {
	steps []int32
	// Codes and activations at their limits, so that sums of products saturate where they can.
	extreme bool
	zeros   bool // a zero point for each group
	nasty   bool // scales and the rest: infinities, NaN, subnormals; sums and zero points of any size
}

func newProduct(t *testing.T, rng *rand.Rand, s Set, bits int, step Step, f fill) *product {
	mr := step.MR
	p := &product{mr: mr, nr: s.NR, groups: len(f.steps), steps: f.steps}
	chunks := 0
	for _, n := range f.steps {
		chunks += 2 * int(n)
	}
	p.acts, p.codes = make([]int8, 8*mr*chunks), make([]byte, 8*s.NR*chunks)
	low := -(1 << (bits - 1)) + s.Offset
	sign := rng.IntN(2)
	for i := range p.acts {
		p.acts[i] = int8(rng.Uint32())
		if f.extreme {
			p.acts[i] = int8(-128 + 255*sign)
		}
		if step.Group == nil { // Symmetric
			p.acts[i] = max(p.acts[i], -127)
		}
	}
	for i := range p.codes {
		p.codes[i] = byte(low + rng.IntN(1<<bits))
		if f.extreme {
			p.codes[i] = byte(low + rng.IntN(2)*(1<<bits-1))
			if i%16 < 8 {
				p.codes[i] = byte(low + i/16%2*(1<<bits-1))
			}
		}
	}
	nz := 1
	if f.zeros {
		nz = p.groups
		p.args.ZeroStep = 4 * s.NR
	}
	p.sums, p.zeros = make([]int32, p.groups*mr), make([]int32, nz*s.NR)
	for i := range p.sums {
		p.sums[i] = int32(rng.IntN(1<<20) - 1<<19)
		if f.nasty {
			p.sums[i] = int32(rng.Uint32())
		}
	}
	for i := range p.zeros {
		p.zeros[i] = int32(rng.IntN(512) - 256)
		if f.nasty && rng.IntN(3) == 0 {
			p.zeros[i] = int32(rng.Uint32())
		}
		if !f.zeros {
			p.zeros[i] = p.zeros[0]
		}
	}
	if step.Group == nil { // Symmetric
		clear(p.zeros)
	}
	number := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
			if f.nasty {
				x[i] = nasty(rng)
			}
		}
		return asmtest.AtPageEnd(t, x)
	}
	p.scales, p.rowSums, p.bias = number(p.groups*s.NR), number(s.NR), number(s.NR)
	p.negZero, p.rec = number(mr), number(mr)
	p.points, p.actScales, p.actSums = number(p.groups*s.NR), number(p.groups*mr), number(p.groups*mr)
	integers := func(n int) []int32 {
		x := make([]int32, n)
		for i := range x {
			x[i] = int32(rng.Uint32()) >> (rng.IntN(4) * 5)
		}
		return asmtest.AtPageEnd(t, x)
	}
	p.intSums, p.negInt = integers(p.groups*s.NR), integers(mr)
	p.acts, p.codes, p.sums, p.zeros, p.steps = asmtest.AtPageEnd(t, p.acts), asmtest.AtPageEnd(t, p.codes), asmtest.AtPageEnd(t, p.sums), asmtest.AtPageEnd(t, p.zeros), asmtest.AtPageEnd(t, p.steps)
	a := &p.args
	acts := p.acts
	switch {
	case step.Quads:
		acts = asmtest.AtPageEnd(t, columns(acts, mr, 4))
	case step.Words:
		acts = asmtest.AtPageEnd(t, columns(acts, mr, 2))
	}
	codes := p.codes
	if s.Unzip != nil {
		codes = asmtest.AtPageEnd(t, slices.Clone(codes))
		s.Unzip(&codes[0], len(codes)/32)
	}
	if step.Words {
		words := asmtest.AtPageEnd(t, make([]int16, len(codes)))
		s.Widen(&words[0], &codes[0], 1, len(codes)/8/s.NR, nil)
		codes = unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 2*len(words))
	}
	a.Codes, a.Acts, a.Sums, a.Zeros, a.Steps, a.Groups = &codes[0], &acts[0], &p.sums[0], &p.zeros[0], &p.steps[0], p.groups
	scales, bias, rec, intSums, negInt := &p.scales[0], &p.bias[0], &p.rec[0], &p.intSums[0], &p.negInt[0]
	dots := func() *int32 { return &make([]int32, mr*p.groups*s.NR)[0] }
	p.shifted.GroupArgs = GroupArgs{Scales: scales, RowSums: &p.rowSums[0], Bias: bias, NegZero: &p.negZero[0], Rec: rec}
	p.rowArgs = RowArgs{T: dots(), Scales: scales, IntSums: intSums, NegInt: negInt, Rec: rec, Bias: bias, Factor: int32(rng.IntN(17))}
	p.torch = TorchAOArgs{T: dots(), Scales: scales, IntSums: intSums, NegInt: negInt, Rec: rec, Bias: bias}
	p.qai4 = BlocksQAI4Args{
		BlocksArgs: BlocksArgs{T: dots(), Scales: scales, ActScales: &asmtest.AtPageEnd(t, twice(p.actScales, step.Twice))[0]},
		Points:     &p.points[0], ActSums: &asmtest.AtPageEnd(t, twice(p.actSums, step.Twice))[0], Bias: bias,
	}
	return p
}

// A runner runs a product of a Step with the operands.
type runner func(operands Args)

func (p *product) runGroup(step Step) runner {
	return func(a Args) { p.shifted.Args = a; step.Group(&p.shifted.GroupArgs) }
}

func (p *product) runShifted(step Step) runner {
	return func(a Args) { p.shifted.Args = a; step.Shifted(&p.shifted) }
}

func (p *product) runRow(step Step) runner {
	return func(a Args) { p.rowArgs.Args = a; step.Row(&p.rowArgs) }
}

func (p *product) runBlocks(step Step) runner {
	return func(a Args) { p.qai4.Args = a; step.Blocks(&p.qai4.BlocksArgs) }
}

func (p *product) runBlocksQAI4(step Step) runner {
	return func(a Args) { p.qai4.Args = a; step.BlocksQAI4(&p.qai4) }
}

func (p *product) runTorchAO(step Step) runner {
	return func(a Args) { p.torch.Args = a; step.TorchAO(&p.torch) }
}

// columns puts activations of chunks of 8 columns into chunks of n.
func columns(acts []int8, mr, n int) []int8 {
	var list []int8
	for chunk := 0; chunk < len(acts); chunk += 8 * mr {
		for part := 0; part < 8; part += n {
			for m := range mr {
				list = append(list, acts[chunk+8*m+part:][:n]...)
			}
		}
	}
	return list
}

// nasty is any float32, and often one at a limit.
func nasty(rng *rand.Rand) float32 {
	special := []uint32{0, 1, 0x007fffff, 0x00800000, 0x3f800000, 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x7f800001, 0x4b800000, 0x00800001}
	u := rng.Uint32()
	if u%3 == 0 {
		u = special[rng.IntN(len(special))] | u&(1<<31)
	}
	return math.Float32frombits(u)
}

// dots computes Step.Dots: t of [mr][groups][nr]; Step.Shifted's t with a shift.
func (p *product) dots(s Set, shift int) []int32 {
	t := make([]int32, p.mr*p.groups*p.nr)
	chunk := 0
	for g, n := range p.steps {
		for end := chunk + 2*int(n); chunk < end; chunk++ {
			for m := range p.mr {
				for r := range p.nr {
					sum := int32(0)
					for c := range 8 {
						a, w := int32(p.acts[8*(p.mr*chunk+m)+c]), int32(int8(p.codes[8*(p.nr*chunk+r)+c]))
						if s.Offset != 0 {
							w = int32(uint8(w))
						}
						sum += a * w
					}
					t[(m*p.groups+g)*p.nr+r] += sum
				}
			}
		}
		for m := range p.mr {
			for r := range p.nr {
				at := (m*p.groups+g)*p.nr + r
				t[at] = t[at]<<shift - p.zeros[g*p.args.ZeroStep/4+r]*p.sums[g*p.mr+m]
			}
		}
	}
	return t
}

// outputs computes a product as bits, [mr][nr]: begin with 0, then group with each group's t, its
// index among scales, and its index among the scales of activations; then end.
func (p *product) outputs(t []int32, group func(f float32, t int32, m, w, a int) float32, end func(f float32, m, r int) float32) []uint32 {
	out := make([]uint32, p.mr*p.nr)
	for m := range p.mr {
		for r := range p.nr {
			f := float32(0)
			for g := range p.groups {
				f = group(f, t[(m*p.groups+g)*p.nr+r], m, g*p.nr+r, g*p.mr+m)
			}
			out[m*p.nr+r] = canonical(end(f, m, r))
		}
	}
	return out
}

// group computes Step.Group and Shifted.
func (p *product) group(t []int32) []uint32 {
	return p.outputs(t, func(f float32, t int32, m, w, a int) float32 {
		return floats.FMA32(float32(t), p.scales[w], f)
	}, func(f float32, m, r int) float32 {
		f = floats.FMA32(p.rowSums[r], p.negZero[m], f)
		return float32(f*p.rec[m]) + p.bias[r]
	})
}

// row computes Step.Row.
func (p *product) row(t []int32) []uint32 {
	return p.outputs(t, func(_ float32, t int32, m, w, a int) float32 {
		return float32(float32(p.rowArgs.Factor*t+p.intSums[w]*p.negInt[m]) * float32(p.scales[w]*p.rec[m]))
	}, func(f float32, m, r int) float32 { return f + p.bias[r] })
}

// blocks computes Step.Blocks.
func (p *product) blocks(t []int32) []uint32 {
	return p.outputs(t, func(f float32, t int32, m, w, a int) float32 {
		return floats.FMA32(float32(t), float32(p.actScales[a]*p.scales[w]), f)
	}, func(f float32, m, r int) float32 { return f })
}

// blocksQAI4 computes Step.BlocksQAI4.
func (p *product) blocksQAI4(t []int32) []uint32 {
	return p.outputs(t, func(f float32, t int32, m, w, a int) float32 {
		f = floats.FMA32(p.points[w], p.actSums[a], f)
		return floats.FMA32(float32(16*t), float32(p.actScales[a]*p.scales[w]), f)
	}, func(f float32, m, r int) float32 { return f + p.bias[r] })
}

// torchAO computes Step.TorchAO.
func (p *product) torchAO(t []int32) []uint32 {
	return p.outputs(t, func(f float32, t int32, m, w, a int) float32 {
		return f + float32(float32(p.scales[w]*p.rec[m])*float32(t+p.intSums[w]*p.negInt[m]))
	}, func(f float32, m, r int) float32 { return f + p.bias[r] })
}

func canonical(x float32) uint32 {
	if x != x {
		return 0x7fc00000
	}
	return math.Float32bits(x)
}
