// Package gq turns floating-point language-model checkpoints into low-bit weights that CPU runtimes use as they are, and
// measures what that cost.
//
// Each function is a job, and does what the command of its name does:
//
//   - [Quantize] turns a safetensors checkpoint into a .gqf file, [Plan] lays the same job out without doing it
//   - [Measure] compares a .gqf file with its checkpoint, tensor by tensor and as a model, and holds it to a gate
//   - [Verify] finds damage in a .gqf file, [Inspect] and [InspectTensors] show what is in it
//   - [Diff] says which tensors of two .gqf files, or of a checkpoint and its file, differ
//   - [Repack] puts weights into the layout of another consumer without changing a code
//   - [Dequantize] makes a safetensors checkpoint of a .gqf file
//   - [Run] continues a prompt with the model in a .gqf file
//   - [Synth] makes a checkpoint of random weights, to measure and test with
//
// # Options and reports
//
// Options are structs whose fields state their defaults; the zero value is good unless the type says otherwise. What
// decides the bytes of a file is in a [quantizer.Recipe]; threads, progress and gates are not. The same checkpoint and
// recipe give the same bytes on every system, CPU and number of threads. QuantizeOptions.SaveRecipe writes a recipe that
// gives the same file again.
//
// Reports are structs with JSON tags: the commands' --json prints them.
//
// # Progress and errors
//
// A [Progress] is told of a job's stages, and shows them as it likes; nil is silent. A job ends with the error of its
// context when that is cancelled. An output appears at its path when it is complete, and a failed job leaves what was
// there before. An [OptionError] says that options cannot be used, a [GateNotMetError] that a file is not good enough,
// and a [ResumeError] that the next call goes on from work that is finished.
//
// # Programs that only use files
//
// A program that loads .gqf files and multiplies needs none of this package: package formats/gqf maps a file, package
// kernels multiplies with its packed weights in place, and package embedding looks up rows.
package gq
