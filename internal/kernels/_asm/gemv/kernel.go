package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// kernel holds the registers that all kernels use.
type kernel struct {
	args     reg.GPVirtual
	fields   emit.Struct   // of args
	dst      reg.GPVirtual // outputs of the current panel
	data     reg.GPVirtual // the current panel
	panels   reg.GPVirtual // panels left, including the current one
	codes    reg.GPVirtual // the current place in the panel
	acts     reg.GPVirtual // the activations for it
	sums     reg.GPVirtual // the sum of the current group
	groups   reg.GPVirtual // groups left, including the current one
	blocks   reg.GPVirtual // blocks left in the group
	perPanel int           // rows of a panel
	path     string        // begins the labels of loops that a function has twice
}

// begin starts a function for panels of some rows, whose arguments are the structure of this name
// in package gemv.
func begin(name, doc, args string, rows int) *kernel {
	emit.Func(name, "func(a *"+args+")", doc)
	k := &kernel{
		fields: emit.ParseStruct("../../gemv/gemv.go", args), args: GP64(), dst: GP64(), data: GP64(), panels: GP64(), codes: GP64(), acts: GP64(), sums: GP64(),
		groups: GP64(), blocks: GP64(), perPanel: rows,
	}
	Load(Param("a"), k.args)
	MOVQ(k.arg("Dst"), k.dst)
	MOVQ(k.arg("Data"), k.data)
	MOVQ(k.arg("Panels"), k.panels)
	return k
}

func (k *kernel) arg(name string) operand.Mem { return k.fields.Field(k.args, name) }

// at is the current place in the panel, plus offset.
func (k *kernel) at(offset int) operand.Mem { return operand.Mem{Base: k.codes, Disp: offset} }

// act is the activation of a column behind the current place.
func (k *kernel) act(column int) operand.Mem { return operand.Mem{Base: k.acts, Disp: column} }

// eachPanel goes through the panels one by one.
func (k *kernel) eachPanel(body func()) {
	Label(k.path + "panel")
	MOVQ(k.data, k.codes)
	MOVQ(k.arg("Acts"), k.acts)
	MOVQ(k.arg("Sums"), k.sums)
	body()
	ADDQ(k.arg("PanelBytes"), k.data)
	ADDQ(operand.U32(4*k.perPanel), k.dst)
	DECQ(k.panels)
	JNE(operand.LabelRef(k.path + "panel"))
	VZEROUPPER()
	RET()
}

// eachGroup goes through the groups of a panel. body must go through the group's blocks, which are
// in k.blocks unless path says how many there are.
func (k *kernel) eachGroup(body func()) {
	MOVQ(k.arg("Groups"), k.groups)
	Label(k.path + "group")
	if k.path == "" {
		MOVQ(k.arg("Blocks"), k.blocks)
		CMPQ(k.groups, operand.Imm(1))
		CMOVQEQ(k.arg("LastBlocks"), k.blocks)
	}
	body()
	ADDQ(operand.Imm(4), k.sums)
	DECQ(k.groups)
	JNE(operand.LabelRef(k.path + "group"))
}

// oneGroup is eachGroup for layouts with one scale a row.
func (k *kernel) oneGroup(body func()) {
	MOVQ(k.arg("LastBlocks"), k.blocks)
	body()
}

// eachBlock goes through blocks of 32 columns, of the given number of bytes.
func (k *kernel) eachBlock(bytes int, body func()) {
	Label(k.path + "block")
	k.prefetch(bytes)
	body()
	ADDQ(operand.Imm(32), k.acts)
	ADDQ(operand.U32(bytes), k.codes)
	DECQ(k.blocks)
	JNE(operand.LabelRef(k.path + "block"))
}

// eachSplitBlock is eachBlock for groups that are odd multiples of 16 columns: every second group
// begins in the second half of a block. whole adds a block to the sums of the group. After the
// whole blocks of the other groups, but the last, split adds the first half of a block to the
// sums of the group and the second half to the sums of the next group, which clear cleared.
func (k *kernel) eachSplitBlock(bytes int, whole, clear, split func()) {
	TESTQ(k.blocks, k.blocks)
	JE(operand.LabelRef(k.path + "split"))
	k.eachBlock(bytes, whole)
	Label(k.path + "split")
	clear()
	before := GP64() // groups before this one
	MOVQ(k.arg("Groups"), before)
	SUBQ(k.groups, before)
	TESTQ(operand.U32(1), before)
	JNE(operand.LabelRef(k.path + "sum"))
	CMPQ(k.groups, operand.Imm(1))
	JE(operand.LabelRef(k.path + "sum"))
	k.prefetch(bytes)
	split()
	ADDQ(operand.Imm(32), k.acts)
	ADDQ(operand.U32(bytes), k.codes)
	Label(k.path + "sum")
}

// ahead is the distance of prefetches in bytes. A page is best on a Zen 5 (EPYC, one thread,
// weights in DRAM, 4 bits in groups of 32): 0.90 of the rate of plain reading, against 0.82 with
// 2048 bytes, 0.85 with 8192 and 0.70 without.
const ahead = 4096

// prefetch prefetches that many bytes, ahead bytes after the current place. The next panel follows
// a panel.
func (k *kernel) prefetch(bytes int) {
	for i := 0; i < bytes; i += 64 {
		PREFETCHT0(k.at(ahead + i))
	}
}
