package reference

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// ordinary are scales as weights have them, of both signs.
func ordinary(rng *rand.Rand) func() float32 {
	return func() float32 { return float32((0.001 + 0.02*rng.Float64()) * float64(1-2*rng.IntN(2))) }
}

func normal(rng *rand.Rand, n int, mean float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64() + mean)
	}
	return x
}

// TestFloat64 compares the products of every sort of payload with products of dequantized weights
// and activations in float64. The bound is the rounding error: a misplaced scale, zero point or
// code is far beyond it.
func TestFloat64(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	layouts, worst := map[packing.Layout]int{}, 0.0
	for range rounds {
		for _, h := range headers(rng) {
			m := newMatrix(t, rng, h, ordinary(rng))
			o := m.operator(t)
			layouts[h.Layout]++
			n := 1 + rng.IntN(4)
			// One-sided rows have large zero points.
			x := normal(rng, n*m.cols, []float64{0, 0, 3, -3}[rng.IntN(4)])
			a := o.Quantize(x, n)
			dst := make([]float32, n*m.rows)
			o.MultiplyQuantized(dst, a, n)
			for i := range n {
				for row := range m.rows {
					want, bound := m.exact(a, i, row)
					got := float64(dst[i*m.rows+row])
					if !(math.Abs(got-want) <= bound) {
						t.Fatalf("%v: output %d of row %d is %v, want %v by %v at most", m, row, i, got, want, bound)
					}
					worst = max(worst, math.Abs(got-want)/bound)
				}
			}
			checkRowsAlone(t, o, dst, x, n)
		}
	}
	if len(layouts) != len(products) {
		t.Errorf("layouts %v, want all %d", layouts, len(products))
	}
	t.Logf("largest error: %.2f of the bound", worst)
}

// checkRowsAlone wants the same outputs when the rows of x are multiplied one by one.
func checkRowsAlone(t *testing.T, o *Operator, dst, x []float32, m int) {
	t.Helper()
	one := make([]float32, o.Rows())
	for i := range m {
		o.Multiply(one, x[i*o.Cols():][:o.Cols()], 1)
		if !sameBits(one, dst[i*o.Rows():][:o.Rows()]) {
			t.Fatalf("row %d has other outputs alone", i)
		}
	}
}

// TestBadRows: a row with no scale has NaN for outputs, and nothing else changes.
func TestBadRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, layout := range packing.Layouts {
		if products[layout] == nil {
			continue
		}
		var h packing.Header
		for _, c := range headers(rng) {
			if c.Layout == layout {
				h = c // the last one
			}
		}
		m := newMatrix(t, rng, h, ordinary(rng))
		o := m.operator(t)
		const rows = 8
		x := normal(rng, rows*m.cols, 0)
		good := make([]float32, rows*m.rows)
		o.Multiply(good, x, rows)
		at := func(i int) []float32 { return x[i*m.cols:][:m.cols] }
		bad := map[int]bool{1: true, 2: true, 3: true, 5: true}
		at(1)[m.cols-1] = float32(math.NaN())
		at(2)[0] = float32(math.Inf(1))
		at(3)[m.cols/2] = float32(math.Inf(-1))
		clear(at(5))
		at(5)[0] = 1e-40 // 255/x and 127/x are beyond float32, 1/(x/127) is too
		if m.cols == 1 {
			t.Fatalf("%v: want more columns", m)
		}
		dst := make([]float32, rows*m.rows)
		o.Multiply(dst, x, rows)
		Clamp(dst, -1, 1)
		for i := range rows {
			for r, got := range dst[i*m.rows:][:m.rows] {
				want := good[i*m.rows+r : i*m.rows+r+1]
				if bad[i] {
					want = []float32{floats.NaN}
				}
				Clamp(want, -1, 1)
				if math.Float32bits(got) != math.Float32bits(want[0]) {
					t.Errorf("%v: output %d of row %d is %#08x, want %v", m, r, i, math.Float32bits(got), want[0])
				}
			}
		}
	}
}

// TestZeroRow: activations of 0 give the bias, whatever the weights.
func TestZeroRow(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, h := range headers(rng) {
		m := newMatrix(t, rng, h, ordinary(rng))
		o := m.operator(t)
		dst := make([]float32, m.rows)
		o.Multiply(dst, make([]float32, m.cols), 1)
		for r, got := range dst {
			// In lowbit the codes are 127 and their zero point is taken off again, which rounds.
			_, bound := m.exact(o.Quantize(make([]float32, m.cols), 1), 0, r)
			if h.Layout != packing.LayoutLowbit && h.Layout != packing.LayoutTorchAOKleidiAI {
				bound = 0
			}
			if math.Abs(float64(got)-float64(m.bias[r])) > bound {
				t.Fatalf("%v: output %d of a row of 0 is %v, its bias %v", m, r, got, m.bias[r])
			}
		}
	}
}

// TestHuge: scales near the ends of their formats overflow to infinities, whose differences are
// NaN; every NaN has the same bits.
func TestHuge(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	count := map[string]int{}
	for _, h := range headers(rng) {
		top := h.ScaleDtype.Max()
		m := newMatrix(t, rng, h, func() float32 {
			s := []float32{top, top / 2, h.SmallestScale(), 1}[rng.IntN(4)]
			return s * float32(1-2*rng.IntN(2))
		})
		o := m.operator(t)
		x := normal(rng, 3*m.cols, 0)
		for i := range m.cols {
			x[m.cols+i] *= 0x1p120
			x[2*m.cols+i] *= 0x1p-100
		}
		dst := make([]float32, 3*m.rows)
		o.Multiply(dst, x, 3)
		for _, v := range dst {
			switch {
			case v != v && math.Float32bits(v) != 0x7fc00000:
				t.Fatalf("%v: NaN %#x", m, math.Float32bits(v))
			case v != v:
				count["NaN"]++
			case math.IsInf(float64(v), 0):
				count["infinite"]++
			default:
				count["finite"]++
			}
		}
	}
	if len(count) != 3 {
		t.Errorf("outputs %v, want some of each", count)
	}
}

// TestLongGroup multiplies the longest group with the largest codes: the sum is in int32.
func TestLongGroup(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	h := packing.Header{Layout: packing.LayoutLowbit, Bits: 8, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Tile: packing.DefaultTile, Rows: 2, Cols: MaxGroup}
	m := newMatrix(t, rng, h, func() float32 { return 1 })
	for i := range m.codes {
		m.codes[i] = 127
	}
	m.zeros[0], m.zeros[1] = -128, 127
	clear(m.bias)
	m.pack(m.operator(t).packer)
	o := m.operator(t)
	x := make([]float32, m.cols) // all of them -128, with zero point 127
	for i := range x {
		x[i] = -255
	}
	dst := make([]float32, 2)
	o.Multiply(dst, x, 1)
	if want := float32(-255 * 255 * MaxGroup); dst[0] != want || dst[1] != 0 {
		t.Errorf("outputs %v, want %v and 0", dst, want)
	}
}

func TestNewRefuses(t *testing.T) {
	lowbit := packing.Header{Layout: packing.LayoutLowbit, Bits: 1, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Rows: 1, Cols: MaxGroup + 32}
	torchao := packing.Header{Layout: packing.LayoutTorchAOLinear, Bits: 4, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: 8, Cols: 32}
	grouped := lowbit
	grouped.Cols, grouped.Group = 3*MaxGroup, MaxGroup+16
	for _, c := range []struct {
		h    packing.Header
		size int // -1: the size in the header
		want string
	}{
		{packing.Header{}, 0, "layout 0 does not exist"},
		{packing.PlainHeader(packing.F32, 2, 2), -1, "a payload of layout plain holds no packed codes"},
		{packing.Header{Layout: packing.LayoutCodes, Bits: 4, ScaleDtype: packing.ScaleF32, Rows: 2, Cols: 32}, -1, "layout codes has no product"},
		{
			packing.Header{Layout: packing.LayoutTorchAOEmbedding, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Rows: 2, Cols: 32}, -1,
			"layout torchao-embedding has no product",
		},
		{lowbit, -1, "groups of 65568 columns, want at most 65536"},
		{grouped, -1, "groups of 65552 columns, want at most 65536"},
		{torchao, 100, "100 bytes of data, the header needs 256"},
		{torchao, -1, "data of layout torchao-linear does not begin with the header of these weights"},
	} {
		size := c.size
		if size < 0 {
			n, err := c.h.DataSize()
			if err != nil {
				t.Fatal(err)
			}
			size = int(n)
		}
		if _, err := New(c.h, make([]byte, size)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v\nwant  %s", err, c.want)
		}
	}
}

func TestPanics(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	h := packing.Header{Layout: packing.LayoutQAI4C32P, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroF32, Tile: packing.Tile{NR: 4, KR: 8, SR: 2}, Group: 32}
	shape(rng, &h)
	o := newMatrix(t, rng, h, ordinary(rng)).operator(t)
	a := o.Quantize(make([]float32, 2*o.Cols()), 2)
	short := *a
	short.BlockSum = short.BlockSum[1:]
	for name, f := range map[string]func(){
		"too few activations": func() { o.Multiply(make([]float32, 2*o.Rows()), make([]float32, o.Cols()), 2) },
		"too few outputs":     func() { o.MultiplyQuantized(make([]float32, o.Rows()), a, 2) },
		"too few sums":        func() { o.MultiplyQuantized(make([]float32, 2*o.Rows()), &short, 2) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestClamp(t *testing.T) {
	zero, negZero, inf := float32(0), float32(math.Copysign(0, -1)), float32(math.Inf(1))
	odd := math.Float32frombits(0xffc12345)
	for _, c := range []struct{ in, low, high, want float32 }{
		{1, -2, 2, 1}, {-3, -2, 2, -2}, {3, -2, 2, 2}, {inf, -2, 2, 2}, {-inf, -2, 2, -2}, {inf, -2, inf, inf},
		{inf, -math.MaxFloat32, math.MaxFloat32, math.MaxFloat32},
		{negZero, zero, 6, zero}, {zero, negZero, 6, zero}, {zero, -6, negZero, negZero}, {negZero, -6, zero, negZero},
		{1, 3, 2, 2}, {floats.NaN, -2, 2, floats.NaN}, {odd, -2, 2, odd},
	} {
		got := []float32{c.in}
		if Clamp(got, c.low, c.high); math.Float32bits(got[0]) != math.Float32bits(c.want) {
			t.Errorf("%v in %v..%v is %v, want %v", c.in, c.low, c.high, got[0], c.want)
		}
	}
}
