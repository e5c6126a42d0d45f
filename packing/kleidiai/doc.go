// Package kleidiai packs quantized weights and activations byte for byte as
// KleidiAI's own packers do, on any machine, and reads packed weights back.
// KleidiAI is Arm's library of matrix kernels; PyTorch, XNNPACK and llama.cpp
// multiply with its packed weights. docs/FORMAT.md specifies the layouts that
// .gqf files hold.
//
// There are two ways in:
//
//   - [NewPacker] makes the [packing.Packer] of a payload whose layout is
//     KleidiAI's, for files and whatever reads them. It is fast, allocates
//     nothing per panel and checks what it reads.
//   - [NewRHS] packs every layout of weights that this package knows, those for
//     SME at a given vector length too, from what KleidiAI's own packers take:
//     [NibblesNxK] and its siblings read their inputs. [NewLHS] does the same
//     for activations. Use these to stand in for a kai_run_..._pack function.
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
// Layouts differ in run and distance, in whether a code is stored in two's
// complement or with an offset, in where the scales, zero points, sums and
// biases of the rows lie, and in what is stored for rows past the last one.
// Type frame holds these numbers, [RHSConfig] and newFrame set them, and nothing
// else in the package knows a layout. Only QSI4C32P is packed elsewhere: it is
// the lowbit layout of package packing.
package kleidiai
