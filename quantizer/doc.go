// Package quantizer turns a checkpoint into a .gqf file.
//
// A job has three steps. A [Recipe] and its rules say what becomes of each tensor. A [Plan] (plan.go)
// reads the checkpoint's headers only, decides every tensor's scheme or why the tensor stays
// unquantized, and fixes the place of every byte in the output. [Plan.Write] (pipeline.go) then runs
// workers that read panels of rows from the mapped checkpoint, quantize them with package rounding,
// pack them and write them to their places. The output does not depend on the number of workers.
// dequantize.go is the other direction, from a .gqf file to a checkpoint.
//
// Errors name the file, the tensor and the row ([TensorError]); a request that cannot be met whatever
// the weights are is a [RequestError].
package quantizer
