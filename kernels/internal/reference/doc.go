// Package reference multiplies activations with packed weights in the plainest way: it defines the bits that every
// kernel of gq has to give.
//
//	op, err := reference.New(header, data)
//	op.Multiply(dst, x, m) // dst [m][rows] = x [m][cols] times the weights, transposed, plus bias
//
// Multiply quantizes the rows of x with package act, in the way that belongs to the layout, and MultiplyQuantized takes
// rows that are quantized already. The order of operations is the layout's, so that it is KleidiAI's and TorchAO's where
// the layout is (shared/reference/kleidiai.md section 4, torchao.md section 8); products.go has one function for each.
// fma is a multiply-add that rounds once, all else rounds after every operation, and sums of codes are exact in int32.
//
// A row of activations that cannot be quantized makes a row of NaN. Every NaN is written as 0x7fc00000, for x86 and Arm
// make different ones.
//
// It is slow, and reads bytes through package packing alone: what it shares with the kernels is the layout's packer, not
// their ways of unpacking.
package reference
