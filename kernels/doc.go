// Package kernels multiplies activations with packed weights as they lie in the file, with the same
// bits on every CPU.
//
//	pool := kernels.NewPool(0)                            // the caller's goroutines
//	w := kernels.NewWorkspace(pool)                       // the caller's memory
//	op, err := kernels.NewLinear(header, data, kernels.Options{})
//	// dst [m][op.Rows()] = x [m][op.Cols()] times W, transposed, plus bias
//	err = file.Guard(func() error { return op.Forward(w, dst, x, m) })
//
// A [Linear] is made from a packed header and the bytes behind the header. [NewFloat] and [NewRows]
// make operators of floating-point weights, for a model's unquantized tensors and as a baseline.
// All are [Operator]s and [RowReader]s. [Transposed] multiplies a RowReader's weights the other way
// round: for the gradients of a linear layer's inputs and weights.
//
// # Numbers
//
// Each row of activations is quantized to int8 dynamically, as the layout defines. Sums of products
// are exact in int32. The epilogue in float32 follows the layout's order, with multiply-adds that
// round once where the layout has them. Package internal/kernels/reference defines the results:
// every kernel gives its bits for every input and number of goroutines, and the tests of this
// package compare every kernel with the reference. A row with NaN, an infinity, or a range without
// a finite scale gives NaN in all of its outputs, and every NaN is 0x7fc00000.
//
// # Kernels
//
// A product runs in one of two ways, each with kernels for several instruction sets:
//
//   - gemv (internal/kernels/gemv) reads packed bytes and unpacks codes in registers, for a single
//     row of activations. gemv covers the layouts and tiles that matter most to decoding.
//   - gemm (internal/kernels/tile) unpacks a panel once, to bytes in an order that all layouts
//     share, and multiplies the panel with many rows. gemm serves every layout, width and tile, and
//     a single row where gemv has no kernel.
//
// [Table] lists all kernels. A new operator finds the kernels that read its payload; each Forward
// then picks a kernel by the number of rows and by cost hints, see cost.go. [Options] and the
// environment variable GQ_CPU restrict the choice to an instruction set and its predecessors;
// GQ_LOG=kernels prints the choice, and [KernelFor] returns the choice without an operator.
//
// # Adding a kernel
//
// For a new instruction set, add its name and detection to internal/cpu, write and register the
// functions of a tile.Set, and add costs to cost.go. For a new gemv kernel, register the kernel
// where its code is, with the header fields that it reads. For a new layout, write its method in
// layout.go: the places of codes, scales and sums, and the epilogue. The tests cover all of these
// without further registration.
package kernels
