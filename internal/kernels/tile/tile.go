// Package tile multiplies int8 activations with panels of weights that were unpacked to a byte per
// code, in the same order for all layouts, widths and tiles. Package gemv reads packed bytes
// directly; this package unpacks a panel once for all rows of activations.
//
// A panel of NR rows (a multiple of 8) is cut into chunks of 8 columns:
//
//	codes [chunk][row 0..NR-1][8 columns] bytes
//	acts  [chunk][row 0..MR-1][8 columns] int8, 0 past the last column; or in Step.Quads' order
//
// Columns are counted in steps of 16 (two chunks). A group is a whole number of steps; the
// activations of the last group are padded with 0 past K (the codes there may have any value).
//
// A code's byte is (field ^ Flip) - Sub, where field is the unsigned number in the packed bytes. A
// Set needs either int8 codes q, or unsigned codes q + Offset (VPDPBUSD and VPMADDUBSW multiply
// unsigned with signed bytes).
package tile

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/lowbit-go/gq/internal/cpu"
)

// Lanes states where Unpack puts the 8 lanes of 16 codes of a unit of 128 codes.
type Lanes struct {
	// Lane[j] is the offset from dst of lane j of a unit.
	Lane [8]int64
	// Step[u%2] is how far dst moves after unit u.
	Step [2]int64
	// After each Run units, src skips Gap bytes: the records between the codes of groups. The
	// number of units is a multiple of Run; 0 means all units.
	Run, Gap int64
	// A code's byte is (field ^ Flip) - Sub, modulo 256.
	Flip, Sub uint8
}

// Args are the operands that all products of MR rows of activations with the NR rows of a panel
// have, and the arguments of Step.Dots. Each epilogue adds the numbers of its formula. Results are
// exact int32 arithmetic (modulo 2^32) and single float32 operations in the order that Step states,
// so every Set gives the same bits. Kernels read only the memory that the arguments describe and
// write MR x NR values.
type Args struct {
	Out       unsafe.Pointer // row m at Out + m*OutStride
	OutStride int            // bytes
	Codes     *byte          // the panel
	Acts      *int8
	Sums      *int32 // [Groups][MR]: the sum of the activations of a group
	// [NR] at Zeros + g*ZeroStep bytes: zero point + Offset, the excess of each code
	Zeros    *int32
	ZeroStep int // bytes: 4*NR, or 0 if all zero points are the same number
	// [Groups]: steps of 16 columns in each group, at least 1 and at most as many as in the first
	Steps  *int32
	Groups int

	// Ahead is memory that will be read next, a packed panel. For each step of 16 columns, kernels
	// may prefetch AheadStep bytes; none if AheadStep is 0.
	Ahead     *byte
	AheadStep int
	// NoZeros: all Zeros are 0, so kernels may skip Zeros and Sums. Both are valid even so.
	NoZeros bool

	// Of steps with a Unit, instead of Zeros and Sums: the words with which sums of signed codes
	// begin, [units][MR] pairs. The first is -Offset times the sum of the unit's activations of
	// columns 4i and 4i+1, the second of columns 4i+2 and 4i+3. nil if codes have no offset.
	Starts *uint32
}

// GroupArgs are the arguments of Step.Group.
type GroupArgs struct {
	Args
	Scales  *float32 // [Groups][NR]
	RowSums *float32 // [NR]
	Bias    *float32 // [NR]
	NegZero *float32 // [MR]: minus the row's zero point
	Rec     *float32 // [MR]: the row's scale
}

// ShiftedArgs are the arguments of Step.Shifted.
type ShiftedArgs struct {
	GroupArgs
	// Shift is the number of bits, 8 times, by which dot products move to the left. Zeros are zero
	// point + Offset << Shift.
	Shift [8]uint32
}

// RowArgs are the arguments of Step.Row. Groups is 1.
type RowArgs struct {
	Args
	T       *int32   // [MR][NR]: memory for t
	Scales  *float32 // [NR]
	IntSums *int32   // [NR]: sums of codes
	NegInt  *int32   // [MR]: minus the row's zero point
	Rec     *float32 // [MR]: the row's scale
	Bias    *float32 // [NR]
	Factor  int32    // of t
}

// BlocksArgs are the arguments of Step.Blocks.
type BlocksArgs struct {
	Args
	T         *int32   // [MR][Groups][NR]: memory for t
	Scales    *float32 // [Groups][NR]
	ActScales *float32 // [Groups][MR]: scales of the activations; each twice if Step.Twice
}

// BlocksQAI4Args are the arguments of Step.BlocksQAI4.
type BlocksQAI4Args struct {
	BlocksArgs
	Points  *float32 // [Groups][NR]: floating-point zero points
	ActSums *float32 // as ActScales: sums of the activations
	Bias    *float32 // [NR]
}

// BlocksMinArgs are the arguments of Step.BlocksMin.
type BlocksMinArgs struct {
	BlocksArgs
	Mins    *float32 // [Groups][NR]
	ActSums *float32 // as ActScales
}

// SubsArgs are the arguments of Step.Subs. Scales, Mins and ActScales are for blocks of Each
// groups.
type SubsArgs struct {
	BlocksArgs
	Each    int      // groups of a block
	Factors *int32   // [Groups][NR]
	SubMins *int32   // [Groups][NR]; nil without minima
	Mins    *float32 // [Groups/Each][NR]; nil without minima
	// Of steps with a Unit: Sums as words, [Groups/2][MR] pairs; not read without minima.
	SumPairs *uint32
}

// TorchAOArgs are the arguments of Step.TorchAO.
type TorchAOArgs struct {
	Args
	T       *int32   // [MR][Groups][NR]: memory for t
	Scales  *float32 // [Groups][NR]
	IntSums *int32   // [Groups][NR]: sums of codes
	NegInt  *int32   // [MR]: minus the row's zero point
	Rec     *float32 // [MR]: the row's scale
	Bias    *float32 // [NR]
}

// Set holds the kernels of an instruction set for codes of a width.
type Set struct {
	Feature string // generic, neon, dotprod, i8mm, avx2, avxvnni, avx512vnni
	Offset  int    // codes are q + Offset: 0, or 2^(bits-1)
	NR      int    // rows of a panel

	// Unpack unpacks units of 128 codes of TorchAO's bit planes (bitplane.PackUnit; 16*bits bytes
	// each) to dst. Lane j of unit u, 16 bytes, goes to dst + Lane[j] + the sum of Step over the
	// units before.
	Unpack func(dst, src *byte, units int, lanes *Lanes)
	// Zip interleaves the result of unpacking tiles with 4 columns to a lane: n times 32 bytes at
	// dst, 8 runs of 4 bytes A0 A1 A2 A3 B0 B1 B2 B3, become A0 B0 A1 B1 A2 B2 A3 B3.
	Zip func(dst *byte, n int)
	// Unzip, if not nil, is the inverse of Zip, and the products need unzipped codes: for every 4 rows
	// of a chunk, their first 4 columns, then their other 4.
	Unzip func(dst *byte, n int)
	// Widen, for steps with Words, multiplies codes with the factors of their group, [groups][NR],
	// or nil for 1. It writes words, two columns of each row in turn. A group has chunks times 8
	// columns.
	Widen func(dst *int16, codes *byte, groups, chunks int, factors *int32)
	// Steps are the products, by number of rows MR, largest first; the last has MR 1.
	Steps []Step
	// Symmetric, if not nil, are faster steps for ggml's blocks, with activations of -127 to 127.
	// They have no Group and Shifted. With codes of 8 bits all Zeros must be 0.
	Symmetric []Step

	// Each epilogue turns the t of a row of activations that Dots wrote, [groups][NR], into NR
	// outputs. The products of Step that are not written for an instruction set are Dots and an
	// epilogue. All but EpilogueRow may leave any NaN in out. step is the distance in bytes between
	// the elements of as and asum.

	// EpilogueFMA: f = 0; for each group: f = fma(float32(t), float32(as[g]*scales[g][r]), f);
	// out[r] = f.
	EpilogueFMA func(out *float32, t *int32, groups int, scales, as *float32, step int)
	// EpilogueQAI4: f = 0; for each group: f = fma(zeros[g][r], asum[g], f),
	// f = fma(float32(16*t), float32(scales[g][r]*as[g]), f); out[r] = f.
	EpilogueQAI4 func(out *float32, t *int32, groups int, scales, zeros, as, asum *float32, step int)
	// EpilogueMin: f = 0; for each group: f = fma(float32(t), float32(as[g]*scales[g][r]), f),
	// f = fma(mins[g][r], asum[g], f); out[r] = f.
	EpilogueMin func(out *float32, t *int32, groups int, scales, mins, as, asum *float32, step int)
	// EpilogueSubs is Step.Subs for a row of activations, without changing NaN. as has its ActScales
	// and sums its Sums, step and sumStep bytes apart.
	EpilogueSubs func(out *float32, t *int32, a *SubsArgs, blocks int, as *float32, sums *int32, step, sumStep int)
	// EpilogueTorchAO: f = 0; for each group: f = f + float32(float32(scales[g][r]*as) *
	// float32(t)), every operation rounded; out[r] = f.
	EpilogueTorchAO func(out *float32, t *int32, groups int, scales *float32, as float32)
	// EpilogueRow, for a single group: a = factor*t[r] + sums[r]*negZero in int32; out[r] =
	// float32(float32(a) * float32(scales[r]*rec)) + bias[r], any NaN as 0x7fc00000.
	EpilogueRow func(out *float32, t, sums *int32, factor, negZero int32, scales, bias *float32, rec float32)
	// AddSums precedes EpilogueTorchAO: t[g][r] += factor*sums[g][r] in int32.
	AddSums func(t, sums *int32, groups int, factor int32)
}

var Sets = cpu.NewFamily("tile", widths(genericSet))

func register(feature string, set func(bits int) Set) { Sets.Register(feature, widths(set)) }

// Widths holds the Sets for codes of 1 to 8 bits.
type Widths [9]func() Set

// widths makes each Set when it is first wanted: checkpoints may have 200,000 linear layers.
func widths(set func(bits int) Set) (w Widths) {
	for bits := range w {
		w[bits] = sync.OnceValue(func() Set {
			s := set(bits)
			for _, steps := range []*[]Step{&s.Steps, &s.Symmetric} {
				*steps = slices.Clone(*steps)
				for i := range *steps {
					s.compose(&(*steps)[i])
				}
			}
			return s
		})
	}
	return w
}

// Set returns the Set for codes of 1 to 8 bits, with every function set. The caller must not change
// Steps and Symmetric.
func (w Widths) Set(bits int) Set { return w[bits]() }

// Step holds the products for MR rows of activations.
type Step struct {
	MR int
	// Dots computes, for each row m of activations, group g and row r of the panel,
	//
	//	t = sum(act * code) - Zeros[g][r] * Sums[g][m]
	//
	// and writes it as int32 to Out + m*OutStride + 4*(g*NR + r).
	Dots func(a *Args)
	// Group computes with the same t, for each m and r
	//
	//	f = 0; for each group: f = fma(float32(t), Scales[g][r], f)
	//	f = fma(RowSums[r], NegZero[m], f)
	//	out = float32(f * Rec[m]) + Bias[r]
	//
	// fma rounding once, and writes out as float32 to Out + m*OutStride + 4*r; any NaN as 0x7fc00000.
	Group func(a *GroupArgs)
	// Shifted is Group with t = sum(act * code) << Shift - Zeros[g][r] * Sums[g][m], for zero points
	// in a smaller unit than codes; nil for codes of 8 bits: their unit is the smallest.
	Shifted func(a *ShiftedArgs)

	// Row and the products below compute outputs from the t of Dots by other layouts'
	// arithmetic and write outputs as Group does. nil means Dots and the epilogue of the Set.

	// Row, for a single group:
	//
	//	a = Factor*t + IntSums[r]*NegInt[m] in int32
	//	out = float32(float32(a) * float32(Scales[r]*Rec[m])) + Bias[r]
	Row func(a *RowArgs)
	// Blocks:
	//
	//	f = 0; for each group: f = fma(float32(t), float32(ActScales[g][m]*Scales[g][r]), f)
	//	out = f
	Blocks func(a *BlocksArgs)
	// BlocksQAI4:
	//
	//	f = 0; for each group:
	//	    f = fma(Points[g][r], ActSums[g][m], f)
	//	    f = fma(float32(16*t), float32(ActScales[g][m]*Scales[g][r]), f)
	//	out = f + Bias[r]
	BlocksQAI4 func(a *BlocksQAI4Args)
	// BlocksMin, for types of ggml:
	//
	//	f = 0; for each group:
	//	    f = fma(float32(t), float32(ActScales[g][m]*Scales[g][r]), f)
	//	    f = fma(Mins[g][r], ActSums[g][m], f)
	//	out = f
	BlocksMin func(a *BlocksMinArgs)
	// Subs, for types of ggml, with b counting blocks of Each groups and Zeros that are 0 or -1:
	//
	//	f = 0; for each block:
	//	    i = sum(Factors[g][r]*t), n = sum(SubMins[g][r]*Sums[g][m]) over its groups, in int32
	//	    f = fma(float32(i), float32(ActScales[b][m]*Scales[b][r]), f)
	//	    f = fma(float32(n), -float32(ActScales[b][m]*Mins[b][r]), f)     with minima
	//	out = f
	Subs func(a *SubsArgs)
	// TorchAO:
	//
	//	f = 0; for each group:
	//	    a = t + IntSums[g][r]*NegInt[m] in int32
	//	    f = f + float32(float32(Scales[g][r]*Rec[m]) * float32(a))
	//	out = f + Bias[r]
	TorchAO func(a *TorchAOArgs)
	// Unit, if not 0, is the number of columns that are added in words. A group has whole units.
	// The step has Blocks, BlocksMin and Subs alone.
	Unit int
	// Words: codes are words as Set.Widen writes them, and Acts are cut into chunks of 2 columns:
	// [chunk][row 0..MR-1][2 columns]. Without Dots the step has Blocks and Subs alone.
	Words bool
	// Quads: Acts are cut into chunks of 4 columns instead of 8: [chunk][row 0..MR-1][4 columns].
	Quads bool
	// Twice: ActScales and ActSums hold each number twice, as SMMLA's squares of two rows need it.
	Twice bool
}
