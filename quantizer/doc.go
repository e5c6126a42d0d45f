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
// Scales are normal numbers of their dtype and may be negative; a group of zeros has
// scale 1. Results are the same bits on every platform and for any number of workers.
//
// Errors name where they are within the row ([NonFiniteError] the column,
// [ScaleError] the group); the pipeline adds file, tensor and row.
//
// # TorchAO
//
// [TorchAOAffine] and [TorchAOHQQScaleOnly] are TorchAO's own formulas, bit for bit,
// for comparisons with it. Files are not made with them: TorchAO computes in the
// weights' dtype and may leave codes as they were when it casts a scale.
package quantizer
