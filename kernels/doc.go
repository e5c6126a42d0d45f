// Package kernels multiplies activations with packed weights, as they lie in the file, on any CPU, and gives the same
// bits on all of them.
//
//	pool := kernels.NewPool(0)                            // the caller's goroutines
//	w := kernels.NewWorkspace(pool)                       // the caller's memory
//	op, err := kernels.NewLinear(header, data, kernels.Options{})
//	err = file.Guard(func() error { return op.Forward(w, dst, x, m) }) // dst [m][op.Rows()] = x [m][op.Cols()] times W, transposed, plus bias
//
// A [Linear] is made from a packed header and the bytes behind it. [NewFloat] and [NewRows] make operators of float
// weights: the baseline, and what a model's tensors that are not quantized need. All are [Operator]s.
//
// # Numbers
//
// Rows of activations are quantized to int8 as they come, in the way that belongs to the layout. Sums of products are
// exact in int32, and what follows in float32 is done in the layout's order, with multiply-adds that round once where
// the layout has them. Package internal/reference spells this out; every kernel gives its bits for every input, and the
// tests of this package compare them all. Results do not depend on the number of goroutines either. A row with NaN, an
// infinity, or a range that has no scale gives NaN in all of its outputs, and any NaN is 0x7fc00000.
//
// # Kernels
//
// There are two ways to a product, each with kernels for several instruction sets:
//
//   - gemv (internal/gemv) reads packed bytes and unpacks them in registers, for one row of activations at a time. It is
//     there for the layouts and tiles that matter most to decoding.
//   - gemm (internal/tile) unpacks a panel to bytes in one order that all layouts share, once, and multiplies it with many
//     rows. It serves every layout, width and tile, and one row where gemv has no kernel.
//
// [Table] lists them all. An operator finds the kernels that read its payload once, when it is made; each Forward then
// picks one by the number of rows and by cost hints, see cost.go. [Options] and the environment variable GQ_CPU restrict
// the choice to an instruction set and those below it; GQ_LOG=kernels prints what was chosen, and [KernelFor] tells without
// an operator.
//
// # Adding a kernel
//
// For a new instruction set, add its name and its detection to internal/cpu, write the functions of a tile.Set and register
// it, and add its costs to cost.go. For a new gemv kernel, register it where it is written: header fields say what it
// reads. For a new layout, write its method in layout.go: where its codes, scales and sums lie, and which of the ways in epilogue finishes its
// products. The tests find all of these by themselves.
package kernels
