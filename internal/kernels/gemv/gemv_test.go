package gemv

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/asmtest"
	"github.com/lowbit-go/gq/packing"
)

// eachKernel runs f for every kernel that this CPU can run.
func eachKernel(t *testing.T, f func(t *testing.T, k *Kernel)) {
	// Every instruction set with kernels has this one.
	family := families[Reads{Layout: packing.LayoutLowbit, Scales: packing.ScaleBF16, Bits: 4, Tile: packing.DefaultTile}]
	if family == nil {
		family = cpu.NewFamily[*Kernel]("gemv", nil)
	}
	asmtest.Expect(t, family)
	for _, k := range Kernels() {
		if cpu.Check(k.Feature) == nil {
			t.Run(k.Name, func(t *testing.T) { f(t, k) })
		}
	}
}

// TestTable finds kernels that contradict themselves, and widths that have none.
func TestTable(t *testing.T) {
	type key struct {
		feature string
		bits    uint8
		zeros   packing.ZeroKind
		grid    packing.Grid
	}
	names, lowbit, features := map[string]bool{}, map[key]bool{}, map[string]bool{}
	for _, k := range Kernels() {
		if names[k.Name] {
			t.Errorf("two kernels are named %s", k.Name)
		}
		names[k.Name], features[k.Feature] = true, true
		if !slices.Contains(cpu.Names, k.Feature) || k.Run == nil || (k.RunSplit != nil) != (k.Layout == packing.LayoutLowbit && k.Tile == packing.DefaultTile) || !slices.Contains(k.Layout.Tiles(), k.Tile) {
			t.Errorf("%s: feature %s, layout %s, tile %s", k.Name, k.Feature, k.Layout, k.Tile)
		}
		if k.Layout == packing.LayoutLowbit {
			lowbit[key{k.Feature, k.Bits, k.Zeros, k.Grid}] = true
		}
	}
	for feature := range features {
		for bits := uint8(1); bits <= 8; bits++ {
			if feature == cpu.NEON && bits != 4 && bits != 8 || feature == cpu.AVXVNNI && bits <= 3 {
				continue
			}
			want := []key{{feature, bits, packing.ZeroNone, packing.GridInteger}, {feature, bits, packing.ZeroInt8, packing.GridInteger}}
			if bits < 8 { // fractions of 8 bits are integers
				want = append(want, key{feature, bits, packing.ZeroFraction, packing.GridInteger})
			}
			if bits <= 2 {
				want = append(want, key{feature, bits, packing.ZeroNone, packing.GridHalfStep})
			}
			for _, k := range want {
				if !lowbit[k] {
					t.Errorf("no lowbit kernel of %s for %d bits, zero points %s, grid %s", k.feature, k.bits, k.zeros, k.grid)
				}
			}
		}
	}
}

// shapes are matrices: one panel and more, rows and columns that end amid a panel and a block,
// groups of one block and more, a last group that is shorter; groups that end amid a block, the
// last one in the first or the second half of a block, or with a block that is half padding.
var shapes = []struct{ rows, cols, group int }{
	{8, 32, 32}, {1, 1, 0}, {9, 31, 0}, {16, 33, 32}, {17, 64, 32}, {8, 64, 64}, {3, 96, 0}, {24, 96, 64}, {12, 160, 32},
	{11, 200, 96}, {8, 224, 96}, {20, 512, 128}, {8, 700, 256}, {5, 1500, 0}, {40, 544, 32}, {8, 288, 544},
	{8, 96, 48}, {11, 192, 48}, {9, 64, 48}, {3, 80, 48}, {17, 144, 48}, {8, 50, 48}, {24, 170, 48}, {8, 32, 16}, {9, 77, 16}, {16, 160, 80}, {8, 433, 80}, {20, 512, 112},
}

// eachShape runs f for the shapes that the kernel can have.
func eachShape(t *testing.T, k *Kernel, f func(rng *rand.Rand, p *product)) {
	for i, s := range shapes {
		if !grouped(k.Layout) && s.group != 0 && s.group != 32 || s.group%32 != 0 && k.RunSplit == nil {
			continue
		}
		if !grouped(k.Layout) {
			s.group = 0
		}
		f(rand.New(rand.NewPCG(uint64(i), uint64(k.Bits))), newProduct(t, k, s.rows, s.cols, s.group))
	}
}

// setScales sets the scales of all rows.
func (p *product) setScales(next func() float32) {
	nr, size := int(p.kernel.Tile.NR), p.packer.PanelBytes()
	for panel := p.data; len(panel) > 0; panel = panel[size:] {
		for g := range p.packer.Groups() {
			at := panel[p.scalesAt(g):]
			for r := range nr {
				switch scale := next(); p.packer.Header().ScaleDtype {
				case packing.ScaleBF16:
					binary.LittleEndian.PutUint16(at[2*r:], uint16(math.Float32bits(scale)>>16))
				case packing.ScaleF16:
					binary.LittleEndian.PutUint16(at[2*r:], floats.F16FromF32(scale))
				default:
					binary.LittleEndian.PutUint32(at[4*r:], math.Float32bits(scale))
				}
			}
		}
	}
}

// setTail sets the sums (float32, or int32) and biases of all rows.
func (p *product) setTail(sum func() uint32, bias func() float32) {
	nr, size := int(p.kernel.Tile.NR), p.packer.PanelBytes()
	fields := 3
	switch p.kernel.Layout {
	case packing.LayoutLowbit:
		fields = 2
	case packing.LayoutQAI4C32P:
		fields = 1
	case packing.LayoutQSI4C32PF16:
		return
	case packing.LayoutTorchAOLinear:
		if fields = 1; p.packer.Header().Flags&packing.FlagBias == 0 {
			return
		}
	}
	for end := size; end <= len(p.data); end += size {
		for r := range nr {
			if fields > 1 {
				binary.LittleEndian.PutUint32(p.data[end-4*nr*fields+4*r:], sum())
			}
			binary.LittleEndian.PutUint32(p.data[end-4*nr+4*r:], math.Float32bits(bias()))
		}
	}
}

func randomBytes(rng *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
}

func (p *product) randomActs(rng *rand.Rand) {
	for i := range p.packer.Header().Cols {
		p.acts[i] = int8(rng.Uint32())
	}
	p.zero = int32(int8(rng.Uint32()))
	p.rec = float32(math.Exp(4 * rng.NormFloat64()))
	for g := range p.scales {
		p.scales[g], p.asums[g] = float32(math.Exp(4*rng.NormFloat64())), float32(rng.NormFloat64())
	}
}

// check runs the kernel with all of its inputs just before a page that cannot be read, and with
// guard bytes around its outputs.
func (p *product) check(t *testing.T, what string) {
	t.Helper()
	const margin = 32 // floats
	want := p.model()
	dst := make([]float32, len(want)+2*margin)
	for i := range dst {
		dst[i] = -7
	}
	a := p.args(asmtest.AtPageEnd(t, p.data), asmtest.AtPageEnd(t, p.ordered()), asmtest.AtPageEnd(t, p.sums()))
	p.kernel.Args(&a).Dst = &dst[margin]
	before := a
	p.run(&a)
	h := p.packer.Header()
	what = fmt.Sprintf("%s: %d x %d, group %d", what, h.Rows, h.Cols, h.Group)
	if a != before {
		t.Fatalf("%s: the arguments were changed", what)
	}
	for i, got := range dst {
		if i < margin || i >= margin+len(want) {
			if got != -7 {
				t.Fatalf("%s: output %d of %d was written", what, i-margin, len(want))
			}
		} else if w := want[i-margin]; math.Float32bits(got) != math.Float32bits(w) {
			t.Fatalf("%s: output %d is %g (%08x), want %g (%08x)", what, i-margin, got, math.Float32bits(got), w, math.Float32bits(w))
		}
	}
}

// TestUsual: codes, zero points and activations of all sizes, scales and sums as layers have them.
func TestUsual(t *testing.T) {
	eachKernel(t, func(t *testing.T, k *Kernel) {
		eachShape(t, k, func(rng *rand.Rand, p *product) {
			randomBytes(rng, p.data)
			p.setScales(func() float32 { return float32(0.01 * rng.NormFloat64()) })
			p.setTail(func() uint32 {
				if k.Layout == packing.LayoutLowbit {
					return math.Float32bits(float32(rng.NormFloat64()))
				}
				return uint32(rng.Int32N(1<<16) - 1<<15)
			}, func() float32 { return float32(rng.NormFloat64()) })
			p.randomActs(rng)
			p.check(t, "usual")
		})
	})
}

// TestAnyBytes: scales, sums and biases of any bits, so of all magnitudes, infinite and NaN; and in
// every other round small ones, whose products are subnormal.
func TestAnyBytes(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	eachKernel(t, func(t *testing.T, k *Kernel) {
		eachShape(t, k, func(rng *rand.Rand, p *product) {
			for round := range rounds {
				randomBytes(rng, p.data)
				p.randomActs(rng)
				if round%2 == 1 {
					p.setScales(func() float32 { return float32(math.Ldexp(rng.NormFloat64(), -150+rng.IntN(30))) })
					p.setTail(func() uint32 { return rng.Uint32() & 0x80ffffff }, func() float32 { return 0 })
					p.rec = float32(math.Ldexp(1, -rng.IntN(20)))
				}
				p.check(t, "any bytes")
			}
		})
	})
}

// TestOneScale: a NaN or an infinity in one scale reaches the row that has it, and no other.
func TestOneScale(t *testing.T) {
	inf := float32(math.Inf(1))
	eachKernel(t, func(t *testing.T, k *Kernel) {
		for _, odd := range []float32{float32(math.NaN()), math.Float32frombits(0xffc10000), inf, -inf, 0, math.MaxFloat32, 0x1p-133} {
			rng := rand.New(rand.NewPCG(3, 3))
			group := 0
			if grouped(k.Layout) {
				group = 64
				if k.RunSplit != nil && (odd == 0 || odd == inf) {
					group = 48
				}
			}
			p := newProduct(t, k, 16, 256, group)
			randomBytes(rng, p.data)
			p.randomActs(rng)
			n := 0
			p.setScales(func() float32 {
				if n++; n == 11 {
					return odd
				}
				return 0.5
			})
			p.setTail(func() uint32 { return 1 << 23 }, func() float32 { return 0.25 })
			p.check(t, fmt.Sprintf("a scale of %g", odd))
		}
	})
}

// TestExtremes: all codes and activations at the ends of their ranges, in groups as long as they
// may be.
func TestExtremes(t *testing.T) {
	eachKernel(t, func(t *testing.T, k *Kernel) {
		for _, cols := range []int{32, 96, 4096, 65536} {
			groups := []int{0}
			switch {
			case cols == 4096 && grouped(k.Layout):
				groups = []int{2048}
				if k.RunSplit != nil {
					groups = append(groups, 2064)
				}
			case cols == 65536 && k.RunSplit != nil:
				groups = append(groups, 65520)
			}
			for _, code := range []byte{0x00, 0xff, 0x80, 0x7f, 0x88, 0x77} {
				for _, act := range []int8{-128, 127} {
					if testing.Short() && cols > 4096 && code != 0x80 && code != 0x88 {
						continue
					}
					for _, group := range groups {
						p := newProduct(t, k, 3, cols, group)
						for i := range p.data {
							p.data[i] = code // zero points too
						}
						p.setScales(func() float32 { return 1 })
						p.setTail(func() uint32 { return 0 }, func() float32 { return 0 })
						for i := range p.acts {
							p.acts[i] = act
						}
						p.check(t, fmt.Sprintf("codes %#x, activations %d", code, act))
					}
				}
			}
		}
	})
}

// TestEveryCode: each column in turn alone has an activation, so that a code in the wrong place or
// with wrong bits shows.
func TestEveryCode(t *testing.T) {
	eachKernel(t, func(t *testing.T, k *Kernel) {
		rng := rand.New(rand.NewPCG(4, 4))
		groups := []int{0}
		if k.RunSplit != nil {
			groups = []int{0, 16, 48}
		}
		for _, group := range groups {
			p := newProduct(t, k, 8, 64, group)
			randomBytes(rng, p.data)
			p.setScales(func() float32 { return 1 })
			p.setTail(func() uint32 { return 0 }, func() float32 { return 0 })
			for i := range p.acts {
				clear(p.acts)
				p.acts[i] = 1
				p.check(t, fmt.Sprintf("column %d", i))
			}
		}
	})
}

func BenchmarkGemv(b *testing.B) {
	const n = 2048
	for _, k := range Kernels() {
		if cpu.Check(k.Feature) != nil {
			continue
		}
		groups := []int{32, 64, 128, 256}
		if k.RunSplit != nil {
			groups = append(groups, 48, 80)
		}
		if !grouped(k.Layout) {
			groups = []int{0}
		}
		for _, group := range groups {
			b.Run(fmt.Sprintf("%s/group=%d", k.Name, group), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(5, 5))
				p := newProduct(b, k, n, n, group)
				randomBytes(rng, p.data)
				p.randomActs(rng)
				a := p.args(p.data, p.ordered(), p.sums())
				k.Args(&a).Dst = &make([]float32, n)[0]
				b.SetBytes(int64(len(p.data)))
				b.ResetTimer()
				for b.Loop() {
					p.run(&a)
				}
				b.ReportMetric(float64(n*n)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "MAC/ns")
			})
		}
	}
}
