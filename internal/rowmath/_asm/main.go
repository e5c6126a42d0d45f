// The command _asm writes the AVX2 and AVX-512 implementations of package rowmath: go generate
// here, or
//
//	go run . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg rowmath
//
// It is a module of its own so that users of gq never see its dependencies.
package main

//go:generate go run . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg rowmath

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("!purego")
	tile(4, 2)
	tile(4, 1)
	tile(1, 8)
	tile(1, 2)
	tile(1, 1)
	highest()
	expSum()
	expRow()
	scale()
	gate()
	wide = true
	tile(4, 2)
	tile(8, 1)
	tile(3, 1)
	expSum()
	gate()
	Generate()
}

// wide is whether functions are of AVX-512: their vectors are of 512 bits.
var wide bool

func vector() reg.VecVirtual {
	if wide {
		return ZMM()
	}
	return YMM()
}

// narrow is a register for as many float32 as a vector has float64.
func narrow() reg.VecVirtual {
	if wide {
		return YMM()
	}
	return XMM()
}

// size is the number of bytes of a vector. Functions of float64 take 8 values at a time, parts()
// vectors.
func size() int { return int(vector().Size()) }

func parts() int { return 64 / size() }

// block is the name of a function for n values.
func block(name string) string {
	if wide {
		return name + "Block512"
	}
	return name + "Block"
}

// narrowed rounds float64 to float32.
func narrowed(d reg.VecVirtual) reg.VecVirtual {
	f := narrow()
	if wide {
		VCVTPD2PS(d, f)
	} else {
		VCVTPD2PSY(d, f)
	}
	return f
}

// tile keeps the sums of rows of some vectors of outputs in registers. Products and sums are
// separate instructions: a fused one would round differently from the portable code.
func tile(rows, vectors int) {
	columns := vectors * size() / 4
	name := fmt.Sprintf("tile%dx%d", rows, columns)
	TEXT(name, NOSPLIT, "func(dst *float32, dstStride int, a *float32, aStride int, b *float32, bStride, k int)")
	Doc(fmt.Sprintf("%s is Set.MulAdd for %d x %d outputs, k > 0; strides are in bytes.", name, rows, columns))
	Pragma("noescape")
	dst := Load(Param("dst"), GP64())
	dstStride := Load(Param("dstStride"), GP64())
	a := Load(Param("a"), GP64())
	aStride := Load(Param("aStride"), GP64())
	b := Load(Param("b"), GP64())
	bStride := Load(Param("bStride"), GP64())
	k := Load(Param("k"), GP64())

	var sums [8][8]reg.VecVirtual
	var at [8]reg.Register // the rows of a
	out := dst
	for i := range rows {
		at[i] = a
		if i > 0 {
			out, at[i] = next(out, dstStride), next(at[i-1], aStride)
		}
		for j := range vectors {
			sums[i][j] = vector()
			VMOVUPS(operand.Mem{Base: out, Disp: size() * j}, sums[i][j])
		}
	}

	Label("loop")
	if rows == 1 { // b straight from memory
		x := vector()
		VBROADCASTSS(operand.Mem{Base: at[0]}, x)
		for j := range vectors {
			p := vector()
			VMULPS(operand.Mem{Base: b, Disp: size() * j}, x, p)
			VADDPS(p, sums[0][j], sums[0][j])
		}
	} else {
		var w [8]reg.VecVirtual
		for j := range vectors {
			w[j] = vector()
			VMOVUPS(operand.Mem{Base: b, Disp: size() * j}, w[j])
		}
		for i := range rows {
			x := vector()
			VBROADCASTSS(operand.Mem{Base: at[i]}, x)
			for j := range vectors {
				p := vector()
				VMULPS(w[j], x, p)
				VADDPS(p, sums[i][j], sums[i][j])
			}
		}
	}
	for i := range rows {
		ADDQ(operand.Imm(4), at[i])
	}
	ADDQ(bStride, b)
	DECQ(k)
	JNE(operand.LabelRef("loop"))

	out = dst
	for i := range rows {
		if i > 0 {
			out = next(out, dstStride)
		}
		for j := range vectors {
			VMOVUPS(sums[i][j], operand.Mem{Base: out, Disp: size() * j})
		}
	}
	VZEROUPPER()
	RET()
}

// next is a pointer to the next row.
func next(p, stride reg.Register) reg.Register {
	q := GP64()
	MOVQ(p, q)
	ADDQ(stride, q)
	return q
}

func highest() {
	TEXT("highestBlock", NOSPLIT, "func(x *float32, n int) float32")
	Doc("highestBlock returns the largest of n values, n a positive multiple of 8; it ignores or returns a NaN.")
	Pragma("noescape")
	x := Load(Param("x"), GP64())
	n := Load(Param("n"), GP64())
	top := YMM()
	VMOVUPS(operand.Mem{Base: x}, top)
	Label("loop")
	VMAXPS(operand.Mem{Base: x}, top, top)
	ADDQ(operand.Imm(32), x)
	SUBQ(operand.Imm(8), n)
	JNE(operand.LabelRef("loop"))
	half := XMM()
	VEXTRACTF128(operand.Imm(1), top, half)
	low := XMM()
	VMAXPS(half, top.AsX(), low)
	VPERMILPS(operand.Imm(0x4e), low, half)
	VMAXPS(half, low, low)
	VPERMILPS(operand.Imm(0xb1), low, half)
	VMAXPS(half, low, low)
	Store(low, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

func scale() {
	TEXT("scaleBlock", NOSPLIT, "func(x *float32, n int, factor float32)")
	Doc("scaleBlock is scaleGeneric for n values, n a positive multiple of 8.")
	Pragma("noescape")
	x := Load(Param("x"), GP64())
	n := Load(Param("n"), GP64())
	addr, _ := Param("factor").Resolve()
	factor := YMM()
	VBROADCASTSS(addr.Addr, factor)
	Label("loop")
	y := YMM()
	VMULPS(operand.Mem{Base: x}, factor, y)
	VMOVUPS(y, operand.Mem{Base: x})
	ADDQ(operand.Imm(32), x)
	SUBQ(operand.Imm(8), n)
	JNE(operand.LabelRef("loop"))
	VZEROUPPER()
	RET()
}

// The places of the constants in the table that the functions are passed.
const (
	log2e = iota
	rounder
	ln2Hi
	ln2Lo
	one
	c2 // 1/2!
	c3
	c4
	c5
	c6
	c7
	c8
	least
	most
)

// exp replaces d, a vector of float64 between least and most, by e^d, with the steps of
// detmath.ExpNarrow. The most frequent constants are in registers.
type exp struct {
	table              reg.Register
	log2e, rounder, hi reg.VecVirtual
	lo, one            reg.VecVirtual
}

func newExp(table reg.Register) exp {
	e := exp{table, vector(), vector(), vector(), vector(), vector()}
	for _, c := range []struct {
		i int
		r reg.VecVirtual
	}{{log2e, e.log2e}, {rounder, e.rounder}, {ln2Hi, e.hi}, {ln2Lo, e.lo}, {one, e.one}} {
		VBROADCASTSD(e.at(c.i), c.r)
	}
	return e
}

func (e exp) at(i int) operand.Mem { return operand.Mem{Base: e.table, Disp: 8 * i} }

func (e exp) load(i int) reg.VecVirtual {
	r := vector()
	VBROADCASTSD(e.at(i), r)
	return r
}

func (e exp) of(d reg.VecVirtual) {
	t, n, p := vector(), vector(), vector()
	VMULPD(e.log2e, d, t)
	VADDPD(e.rounder, t, t)
	VSUBPD(e.rounder, t, n)
	VMULPD(e.hi, n, p)
	VSUBPD(p, d, d)
	VMULPD(e.lo, n, p)
	VSUBPD(p, d, d) // r
	r2, r4 := vector(), vector()
	VMULPD(d, d, r2)
	VMULPD(r2, r2, r4)
	// pair is a + r*b
	pair := func(a, b int) reg.VecVirtual {
		y := vector()
		VMULPD(e.load(b), d, y)
		VADDPD(e.load(a), y, y)
		return y
	}
	high, p67 := pair(c4, c5), pair(c6, c7)
	VMULPD(r2, p67, p67)
	VADDPD(p67, high, high)
	VMULPD(e.load(c8), r4, p)
	VADDPD(p, high, high)
	p23 := pair(c2, c3)
	VMULPD(r2, p23, p23)
	VADDPD(e.one, d, d)
	VADDPD(p23, d, d)
	VMULPD(r4, high, high)
	VADDPD(high, d, d)
	// times 2^n: the low bits of t are n
	VPSLLQ(operand.Imm(52), t, t)
	VPADDQ(t, d, d)
}

// VMAXPD and VMINPD return their first operand here, the second in Intel's order, if an operand is
// NaN: d stays NaN.
func (e exp) atLeast(d reg.VecVirtual) { VMAXPD(d, e.load(least), d) }
func (e exp) atMost(d reg.VecVirtual)  { VMINPD(d, e.load(most), d) }

func expSum() {
	TEXT(block("expSum"), NOSPLIT, "func(x *float32, n int, highest float32, lanes, constants *float64)")
	Doc(block("expSum") + " is expSumGeneric for n values, n a positive multiple of 8.")
	Pragma("noescape")
	x := Load(Param("x"), GP64())
	n := Load(Param("n"), GP64())
	addr, _ := Param("highest").Resolve()
	top := narrow()
	VBROADCASTSS(addr.Addr, top)
	lanes := Load(Param("lanes"), GP64())
	e := newExp(Load(Param("constants"), GP64()))
	sums := make([]reg.VecVirtual, parts())
	for i := range sums {
		sums[i] = vector()
		VMOVUPD(operand.Mem{Base: lanes, Disp: size() * i}, sums[i])
	}
	Label("loop")
	for i := range sums {
		f, d := narrow(), vector()
		VMOVUPS(operand.Mem{Base: x, Disp: size() / 2 * i}, f)
		VSUBPS(top, f, f)
		VCVTPS2PD(f, d)
		e.atLeast(d)
		e.of(d)
		VADDPD(d, sums[i], sums[i])
		VMOVUPS(narrowed(d), operand.Mem{Base: x, Disp: size() / 2 * i})
	}
	ADDQ(operand.Imm(32), x)
	SUBQ(operand.Imm(8), n)
	JNE(operand.LabelRef("loop"))
	for i := range sums {
		VMOVUPD(sums[i], operand.Mem{Base: lanes, Disp: size() * i})
	}
	VZEROUPPER()
	RET()
}

func expRow() {
	TEXT("expBlock", NOSPLIT, "func(dst *float64, x *float32, n int, highest float32, constants *float64)")
	Doc("expBlock is expGeneric for n values, n a positive multiple of 8.")
	Pragma("noescape")
	dst := Load(Param("dst"), GP64())
	x := Load(Param("x"), GP64())
	n := Load(Param("n"), GP64())
	addr, _ := Param("highest").Resolve()
	f, top := XMM(), YMM()
	VBROADCASTSS(addr.Addr, f)
	VCVTPS2PD(f, top)
	e := newExp(Load(Param("constants"), GP64()))
	Label("loop")
	for i := range 2 {
		d := YMM()
		VCVTPS2PD(operand.Mem{Base: x, Disp: 16 * i}, d)
		VSUBPD(top, d, d)
		e.atLeast(d)
		e.of(d)
		VMOVUPD(d, operand.Mem{Base: dst, Disp: 32 * i})
	}
	ADDQ(operand.Imm(32), x)
	ADDQ(operand.Imm(64), dst)
	SUBQ(operand.Imm(8), n)
	JNE(operand.LabelRef("loop"))
	VZEROUPPER()
	RET()
}

func gate() {
	TEXT(block("gate"), NOSPLIT, "func(gate, up *float32, n int, linear, cubic float64, constants *float64)")
	Doc(block("gate") + " is gateGeneric for n values, n a positive multiple of 8.")
	Pragma("noescape")
	gate := Load(Param("gate"), GP64())
	up := Load(Param("up"), GP64())
	n := Load(Param("n"), GP64())
	linear, cubic := vector(), vector()
	addr, _ := Param("linear").Resolve()
	VBROADCASTSD(addr.Addr, linear)
	addr, _ = Param("cubic").Resolve()
	VBROADCASTSD(addr.Addr, cubic)
	e := newExp(Load(Param("constants"), GP64()))
	Label("loop")
	for i := range parts() {
		x, d := vector(), vector()
		VCVTPS2PD(operand.Mem{Base: gate, Disp: size() / 2 * i}, x)
		VMULPD(x, x, d)
		VMULPD(x, d, d)
		VMULPD(cubic, d, d)
		VADDPD(x, d, d)
		VMULPD(linear, d, d)
		e.atMost(d)
		e.atLeast(d)
		e.of(d)
		VADDPD(e.one, d, d)
		VDIVPD(d, x, x)
		f := narrowed(x)
		VMULPS(operand.Mem{Base: up, Disp: size() / 2 * i}, f, f)
		VMOVUPS(f, operand.Mem{Base: gate, Disp: size() / 2 * i})
	}
	ADDQ(operand.Imm(32), gate)
	ADDQ(operand.Imm(32), up)
	SUBQ(operand.Imm(8), n)
	JNE(operand.LabelRef("loop"))
	VZEROUPPER()
	RET()
}
