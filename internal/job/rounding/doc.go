// Package rounding turns rows of floating-point weights into low-bit codes, scales and zero points,
// without files, tensors or calibration.
//
// # Codes
//
// A code is an integer q of 1 to 8 bits, -2^(b-1) to 2^(b-1)-1. Consecutive weights of a row form
// groups. A group has a scale s and, with the asymmetric mapping, a zero point z; a weight is (q -
// z) * s. A [Scheme] names bits, group, mapping and the dtype of the stored scales. [RowQuantizer]
// quantizes rows, and a [Rounder] also returns the dequantized weights:
//
//	s := rounding.Scheme{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange,
//		ScaleDtype: packing.ScaleBF16}
//	r, err := rounding.NewRowQuantizer(s, len(row))
//	...
//	err = r.Quantize(codes, scales, nil, row, nil)
//
// Codes are always chosen against the stored, rounded scale. Scales may be negative. A group of
// zeros has scale 1, or, on the half-step grid without a code for zero, the smallest scale that can
// be stored. A smaller scale becomes the smallest; a scale that is too large is an error. Results
// are the same bits on every platform.
//
// # Algorithms
//
// Every algorithm chooses scales and zero points; the codes follow. None of these needs data. The
// table shows the mean KL divergence from the float model's predictions, divided by that of
// TorchAO's symmetric rounding at the same bits (groups of 32, BF16 scales, float32 activations;
// stories260K / books1.3M / books3.7M, 16,000 tokens):
//
//	                    4 bits            3 bits            2 bits
//	rtn                 .81 / .86 / .78   .69 / .75 / .67   .69 / .51 / .58
//	search              .71 / .75 / .68   .52 / .65 / .60   .59 / .40 / .51
//	search, positive    .76 / .84 / .80   .68 / .82 / .75   .77 / .58 / .71
//	search, integer z   .61 / .67 / .61   .53 / .61 / .59   .59 / .40 / .51
//	search, half-step                                       .57 / .43 / .51
//	search, float z     .49 / .53 / .49
//
// The search weights the error of a weight x by sqrt(m + x^2), with m the mean square of the row,
// and by the factor of the column from [RowQuantizer.Weigh]. In groups up to 128 the search is in
// integers, for 16 groups at once: search_fit.go without zero points up to 6 bits, search_grids.go
// otherwise. Searches in float32 remain for importances, long groups, 8 bits in groups above 32,
// and integer zero points at 1 bit. The integer searches take an eighth to half of the time and
// lose at most 0.02 dB of SQNR.
//
// Zero points cost a quarter of a bit per weight in groups of 32. Layouts lowbit and codes store
// fractional zero points, in units of 2^(bits-8), in the bytes of integer zero points
// (Scheme.Fractions). Where every layout of a tensor holds floating-point zero points (qai4c32p,
// with F32 scales), [RowQuantizer.QuantizeFloatZeros] fits scale and zero point by least squares;
// such files have 6 bits per weight instead of the 4.75 of BF16 scales and integer zero points.
//
// # Lattices
//
// Weights of a model that was trained with quantized weights are codes times a scale, rounded to
// the checkpoint's dtype. With [RowQuantizer.Recover], every algorithm keeps codes and scale of
// such groups (lattice.go). A [LatticeSurvey] finds the bits and the group of the rows of a matrix.
//
// # Blocks
//
// A [Scheme] with a Type has the grid of a type of .gguf files that codes, scales and zero points
// cannot express: the K types, those with F16 minima, and those with the codes of a [Table].
// [BlockScheme] returns such a scheme, and [RowQuantizer.QuantizeBlocks] the bytes of a row. On the
// linear layers of books3.7M, the squared error of the search is 0.79 (Q2_K) to 0.97 (Q4_K) of
// llama.cpp's (commit 3f545be, no importance matrix).
//
// Errors name the place within the row: [NonFiniteError] the column, [ScaleError] the group,
// [SumError] the sum.
package rounding
