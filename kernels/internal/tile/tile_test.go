package tile

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"unsafe"

	"github.com/lowbit-go/gq/internal/asmtest"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// eachSet runs f for every instruction set that this CPU has and every width.
func eachSet(t *testing.T, f func(t *testing.T, s Set, bits int)) {
	asmtest.Each(t, Sets, func(t *testing.T, w Widths) {
		for bits := 1; bits <= 8; bits++ {
			t.Run(fmt.Sprint(bits), func(t *testing.T) { f(t, w.Set(bits), bits) })
		}
	})
}

// TestExpectedCPU wants products for the very instruction set that a builder is to have.
func TestExpectedCPU(t *testing.T) {
	want := os.Getenv("GQ_EXPECT_CPU")
	if want == "" {
		t.Skip("GQ_EXPECT_CPU names no instruction set")
	}
	if got := Sets.For([]string{want}).Feature; got != want {
		t.Errorf("GQ_EXPECT_CPU is %s, there are kernels for %s", want, got)
	}
}

func TestSets(t *testing.T) {
	eachSet(t, func(t *testing.T, s Set, bits int) {
		if s.Offset != 0 && s.Offset != 1<<(bits-1) || s.NR < 8 || s.NR%8 != 0 {
			t.Errorf("offset %d, %d rows", s.Offset, s.NR)
		}
		for i, step := range s.Steps {
			if bits < 8 && step.Shifted == nil {
				t.Errorf("no shifted product of %d rows", step.MR)
			}
			if i > 0 && step.MR >= s.Steps[i-1].MR || step.MR < 1 {
				t.Errorf("step %d has %d rows of activations", i, step.MR)
			}
		}
		if n := len(s.Steps); n == 0 || s.Steps[n-1].MR != 1 {
			t.Error("no step for one row")
		}
	})
	for _, i := range Sets.All() { // sets of other CPUs too
		for bits := 1; bits <= 8; bits++ {
			if s := i.Code.Set(bits); s.Feature != i.Feature || s.Unpack == nil || s.Zip == nil || s.EpilogueRow == nil {
				t.Errorf("%s, %d bits: %+v", i.Feature, bits, s)
			}
		}
	}
}

// someLanes are the ways in which panels of nr rows place lanes: the rows of 8x16x2 together, and
// lanes far apart.
func someLanes(nr int) []Lanes {
	chunk := int64(8 * nr)
	rows := Lanes{Step: [2]int64{chunk, 3 * chunk}}
	far := Lanes{Step: [2]int64{4 * chunk, 4 * chunk}}
	for j := range int64(8) {
		rows.Lane[j] = j%2*2*chunk + j/2*16
		far.Lane[j] = j%2*2*chunk + j/4*chunk + j/2%2*16
	}
	return []Lanes{rows, far}
}

func TestUnpack(t *testing.T) {
	eachSet(t, func(t *testing.T, s Set, bits int) {
		rng := rand.New(rand.NewPCG(1, uint64(bits)))
		half := uint8(1 << (bits - 1))
		for _, c := range []struct{ units, run, gap int }{
			{1, 0, 0}, {2, 0, 9}, {3, 3, 5}, {8, 0, 0}, {17, 0, 0}, {4, 2, 16}, {6, 1, 24}, {12, 4, 12}, {9, 3, 1},
		} {
			units, runs := c.units, 1
			if c.run > 0 {
				runs = c.units / c.run
			}
			src := asmtest.AtPageEnd(t, make([]byte, 16*bits*units+(runs-1)*c.gap))
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			for i, lanes := range someLanes(s.NR) {
				lanes.Run, lanes.Gap = int64(c.run), int64(c.gap)
				for _, place := range [][2]uint8{{0, 0}, {0, half}, {half, half}, {half, 0}, {0x5a, 0xc3}} {
					lanes.Flip, lanes.Sub = place[0], place[1]
					got := newBuffer(rng, units*4*8*s.NR) // at most 4 chunks a unit
					before := slices.Clone(got.all)
					want := slices.Clone(got.bytes())
					modelUnpack(want, src, bits, units, &lanes)
					s.Unpack((*byte)(got.pointer()), &src[0], units, &lanes)
					if !slices.Equal(got.bytes(), want) {
						t.Fatalf("%+v, lanes %d, flip %#x, sub %#x: got other bytes", c, i, lanes.Flip, lanes.Sub)
					}
					got.checkMargins(t, before)
				}
			}
		}
	})
}

// modelUnpack is Set.Unpack by packing.UnpackUnit.
func modelUnpack(dst, src []byte, bits, units int, lanes *Lanes) {
	var codes [128]int8
	at := 0
	for u := range units {
		if u > 0 && lanes.Run > 0 && u%int(lanes.Run) == 0 {
			src = src[lanes.Gap:]
		}
		packing.UnpackUnit(bits, 128, codes[:], src[:16*bits])
		src = src[16*bits:]
		for i, q := range codes {
			field := uint8(q)
			if bits < 8 {
				field += 1 << (bits - 1)
			}
			dst[at+int(lanes.Lane[i/16])+i%16] = (field ^ lanes.Flip) - lanes.Sub
		}
		at += int(lanes.Step[u%2])
	}
}

func TestZip(t *testing.T) {
	eachSet(t, func(t *testing.T, s Set, bits int) {
		rng := rand.New(rand.NewPCG(2, 2))
		for _, n := range []int{1, 2, 3, 4, 5, 31} {
			b := newBuffer(rng, 32*n)
			before := slices.Clone(b.all)
			s.Zip((*byte)(b.pointer()), n)
			for i := range n {
				for j := range 8 {
					from := margin + 32*i + 4*(j/2+j%2*4)
					if got := b.bytes()[32*i+4*j:][:4]; !slices.Equal(got, before[from:][:4]) {
						t.Fatalf("n %d: run %d of 32 bytes number %d is %v, want %v", n, j, i, got, before[from:][:4])
					}
				}
			}
			b.checkMargins(t, before)
			if s.Unzip == nil {
				continue
			}
			if s.Unzip((*byte)(b.pointer()), n); !slices.Equal(b.all, before) {
				t.Fatalf("n %d: Unzip does not restore what Zip changed", n)
			}
		}
	})
}

// product holds random arguments of a Step and the expected results.
type product struct {
	args               Args
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
	steps   []int32
	extreme bool // codes and activations at their limits, so that sums of products saturate where they can
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
	if step.Quads {
		acts = asmtest.AtPageEnd(t, quads(acts, mr))
	}
	codes := p.codes
	if s.Unzip != nil {
		codes = asmtest.AtPageEnd(t, slices.Clone(codes))
		s.Unzip(&codes[0], len(codes)/32)
	}
	a.Codes, a.Acts, a.Sums, a.Zeros, a.Steps, a.Groups = &codes[0], &acts[0], &p.sums[0], &p.zeros[0], &p.steps[0], p.groups
	a.Scales, a.RowSums, a.Bias, a.NegZero, a.Rec = &p.scales[0], &p.rowSums[0], &p.bias[0], &p.negZero[0], &p.rec[0]
	a.T, a.IntSums, a.NegInt, a.Factor = &make([]int32, mr*p.groups*s.NR)[0], &p.intSums[0], &p.negInt[0], int32(rng.IntN(17))
	a.Points = &p.points[0]
	return p
}

// quads puts activations of chunks of 8 columns into the order of Step.Quads.
func quads(acts []int8, mr int) []int8 {
	var list []int8
	for chunk := 0; chunk < len(acts); chunk += 8 * mr {
		for _, half := range []int{0, 4} {
			for m := range mr {
				list = append(list, acts[chunk+8*m+half:][:4]...)
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
		return float32(float32(p.args.Factor*t+p.intSums[w]*p.negInt[m]) * float32(p.scales[w]*p.rec[m]))
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
		return canonicalNaN
	}
	return math.Float32bits(x)
}

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

func TestSteps(t *testing.T) {
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	eachSet(t, func(t *testing.T, s Set, bits int) {
		rng := rand.New(rand.NewPCG(uint64(bits), 3))
		for _, step := range s.Steps {
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
	checkOutputs(t, rng, p, p.group(wantDots), step.Group, gap, name+": Group")
	if step.Shifted != nil && !a.NoZeros {
		shift := 1 + rng.IntN(7)
		for i := range p.args.Shift {
			p.args.Shift[i] = uint32(shift)
		}
		checkOutputs(t, rng, p, p.group(p.dots(s, shift)), step.Shifted, gap, fmt.Sprintf("%s: Shifted by %d", name, shift))
	}
	scales, sums := asmtest.AtPageEnd(t, twice(p.actScales, step.Twice)), asmtest.AtPageEnd(t, twice(p.actSums, step.Twice))
	p.args.ActScales, p.args.ActSums = &scales[0], &sums[0]
	if p.groups == 1 {
		checkOutputs(t, rng, p, p.row(wantDots), step.Row, gap, name+": Row")
	}
	checkOutputs(t, rng, p, p.blocks(wantDots), step.Blocks, gap, name+": Blocks")
	checkOutputs(t, rng, p, p.blocksQAI4(wantDots), step.BlocksQAI4, gap, name+": BlocksQAI4")
	checkOutputs(t, rng, p, p.torchAO(wantDots), step.TorchAO, gap, name+": TorchAO")
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
func checkOutputs(t *testing.T, rng *rand.Rand, p *product, wants []uint32, run func(*Args), gap int, name string) {
	t.Helper()
	width := 4 * p.nr
	b := newBuffer(rng, (p.mr-1)*(width+gap)+width)
	before := slices.Clone(b.all)
	a := p.args
	a.Out, a.OutStride = b.pointer(), width+gap
	run(&a)
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
		for _, step := range s.Steps {
			p := newProduct(t, rng, s, bits, step, fill{steps: []int32{65536 / 16}, extreme: true})
			checkStep(t, rng, s, step, p, fmt.Sprintf("%d rows", step.MR))
		}
	})
}

func TestEpilogues(t *testing.T) {
	eachSet(t, func(t *testing.T, s Set, bits int) {
		if bits != 4 && testing.Short() {
			t.Skip("the epilogues do not depend on the width")
		}
		rng := rand.New(rand.NewPCG(5, 5))
		nr := s.NR
		for i := range 40 {
			groups := 1 + rng.IntN(9)
			number := func(n int) []float32 {
				x := make([]float32, n)
				for j := range x {
					x[j] = float32(rng.NormFloat64())
					if i%2 == 1 {
						x[j] = nasty(rng)
					}
				}
				return asmtest.AtPageEnd(t, x)
			}
			dots := make([]int32, groups*nr)
			for j := range dots {
				dots[j] = int32(rng.Uint32()) >> (rng.IntN(4) * 5)
			}
			dots = asmtest.AtPageEnd(t, dots)
			scales, zeros, as, asum := number(groups*nr), number(groups*nr), number(groups), number(groups)
			sums, factor, negZero := make([]int32, groups*nr), int32(rng.IntN(17)), int32(rng.Uint32())>>(8*rng.IntN(4))
			for j := range sums {
				sums[j] = int32(rng.Uint32()) >> (rng.IntN(4) * 5)
			}
			sums = asmtest.AtPageEnd(t, sums)
			want := [4][]float32{}
			for r := range nr {
				var f [4]float32
				for g := range groups {
					t, scale, zero := dots[g*nr+r], scales[g*nr+r], zeros[g*nr+r]
					f[0] = floats.FMA32(float32(t), float32(as[g]*scale), f[0])
					f[1] = floats.FMA32(zero, asum[g], f[1])
					f[1] = floats.FMA32(float32(16*t), float32(scale*as[g]), f[1])
					f[2] += float32(float32(scale*as[0]) * float32(t))
				}
				f[3] = float32(float32(factor*dots[r]+sums[r]*negZero)*float32(scales[r]*as[0])) + zeros[r]
				for j := range want {
					want[j] = append(want[j], f[j])
				}
			}
			for j, run := range []func(out *float32){
				func(out *float32) { s.EpilogueFMA(out, &dots[0], groups, &scales[0], &as[0], 4) },
				func(out *float32) { s.EpilogueQAI4(out, &dots[0], groups, &scales[0], &zeros[0], &as[0], &asum[0], 4) },
				func(out *float32) { s.EpilogueTorchAO(out, &dots[0], groups, &scales[0], as[0]) },
				func(out *float32) {
					s.EpilogueRow(out, &dots[0], &sums[0], factor, negZero, &scales[0], &zeros[0], as[0])
				},
			} {
				b := newBuffer(rng, 4*nr)
				before := slices.Clone(b.all)
				run((*float32)(b.pointer()))
				b.checkMargins(t, before)
				got := unsafe.Slice((*float32)(b.pointer()), nr)
				for r := range got {
					if canonical(got[r]) != canonical(want[j][r]) || j == 3 && math.Float32bits(got[r]) != canonical(got[r]) {
						t.Fatalf("epilogue %d, case %d, output %d: %v, want %v", j, i, r, got[r], want[j][r])
					}
				}
			}
			wantSums := slices.Clone(dots)
			for j := range wantSums {
				wantSums[j] += factor * sums[j]
			}
			if s.AddSums(&dots[0], &sums[0], groups, factor); !slices.Equal(dots, wantSums) {
				t.Fatalf("AddSums, case %d: %v, want %v", i, dots, wantSums)
			}
		}
	})
}

// TestKernelsDoNotAllocate holds for the functions that fill adds, too.
func TestKernelsDoNotAllocate(t *testing.T) {
	eachSet(t, func(t *testing.T, s Set, bits int) {
		rng := rand.New(rand.NewPCG(6, 6))
		for _, step := range s.Steps {
			p := newProduct(t, rng, s, bits, step, fill{steps: []int32{2, 2}})
			out := make([]int32, 2*step.MR*s.NR)
			lanes := someLanes(s.NR)[0]
			src, dst := make([]byte, 2*16*bits), make([]byte, 4*8*s.NR)
			a := p.args
			a.Out, a.OutStride = unsafe.Pointer(&out[0]), 8*s.NR
			a.ActScales, a.ActSums = &twice(p.actScales, step.Twice)[0], &twice(p.actSums, step.Twice)[0]
			f := make([]float32, s.NR)
			if n := testing.AllocsPerRun(5, func() {
				step.Dots(&a)
				s.EpilogueFMA(&f[0], &out[0], 2, &p.scales[0], &p.scales[0], 4)
				s.EpilogueQAI4(&f[0], &out[0], 2, &p.scales[0], &p.scales[0], &p.scales[0], &p.scales[0], 4)
				s.AddSums(&out[0], &p.zeros[0], 1, 2)
				s.EpilogueTorchAO(&f[0], &out[0], 2, &p.scales[0], 1)
				s.EpilogueRow(&f[0], &out[0], &p.zeros[0], 16, 1, &p.scales[0], &p.bias[0], 1)
				step.Group(&a)
				step.BlocksQAI4(&a)
				step.TorchAO(&a)
				s.Unpack(&dst[0], &src[0], 2, &lanes)
				s.Zip(&dst[0], 2)
			}); n != 0 {
				t.Errorf("%v allocations", n)
			}
		}
	})
}
