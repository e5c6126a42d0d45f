package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// outputs is the number of vectors of a panel's rows.
func outputs(isa emit.ISA) int {
	if isa == emit.AVX512 {
		return 2
	}
	return 1
}

// epilogue emits an epilogue. group adds a group to f, a vector of rows; t holds the group's dot
// products as float32, or 16 times them.
func epilogue(isa emit.ISA, name, signature string, times16 bool, vectors, numbers []string, group func(f, t reg.VecVirtual, at map[string]operand.Mem)) {
	emit.Func(name+isa.Suffix(), signature, name+isa.Suffix()+" is "+name+" for at least one group.")
	out := Load(Param("out"), GP64())
	groups := Load(Param("groups"), GP64())
	pointers, steps, at := []reg.Register{}, []operand.Op{}, map[string]operand.Mem{}
	point := func(name string, step operand.Op) {
		p := Load(Param(name), GP64())
		pointers, steps = append(pointers, p), append(steps, step)
		at[name] = operand.Mem{Base: p}
	}
	for _, name := range append([]string{"t"}, vectors...) {
		point(name, operand.U32(outputs(isa)*isa.Bytes()))
	}
	if len(numbers) > 0 {
		step := Load(Param("step"), GP64())
		for _, name := range numbers {
			point(name, step)
		}
	}
	list := isa.Vectors(outputs(isa))
	for _, f := range list {
		isa.Zero(f)
	}
	Label("group")
	for _, f := range list {
		t := isa.Vector()
		if times16 {
			if isa == emit.AVX512 {
				VPSLLD(operand.U8(4), at["t"], t)
			} else {
				VMOVDQU(at["t"], t)
				VPSLLD(operand.U8(4), t, t)
			}
			VCVTDQ2PS(t, t)
		} else {
			VCVTDQ2PS(at["t"], t)
		}
		group(f, t, at)
		for _, name := range append([]string{"t"}, vectors...) {
			at[name] = at[name].Offset(isa.Bytes())
		}
	}
	for i, p := range pointers {
		ADDQ(steps[i], p)
	}
	DECQ(groups)
	JNE(operand.LabelRef("group"))
	for v, f := range list {
		VMOVUPS(f, operand.Mem{Base: out}.Offset(v*isa.Bytes()))
	}
	VZEROUPPER()
	RET()
}

func epilogues(isa emit.ISA) {
	epilogue(isa, "epilogueFMA", "func(out *float32, t *int32, groups int, scales, as *float32, step int)", false, []string{"scales"}, []string{"as"},
		func(f, t reg.VecVirtual, at map[string]operand.Mem) {
			s := isa.Vector()
			VBROADCASTSS(at["as"], s)
			VMULPS(at["scales"], s, s)
			VFMADD231PS(t, s, f)
		})
	epilogue(isa, "epilogueQAI4", "func(out *float32, t *int32, groups int, scales, zeros, as, asum *float32, step int)", true,
		[]string{"scales", "zeros"}, []string{"as", "asum"},
		func(f, t reg.VecVirtual, at map[string]operand.Mem) {
			s := isa.Vector()
			VBROADCASTSS(at["asum"], s)
			VFMADD231PS(at["zeros"], s, f)
			s = isa.Vector()
			VBROADCASTSS(at["as"], s)
			VMULPS(at["scales"], s, s)
			VFMADD231PS(t, s, f)
		})
	epilogue(isa, "epilogueMin", "func(out *float32, t *int32, groups int, scales, mins, as, asum *float32, step int)", false,
		[]string{"scales", "mins"}, []string{"as", "asum"},
		func(f, t reg.VecVirtual, at map[string]operand.Mem) {
			s := isa.Vector()
			VBROADCASTSS(at["as"], s)
			VMULPS(at["scales"], s, s)
			VFMADD231PS(t, s, f)
			s = isa.Vector()
			VBROADCASTSS(at["asum"], s)
			VFMADD231PS(at["mins"], s, f)
		})
	epilogue(isa, "epilogueTorchAO", "func(out *float32, t *int32, groups int, scales *float32, as float32)", false, []string{"scales"}, nil,
		func(f, t reg.VecVirtual, at map[string]operand.Mem) {
			s := isa.Vector()
			VBROADCASTSS(param("as"), s)
			VMULPS(at["scales"], s, s)
			VMULPS(t, s, s)
			VADDPS(s, f, f)
		})
}

// epilogueRow emits epilogueRow.
func epilogueRow(isa emit.ISA) {
	name := "epilogueRow" + isa.Suffix()
	emit.Func(name, "func(out *float32, t, sums *int32, factor, negZero int32, scales, bias *float32, rec float32)", name+" is epilogueRow.")
	at := map[string]operand.Mem{}
	for _, name := range []string{"t", "sums", "scales", "bias", "out"} {
		at[name] = operand.Mem{Base: Load(Param(name), GP64())}
	}
	for v := range outputs(isa) {
		of := func(name string) operand.Mem { return at[name].Offset(v * isa.Bytes()) }
		a, sums, scale := isa.Vector(), isa.Vector(), isa.Vector()
		VBROADCASTSS(param("factor"), a) // go vet gets the size of VPBROADCASTD wrong
		VPMULLD(of("t"), a, a)
		VBROADCASTSS(param("negZero"), sums)
		VPMULLD(of("sums"), sums, sums)
		VPADDD(sums, a, a)
		VCVTDQ2PS(a, a)
		VBROADCASTSS(param("rec"), scale)
		VMULPS(of("scales"), scale, scale)
		VMULPS(scale, a, a)
		VADDPS(of("bias"), a, a)
		isa.Canonical(a)
		VMOVUPS(a, of("out"))
	}
	VZEROUPPER()
	RET()
}

// epilogueSubs emits epilogueSubs.
func epilogueSubs(isa emit.ISA) {
	name := "epilogueSubs" + isa.Suffix()
	emit.Func(name, "func(out *float32, t *int32, a *SubsArgs, blocks int, as *float32, sums *int32, step, sumStep int)",
		name+" is epilogueSubs for at least one block.")
	subs := emit.ParseStruct("../../tile/tile.go", "SubsArgs")
	a, t, as, sums := Load(Param("a"), GP64()), Load(Param("t"), GP64()), Load(Param("as"), GP64()), Load(Param("sums"), GP64())
	step, sumStep := Load(Param("step"), GP64()), Load(Param("sumStep"), GP64())
	blocks, each, left := Load(Param("blocks"), GP64()), GP64(), GP64()
	field := func(name string) reg.GPVirtual {
		r := GP64()
		MOVQ(subs.Field(a, name), r)
		return r
	}
	factors, scales, subMins, mins := field("Factors"), field("Scales"), field("SubMins"), field("Mins")
	MOVQ(subs.Field(a, "Each"), each)
	n := outputs(isa)
	list := isa.Vectors(n)
	for _, f := range list {
		isa.Zero(f)
	}
	// add adds the sums of the products of x and factor. x has a vector for each group and vector
	// of rows.
	add := func(label string, x, scales reg.Register, factor func(v int, into reg.VecVirtual), next func(), fma func(...operand.Op)) {
		totals := isa.Vectors(n)
		for _, total := range totals {
			isa.Zero(total)
		}
		MOVQ(each, left)
		Label(label)
		for v, total := range totals {
			y := isa.Vector()
			factor(v, y)
			VPMULLD(operand.Mem{Base: x, Disp: v * isa.Bytes()}, y, y)
			VPADDD(y, total, total)
		}
		next()
		ADDQ(operand.U32(n*isa.Bytes()), x)
		DECQ(left)
		JNE(operand.LabelRef(label))
		for v, total := range totals {
			scale := isa.Vector()
			VCVTDQ2PS(total, total)
			VBROADCASTSS(operand.Mem{Base: as}, scale)
			VMULPS(operand.Mem{Base: scales, Disp: v * isa.Bytes()}, scale, scale)
			fma(total, scale, list[v])
		}
		ADDQ(operand.U32(n*isa.Bytes()), scales)
	}
	Label("block")
	add("factor", factors, scales, func(v int, into reg.VecVirtual) {
		VMOVUPS(operand.Mem{Base: t, Disp: v * isa.Bytes()}, into)
	}, func() { ADDQ(operand.U32(n*isa.Bytes()), t) }, VFMADD231PS)
	TESTQ(subMins, subMins)
	JE(operand.LabelRef("next"))
	add("minimum", subMins, mins, func(_ int, into reg.VecVirtual) {
		VPBROADCASTD(operand.Mem{Base: sums}, into)
	}, func() { ADDQ(sumStep, sums) }, VFNMADD231PS)
	Label("next")
	ADDQ(step, as)
	DECQ(blocks)
	JNE(operand.LabelRef("block"))
	out := operand.Mem{Base: Load(Param("out"), GP64())}
	for v, f := range list {
		VMOVUPS(f, out.Offset(v*isa.Bytes()))
	}
	VZEROUPPER()
	RET()
}

// addSums emits addSums.
func addSums(isa emit.ISA) {
	name := "addSums" + isa.Suffix()
	emit.Func(name, "func(t, sums *int32, groups int, factor int32)", name+" is addSums for at least one group.")
	t, sums := Load(Param("t"), GP64()), Load(Param("sums"), GP64())
	groups := Load(Param("groups"), GP64()) // and below, vectors
	if outputs(isa) == 2 {
		ADDQ(groups, groups)
	}
	factor := isa.Vector()
	VBROADCASTSS(param("factor"), factor)
	Label("group")
	x := isa.Vector()
	VPMULLD(operand.Mem{Base: sums}, factor, x)
	VPADDD(operand.Mem{Base: t}, x, x)
	VMOVUPS(x, operand.Mem{Base: t})
	ADDQ(operand.U32(isa.Bytes()), t)
	ADDQ(operand.U32(isa.Bytes()), sums)
	DECQ(groups)
	JNE(operand.LabelRef("group"))
	VZEROUPPER()
	RET()
}
