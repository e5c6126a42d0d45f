package vec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/asmtest"
)

// allHalves is every bit pattern of two bytes, starting at an odd address if odd is 1.
func allHalves(odd int) []byte {
	b := make([]byte, odd+2<<16)[odd:]
	for h := range 1 << 16 {
		binary.LittleEndian.PutUint16(b[2*h:], uint16(h))
	}
	return b
}

func TestWidenBF16(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		for odd := range 2 {
			dst := make([]float32, 1<<16)
			WidenBF16(dst, allHalves(odd))
			for h, v := range dst {
				if got := math.Float32bits(v); got != uint32(h)<<16 {
					t.Fatalf("BF16 %04x widened to %08x", h, got)
				}
			}
		}
	})
}

func TestWidenF16(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		for odd := range 2 {
			dst := make([]float32, 1<<16)
			WidenF16(dst, allHalves(odd))
			for h, v := range dst {
				if got, want := math.Float32bits(v), f16Bits(uint32(h)); got != want {
					t.Fatalf("F16 %04x widened to %08x, want %08x", h, got, want)
				}
			}
		}
	})
}

// f16Bits is the definition of binary16, as the bits of the float32 with the same value.
func f16Bits(h uint32) uint32 {
	sign, exp, frac := h>>15, h>>10&31, h&0x3ff
	if exp == 31 {
		bits := sign<<31 | 0x7f800000 | frac<<13
		if frac != 0 {
			bits |= 1 << 22
		}
		return bits
	}
	v := math.Ldexp(float64(frac), -24)
	if exp != 0 {
		v = math.Ldexp(float64(1024+frac), int(exp)-25)
	}
	if sign != 0 {
		v = math.Copysign(v, -1)
	}
	return math.Float32bits(float32(v))
}

// TestWidenLengths checks that nothing outside the slices is written, for all tails.
func TestWidenLengths(t *testing.T) {
	src := allHalves(1)
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		for _, f := range []struct {
			name string
			run  func([]float32, []byte)
			one  func(uint16) uint32
		}{
			{"WidenBF16", WidenBF16, func(h uint16) uint32 { return uint32(h) << 16 }},
			{"WidenF16", WidenF16, func(h uint16) uint32 { return f16Bits(uint32(h)) }},
		} {
			for n := range 70 {
				dst := make([]float32, n+32)
				f.run(dst[16:16+n], src[0x3000:0x3000+2*n])
				for i, v := range dst {
					want := uint32(0)
					if i >= 16 && i < 16+n {
						want = f.one(binary.LittleEndian.Uint16(src[0x3000+2*(i-16):]))
					}
					if got := math.Float32bits(v); got != want {
						t.Fatalf("%s of %d: value %d is %08x, want %08x", f.name, n, i-16, got, want)
					}
				}
			}
		}
	})
}

// edgeValues are finite float32 that arithmetic treats specially.
var edgeValues = []float32{
	0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32,
	math.Float32frombits(0x007fffff), math.Float32frombits(0x807fffff), // largest denormals
	0x1p-126, -0x1p-126, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 7.5, -8.5, 1, -1, 127.5, -128.5, 128, -128, 255, -255,
	math.MaxFloat32, -math.MaxFloat32, 0x1p100, -0x1p100, 0x1p-70, -0x1p-70,
}

// fill writes one of several kinds of rows: ordinary weights, ties of a grid, edge values, one
// sign, all bits.
func fill(rng *rand.Rand, x []float32) {
	kind := rng.IntN(6)
	for i := range x {
		switch kind {
		case 0:
			x[i] = float32(rng.NormFloat64() * 0.02)
		case 1:
			x[i] = float32(rng.IntN(600)-300) * 0.5
		case 2:
			x[i] = edgeValues[rng.IntN(len(edgeValues))]
		case 3:
			x[i] = float32(-rng.Float64())
		case 4:
			x[i] = float32(rng.ExpFloat64())
		default:
			x[i] = finite(rng.Uint32())
		}
	}
}

func finite(bits uint32) float32 {
	if bits&expMask == expMask {
		bits &^= 1 << 30
	}
	return math.Float32frombits(bits)
}

// shapes gives row lengths and group sizes, every way that a row can be cut included.
func shapes(f func(k, group int)) {
	for _, k := range []int{0, 1, 12, 15, 16, 17, 31, 32, 48, 172, 256, 257, 300, 512, 520, 1040} {
		for _, group := range []int{1, 12, 16, 32, 48, 64, 128, 256, 272, 512, 528, 2048} {
			f(k, group)
		}
		if k > 0 {
			f(k, k)
		}
	}
}

func TestGroupRange(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		shapes(func(k, group int) {
			x := make([]float32, k)
			for range 6 {
				fill(rng, x)
				n := Groups(k, group)
				lo, hi := make([]float32, n+1), make([]float32, n+1)
				if !GroupRange(lo[:n], hi[:n], x, group) {
					t.Fatalf("k %d group %d: finite values reported as not finite", k, group)
				}
				for g := range n {
					run := x[g*group : min(k, (g+1)*group)]
					low, high := slices.Min(run), slices.Max(run)
					if low >= 0 {
						low = 0
					}
					if high <= 0 {
						high = 0
					}
					if !same(lo[g], low) || !same(hi[g], high) {
						t.Fatalf("k %d group %d: range %d is [%g, %g], want [%g, %g]", k, group, g, lo[g], hi[g], low, high)
					}
				}
				if lo[n] != 0 || hi[n] != 0 {
					t.Fatalf("k %d group %d: written past the ranges", k, group)
				}
			}
		})
	})
}

func same(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

func TestLeastMagnitudes(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		r := rand.New(rand.NewPCG(3, 4))
		for _, group := range []int{16, 32, 48, 300, 7} {
			for _, k := range []int{1, 15, 16, 31, 32, 100, 256, 299} {
				if group%Lanes != 0 && k > group {
					continue
				}
				x := make([]float32, k)
				for i := range x {
					if x[i] = float32(r.NormFloat64()); r.IntN(3) == 0 {
						x[i] = float32(math.Copysign(0, float64(x[i])))
					}
				}
				n := Groups(k, group)
				least := make([]uint32, LeastLanes*n)
				LeastMagnitudes(least, x, group)
				for i, v := range least {
					want := uint32(math.MaxUint32)
					for j := i / LeastLanes * group; j < min(k, (i/LeastLanes+1)*group); j++ {
						if size := math.Float32bits(x[j]) &^ (1 << 31); size != 0 && (j-i/LeastLanes*group)%LeastLanes == i%LeastLanes {
							want = min(want, 2*size-1)
						}
					}
					if v != want {
						t.Fatalf("%d values in groups of %d: least magnitude %d is %08x, want %08x", k, group, i, v, want)
					}
				}
			}
		}
	})
}

// latticeTests are the tests of some schemes: bits of symmetric and asymmetric codes, and dtypes.
var latticeTests = []LatticeTest{
	{Inverse: 1.0 / 8.2, Exempt: 0x1p-122, Normal: 0x1p-126, Error: 0x1.02p-8},              // 4 bits, BF16
	{Inverse: 1.0 / 131, Exempt: 0x1p-118, Normal: 0x1p-126, Error: 0x1.02p-8},              // 8 bits, BF16
	{Inverse: 1.0 / 256, Exempt: 0x1p-6, Smaller: 1, Normal: 0x1p-14, Error: 0x1.01p-11},    // F16
	{Inverse: 1.0 / 255.1, Exempt: 0x1p-118, Smaller: 1, Normal: 0x1p-126, Error: 0x1p-24},  // F32
	{Inverse: 1.0 / 4.1, Exempt: 0, Normal: 0x1p-14, Error: 0x1.01p-11},                     // 3 bits
	{Inverse: 1.0 / 255.1, Exempt: 0x1p-118, Smaller: 1, Normal: 0x1p-126, Error: 0x1.8p-5}, // passes often
}

// TestLatticeGroups compares with the portable code: groups on lattices and not, of zeros, with few
// weights that are not zero, subnormal, and near the largest numbers.
func TestLatticeGroups(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		r := rand.New(rand.NewPCG(8, 4))
		var passed, failed int
		for i := range 4000 {
			test := &latticeTests[i%len(latticeTests)]
			n := 1 + r.IntN(40)
			const group = 16
			x := make([]float32, n*group)
			for g := range n {
				scale := float32(math.Ldexp(1+r.Float64(), []int{-3, -14, -125, -140, 118}[max(r.IntN(20)-15, 0)]))
				span, zeros := 1<<(1+r.IntN(8)), r.IntN(5)
				lattice := r.IntN(2) == 0
				for j := range group {
					v := r.NormFloat64() / 2
					if lattice {
						v = float64(r.IntN(2*span+1) - span)
					}
					if r.IntN(4) < zeros {
						v = 0
					}
					w := float32(float32(v) * scale)
					if test.Error > 0x1p-20 { // BF16
						w = math.Float32frombits((math.Float32bits(w) + 0x8000) &^ 0xffff)
					}
					x[g*group+j] = w
				}
			}
			lo, hi, least := make([]float32, n), make([]float32, n), make([]uint32, LeastLanes*n)
			if !GroupRange(lo, hi, x, group) {
				continue
			}
			LeastMagnitudes(least, x, group)
			got, want := bytes.Repeat([]byte{0xaa}, Groups(n, 8)), make([]byte, Groups(n, 8))
			LatticeGroups(got, lo, hi, least, test)
			latticeGroupsGeneric(want, lo, hi, least, test)
			if !bytes.Equal(got, want) {
				t.Fatalf("%d groups, test %+v: %08b, want %08b", n, *test, got, want)
			}
			for g := range n {
				if want[g/8]>>(g%8)&1 == 1 {
					passed++
				} else {
					failed++
				}
			}
		}
		if passed < 10000 || failed < 10000 {
			t.Errorf("%d groups passed and %d failed", passed, failed)
		}
	})
}

// TestGroupRangeNotFinite puts each kind of NaN and infinity at each position of rows of several
// shapes.
func TestGroupRangeNotFinite(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		for _, bits := range []uint32{0x7f800000, 0xff800000, 0x7f800001, 0xff800001, 0x7fc00000, 0xffffffff, 0x7fffffff} {
			for _, shape := range [][2]int{{172, 32}, {172, 172}, {96, 48}, {64, 64}, {7, 32}, {24, 12}} {
				k, group := shape[0], shape[1]
				x := make([]float32, k)
				for i := range x {
					x[i] = float32(i%9-4) * 0x1p125
				}
				n := Groups(k, group)
				lo, hi := make([]float32, n), make([]float32, n)
				if !GroupRange(lo, hi, x, group) {
					t.Fatal("finite values reported as not finite")
				}
				for i, was := range x {
					x[i] = math.Float32frombits(bits)
					if GroupRange(lo, hi, x, group) {
						t.Fatalf("k %d group %d: %08x at %d was not found", k, group, bits, i)
					}
					x[i] = was
				}
			}
		}
	})
}

// quantized is what QuantizeGroups wrote.
type quantized struct {
	q   []int8
	acc ErrorSum
}

// problem is a call of QuantizeGroups or QuantizeFractions.
type problem struct {
	x, scale, inv []float32
	zero          []int8
	fraction      []float32 // nil: QuantizeGroups
	group         int
	qmin, qmax    int
	acc           ErrorSum // before the call
}

func (p *problem) run(t *testing.T) quantized {
	t.Helper()
	const guard = 0x55
	q := slices.Repeat([]int8{guard}, len(p.x)+32)
	r := quantized{q[16 : 16+len(p.x)], p.acc}
	if p.fraction != nil {
		QuantizeFractions(r.q, p.x, p.scale, p.inv, p.zero, p.fraction, p.group, p.qmin, p.qmax, &r.acc)
	} else {
		QuantizeGroups(r.q, p.x, p.scale, p.inv, p.zero, p.group, p.qmin, p.qmax, &r.acc)
	}
	for i := range 16 {
		if q[i] != guard || q[len(q)-1-i] != guard {
			t.Fatal("written outside the codes")
		}
	}
	return r
}

// oracle computes the same from the definition in another way: float64 holds products of float32
// exactly, and rounding sums of two float32 by way of float64 is harmless (53 >= 2*24+2 bits).
func (p *problem) oracle() quantized {
	r := quantized{make([]int8, len(p.x)), p.acc}
	for g := range p.scale {
		z := 0
		if p.zero != nil {
			z = int(p.zero[g])
		}
		var f float32
		if p.fraction != nil {
			f = p.fraction[g]
		}
		start, end := g*p.group, min(len(p.x), (g+1)*p.group)
		var noise, signal [Lanes]float32
		for i := start; i < end; i++ {
			x := float64(p.x[i])
			t := float64(add(float32(x*float64(p.inv[g])), f))
			n := int(math.RoundToEven(math.Min(math.Max(t, float64(p.qmin-z)), float64(p.qmax-z))))
			r.q[i] = int8(n + z)
			e := float64(float32(x - float64(mul(add(float32(n), -f), p.scale[g]))))
			lane := (i - start) % Lanes
			noise[lane] = float32(float64(noise[lane]) + float64(float32(e*e)))
			signal[lane] = float32(float64(signal[lane]) + float64(float32(x*x)))
			if i+1 == end || (i+1-start)%256 == 0 {
				for l := range Lanes {
					r.acc.Noise[l] += float64(noise[l])
					r.acc.Signal[l] += float64(signal[l])
				}
				noise, signal = [Lanes]float32{}, [Lanes]float32{}
			}
		}
	}
	return r
}

func randomProblem(rng *rand.Rand, k, group int) *problem {
	n := Groups(k, group)
	bits := 1 + rng.IntN(8)
	p := &problem{
		x: make([]float32, k), scale: make([]float32, n), inv: make([]float32, n), group: group,
		qmin: -1 << (bits - 1), qmax: 1<<(bits-1) - 1,
	}
	fill(rng, p.x)
	for g := range n {
		run := p.x[g*group : min(k, (g+1)*group)]
		s := max(slices.Max(run), -slices.Min(run)) / float32(-p.qmin)
		switch rng.IntN(6) {
		case 0:
			s = -s
		case 1:
			s = 1
		case 2:
			s = finite(rng.Uint32())
		}
		if math.Abs(float64(s)) < 0x1p-126 {
			s = 0x1p-126
		}
		p.scale[g], p.inv[g] = s, float32(1/s)
	}
	if rng.IntN(2) == 0 {
		p.zero = make([]int8, n)
		for g := range n {
			p.zero[g] = int8(rng.IntN(256) - 128)
		}
	}
	if rng.IntN(2) == 0 {
		p.fraction = make([]float32, n)
		for g := range n {
			p.fraction[g] = float32(rng.IntN(129)-64) / 128
		}
	}
	for l := range Lanes {
		p.acc.Noise[l], p.acc.Signal[l] = rng.Float64(), rng.Float64()
	}
	return p
}

func TestQuantizeGroups(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		shapes(func(k, group int) {
			for range 8 {
				p := randomProblem(rng, k, group)
				got, want := p.run(t), p.oracle()
				if !slices.Equal(got.q, want.q) {
					t.Fatalf("k %d group %d, codes %d to %d, zero points %v: wrong codes\n%v\nwant\n%v\nof %v with scales %v",
						k, group, p.qmin, p.qmax, p.zero, got.q, want.q, p.x, p.scale)
				}
				if got.acc != want.acc {
					t.Fatalf("k %d group %d: sums %v, want %v", k, group, got.acc, want.acc)
				}
			}
		})
	})
}

// TestQuantizeRounding states codes of single values: ties to even, clamping, the zero point added
// after rounding.
func TestQuantizeRounding(t *testing.T) {
	tests := []struct {
		x, scale   float32
		zero       int8
		qmin, qmax int
		want       int8
	}{
		{0.5, 1, 0, -8, 7, 0}, {1.5, 1, 0, -8, 7, 2}, {2.5, 1, 0, -8, 7, 2}, {-0.5, 1, 0, -8, 7, 0},
		{-1.5, 1, 0, -8, 7, -2}, {-2.5, 1, 0, -8, 7, -2}, {-8.5, 1, 0, -8, 7, -8}, {7.5, 1, 0, -8, 7, 7},
		{6.5, 1, 0, -8, 7, 6}, {0.5, 1, 1, -8, 7, 1}, {1.5, 1, 1, -8, 7, 3}, {2.5, 1, -3, -8, 7, -1},
		{1e30, 1, 0, -8, 7, 7}, {-1e30, 1, 0, -8, 7, -8}, {math.MaxFloat32, 0x1p-126, 0, -128, 127, 127},
		{-math.MaxFloat32, 0x1p-126, 0, -128, 127, -128}, {1, -0.125, 0, -8, 7, -8}, {-1, -0.125, 0, -8, 7, 7},
		{0.5, 1, 0, -1, 0, 0}, {-0.5, 1, 0, -1, 0, 0}, {-0.51, 1, 0, -1, 0, -1}, {127.5, 1, 0, -128, 127, 127},
		{300, 1, -128, -128, 127, 127}, {254.5, 1, -128, -128, 127, 126}, {-300, 1, 127, -128, 127, -128},
		{-254.5, 1, 127, -128, 127, -127},
		{0x1.8p-126, 0x1p-126, 0, -8, 7, 2}, {0x1p-127, 0x1p-126, 0, -8, 7, 0}, {0x1.00001p-127, 0x1p-126, 0, -8, 7, 1}, // denormals count
	}
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		for _, tt := range tests {
			for _, k := range []int{1, 16, 33} { // portable, assembly, both
				p := &problem{
					x: slices.Repeat([]float32{tt.x}, k), scale: []float32{tt.scale}, inv: []float32{1 / tt.scale},
					zero: []int8{tt.zero}, group: 48, qmin: tt.qmin, qmax: tt.qmax,
				}
				for i, q := range p.run(t).q {
					if q != tt.want {
						t.Errorf("%g / %g, zero point %d, %d to %d, code %d of %d is %d, want %d", tt.x, tt.scale, tt.zero, tt.qmin, tt.qmax, i, k, q, tt.want)
					}
				}
			}
		}
	})
}

func TestErrorSum(t *testing.T) {
	var a, b ErrorSum
	for i := range Lanes {
		a.Noise[i], a.Signal[i] = 1, float64(i)
	}
	b.Noise[3] = 0x1p60
	b.Signal[15] = -5
	b.Add(&a)
	if noise, signal := a.Total(); noise != 16 || signal != 120 {
		t.Errorf("totals %g and %g, want 16 and 120", noise, signal)
	}
	if b.Noise[3] != 0x1p60+1 || b.Signal[15] != 10 {
		t.Errorf("sums after Add: %v", b)
	}
	// The tree shows: the small lanes survive only where they meet before the large one.
	a = ErrorSum{}
	a.Noise[0], a.Noise[8] = 0x1p53, 1
	a.Noise[1], a.Noise[9] = 1, 1
	if noise, _ := a.Total(); noise != 0x1p53+2 {
		t.Errorf("total %g is not summed in the tree's order", noise)
	}
}

func TestBadArguments(t *testing.T) {
	f, q := make([]float32, 64), make([]int8, 64)
	for name, call := range map[string]func(){
		"bytes":      func() { WidenBF16(f, make([]byte, 127)) },
		"ranges":     func() { GroupRange(f[:1], f[:2], f, 32) },
		"group":      func() { GroupRange(f[:1], f[:1], f, 0) },
		"lattices":   func() { LatticeGroups(make([]uint8, 2), f[:9], f[:9], make([]uint32, 32), &LatticeTest{}) },
		"magnitudes": func() { LeastMagnitudes(make([]uint32, 3), f, 64) },
		"codes":      func() { QuantizeGroups(q[:63], f, f[:2], f[:2], nil, 32, -8, 7, new(ErrorSum)) },
		"scales":     func() { QuantizeGroups(q, f, f[:3], f[:2], nil, 32, -8, 7, new(ErrorSum)) },
		"zeros":      func() { QuantizeGroups(q, f, f[:2], f[:2], q[:1], 32, -8, 7, new(ErrorSum)) },
		"fractions":  func() { QuantizeFractions(q, f, f[:2], f[:2], nil, f[:3], 32, -8, 7, new(ErrorSum)) },
		"grids":      func() { NewGridFit(32, 4).SearchGrids(new(GridSearch), make([]GridStart, 3)) },
		"gridCodes":  func() { NewFit(32, new([FitStarts]float32), -8, 7).SearchGrids(new(GridSearch), make([]GridStart, 4)) },
		"choices":    func() { NewGridFit(32, 4).ChooseGrids(new(GridChoice), 12) },
		"gridBits":   func() { NewGridFit(32, 9) },
		"weights":    func() { SearchScales(new(Search), 1, f, f[:63]) },
		"nothing":    func() { ScaleErrors(new(Final), nil, nil) },
		"importance": func() { Importance(f[:2], f, 1) },
		"nibbles":    func() { DecodeNibbles(f, make([]byte, 35)) },
		"blocks":     func() { DecodeBytes(f[:31], make([]byte, 34)) },
		"codeRange":  func() { QuantizeGroups(q, f, f[:2], f[:2], nil, 32, -129, 7, new(ErrorSum)) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if s, ok := recover().(string); !ok || s[:4] != "vec:" {
					t.Errorf("panic %q, want one of this package", s)
				}
			}()
			call()
		})
	}
}

// TestNoAllocation keeps scratch of callers on their stacks.
func TestNoAllocation(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		if n := testing.AllocsPerRun(10, func() {
			var x, lo, hi [48]float32
			var q [48]int8
			var src [96]byte
			var acc ErrorSum
			var search Search
			final := Final{Scale: [FinalLanes]float32{1, 1, 1, 1, 1, 1, 1, 1}}
			SearchScales(&search, 1, x[:], x[:])
			ScaleErrors(&final, x[:], x[:])
			Importance(lo[:], x[:], 1)
			SumSquares(x[:])
			WidenBF16(x[:], src[:])
			GroupRange(lo[:3], hi[:3], x[:], 16)
			QuantizeGroups(q[:], x[:], lo[:3], hi[:3], q[:3:3], 16, -8, 7, &acc)
			QuantizeFractions(q[:], x[:], lo[:3], hi[:3], q[:3:3], hi[:3], 16, -8, 7, &acc)
		}); n != 0 {
			t.Errorf("%g allocations", n)
		}
	})
}

func FuzzQuantizeGroups(f *testing.F) {
	f.Add(uint64(1), uint16(172), uint16(32))
	f.Fuzz(func(t *testing.T, seed uint64, k, group uint16) {
		p := randomProblem(rand.New(rand.NewPCG(seed, 0)), int(k%2048), 1+int(group%2048))
		want := p.oracle()
		for _, i := range asmtest.Implementations(accelerated) {
			asmtest.Restrict(t, i.Feature)
			if got := p.run(t); !slices.Equal(got.q, want.q) || got.acc != want.acc {
				t.Errorf("%s: k %d group %d: %s", i.Feature, len(p.x), p.group, fmt.Sprint(got))
			}
		}
	})
}
