// Package kleidiai packs quantized weights byte for byte as KleidiAI's own packers
// do, on any machine, and reads packed weights back.
// KleidiAI is Arm's library of matrix kernels; PyTorch, XNNPACK and llama.cpp
// multiply with its packed weights. docs/FORMAT.md specifies the layouts that
// .gqf files hold.
//
// [NewPacker] makes the [packing.Packer] of a payload whose layout is KleidiAI's,
// for files and whatever reads them. It is fast, allocates nothing per panel and
// checks what it reads. qsi4c32p is packed elsewhere: it is the lowbit layout of
// package packing. KleidiAI's layouts for SME are not supported.
//
// # One description for all layouts
//
// A packed matrix is panels of nr rows, one after the other. In all layouts the
// codes of a group of columns of a row become a stream of bytes. A byte holds
// 8/bits codes, which are distance columns apart: byte o holds columns
//
//	8/bits * distance * (o/distance) + o%distance + distance*t     t = 0 .. 8/bits-1
//
// of the group, the first in its low bits. The streams of the nr rows are
// interleaved: byte o of row i lies, behind the start of the group, at
//
//	nr*run*(o/run) + run*i + o%run
//
// Layouts differ in run and distance, in where the scales, zero points, sums and
// biases of the rows lie, and in what is stored for rows past the last one. Type
// frame holds these numbers, newFrame sets them, and nothing else in the package
// knows a layout.
package kleidiai
