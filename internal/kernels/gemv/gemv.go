// Package gemv multiplies a row of int8 activations with packed weights, unpacking the bit planes
// of the file's bytes in registers. Package tile computes products that have no kernel here.
package gemv

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/packing"
)

// Order is the order in which a kernel reads its row of activations.
type Order uint8

const (
	// Row is row-major: K rounded up to 32 bytes, 0 past K.
	Row Order = iota
	// Twice has each 8 activations twice in succession: 2 * K rounded up to 32 bytes. Two rows of a
	// tile with 8 columns each then match a vector of activations without a shuffle.
	Twice
)

// Args are the arguments that the products of all kinds have.
type Args struct {
	Dst        *float32 // Panels x nr outputs
	Data       *byte    // the first panel
	PanelBytes int
	Panels     int   // at least 1
	Acts       *int8 // in the kernel's Order
	Sums       *int32
	Groups     int // groups in a row
	// blocks of BlockCols columns in a group but the last; of RunSplit, whole blocks
	Blocks     int
	LastBlocks int // blocks in the last group; of RunSplit, without the shared block
}

// LowbitArgs are the arguments of products with lowbit panels.
type LowbitArgs struct {
	Args
	NegZero, Rec float32
}

// ChannelArgs are the arguments of products with qsi4cxp, qsi8cxp and qsu2cxp panels.
type ChannelArgs struct {
	Args
	NegZeroInt int32
	Rec        float32
}

// BlocksArgs are the arguments of products with qsi4c32p-f16 panels.
type BlocksArgs struct {
	Args
	ActScales *float32 // [Groups]
}

// QAI4Args are the arguments of products with qai4c32p panels.
type QAI4Args struct {
	Args
	ActScales *float32 // [Groups]
	ActSums   *float32 // [Groups] the sums of the activations, times their scales
}

// TorchAOArgs are the arguments of products with torchao-linear panels.
type TorchAOArgs struct {
	Args
	NegZeroInt int32
	Rec        float32
	Biased     int // 1 if biases follow the last group, else 0
}

// Call holds arguments of every kind, so that it serves any Kernel.
type Call struct {
	lowbit  LowbitArgs
	channel ChannelArgs
	blocks  BlocksArgs
	qai4    QAI4Args
	torchAO TorchAOArgs
}

// runs makes functions of a Call from functions of a kind. of gives the kind's arguments in a Call.
// A nil remains nil.
func runs[A any](of func(c *Call) *A, functions []func(a *A)) []func(c *Call) {
	all := make([]func(c *Call), len(functions))
	for i, f := range functions {
		if f != nil {
			all[i] = func(c *Call) { f(of(c)) }
		}
	}
	return all
}

func lowbits(f ...func(a *LowbitArgs)) []func(c *Call) {
	return runs(func(c *Call) *LowbitArgs { return &c.lowbit }, f)
}

func channels(f ...func(a *ChannelArgs)) []func(c *Call) {
	return runs(func(c *Call) *ChannelArgs { return &c.channel }, f)
}

func blocks(f ...func(a *BlocksArgs)) []func(c *Call) {
	return runs(func(c *Call) *BlocksArgs { return &c.blocks }, f)
}

func qai4s(f ...func(a *QAI4Args)) []func(c *Call) {
	return runs(func(c *Call) *QAI4Args { return &c.qai4 }, f)
}

// Kernel is a product. A Kernel computes the same bits as the portable reference of its layout:
//
// lowbit, per row of a panel: for each group, t = dot(a, q) - z*sum(a) exactly (z is -1/2 on the
// half-step grid, and fractional zero points are multiples of 2^(bits-8)), f = fma(float32(t),
// scale, f); then f = fma(row sum, NegZero, f); out = float32(f * Rec) + bias.
//
// qsi4cxp, qsi8cxp, qsu2cxp: A = dot + row sum * NegZeroInt in int32; out = float32(float32(A) *
// float32(row scale * Rec)) + bias.
//
// qsi4c32p-f16: for each group, f = fma(float32(dot), float32(ActScale * scale), f); out = f.
//
// qai4c32p: for each group, f = fma(zero point, ActSum, f), then f = fma(float32(16*dot),
// float32(scale * ActScale), f); out = f + bias.
//
// torchao-linear: for each group of n columns, t = sum((a - za)*(q - z)) in int32, with za
// -NegZeroInt and the stored sum of q; f = f + float32(float32(scale * Rec) * float32(t)); out = f,
// or f + bias.
//
// Any NaN is written as 0x7fc00000.
type Kernel struct {
	Name    string // set by register
	Feature string // neon, dotprod, avx2, avxvnni, avx512vnni
	Layout  packing.Layout
	Bits    uint8
	Tile    packing.Tile
	Scales  packing.ScaleDtype
	Zeros   packing.ZeroKind // ZeroNone, or the kind of zero points that the kernel reads
	Grid    packing.Grid
	Order   Order
	// Halves: the two halves of a byte are codes half a group apart, and not 16 columns. The kernel
	// wants the activations of a group permuted likewise: 16 of the first half of the group, 16 of the
	// second half, and so on, in its Order.
	Halves bool
	// SumFactor is the factor by which the driver multiplies the sums of activations before passing
	// Sums; 0 if the kernel does not read Sums. For example, a kernel on unsigned codes q + 8 without
	// zero points needs -8.
	SumFactor int32
	// CenterSums: the sums are of activations without their zero point.
	CenterSums bool
	Run        func(c *Call)
	// RunSplit is Run for several groups of an odd multiple of 16 columns: every second group begins
	// in the second half of a block. nil if the kernel does not read such groups. The record of a
	// group follows the block in which the group ends, even if the next group shares the block. Run of
	// a multiple of 32 columns has fewer instructions for each group.
	RunSplit func(c *Call)
}

func (k *Kernel) For(groups, group int) func(c *Call) {
	if k.splits(groups, group) {
		return k.RunSplit
	}
	return k.Run
}

func (k *Kernel) splits(groups, group int) bool { return groups > 1 && group%k.BlockCols() != 0 }

func (k *Kernel) BlockCols() int {
	if k.Layout == packing.LayoutTorchAOLinear {
		return 16
	}
	return 32
}

// Args returns the arguments in c that all kinds have.
func (k *Kernel) Args(c *Call) *Args {
	switch k.Layout {
	case packing.LayoutLowbit:
		return &c.lowbit.Args
	case packing.LayoutQSI4C32PF16:
		return &c.blocks.Args
	case packing.LayoutQAI4C32P:
		return &c.qai4.Args
	case packing.LayoutTorchAOLinear:
		return &c.torchAO.Args
	}
	return &c.channel.Args
}

// SetRow sets what else the kind reads of a row of activations: minus the zero point and Rec, or
// scales and sums.
func (k *Kernel) SetRow(c *Call, negZero int32, rec float32, scales, sums *float32) {
	switch k.Layout {
	case packing.LayoutLowbit:
		c.lowbit.NegZero, c.lowbit.Rec = float32(negZero), rec
	case packing.LayoutQSI4C32PF16:
		c.blocks.ActScales = scales
	case packing.LayoutQAI4C32P:
		c.qai4.ActScales, c.qai4.ActSums = scales, sums
	case packing.LayoutTorchAOLinear:
		c.torchAO.NegZeroInt, c.torchAO.Rec = negZero, rec
	default:
		c.channel.NegZeroInt, c.channel.Rec = negZero, rec
	}
}

// SetBiased says whether torchao-linear panels have biases. Other layouts always have them.
func (c *Call) SetBiased(biased bool) {
	c.torchAO.Biased = 0
	if biased {
		c.torchAO.Biased = 1
	}
}

// SetGroups sets a's Groups, Blocks and LastBlocks for groups of a multiple of 16 columns, or for a
// single group of any length.
func (k *Kernel) SetGroups(a *Args, groups, group, cols int) {
	n := k.BlockCols()
	a.Groups = groups
	a.Blocks = group / n
	if !k.splits(groups, group) {
		a.Blocks = (min(group, cols) + n - 1) / n
	}
	a.LastBlocks = (cols+n-1)/n - ((groups-1)*group+n-1)/n
}

// Reads describes the payloads that a Kernel reads.
type Reads struct {
	Layout packing.Layout
	Scales packing.ScaleDtype
	Bits   uint8
	Tile   packing.Tile
	Zeros  packing.ZeroKind
	Grid   packing.Grid
}

// families are the kernels for each kind of payload. The portable kernel, in package tile, is nil.
var families = map[Reads]*cpu.Family[*Kernel]{}

// all holds the kernels in order of registration.
var all []*Kernel

func register(kernels ...Kernel) {
	for _, k := range kernels {
		if k.Scales == packing.ScaleNone {
			k.Scales = usualScales(k.Layout)
		}
		k.Name = k.name()
		r := Reads{k.Layout, k.Scales, k.Bits, k.Tile, k.Zeros, k.Grid}
		if families[r] == nil {
			families[r] = cpu.NewFamily[*Kernel]("gemv", nil)
		}
		families[r].Register(k.Feature, &k)
		all = append(all, &k)
	}
}

// name is for example gemv_lowbit4_8x16x2_dotprod, or with all parts
// gemv_lowbit4_zeros_f16_8x16x2_dotprod.
func (k *Kernel) name() string {
	name := "gemv_" + k.Layout.String()
	if k.Layout == packing.LayoutLowbit || k.Layout == packing.LayoutTorchAOLinear {
		name += strconv.Itoa(int(k.Bits))
	}
	switch {
	case k.Zeros == packing.ZeroInt8:
		name += "_zeros"
	case k.Zeros == packing.ZeroFraction:
		name += "_fractions"
	case k.Grid == packing.GridHalfStep:
		name += "_half"
	}
	if k.Scales != usualScales(k.Layout) {
		name += "_" + k.Scales.String()
	}
	return fmt.Sprintf("%s_%s_%s", name, k.Tile, k.Feature)
}

// usualScales is the dtype of scales of kernels that do not state a dtype.
func usualScales(l packing.Layout) packing.ScaleDtype {
	switch l {
	case packing.LayoutLowbit:
		return packing.ScaleBF16
	case packing.LayoutQSI4C32PF16:
		return packing.ScaleF16
	}
	return packing.ScaleF32
}

// Kernels lists all kernels of this build, including kernels that this CPU cannot run.
func Kernels() []*Kernel { return slices.Clone(all) }

// For returns the kernel of the best of some instruction sets, or nil if none reads such payloads.
//
// Lowbit kernels are for groups of a multiple of 16 columns, or a group per row of any length:
// codes and activations past K are 0.
func For(r Reads, features []string) *Kernel {
	if f := families[r]; f != nil {
		return f.For(features).Code
	}
	return nil
}

var readers = cpu.NewFamily("gemv: reading", readGeneric)

// ReadSum reads b as fast as this machine can, in spite of a restriction of the program to an
// instruction set, and returns the sum of its little-endian words of 8 bytes. The rate of kernels
// that read packed weights out of memory is compared with ReadSum's. len(b) must be a multiple of
// 256.
func ReadSum(b []byte) uint64 {
	if len(b)%256 != 0 {
		panic("gemv: ReadSum needs a length that is a multiple of 256")
	}
	if len(b) == 0 {
		return 0
	}
	return readers.For(cpu.Supported()).Code(b)
}

func readGeneric(b []byte) uint64 {
	var s0, s1, s2, s3 uint64
	for ; len(b) >= 32; b = b[32:] {
		w := (*[32]byte)(b)
		s0 += binary.LittleEndian.Uint64(w[:])
		s1 += binary.LittleEndian.Uint64(w[8:])
		s2 += binary.LittleEndian.Uint64(w[16:])
		s3 += binary.LittleEndian.Uint64(w[24:])
	}
	return s0 + s1 + s2 + s3
}
