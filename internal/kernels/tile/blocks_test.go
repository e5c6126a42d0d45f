package tile

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// TestBlockSteps holds the products for ggml's blocks to their formulas: signed codes and codes
// that are never negative, random and at their limits, where sums of words are largest.
func TestBlockSteps(t *testing.T) {
	cases := 24
	if testing.Short() {
		cases = 4
	}
	eachSet(t, func(t *testing.T, s Set, bits int) {
		rng := rand.New(rand.NewPCG(uint64(bits), 7))
		steps := s.Steps
		if s.Symmetric != nil {
			steps = s.Symmetric
		}
		for _, step := range steps {
			for i := range cases {
				unsigned := i%2 == 1 && s.Offset != 0
				newBlockProduct(rng, s, bits, step, unsigned, i%4 > 1).check(t, rng, fmt.Sprintf("%d rows, case %d", step.MR, i))
			}
		}
	})
}

// blockProduct holds the arguments of a Step for blocks of each groups.
type blockProduct struct {
	s                                      Set
	step                                   Step
	mr, nr, groups, each, columns          int    // columns of a group
	acts                                   []int8 // [column][mr]
	codes                                  []int  // [column][nr], signed
	offset                                 int    // of stored codes
	scales, mins, actScales, actSums       []float32
	factors, subMins                       []int32
	groupScales, groupMins, groupActScales []float32 // of Blocks and BlocksMin
}

func newBlockProduct(rng *rand.Rand, s Set, bits int, step Step, unsigned, extreme bool) *blockProduct {
	p := &blockProduct{s: s, step: step, mr: step.MR, nr: s.NR, each: 8, columns: 16 << rng.IntN(2)}
	if p.columns < step.Unit {
		p.columns = step.Unit
	}
	p.groups = p.each * (1 + rng.IntN(2))
	low, high := -(1 << (bits - 1)), 1<<(bits-1)-1
	switch {
	case unsigned:
		low = 0
	default:
		p.offset = s.Offset
	}
	if step.Words {
		low = -127 // what types with codes of 8 bits have: words hold codes times sub-scales
	}
	sign := 1 - 2*rng.IntN(2)
	for range p.groups * p.columns {
		for range p.mr {
			a := int8(rng.IntN(255) - 127)
			if extreme {
				a = int8(127 * sign)
			}
			p.acts = append(p.acts, a)
		}
		for r := range p.nr {
			q := low + rng.IntN(high-low+1)
			if extreme {
				q = []int{low, high}[r%2]
			}
			p.codes = append(p.codes, q)
		}
	}
	number := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
			if rng.IntN(20) == 0 {
				x[i] = nasty(rng)
			}
		}
		return x
	}
	integers := func(most int) []int32 {
		x := make([]int32, p.groups*p.nr)
		for i := range x {
			x[i] = int32(rng.IntN(2*most) - most)
		}
		return x
	}
	blocks := p.groups / p.each
	p.scales, p.mins, p.actScales = number(blocks*p.nr), number(blocks*p.nr), number(blocks*p.mr)
	p.groupScales, p.groupMins, p.groupActScales, p.actSums = number(p.groups*p.nr), number(p.groups*p.nr), number(p.groups*p.mr), number(p.groups*p.mr)
	p.factors, p.subMins = integers(128), integers(64)
	if step.Words {
		p.factors = integers(32)
	}
	return p
}

// dot is the sum of products of signed codes of a group.
func (p *blockProduct) dot(g, m, r int) (t, sum int32) {
	for c := g * p.columns; c < (g+1)*p.columns; c++ {
		a := int32(p.acts[c*p.mr+m])
		t, sum = t+a*int32(p.codes[c*p.nr+r]), sum+a
	}
	return t, sum
}

// args lays out the operands; Zeros are the offset, or -1 with Sums times minus the offset.
func (p *blockProduct) args(t *testing.T, subs bool) Args {
	columns := p.groups * p.columns
	chunk := 8
	switch {
	case p.step.Quads:
		chunk = 4
	case p.step.Words:
		chunk = 2
	}
	acts, codes := make([]int8, columns*p.mr), make([]byte, columns*p.nr)
	for c := range columns {
		for m := range p.mr {
			acts[c/chunk*chunk*p.mr+m*chunk+c%chunk] = p.acts[c*p.mr+m]
		}
		for r := range p.nr {
			codes[c/8*8*p.nr+r*8+c%8] = byte(p.codes[c*p.nr+r] + p.offset)
		}
	}
	if p.s.Unzip != nil {
		p.s.Unzip(&codes[0], len(codes)/32)
	}
	a := Args{Groups: p.groups, NoZeros: p.offset == 0}
	a.Acts, a.Codes = &asmtest.AtPageEnd(t, acts)[0], &asmtest.AtPageEnd(t, codes)[0]
	if p.step.Words {
		words := asmtest.AtPageEnd(t, make([]int16, columns*p.nr))
		var factors *int32
		if subs {
			factors = &asmtest.AtPageEnd(t, p.factors)[0]
		}
		p.s.Widen(&words[0], a.Codes, p.groups, p.columns/8, factors)
		a.Codes = (*byte)(unsafe.Pointer(&words[0]))
	}
	zeros, sums, steps := make([]int32, p.nr), make([]int32, p.groups*p.mr), make([]int32, p.groups)
	for i := range zeros {
		if zeros[i] = int32(p.offset); subs && p.offset != 0 {
			zeros[i] = -1
		}
	}
	for i := range sums {
		if _, sums[i] = p.dot(i/p.mr, i%p.mr, 0); subs && p.offset != 0 {
			sums[i] *= -int32(p.offset)
		}
	}
	for g := range steps {
		steps[g] = int32(p.columns / 16)
	}
	a.Zeros, a.Sums, a.Steps = &asmtest.AtPageEnd(t, zeros)[0], &asmtest.AtPageEnd(t, sums)[0], &asmtest.AtPageEnd(t, steps)[0]
	if unit := p.step.Unit; unit > 0 && p.offset != 0 {
		starts := make([]uint32, columns/unit*p.mr)
		for i := range starts {
			var words [2]int
			for c := i / p.mr * unit; c < (i/p.mr+1)*unit; c++ {
				words[c/2%2] -= p.offset * int(p.acts[c*p.mr+i%p.mr])
			}
			starts[i] = uint32(uint16(words[0])) | uint32(uint16(words[1]))<<16
		}
		a.Starts = &asmtest.AtPageEnd(t, starts)[0]
	}
	return a
}

func (p *blockProduct) check(t *testing.T, rng *rand.Rand, name string) {
	t.Helper()
	dots := func() *int32 { return &make([]int32, p.mr*p.groups*p.nr)[0] }
	place := func(x []float32) *float32 { return &asmtest.AtPageEnd(t, x)[0] }
	forRows := func(x []float32) *float32 { return place(twice(x, p.step.Twice)) }
	compare := func(what string, a *Args, run func(), want func(m, r int) float32) {
		width, gap := 4*p.nr, 4*rng.IntN(20)
		b := newBuffer(rng, (p.mr-1)*(width+gap)+width)
		before := slices.Clone(b.all)
		a.Out, a.OutStride = b.pointer(), width+gap
		run()
		b.checkMargins(t, before)
		for i := range p.mr * p.nr {
			m, r := i/p.nr, i%p.nr
			if got, want := binary.LittleEndian.Uint32(b.bytes()[m*(width+gap)+4*r:]), canonical(want(m, r)); got != want {
				t.Fatalf("%s: %s: row %d, output %d: %#08x, want %#08x", name, what, m, r, got, want)
			}
		}
	}
	blocks := func(minima bool) func(m, r int) float32 {
		return func(m, r int) (f float32) {
			for g := range p.groups {
				d, _ := p.dot(g, m, r)
				f = floats.FMA32(float32(d), float32(p.groupActScales[g*p.mr+m]*p.groupScales[g*p.nr+r]), f)
				if minima {
					f = floats.FMA32(p.groupMins[g*p.nr+r], p.actSums[g*p.mr+m], f)
				}
			}
			return f
		}
	}
	if p.step.Blocks != nil {
		a := BlocksArgs{Args: p.args(t, false), T: dots(), Scales: place(p.groupScales), ActScales: forRows(p.groupActScales)}
		compare("Blocks", &a.Args, func() { p.step.Blocks(&a) }, blocks(false))
	}
	if p.step.BlocksMin != nil {
		a := BlocksMinArgs{
			BlocksArgs: BlocksArgs{Args: p.args(t, false), T: dots(), Scales: place(p.groupScales), ActScales: forRows(p.groupActScales)},
			Mins:       place(p.groupMins), ActSums: forRows(p.actSums),
		}
		compare("BlocksMin", &a.Args, func() { p.step.BlocksMin(&a) }, blocks(true))
	}
	for _, minima := range []bool{false, true} {
		if minima && p.offset != 0 || minima && p.step.Words {
			continue // no type has both
		}
		a := SubsArgs{
			BlocksArgs: BlocksArgs{Args: p.args(t, true), T: dots(), Scales: place(p.scales), ActScales: forRows(p.actScales)},
			Each:       p.each, Factors: &asmtest.AtPageEnd(t, p.factors)[0],
		}
		if minima {
			a.SubMins, a.Mins = &asmtest.AtPageEnd(t, p.subMins)[0], place(p.mins)
			pairs := make([]uint32, p.groups/2*p.mr)
			for i := range pairs {
				g, m := i/p.mr*2, i%p.mr
				_, first := p.dot(g, m, 0)
				_, second := p.dot(g+1, m, 0)
				pairs[i] = uint32(uint16(first)) | uint32(uint16(second))<<16
			}
			a.SumPairs = &asmtest.AtPageEnd(t, pairs)[0]
		}
		compare(fmt.Sprintf("Subs, minima %v", minima), &a.Args, func() { p.step.Subs(&a) }, func(m, r int) (f float32) {
			for b := range p.groups / p.each {
				total, rest := int32(0), int32(0)
				for g := b * p.each; g < (b+1)*p.each; g++ {
					d, sum := p.dot(g, m, r)
					total, rest = total+p.factors[g*p.nr+r]*d, rest+p.subMins[g*p.nr+r]*sum
				}
				as := p.actScales[b*p.mr+m]
				f = floats.FMA32(float32(total), float32(as*p.scales[b*p.nr+r]), f)
				if minima {
					f = floats.FMA32(float32(rest), -float32(as*p.mins[b*p.nr+r]), f)
				}
			}
			return f
		})
	}
}
