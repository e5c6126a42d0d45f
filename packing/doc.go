// Package packing defines how quantized weights lie in memory: the 64-byte packed header before
// each payload, the bit planes for codes of 1 to 8 bits, the lowbit layout, and the interface that
// all layouts share. docs/FORMAT.md specifies every byte.
//
// # Header
//
// A payload is a [Header] of 64 bytes and its data. The header alone tells how to read the data:
// layout, bits, group, grid, scale dtype, kind of zero points, rows, columns and tile.
// [ParseHeader] accepts a header only if its fields agree with each other and with its data size.
//
// # Layouts
//
// [LayoutPlain] holds elements as the checkpoint has them. Every other layout holds codes; a
// [Packer] packs and reads codes panel by panel and row by row:
//
//   - [LayoutLowbit], gq's own, by [Lowbit]
//   - [LayoutCodes], a byte per code, for tools, by [Codes]; scales and zero points are in
//     companion payloads
//   - [LayoutQSI4CXP], [LayoutQSI4C32PF16], [LayoutQSI8CXP], [LayoutQAI4C32P] and [LayoutQSU2CXP],
//     KleidiAI's, by package packing/kleidiai
//   - [LayoutTorchAOLinear], [LayoutTorchAOEmbedding] (with companions) and
//     [LayoutTorchAOKleidiAI], TorchAO's, by package packing/torchao
//
// Package packing/layouts makes the Packer for a header. A header validates itself and computes its
// payload's size without the layout's package.
//
// # Lowbit
//
// [LayoutLowbit] holds a matrix of rows (outputs) x columns (inputs, K) as codes q of b bits. Each
// group of consecutive columns of a row has a scale and, in asymmetric schemes, a zero point z:
// weight = (q - z) * scale. The layout is the frame of KleidiAI's qsi4c32p filled with TorchAO's
// bit planes; where qsi4c32p is defined, the two are the same bytes. NR rows make a panel; rows
// past the last row repeat the last row:
//
//	panel = block 0 [records] block 1 [records] ... NR float32 sums, NR float32 biases
//	block = 32 columns of NR rows, NR/4 units of 128 codes, 4*b*NR bytes
//	record, behind the block in which a group ends = NR scales [NR int8 zero points]
//
// K is padded to a multiple of 32 with code 0; the last group may be short. The sum of a row adds
// its weights in float32 in a fixed order; a kernel multiplies the sum by the activations' zero
// point.
//
// To write a payload, fill a Header, call [NewLowbit], then fill a [Panel] and call
// [Lowbit.PackPanel] for each panel. To read, call [Lowbit.UnpackPanel] for panels, and
// [Lowbit.Row] or [Lowbit.DequantizeRow] for single rows, such as an embedding lookup.
// [Lowbit.CheckPanel] finds damage. The Packers of the other layouts work the same way; their
// panels begin after their Prefix.
//
//	l, err := packing.NewLowbit(header)
//	p := l.NewPanel()
//	for i := range l.Panels() {
//		p.Rows = l.PanelRows(i)
//		... // p.Codes, p.Scales, p.Zeros, p.Bias
//		l.PackPanel(data[i*l.PanelBytes():][:l.PanelBytes()], p)
//	}
package packing
