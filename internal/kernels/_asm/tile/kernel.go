package main

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

var lanes = emit.ParseStruct("../../tile/tile.go", "Lanes")

// result is the kind of output of a product.
type result int

const (
	dots      result = iota // Step.Dots
	group                   // Step.Group
	shifted                 // Step.Shifted
	blocks                  // Step.Blocks
	blocksMin               // Step.BlocksMin
	subs                    // Step.Subs
)

var (
	resultNames  = [...]string{"dots", "group", "shifted", "blocks", "blocksMin", "subs"}
	resultFields = [...]string{"Dots", "Group", "Shifted", "Blocks", "BlocksMin", "Subs"}
	resultArgs   = [...]string{"Args", "GroupArgs", "ShiftedArgs", "BlocksArgs", "BlocksMinArgs", "SubsArgs"}
)

// args are the arguments of each result.
var args = func() (list [len(resultArgs)]emit.Struct) {
	for r, name := range resultArgs {
		list[r] = emit.ParseStruct("../../tile/tile.go", name)
	}
	return list
}()

// kernel holds the registers that all products use.
type kernel struct {
	isa    emit.ISA
	result result
	mr, nr int
	args   reg.GPVirtual
	out    reg.GPVirtual // dots: of the current group
	codes  reg.GPVirtual // the current step
	acts   reg.GPVirtual // the current step
	sums   reg.GPVirtual // of the current group
	zeros  reg.GPVirtual // of the current group
	scales reg.GPVirtual // group: of the current group
	steps  reg.GPVirtual // of the current group
	groups reg.GPVirtual // groups left, including the current one
	left   reg.GPVirtual // steps left in the group
	ahead  reg.GPVirtual // memory to prefetch in the current step

	prefetches int                    // calls of prefetch
	slots      map[string]operand.Mem // pointers on the stack
}

// begin starts a function. kind distinguishes the products of one instruction set.
func begin(isa emit.ISA, r result, kind string, mr, nr int) *kernel {
	name := fmt.Sprintf("%s%d%s%s", resultNames[r], mr, kind, isa.Suffix())
	emit.Func(name, "func(a *"+resultArgs[r]+")", fmt.Sprintf("%s is Step.%s for %d rows of activations and panels of %d rows.",
		name, resultFields[r], mr, nr))
	k := &kernel{
		isa: isa, result: r, mr: mr, nr: nr, args: GP64(), codes: GP64(), acts: GP64(), sums: GP64(), zeros: GP64(),
		steps: GP64(), groups: GP64(), left: GP64(), ahead: GP64(),
	}
	Load(Param("a"), k.args)
	MOVQ(k.arg("Codes"), k.codes)
	MOVQ(k.arg("Acts"), k.acts)
	MOVQ(k.arg("Sums"), k.sums)
	MOVQ(k.arg("Zeros"), k.zeros)
	MOVQ(k.arg("Steps"), k.steps)
	MOVQ(k.arg("Groups"), k.groups)
	MOVQ(k.arg("Ahead"), k.ahead)
	if r == dots {
		k.out = GP64()
		MOVQ(k.arg("Out"), k.out)
	} else {
		k.scales = GP64()
		MOVQ(k.arg("Scales"), k.scales)
	}
	return k
}

func (k *kernel) arg(name string) operand.Mem { return args[k.result].Field(k.args, name) }

// point sets up pointers to numbers. Registers are scarce, so they are on the stack.
func (k *kernel) point(names ...string) {
	k.slots = map[string]operand.Mem{}
	for _, name := range names {
		k.slots[name] = AllocLocal(8)
		x := GP64()
		MOVQ(k.arg(name), x)
		MOVQ(x, k.slots[name])
	}
}

// following is the place of the next numbers, of some bytes.
func (k *kernel) following(name string, bytes int) operand.Mem {
	x := GP64()
	MOVQ(k.slots[name], x)
	ADDQ(operand.U32(bytes), k.slots[name])
	return operand.Mem{Base: x}
}

// code is a byte of the current step's codes; act is the 8 activations of row m in chunk 0 or 1 of
// the step.
func (k *kernel) code(offset int) operand.Mem { return operand.Mem{Base: k.codes, Disp: offset} }
func (k *kernel) act(chunk, m int) operand.Mem {
	return operand.Mem{Base: k.acts, Disp: 8 * (k.mr*chunk + m)}
}

// prefetch prefetches the memory of n steps, if AheadStep is not 0: up to 12 bytes for each row and
// step, which are 6 bits a code.
func (k *kernel) prefetch(n int) {
	k.prefetches++
	done := fmt.Sprint("ahead", k.prefetches)
	CMPQ(k.arg("AheadStep"), operand.U8(0))
	JE(operand.LabelRef(done))
	for i := 0; i < 12*k.nr*n; i += 64 {
		PREFETCHT1(operand.Mem{Base: k.ahead, Disp: i})
	}
	for range n {
		ADDQ(k.arg("AheadStep"), k.ahead)
	}
	Label(done)
}

// eachGroup goes through the groups: step emits 16 columns, flush the end of a group.
func (k *kernel) eachGroup(start, step, flush func()) {
	Label("group")
	MOVLQSX(operand.Mem{Base: k.steps}, k.left)
	start()
	Label("step")
	k.prefetch(1)
	step()
	ADDQ(operand.U32(16*k.nr), k.codes)
	ADDQ(operand.U32(16*k.mr), k.acts)
	DECQ(k.left)
	JNE(operand.LabelRef("step"))
	flush()
	k.next()
}

// next goes on to the next group, if there is one.
func (k *kernel) next() {
	ADDQ(operand.U32(4), k.steps)
	ADDQ(operand.U32(4*k.mr), k.sums)
	ADDQ(k.arg("ZeroStep"), k.zeros)
	switch k.result {
	case dots:
		ADDQ(operand.U32(4*k.nr), k.out)
	case subs: // scales are of blocks
	default:
		ADDQ(operand.U32(4*k.nr), k.scales)
	}
	DECQ(k.groups)
	JNE(operand.LabelRef("group"))
}

// eachRow calls f with the place of the outputs of each current row of activations.
func (k *kernel) eachRow(out operand.Op, f func(m int, to operand.Mem)) {
	to := GP64()
	MOVQ(out, to)
	for m := range k.mr {
		if m > 0 {
			ADDQ(k.arg("OutStride"), to)
		}
		f(m, operand.Mem{Base: to})
	}
}

// sum is the sum of the group's activations of row m. The dot product needs a correction of -Zeros
// times this sum.
func (k *kernel) sum(m int) operand.Mem { return operand.Mem{Base: k.sums, Disp: 4 * m} }

// perRow is a float32 of the arguments for row m.
func (k *kernel) perRow(name string, m int) operand.Mem {
	p := GP64()
	MOVQ(k.arg(name), p)
	return operand.Mem{Base: p, Disp: 4 * m}
}

// perOutput is a vector of float32 of the arguments for all rows of the panel.
func (k *kernel) perOutput(name string) operand.Mem { return k.perRow(name, 0) }
