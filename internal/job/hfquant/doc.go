// Package hfquant reads and writes quantized weights as other libraries store them in safetensors
// checkpoints of the Hugging Face kind: compressed-tensors, GPTQ, AWQ, MLX and torchao.
//
// In such a checkpoint several tensors hold a weight: codes, scales, zero points. config.json names
// the library in "quantization_config" (MLX: "quantization"). [Find] reads both and lists the
// weights; [Weight.Read] reads codes and scales row by row. [Format.NewLayout] says which tensors
// hold a weight in a format, and [Layout.Put] turns rows into their bytes; [Format.Config] gives
// the entry of config.json.
//
// All formats share the description of a row, [Row]: signed codes, a scale per group, and zero
// points or offsets. A weight is (code - zero) * scale, or code * scale + offset.
// docs/CHECKPOINTS.md has the tensors, dtypes and shapes of all formats, and what is refused.
package hfquant
