// The command _asm writes the AVX2 and AVX-512 kernels of package floatmm: go generate here, or
//
//	go run . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg floatmm
//
// It is a module of its own so that users of gq never see its dependencies.
package main

//go:generate go run . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg floatmm

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// An arch holds the differences between the kernels of instruction sets. A panel has two vectors of
// rows.
type arch struct {
	name   string
	vector int // bytes
	tiles  []int
	reg    func() reg.VecVirtual
	zero   func(reg.VecVirtual)
}

var avx2 = arch{"AVX2", 32, []int{6, 4, 2, 1}, YMM, func(r reg.VecVirtual) { VXORPS(r, r, r) }}
var avx512 = arch{"AVX512", 64, []int{12, 8, 4, 2, 1}, ZMM, func(r reg.VecVirtual) { VPXORD(r, r, r) }}

// groupPanels is the number of panels that a product of one row takes at a time: 8 chains of sums,
// because 8 multiply-adds are in flight (a latency of 4 cycles, two a cycle).
const groupPanels = 4

// steps is the number of columns by which loops are unrolled: x is packed by 4.
const steps = 4

func main() {
	ConstraintExpr("!purego")
	for _, a := range []arch{avx2, avx512} {
		for _, bf16 := range []bool{false, true} {
			for _, mr := range a.tiles {
				tile(a, mr, bf16)
			}
			group(a, bf16)
		}
	}
	transpose()
	Generate()
}

func suffix(a arch, bf16 bool) string {
	if bf16 {
		return "BF16" + a.name
	}
	return a.name
}

// weights loads vector v of column k of a step from the panel at w. BF16 come in pairs of columns.
func (a arch) weights(w reg.Register, k, v int, bf16 bool, odd, dst reg.VecVirtual) {
	at := func(row int) operand.Mem { return operand.Mem{Base: w, Disp: (2*row + v) * a.vector} }
	switch {
	case !bf16:
		VMOVUPS(at(k), dst)
	case k%2 == 1:
		if a.vector == 64 {
			VPANDD(at(k/2), odd, dst)
		} else {
			VPAND(at(k/2), odd, dst)
		}
	case a.vector == 64:
		VPSLLD(operand.Imm(16), at(k/2), dst)
	default:
		VMOVDQU(at(k/2), dst)
		VPSLLD(operand.Imm(16), dst, dst)
	}
}

// stepBytes is the number of bytes of a panel in a step.
func (a arch) stepBytes(bf16 bool) int {
	if bf16 {
		return steps * a.vector
	}
	return steps * 2 * a.vector
}

// oddMask returns a register that masks the upper halves of words, if needed.
func (a arch) oddMask(bf16 bool) reg.VecVirtual {
	if !bf16 {
		return nil
	}
	odd := a.reg()
	if a.vector == 64 {
		VPTERNLOGD(operand.Imm(0xff), odd, odd, odd)
	} else {
		VPCMPEQD(odd, odd, odd)
	}
	VPSLLD(operand.Imm(16), odd, odd)
	return odd
}

// finish returns a function that adds a bias and replaces NaNs.
func (a arch) finish() func(bias operand.Mem, sum reg.VecVirtual) {
	nan, word := a.reg(), GP32()
	MOVL(operand.U32(0x7fc00000), word)
	VMOVD(word, nan.AsX())
	VPBROADCASTD(nan.AsX(), nan)
	if a.vector == 64 {
		unordered := K()
		return func(bias operand.Mem, sum reg.VecVirtual) {
			VADDPS(bias, sum, sum)
			VCMPPS(operand.Imm(3), sum, sum, unordered)
			VMOVAPS(nan, unordered, sum)
		}
	}
	unordered := a.reg()
	return func(bias operand.Mem, sum reg.VecVirtual) {
		VADDPS(bias, sum, sum)
		VCMPPS(operand.Imm(3), sum, sum, unordered)
		VBLENDVPS(unordered, nan, sum, sum)
	}
}

// tile emits a tileKernel for mr rows of x. Each column is two loads of weights and, for each row
// of x, a broadcast and two multiply-adds.
func tile(a arch, mr int, bf16 bool) {
	name := fmt.Sprintf("tile%d%s", mr, suffix(a, bf16))
	TEXT(name, NOSPLIT, "func(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)")
	kind := "float32"
	if bf16 {
		kind = "BF16"
	}
	Doc(fmt.Sprintf("%s is the tileKernel for %d x %d sums with %s weights.", name, mr, a.vector/2, kind))
	Pragma("noescape")
	out := Load(Param("out"), GP64())
	stride := Load(Param("stride"), GP64())
	w := Load(Param("w"), GP64())
	x := Load(Param("x"), GP64())
	k := Load(Param("k"), GP64())
	bias := Load(Param("bias"), GP64())
	resume := Load(Param("resume"), GP64())
	ahead := Load(Param("ahead"), GP64())
	step := Load(Param("step"), GP64())
	row := GP64()

	sums := make([][2]reg.VecVirtual, mr)
	for m := range sums {
		sums[m] = [2]reg.VecVirtual{a.reg(), a.reg()}
	}
	eachSum := func(f func(sum reg.VecVirtual, v int)) {
		MOVQ(out, row)
		for m := range sums {
			for v, sum := range sums[m] {
				f(sum, v)
			}
			if m+1 < mr {
				ADDQ(stride, row)
			}
		}
	}
	TESTQ(resume, resume)
	JNE(operand.LabelRef("resumed"))
	for m := range sums {
		a.zero(sums[m][0])
		a.zero(sums[m][1])
	}
	JMP(operand.LabelRef("begin"))
	Label("resumed")
	eachSum(func(sum reg.VecVirtual, v int) { VMOVUPS(operand.Mem{Base: row, Disp: v * a.vector}, sum) })
	Label("begin")
	odd := a.oddMask(bf16)
	weights := [2]reg.VecVirtual{a.reg(), a.reg()}
	value := a.reg()

	Label("loop")
	for j := range steps {
		if line := 64 * j; line < a.stepBytes(bf16)/2 {
			PREFETCHT0(operand.Mem{Base: ahead, Disp: line})
		}
		for v := range weights {
			a.weights(w, j, v, bf16, odd, weights[v])
		}
		for m := range sums {
			VBROADCASTSS(operand.Mem{Base: x, Disp: 4 * (steps*m + j)}, value)
			for v := range weights {
				VFMADD231PS(weights[v], value, sums[m][v])
			}
		}
	}
	ADDQ(operand.U32(a.stepBytes(bf16)), w)
	ADDQ(operand.U32(4*steps*mr), x)
	ADDQ(step, ahead)
	SUBQ(operand.Imm(steps), k)
	JNE(operand.LabelRef("loop"))

	TESTQ(bias, bias)
	JEQ(operand.LabelRef("write"))
	finish := a.finish()
	for m := range sums {
		for v, sum := range sums[m] {
			finish(operand.Mem{Base: bias, Disp: v * a.vector}, sum)
		}
	}
	Label("write")
	eachSum(func(sum reg.VecVirtual, v int) { VMOVUPS(sum, operand.Mem{Base: row, Disp: v * a.vector}) })
	VZEROUPPER()
	RET()
}

// group emits a groupKernel.
func group(a arch, bf16 bool) {
	name := "group" + suffix(a, bf16)
	TEXT(name, NOSPLIT, "func(out *float32, w *uint32, panel int, x *float32, k int, bias *float32)")
	kind := "float32"
	if bf16 {
		kind = "BF16"
	}
	Doc(fmt.Sprintf("%s is the groupKernel for %d panels of %s weights.", name, groupPanels, kind))
	Pragma("noescape")
	out := Load(Param("out"), GP64())
	w := Load(Param("w"), GP64())
	panel := Load(Param("panel"), GP64())
	x := Load(Param("x"), GP64())
	k := Load(Param("k"), GP64())
	bias := Load(Param("bias"), GP64())

	var at [groupPanels]reg.Register
	var sums [groupPanels][2]reg.VecVirtual
	for p := range at {
		at[p] = w
		if p > 0 {
			at[p] = GP64()
			LEAQ(operand.Mem{Base: at[p-1], Index: panel, Scale: 1}, at[p])
		}
		sums[p] = [2]reg.VecVirtual{a.reg(), a.reg()}
		a.zero(sums[p][0])
		a.zero(sums[p][1])
	}
	odd := a.oddMask(bf16)
	value := a.reg()

	Label("loop")
	for j := range steps {
		VBROADCASTSS(operand.Mem{Base: x, Disp: 4 * j}, value)
		for p := range at {
			for v := range 2 {
				if bf16 {
					weights := a.reg()
					a.weights(at[p], j, v, bf16, odd, weights)
					VFMADD231PS(weights, value, sums[p][v])
				} else {
					VFMADD231PS(operand.Mem{Base: at[p], Disp: (2*j + v) * a.vector}, value, sums[p][v])
				}
			}
		}
	}
	for p := range at {
		ADDQ(operand.U32(a.stepBytes(bf16)), at[p])
	}
	ADDQ(operand.Imm(4*steps), x)
	SUBQ(operand.Imm(steps), k)
	JNE(operand.LabelRef("loop"))

	finish := a.finish()
	for p := range sums {
		for v, sum := range sums[p] {
			disp := (2*p + v) * a.vector
			finish(operand.Mem{Base: bias, Disp: disp}, sum)
			VMOVUPS(sum, operand.Mem{Base: out, Disp: disp})
		}
	}
	VZEROUPPER()
	RET()
}

// transpose emits Set.transpose, by 8 x 8 words. Columns of panels are panelBytes apart.
func transpose() {
	TEXT("transposeAVX2", NOSPLIT, "func(dst *uint32, column int, src *byte, stride int, n int)")
	Doc("transposeAVX2 is Set.transpose with columns that are column bytes apart.")
	Pragma("noescape")
	dst := Load(Param("dst"), GP64())
	column := Load(Param("column"), GP64())
	src := Load(Param("src"), GP64())
	stride := Load(Param("stride"), GP64())
	n := Load(Param("n"), GP64())
	src3, src5, src7, column3, dst4 := GP64(), GP64(), GP64(), GP64(), GP64()
	LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 2}, src3)
	LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 4}, src5)
	LEAQ(operand.Mem{Base: src3, Index: stride, Scale: 4}, src7)
	LEAQ(operand.Mem{Base: column, Index: column, Scale: 2}, column3)

	Label("loop")
	var r, t [8]reg.VecVirtual
	for i := range r {
		r[i], t[i] = YMM(), YMM()
	}
	for i, at := range []operand.Mem{
		{Base: src}, {Base: src, Index: stride, Scale: 1}, {Base: src, Index: stride, Scale: 2},
		{Base: src, Index: src3, Scale: 1}, {Base: src, Index: stride, Scale: 4}, {Base: src, Index: src5, Scale: 1},
		{Base: src, Index: src3, Scale: 2}, {Base: src, Index: src7, Scale: 1},
	} {
		VMOVUPS(at, r[i])
	}
	// 2 x 2 words, then 2 x 2 pairs, then halves.
	for i := 0; i < 8; i += 2 {
		VUNPCKLPS(r[i+1], r[i], t[i])
		VUNPCKHPS(r[i+1], r[i], t[i+1])
	}
	for i := 0; i < 8; i += 4 {
		VUNPCKLPD(t[i+2], t[i], r[i])
		VUNPCKHPD(t[i+2], t[i], r[i+1])
		VUNPCKLPD(t[i+3], t[i+1], r[i+2])
		VUNPCKHPD(t[i+3], t[i+1], r[i+3])
	}
	for i := range 4 {
		VPERM2F128(operand.Imm(0x20), r[i+4], r[i], t[i])
		VPERM2F128(operand.Imm(0x31), r[i+4], r[i], t[i+4])
	}
	LEAQ(operand.Mem{Base: dst, Index: column, Scale: 4}, dst4)
	for i := range 8 {
		base := dst
		if i >= 4 {
			base = dst4
		}
		at := operand.Mem{Base: base}
		switch i % 4 {
		case 1:
			at.Index, at.Scale = column, 1
		case 2:
			at.Index, at.Scale = column, 2
		case 3:
			at.Index, at.Scale = column3, 1
		}
		VMOVUPS(t[i], at)
	}
	LEAQ(operand.Mem{Base: dst4, Index: column, Scale: 4}, dst)
	ADDQ(operand.Imm(32), src)
	SUBQ(operand.Imm(8), n)
	JNE(operand.LabelRef("loop"))
	VZEROUPPER()
	RET()
}
