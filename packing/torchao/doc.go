// Package torchao reads and writes the packed weights of TorchAO's low-bit CPU kernels, byte for
// byte: TorchAO's runtime can use weights that this package packs, and this package reads weights
// that TorchAO packed.
//
// TorchAO's buffer is a header of 64 bytes and the weights. The header states the type, the bits of
// a code and the tile, but not the rows, the columns and the group size: a .gqf file records these
// in its packed header ([packing.Header]).
//
//	type 1  linear       1-8 bits, float32 scales, zero points, bias
//	type 2  [Embedding]  1-8 bits, row-major; scales and zero points apart
//	type 3  KleidiAI     4 bits, bfloat16 scales: KleidiAI's qsi4c32p
//
// Each type implements [packing.Packer]; [New] makes the Packer for a header. TorchAO's types 4 and
// 5, lookup tables, are not supported.
//
//	l, err := torchao.New(h)
//	l.DequantizeRow(weights, data, row) // reads the bytes of this row only
//
// Damage within a panel is a [*packing.PanelError]. TorchAO itself checks nothing: out-of-range
// codes leak into their neighbours there, and a wrong shape reads beyond the buffer.
//
// The layouts are specified in docs/FORMAT.md. They were checked against TorchAO at commit 36027d82
// (2026-08-21, version 0.19.0).
package torchao
