package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// stepSoft has a code in each lane and goes through the choices. e lies in the frame.
func stepSoft() {
	TEXT("stepSoftBlock", NOSPLIT, "func(value, grad *float32, least *int8, x, m, v *float32, blocks, choices int, step *float32)")
	Doc("stepSoftBlock is stepSoftGeneric with AVX2 for a positive number of blocks. step is a SoftStep.")
	Pragma("noescape")
	value := Load(Param("value"), GP64())
	grad := Load(Param("grad"), GP64())
	least := Load(Param("least"), GP64())
	x := Load(Param("x"), GP64())
	m := Load(Param("m"), GP64())
	v := Load(Param("v"), GP64())
	blocks := Load(Param("blocks"), GP64())
	size := Load(Param("choices"), GP64())
	step := Load(Param("step"), GP64())
	SHLQ(operand.Imm(5), size) // bytes of a block
	const vector = 32
	e := AllocLocal(4 * vector)
	frame := GP64()
	LEAQ(e, frame)
	at := GP64() // of a choice in the block
	of := func(base reg.Register) operand.Mem { return operand.Mem{Base: base, Index: at, Scale: 1} }
	exp := softExpConstants()
	one := ones()

	// softmax leaves e in the frame and returns 1/sum.
	softmax := func(label string, colder operand.Mem) reg.VecVirtual {
		top, sum, factor := YMM(), YMM(), YMM()
		VMOVUPS(operand.Mem{Base: x}, top)
		MOVQ(operand.U32(vector), at)
		Label(label + "Top")
		VMAXPS(of(x), top, top)
		ADDQ(operand.Imm(vector), at)
		CMPQ(at, size)
		JNE(operand.LabelRef(label + "Top"))

		VBROADCASTSS(colder, factor)
		zeroed(sum)
		XORQ(at, at)
		Label(label + "Sum")
		y := YMM()
		VMOVUPS(of(x), y)
		VSUBPS(top, y, y)
		VMULPS(factor, y, y)
		exp(y)
		VMOVUPS(y, of(frame))
		VADDPS(y, sum, sum)
		ADDQ(operand.Imm(vector), at)
		CMPQ(at, size)
		JNE(operand.LabelRef(label + "Sum"))
		VDIVPS(sum, one, sum)
		return sum
	}
	// distance adds e times the distances to the choice c to sum.
	distance := func(label string, c, sum reg.VecVirtual) {
		d, t, k := YMM(), YMM(), GP64()
		VMOVAPS(c, d)
		zeroed(sum)
		XORQ(k, k)
		Label(label)
		VMULPS(operand.Mem{Base: frame, Index: k, Scale: 1}, d, t)
		VADDPS(t, sum, sum)
		VSUBPS(one, d, d)
		ADDQ(operand.Imm(vector), k)
		CMPQ(k, size)
		JNE(operand.LabelRef(label))
	}
	param := func(i int) operand.Mem { return operand.Mem{Base: step, Disp: 4 * i} }
	const colder, next, slope, rate, second = 0, 1, 2, 3, 4

	Label("block")
	inverse := softmax("old", param(colder))
	all, count := YMM(), YMM()
	VBROADCASTSS(param(slope), all)
	VMULPS(operand.Mem{Base: grad}, all, all)
	zeroed(count)
	XORQ(at, at)
	Label("choice")
	g, d, a, b, t := YMM(), YMM(), YMM(), YMM(), YMM()
	VMULPS(of(frame), inverse, g)
	VMULPS(all, g, g)
	distance("distance", count, d)
	VMULPS(inverse, d, d)
	VMULPS(d, g, g)
	VADDPS(one, count, count)
	VMULPS(g, g, b)
	VMULPS(constant("softRest1", .1), g, a)
	VMOVUPS(of(m), t)
	VMULPS(constant("softBeta1", .9), t, t)
	VADDPS(a, t, a)
	VMOVUPS(a, of(m))
	VMULPS(constant("softRest2", .01), b, b)
	VMOVUPS(of(v), t)
	VMULPS(constant("softBeta2", .99), t, t)
	VADDPS(b, t, b)
	VMOVUPS(b, of(v))
	VBROADCASTSS(param(second), t)
	VMULPS(t, b, b)
	VSQRTPS(b, b)
	VADDPS(constant("softEpsilon", 0x1p-16), b, b)
	VBROADCASTSS(param(rate), t)
	VMULPS(t, a, a)
	VDIVPS(b, a, a)
	VMOVUPS(of(x), t)
	VSUBPS(a, t, t)
	VMOVUPS(t, of(x))
	ADDQ(operand.Imm(vector), at)
	CMPQ(at, size)
	JNE(operand.LabelRef("choice"))

	inverse = softmax("new", param(next))
	low, mean := YMM(), YMM()
	zeroed(count)
	distance("mean", count, mean)
	VMULPS(inverse, mean, mean)
	VPMOVSXBD(operand.Mem{Base: least}, low)
	VCVTDQ2PS(low, low)
	VSUBPS(mean, low, low)
	VMOVUPS(low, operand.Mem{Base: value})
	zeroed(low)
	VMOVUPS(low, operand.Mem{Base: grad})
	for _, p := range []reg.Register{value, grad} {
		ADDQ(operand.Imm(vector), p)
	}
	ADDQ(operand.Imm(8), least)
	for _, p := range []reg.Register{x, m, v} {
		ADDQ(size, p)
	}
	DECQ(blocks)
	JNE(operand.LabelRef("block"))
	VZEROUPPER()
	RET()
}

// constant is a vector of eight equal float32.
func constant(name string, v float32) operand.Mem {
	if m, ok := constants[name]; ok {
		return m
	}
	m := GLOBL(name, attr.RODATA|attr.NOPTR)
	for i := range 8 {
		DATA(4*i, operand.U32(math.Float32bits(v)))
	}
	constants[name] = m
	return m
}

var constants = map[string]operand.Mem{}

// softExpConstants returns the function that replaces y by softExp of y.
func softExpConstants() func(y reg.VecVirtual) {
	series := [...]float32{1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1, 1}
	return func(y reg.VecVirtual) {
		n, t, p, small := YMM(), YMM(), YMM(), YMM()
		const less = 1
		VCMPPS(operand.Imm(less), constant("softLeast", -40), y, small)
		VMULPS(constant("softLog2e", math.Log2E), y, n)
		VROUNDPS(operand.Imm(nearestEven), n, n)
		VMULPS(constant("softLn2Hi", 0x1.62e4p-1), n, t)
		VSUBPS(t, y, y)
		VMULPS(constant("softLn2Lo", math.Ln2-0x1.62e4p-1), n, t)
		VSUBPS(t, y, y)
		VMOVUPS(constant("softSeries0", series[0]), p)
		for i, c := range series[1:] {
			VMULPS(y, p, p)
			VADDPS(constant(fmt.Sprint("softSeries", i+1), c), p, p)
		}
		VCVTPS2DQ(n, n)
		VPSLLD(operand.Imm(23), n, n)
		VPADDD(n, p, p)
		VANDNPS(p, small, y)
	}
}
