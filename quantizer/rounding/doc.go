// Package rounding turns rows of floating-point weights into low-bit codes, scales and zero points.
// It knows nothing of files, tensors or calibration: a program with its own files needs no more of
// the quantizer than this package.
//
// # Codes
//
// A code is an integer q of 1 to 8 bits, -2^(b-1) to 2^(b-1)-1. Consecutive weights of a row form
// groups. A group has one scale s and, with the asymmetric mapping, one zero point z; a weight is
// (q - z) * s. A [Scheme] names bits, group, mapping and the dtype of the stored scales.
// [RowQuantizer] quantizes rows, and a [Rounder] also returns the weights that the codes stand for:
//
//	s := rounding.Scheme{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16}
//	r, err := rounding.NewRowQuantizer(s, len(row))
//	...
//	err = r.Quantize(codes, scales, nil, row, nil)
//
// Codes are always chosen against the scale as it is stored, after its rounding. Scales may be
// negative. A group of zeros has scale 1; on the half-step grid, which has no code for zero, it has
// the smallest scale that can be stored. A scale that is too small to be stored becomes the
// smallest one. A scale that is too large is an error. Results are the same bits on every platform.
//
// # Algorithms
//
// Every algorithm chooses scales and zero points; the codes follow from them. None of these needs
// data. The table shows the mean KL divergence from the float model's predictions, divided by that
// of TorchAO's symmetric rounding at the same bits (groups of 32, BF16 scales; `gq accuracy
// --activations float32` on stories260K / books1.3M / books3.7M, 16,000 tokens), and nanoseconds a
// weight on one core of an AMD EPYC (Zen 5) at 4 bits:
//
//	                    4 bits            3 bits            2 bits            ns
//	rtn                 .81 / .86 / .78   .69 / .75 / .67   .69 / .51 / .58   0.3
//	search              .71 / .75 / .68   .52 / .65 / .60   .59 / .40 / .51   5.5, now 2.4 (Zen 4)
//	search, positive    .76 / .84 / .80   .68 / .82 / .75   .77 / .58 / .71
//	search, integer z   .61 / .67 / .61   .53 / .61 / .59   .59 / .40 / .51   24
//	hqq, integer z      .63 / .70 / .60   .52 / .62 / .59   .56 / .41 / .55   60
//	search, half-step                                       .57 / .43 / .51   50 at 2 bits, now 40 (Zen 4)
//
// In groups up to 128, the search is in integers and for 16 groups at once: without zero points up to
// 6 bits in search_fit.go, otherwise in search_grids.go. It takes half to an eighth of the time of the searches in
// float32, which remain for importances, long groups, 8 bits in groups above 32, and integer zero points
// at 1 bit. Compared with these, the SQNR of normally and t-distributed weights and of three models in
// groups of 32 is at most 0.02 dB lower at up to 8 bits, with fractional zero points, with integer ones and without; at
// 8 bits with integer zero points it is 0.09 dB higher. In groups of 128, fractional zero points are at most 0.018 dB
// lower on normally and t-distributed weights.
//
// Instructions per weight with NEON, counted by qemu-aarch64 for rows of 2048 weights in groups of 32, without
// reading and packing: rtn 1.4; search without zero points 55 at 4 bits and 82 at 8 (with 16 candidates; now there are 12), with integer zero
// points 118, with fractional ones 97, half-step 74 at 2 bits.
//
// Zero points cost a quarter of a bit a weight at groups of 32. The search (search.go) weights the
// error of a weight x by sqrt(m + x^2), where m is the mean square of the row, and by the factor of
// its column that [RowQuantizer.Weigh] sets. hqq is half-quadratic quantization, which is defined
// with floating-point zero points. Where only integer or fractional zero points can be stored, they
// are rounded and the scale is fitted to them (halfquadratic.go).
//
// Layouts lowbit and codes store fractional zero points, in units of 2^(bits-8), in the bytes of
// integer ones (Scheme.Fractions, fractions.go). The search (fractions_search.go) tries ranges of a group
// with their least-squares scale and zero point, and then what can be stored around the best ones.
//
// Where every layout of a tensor holds floating-point zero points (qai4c32p, with F32 scales), hqq
// is the original, and the search fits scale and zero point by least squares
// ([RowQuantizer.QuantizeFloatZeros], floatzeros.go, floatfit.go). At 4 bits:
//
//	search, floating-point zero points  .49 / .53 / .49   84 ns
//	hqq, floating-point zero points     .55 / .60 / .57   63 ns
//
// These files have 6 bits a weight instead of the 4.75 of BF16 scales and integer zero points.
//
// # Lattices
//
// Weights of a model that was trained with quantized weights are codes times a scale, rounded to the
// checkpoint's dtype. With [RowQuantizer.Recover], every algorithm keeps codes and scale of groups of
// such weights (lattice.go). A [LatticeSurvey] finds the bits and the group of the rows of a matrix.
//
// # Blocks
//
// A [Scheme] with a Type has the grid of a type of .gguf files that codes, scales and zero points
// cannot express: the K types, and those with F16 minima. [BlockScheme] returns it, and
// [RowQuantizer.QuantizeBlocks] gives a row as such a file stores it.
//
// The first columns compare the search with llama.cpp's own quantization (commit 3f545be, no
// importance matrix) on the linear layers of books3.7M: the squared error, and the squared error
// weighted by sqrt(2 m) + |x|, with m the mean square of 256 weights, which is llama.cpp's weight for
// Q4_K. Then nanoseconds a weight on one core of an AMD EPYC (Zen 4), the fastest of many short runs,
// because the machine was busy:
//
//	      error  weighted   rtn  search  llama.cpp
//	Q2_K  .79    .84        2.9  20      55
//	Q3_K  .93    .92        3.0  14       8
//	Q4_K  .97    .97        2.9  26      63
//	Q5_K  .90    .89        4.4  26      54
//	Q6_K  .89    .90        2.6  11      25
//	Q4_1  .80    .82        3.1  14       1
//	Q5_1  .82    .83        3.7  14       2
//
// Errors name the place within the row: [NonFiniteError] the column, [ScaleError] the group,
// [SumError] the sum.
package rounding
