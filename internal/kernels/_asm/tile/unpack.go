package main

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unpack is Set.Unpack for one width.
func unpack(isa emit.ISA, bits int) {
	name := fmt.Sprintf("unpack%d%s", bits, isa.Suffix())
	emit.Func(name, "func(dst, src *byte, units int, lanes *Lanes)", fmt.Sprintf("%s is unpackGeneric for %d bits.", name, bits))
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	l := Load(Param("lanes"), GP64())
	// left counts the units of this run. The units after it are counted on the stack, in the
	// parameter's place, because registers are scarce.
	units, left := param("units"), GP64()
	MOVQ(lanes.Field(l, "Run"), left)
	TESTQ(left, left)
	JNE(operand.LabelRef("run"))
	MOVQ(units, left)
	Label("run")
	SUBQ(left, units)
	var lane [8]reg.GPVirtual
	for j := range lane {
		lane[j] = GP64()
		MOVQ(lanes.Field(l, "Lane").Offset(8*j), lane[j])
	}
	step, next := GP64(), GP64()
	MOVQ(lanes.Field(l, "Step"), step)
	MOVQ(lanes.Field(l, "Step").Offset(8), next)
	flip, sub := isa.Vector(), isa.Vector()
	VPBROADCASTB(lanes.Field(l, "Flip"), flip)
	VPBROADCASTB(lanes.Field(l, "Sub"), sub)
	planes := emit.NewPlanes(isa, bits, 0, false, 0)

	// loop goes through the units. store writes the codes of the lanes of vector v.
	loop := func(name string, subtract bool, store func(v int, codes reg.VecVirtual)) {
		Label(name)
		prefetch(src, 16*bits)
		planes.Unpack(operand.Mem{Base: src}, func(v int, codes reg.VecVirtual) {
			x := isa.Vector()
			isa.Xor(flip, codes, x)
			if subtract {
				VPSUBB(sub, x, x)
			}
			store(v, x)
		})
		ADDQ(operand.U32(16*bits), src)
		ADDQ(step, dst)
		XCHGQ(step, next)
		DECQ(left)
		JNE(operand.LabelRef(name))
		CMPQ(units, operand.U8(0))
		JEQ(operand.LabelRef("done"))
		MOVQ(param("lanes"), left)
		ADDQ(lanes.Field(left, "Gap"), src)
		MOVQ(lanes.Field(left, "Run"), left)
		SUBQ(left, units)
		JMP(operand.LabelRef(name))
	}
	at := func(j int) operand.Mem { return operand.Mem{Base: dst, Index: lane[j], Scale: 1} }
	// The even lanes of tiles 8x16x2, and their odd lanes, lie side by side, and most layouts subtract
	// nothing.
	CMPB(lanes.Field(l, "Sub"), operand.U8(0))
	JNE(operand.LabelRef("unit"))
	beside := GP64()
	for j := 2; j < 8; j++ {
		LEAQ(operand.Mem{Base: lane[j-2], Disp: 16}, beside)
		CMPQ(beside, lane[j])
		JNE(operand.LabelRef("unit"))
	}
	loop("whole", false, func(v int, x reg.VecVirtual) { isa.Store(x, at(planes.Lanes()[v][0])) })
	loop("unit", true, func(v int, x reg.VecVirtual) {
		for i, j := range planes.Lanes()[v] {
			switch {
			case i == 0 && isa == emit.AVX512:
				VMOVDQU32(x.AsX(), at(j))
			case i == 0:
				VMOVDQU(x.AsX(), at(j))
			case isa == emit.AVX512:
				VEXTRACTI32X4(operand.U8(i), x, at(j))
			default:
				VEXTRACTI128(operand.U8(i), x, at(j))
			}
		}
	})
	Label("done")
	VZEROUPPER()
	RET()
}

// prefetch prefetches that many bytes, 4096 bytes after the current place, as gemv does.
func prefetch(src reg.Register, bytes int) {
	for i := 0; i < bytes; i += 64 {
		PREFETCHT0(operand.Mem{Base: src, Disp: 4096 + i})
	}
}

// param is the place of a parameter.
func param(name string) operand.Mem {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}

// zip is Set.Zip with AVX2, for all Sets.
func zip() {
	emit.Func("zipAVX2", "func(dst *byte, n int)", "zipAVX2 is zip for positive n.")
	dst := Load(Param("dst"), GP64())
	n := Load(Param("n"), GP64())
	order := emit.AVX2.Load(emit.Const[uint32](0, 4, 1, 5, 2, 6, 3, 7))
	y := YMM()
	Label("loop")
	VPERMD(operand.Mem{Base: dst}, order, y)
	VMOVDQU(y, operand.Mem{Base: dst})
	ADDQ(operand.U32(32), dst)
	DECQ(n)
	JNE(operand.LabelRef("loop"))
	VZEROUPPER()
	RET()
}
