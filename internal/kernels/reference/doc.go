// Package reference multiplies activations with packed weights in the plainest way, and so defines
// the bits of every kernel of gq.
//
//	op, err := reference.New(header, data)
//	op.Multiply(dst, x, m) // dst [m][rows] = x [m][cols] times the weights, transposed, plus bias
//
// Multiply quantizes the rows of x with package act, as the layout defines; MultiplyQuantized takes
// quantized rows. The layout also defines the order of operations. KleidiAI's and TorchAO's layouts
// have the library's own order (shared/reference/kleidiai.md section 4, torchao.md section 8).
// reference.go has a function per order. fma is a multiply-add that rounds once, every other
// operation rounds, and sums of codes are exact in int32.
//
// A row of activations that cannot be quantized gives a row of NaN. Every NaN is written as
// 0x7fc00000, because x86 and Arm make different NaNs.
//
// The package is slow and reads bytes only through package packing: it shares the layout's packer
// with the kernels, but not their unpacking.
package reference
