// Package torchao reads and writes the packed weights of TorchAO's low-bit CPU
// kernels, byte for byte: its runtime can use what this package packs, and
// this package reads what TorchAO packed.
//
// TorchAO's buffer is a header of 64 bytes and the weights. The header tells the
// type, the bits of a code and the tile, but neither rows nor columns nor group, so
// a buffer can only be read against a shape known from elsewhere: a .gqf file
// records it in its packed header ([packing.Header]).
//
//	type 1  [Linear]     1-8 bits, float32 scales, zero points, bias
//	type 2  [Embedding]  1-8 bits, row-major; scales and zero points apart
//	type 3  [KleidiAI]   4 bits, bfloat16 scales: KleidiAI's qsi4c32p
//
// They implement [packing.Packer], which works panel by panel, and [New] makes the
// one that a packed header asks for. TorchAO's types 4 and 5, lookup tables, are not
// supported.
//
//	l, err := torchao.NewLinear(h)
//	l.DequantizeRow(weights, data, row) // reads the bytes of this row only
//
// Damage within a panel is a [*packing.PanelError]. TorchAO itself checks nothing:
// out-of-range codes leak into their neighbours there, and a wrong shape reads
// beyond the buffer.
//
// The layouts are specified in docs/FORMAT.md. They were checked against
// TorchAO at commit 36027d82 (2026-08-21, version 0.19.0).
package torchao
