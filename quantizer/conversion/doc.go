// Package conversion turns a checkpoint into a .gqf file, a .gguf file, or a checkpoint in a format of
// another library, and a .gqf file into the latter two.
//
// A job has two steps. A [Plan] (plan.go) reads the checkpoint's headers only, decides each tensor's
// scheme or why the tensor stays unquantized, and fixes the place of every byte in the output.
// [Plan.Write] (pipeline.go) then runs workers that read panels of rows from the mapped checkpoint,
// quantize them with package rounding, pack them and write them to their places. The output does not
// depend on the number of workers. What a plan reads is its input (input.go): a checkpoint, or, to
// repack ([NewRepack]), a .gqf file whose codes are taken over. Codes that calibration chose are an
// argument of the writing ([CalibratedCodes]). What it makes is its output (output.go). [NewExport] has a
// .gqf file as input and another output, [Dequantize] a checkpoint of unquantized weights.
package conversion
