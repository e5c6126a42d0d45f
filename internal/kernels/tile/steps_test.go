package tile

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

var someFills = []fill{
	{steps: []int32{1}},
	{steps: []int32{2}},
	{steps: []int32{3}, nasty: true},
	{steps: []int32{2, 2, 2, 2}},
	{steps: []int32{2, 2, 1}, zeros: true},
	{steps: []int32{4, 4, 4}, extreme: true},
	{steps: []int32{8, 8, 3}, zeros: true, extreme: true},
	{steps: []int32{1, 1, 1, 1, 1}, zeros: true, nasty: true},
	{steps: []int32{3, 3, 3, 2}, nasty: true},
	{steps: []int32{2, 2, 2, 2, 2, 2, 2, 2}, zeros: true, nasty: true, extreme: true},
	{steps: []int32{16, 5}, nasty: true},
	{steps: []int32{33}, zeros: true, extreme: true},
}

// withDots are the steps that compute Dots: TestBlockSteps has the others.
func withDots(s Set) []Step {
	return slices.DeleteFunc(slices.Concat(s.Steps, s.Symmetric), func(s Step) bool { return s.Dots == nil })
}

func TestSteps(t *testing.T) {
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	eachSet(t, func(t *testing.T, s Set, bits int) {
		rng := rand.New(rand.NewPCG(uint64(bits), 3))
		for _, step := range withDots(s) {
			for i := range rounds * len(someFills) {
				f := someFills[i%len(someFills)]
				f.steps = slices.Clone(f.steps)
				p := newProduct(t, rng, s, bits, step, f)
				checkStep(t, rng, s, step, p, fmt.Sprintf("%d rows, case %d", step.MR, i))
			}
		}
	})
}

// checkStep compares Dots and the other products with the model.
func checkStep(t *testing.T, rng *rand.Rand, s Set, step Step, p *product, name string) {
	t.Helper()
	wantDots := p.dots(s, 0)
	width, gap := 4*p.groups*p.nr, 4*rng.IntN(20)
	b := newBuffer(rng, (p.mr-1)*(width+gap)+width)
	before := slices.Clone(b.all)
	a := p.args
	a.Out, a.OutStride = b.pointer(), width+gap
	step.Dots(&a)
	b.checkMargins(t, before)
	for i, want := range wantDots {
		m, j := i/(width/4), i%(width/4)
		if got := int32(binary.LittleEndian.Uint32(b.bytes()[m*(width+gap)+4*j:])); got != want {
			t.Fatalf("%s: Dots: row %d, group %d, output %d: %d, want %d", name, m, j/p.nr, j%p.nr, got, want)
		}
	}
	if step.Group != nil { // Symmetric has none
		checkOutputs(t, rng, p, p.group(wantDots), p.runGroup(step), gap, name+": Group")
	}
	if step.Shifted != nil && !(a.NoZeros && testing.Short()) { // emulated, one of the two is enough
		shift := 1 + rng.IntN(7)
		for i := range p.shifted.Shift {
			p.shifted.Shift[i] = uint32(shift)
		}
		checkOutputs(t, rng, p, p.group(p.dots(s, shift)), p.runShifted(step), gap, fmt.Sprintf("%s: Shifted by %d", name, shift))
	}
	if p.groups == 1 {
		checkOutputs(t, rng, p, p.row(wantDots), p.runRow(step), gap, name+": Row")
	}
	checkOutputs(t, rng, p, p.blocks(wantDots), p.runBlocks(step), gap, name+": Blocks")
	checkOutputs(t, rng, p, p.blocksQAI4(wantDots), p.runBlocksQAI4(step), gap, name+": BlocksQAI4")
	checkOutputs(t, rng, p, p.torchAO(wantDots), p.runTorchAO(step), gap, name+": TorchAO")
}

// twice returns x, or each of its numbers twice.
func twice(x []float32, really bool) []float32 {
	if !really {
		return x
	}
	var list []float32
	for _, v := range x {
		list = append(list, v, v)
	}
	return list
}

// checkOutputs compares the outputs of a product with the model's.
func checkOutputs(t *testing.T, rng *rand.Rand, p *product, wants []uint32, run runner, gap int, name string) {
	t.Helper()
	width := 4 * p.nr
	b := newBuffer(rng, (p.mr-1)*(width+gap)+width)
	before := slices.Clone(b.all)
	a := p.args
	a.Out, a.OutStride = b.pointer(), width+gap
	run(a)
	b.checkMargins(t, before)
	for i, want := range wants {
		m, r := i/p.nr, i%p.nr
		if got := binary.LittleEndian.Uint32(b.bytes()[m*(width+gap)+4*r:]); got != want {
			t.Fatalf("%s: row %d, output %d: %#08x, want %#08x", name, m, r, got, want)
		}
	}
}

// TestLongestGroup has the largest sums that a group of 65,536 columns can have.
func TestLongestGroup(t *testing.T) {
	eachSet(t, func(t *testing.T, s Set, bits int) {
		if testing.Short() && bits%4 != 0 {
			t.Skip("4 and 8 bits stand for the others")
		}
		rng := rand.New(rand.NewPCG(4, 4))
		for _, step := range withDots(s) {
			p := newProduct(t, rng, s, bits, step, fill{steps: []int32{65536 / 16}, extreme: true})
			checkStep(t, rng, s, step, p, fmt.Sprintf("%d rows", step.MR))
		}
	})
}
