package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rows512 are the rows of a panel: two vectors of outputs for each row of activations. Each
// activation is then loaded once for two VPDPBUSD: with a load for each, loads would take longer
// than products.
const rows512 = 32

// product512 multiplies with panels of 32 rows. A chunk of codes is four vectors of 8 rows. Two
// shuffles make two of these vectors a vector of the first 4 columns of 16 rows, in the order of
// emit.Pairs, and a vector of the other 4 columns. So VPDPBUSD adds 4 columns to the sums of 16
// rows.
func product512(r result, mr int) {
	k := begin(emit.AVX512, r, "", mr, rows512)
	p := &sums512{kernel: k, order: emit.AVX512.Load(emit.Pairs()), sums: make([][2][]reg.VecVirtual, mr)}
	// With few rows of activations there are several vectors of sums for each, so that additions do
	// not wait for each other.
	chains := max(4/mr, 1)
	for m := range p.sums {
		for v := range p.sums[m] {
			p.sums[m][v] = emit.AVX512.Vectors(chains)
		}
	}
	switch {
	case r == subs: // no registers are left for f: it is in memory
		p.totals = p.zeroed()
		zero, f := ZMM(), p.inMemory()
		VPXORD(zero, zero, zero)
		p.each(func(m, v int) { VMOVUPS(zero, f(m, v)) })
	case r != dots:
		p.f = p.zeroed()
	}
	if r >= blocks {
		p.begin()
	}
	k.eachGroup(p.start, func() {
		for chunk := range 2 {
			var codes [2][2]reg.VecVirtual // [half][vector of rows]
			for v := range 2 {
				low, high := emit.AVX512.Load(k.code(256*chunk+128*v)), emit.AVX512.Load(k.code(256*chunk+128*v+64))
				codes[0][v], codes[1][v] = ZMM(), high
				VSHUFPS(operand.U8(0b10_00_10_00), high, low, codes[0][v])
				VSHUFPS(operand.U8(0b11_01_11_01), high, low, high)
			}
			for half := range 2 {
				for m := range mr {
					act := ZMM()
					VPBROADCASTD(k.act(chunk, m).Offset(4*half), act)
					for v, s := range p.sums[m] {
						VPDPBUSD(act, codes[half][v], s[(2*chunk+half)%chains])
					}
				}
			}
		}
	}, func() {
		switch r {
		case dots:
			zeros, natural := p.vectors(operand.Mem{Base: k.zeros}), emit.AVX512.Load(emit.Natural())
			k.eachRow(k.out, func(m int, to operand.Mem) {
				for v := range 2 {
					x := p.total(m, v, zeros[v])
					VPERMD(x, natural, x)
					VMOVDQU32(x, to.Offset(64*v))
				}
			})
		case group, shifted:
			zeros, scales := p.vectors(operand.Mem{Base: k.zeros}), p.vectors(operand.Mem{Base: k.scales})
			p.each(func(m, v int) {
				x := p.total(m, v, zeros[v])
				VCVTDQ2PS(x, x)
				VFMADD231PS(x, scales[v], p.f[m][v])
			})
		case subs:
			p.endSub()
		default:
			p.endBlock()
		}
	})
	if r != dots {
		p.finish()
	}
	VZEROUPPER()
	RET()
}

// sums512 are the sums of a product: for each row of activations two vectors, in the order of
// emit.Pairs.
type sums512 struct {
	*kernel
	order  reg.VecVirtual
	sums   [][2][]reg.VecVirtual // of a group; several for each vector
	f      [][2]reg.VecVirtual
	totals [][2]reg.VecVirtual // subs: of a block
	rest   reg.GPVirtual       // subs: groups left in the block
}

func (p *sums512) zeroed() [][2]reg.VecVirtual {
	list := make([][2]reg.VecVirtual, p.mr)
	for m := range list {
		for v := range 2 {
			list[m][v] = ZMM()
			VPXORD(list[m][v], list[m][v], list[m][v])
		}
	}
	return list
}

// each calls f for the vectors of each row of activations.
func (p *sums512) each(f func(m, v int)) {
	for m := range p.mr {
		f(m, 0)
		f(m, 1)
	}
}

// vectors loads a number for each row of the panel.
func (p *sums512) vectors(from operand.Mem) (list [2]reg.VecVirtual) {
	for v := range list {
		list[v] = ZMM()
		VPERMD(from.Offset(64*v), p.order, list[v])
	}
	return list
}

// inMemory returns the place of each vector of f of Step.Subs, T. Rows of outputs are often a
// multiple of 4 KiB apart, so that they would share few places of the first-level cache.
func (p *sums512) inMemory() func(m, v int) operand.Mem {
	at := GP64()
	MOVQ(p.arg("T"), at)
	return func(m, v int) operand.Mem { return operand.Mem{Base: at, Disp: 128*m + 64*v} }
}

// finish writes the outputs.
func (p *sums512) finish() {
	natural := emit.AVX512.Load(emit.Natural())
	var inMemory func(m, v int) operand.Mem
	if p.result == subs {
		inMemory = p.inMemory()
	}
	p.eachRow(p.arg("Out"), func(m int, to operand.Mem) {
		for v := range 2 {
			at := to.Offset(64 * v)
			f := ZMM()
			if p.result == subs {
				VPERMPS(inMemory(m, v), natural, f)
			} else {
				VPERMPS(p.f[m][v], natural, f)
			}
			if p.result == group || p.result == shifted {
				rowSums, bias := p.perOutput("RowSums").Offset(64*v), p.perOutput("Bias").Offset(64*v)
				negZero := ZMM()
				VBROADCASTSS(p.perRow("NegZero", m), negZero)
				VFMADD231PS(rowSums, negZero, f)
				VMULPS_BCST(p.perRow("Rec", m), f, f)
				VADDPS(bias, f, f)
			}
			emit.AVX512.Canonical(f)
			VMOVUPS(f, at)
		}
	})
}

// start begins the sums of a group. Zeros of Step.Subs are 0 or -1: sums begin at 0 or at Sums.
func (p *sums512) start() {
	if p.result == subs {
		CMPB(p.arg("NoZeros"), operand.Imm(0))
		JNE(operand.LabelRef("nozeros"))
		p.each(func(m, v int) {
			first := p.sums[m][v][0]
			if v == 0 {
				VPBROADCASTD(p.sum(m), first)
			} else {
				VMOVDQA32(p.sums[m][0][0], first)
			}
			for _, s := range p.sums[m][v][1:] {
				VPXORD(s, s, s)
			}
		})
		JMP(operand.LabelRef("step"))
		Label("nozeros")
	}
	p.each(func(m, v int) {
		for _, s := range p.sums[m][v] {
			VPXORD(s, s, s)
		}
	})
}

// total is the group's sum of a row of activations, less its sum times zeros unless zeros is nil.
func (p *sums512) total(m, v int, zeros reg.VecVirtual) reg.VecVirtual {
	list := p.sums[m][v]
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

// begin sets up the pointers of ggml's layouts.
func (p *sums512) begin() {
	names := []string{"ActScales"}
	switch p.result {
	case blocksMin:
		names = append(names, "Mins", "ActSums")
	case subs:
		names = append(names, "Factors", "Mins", "SubMins", "Sums")
		p.rest = GP64()
		MOVQ(p.arg("Each"), p.rest)
	}
	p.point(names...)
}

// startBlock begins the totals of a block, or of its minima.
func (p *sums512) startBlock() {
	p.each(func(m, v int) {
		t := p.totals[m][v]
		VPXORD(t, t, t)
	})
	MOVQ(p.arg("Each"), p.rest)
}

// withZeros emits f for groups with and without zero points.
func (p *sums512) withZeros(f func(zeros [2]reg.VecVirtual)) {
	CMPB(p.arg("NoZeros"), operand.Imm(0))
	JNE(operand.LabelRef("nozeros"))
	f(p.vectors(operand.Mem{Base: p.zeros}))
	JMP(operand.LabelRef("ended"))
	Label("nozeros")
	f([2]reg.VecVirtual{})
	Label("ended")
}

// endBlock adds a group to outputs.
func (p *sums512) endBlock() {
	as, scales := p.following("ActScales", 4*p.mr), p.vectors(operand.Mem{Base: p.scales})
	p.withZeros(func(zeros [2]reg.VecVirtual) {
		p.each(func(m, v int) {
			x, s := p.total(m, v, zeros[v]), ZMM()
			VCVTDQ2PS(x, x)
			VMULPS_BCST(as.Offset(4*m), scales[v], s)
			VFMADD231PS(x, s, p.f[m][v])
		})
	})
	if p.result == blocksMin {
		asum, mins := p.following("ActSums", 4*p.mr), p.vectors(p.following("Mins", 128))
		p.each(func(m, v int) { VFMADD231PS_BCST(asum.Offset(4*m), mins[v], p.f[m][v]) })
	}
}

// endSub adds a group to the totals, and a block to outputs.
func (p *sums512) endSub() {
	factors := p.vectors(p.following("Factors", 128))
	p.each(func(m, v int) {
		x := p.total(m, v, nil)
		VPMULLD(factors[v], x, x)
		VPADDD(x, p.totals[m][v], p.totals[m][v])
	})
	DECQ(p.rest)
	JNE(operand.LabelRef("sub"))
	as := p.following("ActScales", 4*p.mr)
	p.addTotals(as, operand.Mem{Base: p.scales}, VFMADD213PS)
	ADDQ(operand.U32(128), p.scales)
	CMPQ(p.arg("SubMins"), operand.Imm(0))
	JE(operand.LabelRef("block"))
	p.startBlock()
	Label("minimum")
	sums, subMins := p.following("Sums", 4*p.mr), p.vectors(p.following("SubMins", 128))
	p.each(func(m, v int) {
		x := ZMM()
		VPMULLD_BCST(sums.Offset(4*m), subMins[v], x)
		VPADDD(x, p.totals[m][v], p.totals[m][v])
	})
	DECQ(p.rest)
	JNE(operand.LabelRef("minimum"))
	p.addTotals(as, p.following("Mins", 128), VFNMADD213PS)
	Label("block")
	p.startBlock()
	Label("sub")
}

// addTotals adds a block's totals, times scales of the activations and of the rows, to outputs.
func (p *sums512) addTotals(as, scales operand.Mem, fma func(...operand.Op)) {
	list, f := p.vectors(scales), p.inMemory()
	p.each(func(m, v int) {
		x, s := p.totals[m][v], ZMM()
		VCVTDQ2PS(x, x)
		VMULPS_BCST(as.Offset(4*m), list[v], s)
		fma(f(m, v), s, x) // x = f + x s
		VMOVUPS(x, f(m, v))
	})
}
