// Package torchao reads and writes the packed weights of TorchAO's low-bit CPU
// kernels, byte for byte: its runtime can use what this package packs, and
// this package reads what TorchAO packed.
//
// TorchAO's buffer is a header of 64 bytes, [Header], and the weights. The
// header tells the type, the bits of a code and the tile, but neither rows nor
// columns nor group, so a buffer can only be read against a shape known from
// elsewhere: a .gqf file records it in its packed header ([packing.Header]).
//
//	type 1  [Linear]         1-8 bits, float32 scales, zero points, bias
//	type 2  [Embedding]      1-8 bits, row-major; scales and zero points apart
//	type 3  [KleidiAI]       4 bits, bfloat16 scales: KleidiAI's qsi4c32p
//	type 4  [LUTShape]       1-4 bits, indices into tables of int8, float32 scales
//	type 5  [GroupwiseShape] 1-4 bits, indices into tables of float32
//
// The first three are layouts of a .gqf: they implement [packing.Packer], which
// works panel by panel, and [New] makes the one that a packed header asks for.
// [Pack] and [Unpack] do a whole matrix at once, and check all of their input.
// Types 4 and 5 are packed and unpacked as a whole ([PackLUT], [UnpackLUT],
// [PackGroupwise], [UnpackGroupwise]).
//
//	h := packing.Header{Layout: packing.LayoutTorchAOLinear, Bits: 4, ScaleDtype: packing.ScaleF32,
//		Tile: packing.DefaultTile, Rows: rows, Cols: cols, Group: 32}
//	data, err := torchao.Pack(h, &torchao.Matrix{Codes: codes, Scales: scales})
//	...
//	l, err := torchao.NewLinear(h)
//	l.DequantizeRow(weights, data, row) // reads the bytes of this row only
//
// Malformed buffers are a [*FormatError] or, within a panel, a
// [*packing.PanelError]; well-formed headers of what this package does not know
// an [*UnsupportedError]; input that a layout cannot hold an [*InputError].
// TorchAO itself checks none of this: out-of-range codes leak into their
// neighbours there, and a wrong shape reads beyond the buffer.
//
// The layouts are specified in docs/FORMAT.md. They were checked against
// TorchAO at commit 36027d82 (2026-08-21, version 0.19.0).
package torchao
