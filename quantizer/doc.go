// Package quantizer chooses the codes of a checkpoint's weights and streams the
// result into a .gqf file.
//
// # From a checkpoint to a file
//
// A job has three steps. The [Recipe] and its rules say what is to become of each
// tensor. The plan (plan.go) reads headers only, decides every tensor's [Scheme] or
// why it is kept, and fixes each byte's place in the output. The pipeline
// (pipeline.go) then runs workers that read panels of rows from the mapped
// checkpoint, quantize, pack and write them where the plan says. The other
// direction, from a .gqf file back to a checkpoint, is in dequantize.go.
//
// # Codes
//
// A code is an integer q of 1 to 8 bits, -2^(b-1) to 2^(b-1)-1. Consecutive weights
// of a row form groups that share a scale s and, with the asymmetric mapping, a zero
// point z; the weight is then (q - z) * s. A [Scheme] names bits, group, mapping and
// the dtype of the stored scales. [RowQuantizer] turns one row of float32 weights into
// codes and is all that a program needs that has its own idea of files:
//
//	s := quantizer.Scheme{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16}
//	r, err := quantizer.NewRowQuantizer(s, len(row))
//	...
//	err = r.Quantize(codes, scales, nil, row, nil)
//
// Codes are always chosen against the scale as it is stored, after its rounding.
// Scales may be negative. A group of zeros has scale 1 (on the half-step grid, which has no
// code for zero, the smallest scale that can be stored). A scale that is too small to be
// stored becomes the smallest one, and the report counts such groups; one that is too large is
// an error. Results are the same bits on every platform and for any number of workers.
//
// # Algorithms
//
// All choose scales and zero points, which the codes then follow from. None of these
// needs data. The measure is the mean KL divergence from the float model's predictions,
// as a part of that of TorchAO's symmetric rounding at the same bits (groups of 32, BF16
// scales; `gq accuracy --activations float32` on stories260K / books1.3M / books3.7M,
// 16,000 tokens), and nanoseconds a weight on one core of an EPYC (Zen 5) at 4 bits:
//
//	                    4 bits            3 bits            2 bits            ns
//	rtn                 .81 / .86 / .78   .69 / .75 / .67   .69 / .51 / .58   0.3
//	search              .71 / .75 / .68   .52 / .65 / .60   .59 / .40 / .51   5.5
//	search, positive    .76 / .84 / .80   .68 / .82 / .75   .77 / .58 / .71
//	search, asymmetric  .61 / .67 / .61   .53 / .61 / .59   .59 / .40 / .51   24
//	hqq, asymmetric     .63 / .70 / .60   .52 / .62 / .59   .56 / .41 / .55   60
//	search, half-step                                       .57 / .43 / .51   50 at 2 bits
//
// Zero points cost a quarter of a bit a weight at groups of 32. In search (search.go) an
// error counts sqrt(m + x^2), m being the mean square of the row, times what
// [RowQuantizer.Weigh] says.
// hqq is half-quadratic quantization, whose zero points are real numbers by rights:
// in layouts with whole ones these are rounded, and the scale is fitted to them, see
// halfquadratic.go.
//
// Where every layout of a tensor holds real zero points (qai4c32p, with float32 scales),
// hqq is the original, and a search fits scale and zero point by least squares
// ([RowQuantizer.QuantizeReal], realzeros.go, realfit.go). At 4 bits that gives
//
//	search, real zeros  .49 / .53 / .49   123 ns
//	hqq, real zeros     .55 / .60 / .57    70 ns
//
// for 6 bits a weight instead of the 4.75 of BF16 scales and whole zero points.
//
// Errors name where they are within the row ([NonFiniteError] the column,
// [ScaleError] the group, [SumError] the sum); the pipeline adds file, tensor and row.
package quantizer
