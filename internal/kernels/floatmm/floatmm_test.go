package floatmm

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/asmtest"
	"github.com/lowbit-go/gq/packing"
)

// sets are the Sets that this CPU runs.
func sets(tb testing.TB) (list []*Set) {
	tb.Helper()
	if t, ok := tb.(*testing.T); ok {
		asmtest.Expect(t, Sets)
	}
	for _, i := range asmtest.Implementations(Sets) {
		list = append(list, i.Code)
	}
	return list
}

// problem is a product with its result, by the definition in the package's comment.
type problem struct {
	dtype         packing.Dtype
	rows, cols, m int
	data          []byte
	weights, bias []float32
	x, want       []float32
}

var dtypes = []packing.Dtype{packing.F32, packing.BF16, packing.F16}

// newProblem draws activations and biases from values, weights from the bits of words.
func newProblem(dtype packing.Dtype, rows, cols, m int, bias bool, values func() float32, words func() uint32) *problem {
	p := &problem{dtype: dtype, rows: rows, cols: cols, m: m}
	for range rows * cols {
		switch bits := words(); dtype {
		case packing.F32:
			p.weights = append(p.weights, math.Float32frombits(bits))
			p.data = binary.LittleEndian.AppendUint32(p.data, bits)
		case packing.BF16:
			p.weights = append(p.weights, floats.BF16ToF32(uint16(bits>>16)))
			p.data = binary.LittleEndian.AppendUint16(p.data, uint16(bits>>16))
		case packing.F16:
			h := floats.F16FromF32(math.Float32frombits(bits))
			p.weights = append(p.weights, floats.F16ToF32(h))
			p.data = binary.LittleEndian.AppendUint16(p.data, h)
		}
	}
	if bias {
		for range rows {
			p.bias = append(p.bias, values())
		}
	}
	for range m * cols {
		p.x = append(p.x, values())
	}
	for i := range m {
		for n := range rows {
			f := float32(0)
			for k := range cols {
				f = floats.FMA32(p.x[i*cols+k], p.weights[n*cols+k], f)
			}
			if bias {
				f += p.bias[n]
			} else {
				f += 0
			}
			if f != f {
				f = math.Float32frombits(nanBits)
			}
			p.want = append(p.want, f)
		}
	}
	return p
}

const untouched = -12345.678

// checkAll multiplies with packed weights and with weights from a Source, in one piece and in two.
func (p *problem) checkAll(t *testing.T, s *Set, sc *Scratch) {
	t.Helper()
	w := s.New(p.dtype, p.rows, p.cols, p.bias)
	w.words = asmtest.AtPageEnd(t, w.words)
	data := asmtest.AtPageEnd(t, p.data)
	x := asmtest.AtPageEnd(t, make([]float32, s.XLen(p.m, p.cols)))
	dst := asmtest.AtPageEnd(t, make([]float32, p.m*p.rows))
	src := &Source{Rows: p.rows, Cols: p.cols, Bias: p.bias, Read: func(dst []float32, row int) {
		if copy(dst, p.weights[row*p.cols:(row+1)*p.cols]) != len(dst) || cap(dst) != p.cols {
			t.Errorf("room for %d of %d weights, capacity %d", len(dst), p.cols, cap(dst))
		}
	}}
	stored := *src
	stored.BF16 = data
	panels := w.Panels()
	if src.Panels(s) != panels {
		t.Fatalf("%d and %d panels", src.Panels(s), panels)
	}
	for _, cut := range []int{0, panels / 2} {
		for i := range x {
			x[i] = float32(math.NaN())
		}
		s.PackX(x, p.x, p.m, p.cols, 0, cut%(p.m+1))
		s.PackX(x, p.x, p.m, p.cols, cut%(p.m+1), p.m)
		w.Fill(sc, data, 0, cut)
		w.Fill(sc, data, cut, panels)
		type product struct {
			name string
			run  func(dst []float32, first, last int)
		}
		products := []product{
			{"Mul", func(dst []float32, first, last int) { w.Mul(sc, dst, x, p.m, first, last) }},
			{"MulRows", func(dst []float32, first, last int) { s.MulRows(sc, dst, x, p.m, src, first, last) }},
		}
		if p.dtype == packing.BF16 {
			products = append(products, product{"MulRows of BF16", func(dst []float32, first, last int) { s.MulRows(sc, dst, x, p.m, &stored, first, last) }})
		}
		for _, mul := range products {
			for i := range dst {
				dst[i] = untouched
			}
			mul.run(dst, 0, cut)
			for i, v := range dst {
				if i%p.rows >= cut*s.NR && v != untouched {
					t.Fatalf("%s of panels 0 to %d wrote column %d: %g", mul.name, cut, i%p.rows, v)
				}
			}
			mul.run(dst, cut, panels)
			p.check(t, mul.name+"/"+s.Feature, dst)
		}
	}
}

func (p *problem) check(t *testing.T, name string, got []float32) {
	t.Helper()
	for i, v := range got {
		if math.Float32bits(v) != math.Float32bits(p.want[i]) {
			t.Fatalf("%s, %s, %d x %d, m %d: y[%d][%d] = %g (%08x), want %g (%08x)", name, p.dtype, p.rows, p.cols, p.m,
				i/p.rows, i%p.rows, v, math.Float32bits(v), p.want[i], math.Float32bits(p.want[i]))
		}
	}
}

// common draws values as models have them.
func common(rng *rand.Rand) func() float32 {
	return func() float32 { return float32(rng.NormFloat64()) }
}

// hostile draws any bits, many of them from the ends of the range: signed zeros, denormals,
// products that become denormal, values that overflow, infinities and NaNs in some rows.
func hostile(rng *rand.Rand) func() uint32 {
	edges := []uint32{0, 1, 2, 0x007fffff, 0x00800000, 0x00800001, 0x3f800000, 0x3f7fffff, 0x3f800001, 0x7f7fffff,
		0x7f7f0000, 0x20000000, 0x1fffffff, 0x1f800000, 0x00010000, 0x5f000000}
	special := []uint32{0x7f800000, 0x7fc00000, 0x7fc12345, 0x7f812345}
	return func() uint32 {
		sign := uint32(rng.IntN(2)) << 31
		switch n := rng.IntN(1000); {
		case n == 0:
			return sign | special[rng.IntN(len(special))]
		case n < 400:
			return sign | edges[rng.IntN(len(edges))]
		case n < 700: // near the square root of the smallest number: products are denormal
			return sign | uint32(rng.IntN(0x08000000)) + 0x1c000000
		default:
			return sign | 0x3f800000 + uint32(rng.IntN(0x02000000)) - 0x01000000
		}
	}
}

func asFloat(bits func() uint32) func() float32 {
	return func() float32 { return math.Float32frombits(bits()) }
}

func asBits(values func() float32) func() uint32 {
	return func() uint32 { return math.Float32bits(values()) }
}

// TestShapes covers all remainders: of rows in panels and groups of panels, of columns in steps and
// in blocks of the transposition, of activations in tiles.
func TestShapes(t *testing.T) {
	var shapes [][3]int
	for _, m := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 16, 25} {
		shapes = append(shapes, [3]int{37, 9, m})
	}
	for rows := range 70 {
		shapes = append(shapes, [3]int{rows + 1, 5, 1})
	}
	for cols := range 40 {
		shapes = append(shapes, [3]int{19, cols + 1, 3})
	}
	shapes = append(shapes, [3]int{260, 33, 1}, [3]int{300, 6, 1}, [3]int{33, 2*blockCols + 3, 7}, [3]int{64, blockCols, 13}, [3]int{129, blockCols + 4, 2})
	for _, s := range sets(t) {
		t.Run(s.Feature, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 4))
			var sc Scratch
			for i, shape := range shapes {
				values := common(rng)
				newProblem(dtypes[i%3], shape[0], shape[1], shape[2], i%2 == 0, values, asBits(values)).checkAll(t, s, &sc)
			}
		})
	}
}

// TestHostile compares bits on inputs that arithmetic could go wrong with.
func TestHostile(t *testing.T) {
	rounds := 90
	if testing.Short() {
		rounds = 27
	}
	for _, s := range sets(t) {
		t.Run(s.Feature, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 6))
			bits := hostile(rng)
			var sc Scratch
			nans, zeros, denormals := 0, 0, 0
			for i := range rounds {
				rows, cols, m := 1+rng.IntN(150), 1+rng.IntN(40), 1+rng.IntN(20)
				if i%3 == 1 {
					rows, m = 128+rng.IntN(80), 1 // groups of panels
				}
				p := newProblem(dtypes[i/3%3], rows, cols, m, i%4 != 0, asFloat(bits), bits)
				p.checkAll(t, s, &sc)
				for _, v := range p.want {
					switch a := math.Float32bits(v) &^ (1 << 31); {
					case a > 0x7f800000:
						nans++
					case a == 0:
						zeros++
					case a < 0x00800000:
						denormals++
					}
				}
			}
			if nans == 0 || zeros == 0 || denormals == 0 {
				t.Errorf("no hard case: %d NaNs, %d zeros, %d denormals", nans, zeros, denormals)
			}
		})
	}
}

// TestOrder: with terms of such sizes each other order of the sum, and each rounding of a product,
// gives other bits.
func TestOrder(t *testing.T) {
	for _, s := range sets(t) {
		rng := rand.New(rand.NewPCG(7, 8))
		values := func() float32 { return float32(math.Ldexp(rng.NormFloat64(), rng.IntN(24))) }
		var sc Scratch
		newProblem(packing.F32, 4*s.NR*s.Group, 700, 1, true, values, asBits(values)).checkAll(t, s, &sc)
		newProblem(packing.BF16, s.NR, 700, s.Tiles[0], true, values, asBits(values)).checkAll(t, s, &sc)
	}
}

// TestNegativeZero: a sum that underflows from below is -0, and stays -0 only with a bias of -0, at
// any place in the row; padding of rows and columns does not change it.
func TestNegativeZero(t *testing.T) {
	for _, s := range sets(t) {
		for cols := 1; cols <= 9; cols++ {
			for _, dtype := range dtypes[:2] {
				smallest := uint32(1)
				if dtype == packing.BF16 {
					smallest <<= 16
				}
				minusZero := float32(math.Copysign(0, -1))
				p := newProblem(dtype, s.NR+1, cols, 2, true, func() float32 { return minusZero }, func() uint32 { return smallest })
				for i := range 2 {
					p.x[i*cols+cols-1] = -0x1p-100
				}
				for i := range p.want {
					p.want[i] = minusZero
				}
				p.checkAll(t, s, new(Scratch))
			}
		}
	}
}

// TestTiles: tiles cover each number of rows, and their sizes follow the comment of nextTile.
func TestTiles(t *testing.T) {
	s := &Set{Tiles: []int{6, 4, 2, 1}}
	for m, want := range map[int][]int{
		1: {1}, 3: {2, 1}, 5: {4, 1}, 6: {6}, 7: {6, 1}, 8: {4, 4}, 9: {4, 4, 1}, 10: {6, 4}, 12: {6, 6}, 13: {6, 6, 1},
		14: {6, 4, 4}, 16: {6, 6, 4},
	} {
		var got []int
		for left := m; left > 0; left -= got[len(got)-1] {
			got = append(got, s.Tiles[s.nextTile(left)])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d rows in tiles of %d, want %d", m, got, want)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	for _, s := range sets(t) {
		rng := rand.New(rand.NewPCG(9, 10))
		values := common(rng)
		for _, m := range []int{1, 7} {
			p := newProblem(packing.F16, s.NR*s.Group+3, 20, m, true, values, asBits(values))
			w := s.New(p.dtype, p.rows, p.cols, p.bias)
			x, dst := make([]float32, s.XLen(m, p.cols)), make([]float32, m*p.rows)
			src := &Source{Rows: p.rows, Cols: p.cols, Read: func(dst []float32, row int) { copy(dst, p.weights[row*p.cols:]) }}
			var sc Scratch
			run := func() {
				w.Fill(&sc, p.data, 0, w.Panels())
				s.PackX(x, p.x, m, p.cols, 0, m)
				w.Mul(&sc, dst, x, m, 0, w.Panels())
				s.MulRows(&sc, dst, x, m, src, 0, src.Panels(s))
			}
			run()
			if n := testing.AllocsPerRun(10, run); n != 0 {
				t.Errorf("%s, m %d: %g allocations", s.Feature, m, n)
			}
		}
	}
}

func TestSets(t *testing.T) {
	for _, i := range Sets.All() {
		s, feature := i.Code, i.Feature
		if s.Feature != feature {
			t.Errorf("%s: a Set of %s", feature, s.Feature)
		}
		if s.NR%blockRows != 0 || s.Group < 1 || s.Tiles[len(s.Tiles)-1] != 1 {
			t.Errorf("%s: %+v", feature, s)
		}
		for _, k := range []kernels{s.f32, s.bf16} {
			if len(k.tiles) != len(s.Tiles) || slices.ContainsFunc(k.tiles, func(k tileKernel) bool { return k == nil }) {
				t.Errorf("%s: tiles without kernels", feature)
			}
		}
		for i, mr := range s.Tiles {
			if i > 0 && mr >= s.Tiles[i-1] {
				t.Errorf("%s: tiles %d", feature, s.Tiles)
			}
		}
	}
	if got, want := generic.Name(true, 1), "bf16_1x8_generic"; got != want {
		t.Errorf("Name = %q, want %q", got, want)
	}
}

// TestMisuse: arguments that do not fit are a bug of the caller, and nothing is written past a
// slice.
func TestMisuse(t *testing.T) {
	s, sc := sets(t)[0], new(Scratch)
	w := s.New(packing.F32, 20, 8, nil)
	src := &Source{Rows: 20, Cols: 8, Bias: make([]float32, 3)}
	for name, f := range map[string]func(){
		"New":     func() { s.New(packing.F32, 0, 1, nil) },
		"bias":    func() { s.New(packing.F32, 2, 1, make([]float32, 1)) },
		"dtype":   func() { s.New(packing.I8, 2, 1, nil) },
		"Fill":    func() { w.Fill(sc, make([]byte, 20*8*4-1), 0, 1) },
		"panels":  func() { w.Fill(sc, make([]byte, 20*8*4), 0, w.Panels()+1) },
		"PackX":   func() { s.PackX(make([]float32, 15), make([]float32, 16), 2, 8, 0, 2) },
		"Mul":     func() { w.Mul(sc, make([]float32, 39), make([]float32, 16), 2, 0, 1) },
		"MulRows": func() { s.MulRows(sc, make([]float32, 40), make([]float32, 16), 2, src, 0, 1) },
	} {
		func() {
			defer func() {
				if r := recover(); r == nil || fmt.Sprint(r)[:8] != "floatmm:" {
					t.Errorf("%s: %v", name, r)
				}
			}()
			f()
		}()
	}
}
