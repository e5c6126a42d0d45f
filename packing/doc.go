// Package packing knows how quantized weights lie in memory: the 64-byte packed
// header before each payload, the bit planes for codes of 1 to 8 bits, the
// lowbit layout made of them, and what all layouts have in common.
// docs/FORMAT.md specifies all of it byte by byte.
//
// # Header
//
// A payload is a [Header] of 64 bytes and its data. The header alone tells how
// to read the data: layout, bits, group, grid, scale dtype, kind of zero
// points, rows, columns and tile. [ParseHeader] accepts only headers whose
// fields go together and whose data size follows from them.
//
// # Layouts
//
// [LayoutPlain] holds elements as the checkpoint has them. The others hold
// codes, and a [Packer] packs and reads them panel by panel and row by row:
//
//   - [LayoutLowbit], gq's own, by [Lowbit]
//   - [LayoutCodes], a byte a code for tools, by [Codes]; scales and zero points
//     are in companion payloads
//   - [LayoutQSI4CXP], [LayoutQSI4C32PF16], [LayoutQSI8CXP], [LayoutQAI4C32P] and
//     [LayoutQSU2CXP], KleidiAI's, by package packing/kleidiai
//   - [LayoutTorchAOLinear], [LayoutTorchAOEmbedding] (with companions) and
//     [LayoutTorchAOKleidiAI], TorchAO's, by package packing/torchao
//
// Package packing/layouts makes the Packer that a header asks for. A header says
// all about a layout's payload without the layout's package: it validates, and
// knows the size.
//
// # Lowbit
//
// [LayoutLowbit] is for matrices of rows (outputs) x columns (inputs, K) with
// codes q of b bits, and one scale and perhaps one zero point z for each group
// of consecutive columns of a row: weight = (q - z) * scale. It is the frame of
// KleidiAI's qsi4c32p filled with TorchAO's bit planes, and is qsi4c32p byte
// for byte where that exists. NR rows make a panel; rows past the last repeat
// the last:
//
//	panel = block 0 [records] block 1 [records] ... NR float32 sums, NR float32 biases
//	block = 32 columns of NR rows, NR/4 units of 128 codes, 4*b*NR bytes
//	record, behind the block in which a group ends = NR scales [NR int8 zero points]
//
// K is padded to a multiple of 32 with code 0; the last group may be short. The
// sum of a row is that of its weights, in float32 and in a fixed order: a
// kernel needs it for the zero point of the activations.
//
// To write a payload: fill a Header, [NewLowbit], then for each panel fill a
// [Panel] and call [Lowbit.PackPanel]. To read: [Lowbit.UnpackPanel] for panels,
// [Lowbit.Row] or [Lowbit.DequantizeRow] for single rows, as an embedding
// lookup needs them. [Lowbit.CheckPanel] finds damage. The Packers of the other
// layouts work alike; panels begin behind their Prefix.
//
//	l, err := packing.NewLowbit(header)
//	p := l.NewPanel()
//	for i := range l.Panels() {
//		p.Rows = l.PanelRows(i)
//		... // p.Codes, p.Scales, p.Zeros, p.Bias
//		l.PackPanel(data[i*l.PanelBytes():][:l.PanelBytes()], p)
//	}
//
// # Bit planes
//
// [PackUnit] and [UnpackUnit] are TorchAO's bit packing for units of 128, 64
// and 32 codes. The lowbit layout uses units of 128.
package packing
