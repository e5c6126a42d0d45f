// Package gq turns floating-point language-model checkpoints into low-bit weights that CPU runtimes
// use as they are, and measures what quantization costs.
//
// Each function does the job of the command with its name. Files are .gqf or .gguf files;
// [Quantize] and [Export] write checkpoints in formats of other libraries too
// (docs/CHECKPOINTS.md):
//
//   - [Pull] copies a model from a hub, a web server or an object store into a cache; all functions
//     take such names
//   - [Quantize] turns a safetensors checkpoint, or a .gguf file with unquantized weights, into a
//     .gqf or .gguf file; [Plan] describes the job without doing it
//   - [Measure] compares a file with its checkpoint, tensor by tensor and as a model, and checks a
//     gate
//   - [Sweep] makes files by several recipes and compares their size and accuracy
//   - [Verify] finds damage in a .gqf file, [VerifyGGUF] checks a .gguf file; [Inspect] and
//     [InspectTensors] show what a file or a checkpoint holds
//   - [Diff] lists the tensors that differ between two files, or between a checkpoint and a file
//   - [Repack] stores the same codes in the layout of another consumer, from a .gguf file too
//   - [Export] writes the codes of a .gqf file as a .gguf file for llama.cpp, or as a checkpoint
//   - [Dequantize] turns a file into a safetensors checkpoint
//   - [Run] continues a prompt with the model in a file or a checkpoint
//   - [Serve] answers HTTP requests in OpenAI's way with models
//   - [Synth] makes a checkpoint of random weights for measurements and tests
//   - [Kernels] lists the kernels and chooses among them; [BenchKernels] measures this
//     machine; [Version] describes the build
//
// # Options and reports
//
// Options are structs. Their fields state the defaults; the zero value is ready to use unless the
// type says otherwise. A [quantizer.Recipe] holds everything that decides the bytes of a file;
// threads, progress and gates do not change them. The same checkpoint and recipe give the same
// bytes on every system and CPU, and for any number of threads. QuantizeOptions.SaveRecipe writes a
// recipe that gives the same file again.
//
// Reports are structs with JSON tags; the commands print them with --json.
//
// # Progress and errors
//
// A [Progress] is told of a job's stages and shows them as it likes; nil is silent. If its context
// is cancelled, a job returns the context's error. An output appears at its path when it is
// complete, and a failed job leaves the previous file in place. An [OptionError] says that options
// cannot be used, a [GateNotMetError] that a file does not meet its gate, and a [ResumeError] that
// the next call resumes from finished work.
//
// # Programs that only use files
//
// A program that only loads .gqf files and multiplies does not need this package: formats/gqf maps
// a file, kernels multiplies with its packed weights in place, and embedding looks up rows.
package gq
