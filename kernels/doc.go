// Package kernels multiplies activations with packed weights as they lie in the file. It runs on
// any CPU and gives the same bits on all of them.
//
//	pool := kernels.NewPool(0)                            // the caller's goroutines
//	w := kernels.NewWorkspace(pool)                       // the caller's memory
//	op, err := kernels.NewLinear(header, data, kernels.Options{})
//	err = file.Guard(func() error { return op.Forward(w, dst, x, m) }) // dst [m][op.Rows()] = x [m][op.Cols()] times W, transposed, plus bias
//
// A [Linear] is made from a packed header and the bytes behind it. [NewFloat] and [NewRows] make
// operators of floating-point weights, for a model's unquantized tensors and as a baseline. All are
// [Operator]s, and [RowReader]s, whose weights [Transposed] multiplies the other way round: for the
// gradients of a linear layer's inputs and weights.
//
// # Numbers
//
// Each row of activations is quantized to int8 dynamically, as the layout defines. Sums of products
// are exact in int32. The epilogue in float32 follows the layout's order, with multiply-adds that
// round once where the layout has them. Package internal/reference defines the results: every
// kernel gives its bits for every input, whatever the number of goroutines, and the tests of this
// package compare every kernel with it. A row with NaN, an infinity, or a range without a finite
// scale gives NaN in all of its outputs, and every NaN is 0x7fc00000.
//
// # Kernels
//
// A product runs in one of two ways, each with kernels for several instruction sets:
//
//   - gemv (internal/gemv) reads packed bytes and unpacks them in registers, for one row of
//     activations at a time. It covers the layouts and tiles that matter most to decoding.
//   - gemm (internal/tile) unpacks a panel once, to bytes in one order that all layouts share, and
//     multiplies it with many rows. It serves every layout, width and tile, and one row where gemv
//     has no kernel.
//
// [Table] lists them all. An operator finds the kernels that read its payload once, when it is
// made; each Forward then picks one by the number of rows and by cost hints, see cost.go. [Options]
// and the environment variable GQ_CPU restrict the choice to an instruction set and its
// predecessors; GQ_LOG=kernels prints the choice, and [KernelFor] returns it without an operator.
//
// # Adding a kernel
//
// For a new instruction set, add its name and its detection to internal/cpu, write the functions of
// a tile.Set and register it, and add its costs to cost.go. For a new gemv kernel, register it
// where it is written, with the header fields that it reads. For a new layout, write its method in
// layout.go: the places of its codes, scales and sums, and its epilogue. The tests cover all of
// these without further registration.
package kernels
