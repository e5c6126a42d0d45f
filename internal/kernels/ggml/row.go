package ggml

import (
	"maps"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/cpu"
)

// RowArgs are the arguments of a product of a row of activations with rows of weights.
type RowArgs struct {
	Dst      *float32 // [Rows]
	Data     *byte    // the first row of weights
	RowBytes int      // from a row of weights to the next
	Rows     int      // a multiple of Kernel.Rows, at least 1
	Blocks   int      // blocks of a row of weights, at least 1
	Acts     *int8    // a code for each column
	Scales   *float32 // a scale for each Activations.Block columns
	Sums     *int32   // the sum of the codes of each Format.Group columns
	ActSums  *float32 // Q8_1: a sum for each block of activations
}

// Kernel multiplies a row of activations with rows of weights out of their blocks: for decoding. A
// kernel reads only the memory that RowArgs describe, gives the bits that Format states, and writes
// any NaN as 0x7fc00000. Package tile computes products that have no kernel here.
type Kernel struct {
	Name    string // "gemv_q4_k_avx512vnni"
	Feature string // neon, dotprod, i8mm, avx2, avxvnni, avx512vnni
	Type    gguf.TensorType
	Rows    int // rows of weights of a step
	Run     func(a *RowArgs)
}

// families are the kernels for each type.
var families = map[gguf.TensorType]*cpu.Family[*Kernel]{}

// Kernels are all kernels of this build, also kernels that this CPU cannot run, in order of
// registration.
var Kernels []*Kernel

// registerRows registers kernels of an instruction set that take steps of rows.
func registerRows(feature string, rows int, list map[string]func(*RowArgs)) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		k := &Kernel{"gemv_" + strings.ToLower(name) + "_" + feature, feature, typeOf(name), rows, list[name]}
		if families[k.Type] == nil {
			families[k.Type] = cpu.NewFamily[*Kernel]("ggml", nil)
		}
		families[k.Type].Register(feature, k)
		Kernels = append(Kernels, k)
	}
}

// KernelFor returns the kernel of the best of some instruction sets, or nil.
func KernelFor(t gguf.TensorType, features []string) *Kernel {
	if f := families[t]; f != nil {
		return f.For(features).Code
	}
	return nil
}
