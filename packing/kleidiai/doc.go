// Package kleidiai packs quantized weights byte for byte as KleidiAI's own packers do, on any
// machine, and reads packed weights back. KleidiAI is Arm's library of matrix kernels; PyTorch,
// XNNPACK and llama.cpp multiply with its packed weights. docs/FORMAT.md specifies the layouts that
// .gqf files hold.
//
// [NewPacker] makes the [packing.Packer] of a payload in a layout of KleidiAI. Packing and
// unpacking a panel allocates nothing. qsi4c32p is the lowbit layout of package packing and is
// packed there. KleidiAI's layouts for SME are not supported.
//
// # One description for all layouts
//
// A packed matrix is a sequence of panels of nr rows. The codes of a group of columns of a row
// become a stream of bytes. A byte holds 8/bits codes, distance columns apart: byte o holds columns
//
//	8/bits * distance * (o/distance) + o%distance + distance*t     t = 0 .. 8/bits-1
//
// of the group, the first in its low bits. The streams of the nr rows are interleaved: byte o of
// row i lies, behind the start of the group, at
//
//	nr*run*(o/run) + run*i + o%run
//
// Layouts differ in run and distance, in the places of the scales, zero points, sums and biases,
// and in the padding of rows past the last row. Type frame holds these numbers and newFrame sets
// them; no other code in the package depends on the layout.
package kleidiai
