package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// product512 multiplies with panels of 16 rows. A chunk of codes is two vectors of 8 rows each. Two
// shuffles make them a vector of the first 4 columns of all 16 rows, in the order of emit.Pairs,
// and a vector of the other 4 columns. So VPDPBUSD adds 4 columns to the sums of all 16 rows, and
// its activations are one dword of memory.
func product512(r result, mr int) {
	k := begin(emit.AVX512, r, "", mr, 16)
	order := emit.AVX512.Load(emit.Pairs())
	// With few rows of activations there are several vectors of sums for each, so that additions do
	// not wait for each other.
	chains := min(8/mr, 4)
	sums := make([][]reg.VecVirtual, mr)
	for m := range sums {
		sums[m] = emit.AVX512.Vectors(chains)
	}
	var f []reg.VecVirtual
	if r != dots {
		f = emit.AVX512.Vectors(mr)
		for _, f := range f {
			VPXORD(f, f, f)
		}
	}
	p := &sums512{kernel: k, order: order, sums: sums, f: f}
	if r >= blocks {
		p.begin()
	}
	k.eachGroup(p.start, func() {
		for chunk := range 2 {
			low, high := emit.AVX512.Load(k.code(128*chunk)), emit.AVX512.Load(k.code(128*chunk+64))
			first, other := ZMM(), ZMM()
			VSHUFPS(operand.U8(0b10_00_10_00), high, low, first)
			VSHUFPS(operand.U8(0b11_01_11_01), high, low, other)
			for half, codes := range []reg.VecVirtual{first, other} {
				for m := range mr {
					VPDPBUSD_BCST(k.act(chunk, m).Offset(4*half), codes, sums[m][(2*chunk+half)%chains])
				}
			}
		}
	}, func() {
		switch r {
		case dots:
			zeros, natural := p.vector(operand.Mem{Base: k.zeros}), emit.AVX512.Load(emit.Natural())
			k.eachRow(k.out, func(m int, to operand.Mem) {
				x := p.total(m, zeros)
				VPERMD(x, natural, x)
				VMOVDQU32(x, to)
			})
		case group, shifted:
			zeros, scales := p.vector(operand.Mem{Base: k.zeros}), p.vector(operand.Mem{Base: k.scales})
			for m := range mr {
				x := p.total(m, zeros)
				VCVTDQ2PS(x, x)
				VFMADD231PS(x, scales, f[m])
			}
		case subs:
			p.endSub()
		default:
			p.endBlock()
		}
	})
	natural := emit.AVX512.Load(emit.Natural())
	switch r {
	case dots:
	case group, shifted:
		rowSums, bias := emit.AVX512.Load(k.perOutput("RowSums")), emit.AVX512.Load(k.perOutput("Bias"))
		k.eachRow(k.arg("Out"), func(m int, to operand.Mem) {
			VPERMPS(f[m], natural, f[m])
			VFMADD231PS_BCST(k.perRow("NegZero", m), rowSums, f[m])
			VMULPS_BCST(k.perRow("Rec", m), f[m], f[m])
			VADDPS(bias, f[m], f[m])
			emit.AVX512.Canonical(f[m])
			VMOVUPS(f[m], to)
		})
	default:
		k.eachRow(k.arg("Out"), func(m int, to operand.Mem) {
			VPERMPS(f[m], natural, f[m])
			emit.AVX512.Canonical(f[m])
			VMOVUPS(f[m], to)
		})
	}
	VZEROUPPER()
	RET()
}

// sums512 are the sums of a product, in the order of emit.Pairs.
type sums512 struct {
	*kernel
	order  reg.VecVirtual
	sums   [][]reg.VecVirtual // of a group; several for each row of activations
	f      []reg.VecVirtual
	totals []reg.VecVirtual // subs: of a block
	each   reg.GPVirtual    // subs: groups left in the block
	slots  map[string]operand.Mem
}

// vector loads a number for each row of the panel.
func (p *sums512) vector(from operand.Mem) reg.VecVirtual {
	v := ZMM()
	VPERMD(from, p.order, v)
	return v
}

// start begins the sums of a group. Zeros of Step.Subs are 0 or -1: sums begin at 0 or at Sums.
func (p *sums512) start() {
	if p.result == subs {
		CMPB(p.arg("NoZeros"), operand.Imm(0))
		JNE(operand.LabelRef("nozeros"))
		for m := range p.sums {
			VPBROADCASTD(p.sum(m), p.sums[m][0])
			for _, s := range p.sums[m][1:] {
				VPXORD(s, s, s)
			}
		}
		JMP(operand.LabelRef("step"))
		Label("nozeros")
	}
	for m := range p.sums {
		for _, s := range p.sums[m] {
			VPXORD(s, s, s)
		}
	}
}

// total is the group's sum of a row of activations, less its sum times zeros unless zeros is nil.
func (p *sums512) total(m int, zeros reg.VecVirtual) reg.VecVirtual {
	list := p.sums[m]
	for n := len(list) / 2; n > 0; n /= 2 {
		for i := range n {
			VPADDD(list[n+i], list[i], list[i])
		}
	}
	t := list[0]
	if p.result == shifted {
		VPSLLVD_BCST(p.arg("Shift"), t, t)
	}
	if zeros != nil {
		z := ZMM()
		VPMULLD_BCST(p.sum(m), zeros, z)
		VPSUBD(z, t, t)
	}
	return t
}

// begin sets up the pointers of ggml's layouts. Registers are scarce, so they are on the stack.
func (p *sums512) begin() {
	p.slots = map[string]operand.Mem{}
	names := []string{"ActScales"}
	switch p.result {
	case blocksMin:
		names = append(names, "Mins", "ActSums")
	case subs:
		names = append(names, "Factors", "Mins", "SubMins", "Sums")
		p.totals = emit.AVX512.Vectors(p.mr)
		p.each = GP64()
		p.startBlock()
	}
	for _, name := range names {
		p.slots[name] = AllocLocal(8)
		x := GP64()
		MOVQ(p.arg(name), x)
		MOVQ(x, p.slots[name])
	}
}

func (p *sums512) startBlock() {
	for _, t := range p.totals {
		VPXORD(t, t, t)
	}
	MOVQ(p.arg("Each"), p.each)
}

// following is the place of the next numbers, of some bytes.
func (p *sums512) following(name string, bytes int) operand.Mem {
	x := GP64()
	MOVQ(p.slots[name], x)
	ADDQ(operand.U32(bytes), p.slots[name])
	return operand.Mem{Base: x}
}

// withZeros emits f for groups with and without zero points.
func (p *sums512) withZeros(f func(zeros reg.VecVirtual)) {
	CMPB(p.arg("NoZeros"), operand.Imm(0))
	JNE(operand.LabelRef("nozeros"))
	f(p.vector(operand.Mem{Base: p.zeros}))
	JMP(operand.LabelRef("ended"))
	Label("nozeros")
	f(nil)
	Label("ended")
}

// endBlock adds a group to outputs.
func (p *sums512) endBlock() {
	as, scales := p.following("ActScales", 4*p.mr), p.vector(operand.Mem{Base: p.scales})
	p.withZeros(func(zeros reg.VecVirtual) {
		for m := range p.mr {
			x, s := p.total(m, zeros), ZMM()
			VCVTDQ2PS(x, x)
			VMULPS_BCST(as.Offset(4*m), scales, s)
			VFMADD231PS(x, s, p.f[m])
		}
	})
	if p.result == blocksMin {
		asum, mins := p.following("ActSums", 4*p.mr), p.vector(p.following("Mins", 64))
		for m := range p.mr {
			VFMADD231PS_BCST(asum.Offset(4*m), mins, p.f[m])
		}
	}
}

// endSub adds a group to the totals, and a block to outputs.
func (p *sums512) endSub() {
	factors := p.vector(p.following("Factors", 64))
	for m := range p.mr {
		x := p.total(m, nil)
		VPMULLD(factors, x, x)
		VPADDD(x, p.totals[m], p.totals[m])
	}
	DECQ(p.each)
	JNE(operand.LabelRef("sub"))
	as := p.following("ActScales", 4*p.mr)
	scales := p.vector(operand.Mem{Base: p.scales})
	ADDQ(operand.U32(64), p.scales)
	for m, x := range p.totals {
		s := ZMM()
		VCVTDQ2PS(x, x)
		VMULPS_BCST(as.Offset(4*m), scales, s)
		VFMADD231PS(x, s, p.f[m])
	}
	CMPQ(p.arg("SubMins"), operand.Imm(0))
	JE(operand.LabelRef("block"))
	p.startBlock()
	Label("minimum")
	sums, subMins := p.following("Sums", 4*p.mr), p.vector(p.following("SubMins", 64))
	for m, t := range p.totals {
		x := ZMM()
		VPMULLD_BCST(sums.Offset(4*m), subMins, x)
		VPADDD(x, t, t)
	}
	DECQ(p.each)
	JNE(operand.LabelRef("minimum"))
	mins := p.vector(p.following("Mins", 64))
	for m, x := range p.totals {
		s := ZMM()
		VCVTDQ2PS(x, x)
		VMULPS_BCST(as.Offset(4*m), mins, s)
		VFNMADD231PS(x, s, p.f[m])
	}
	Label("block")
	p.startBlock()
	Label("sub")
}
