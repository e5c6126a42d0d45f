// Package arch knows the architectures of language models: what config.json says, and what each
// tensor of a checkpoint is for. Package model runs them; the quantizer needs only this package.
//
// # Roles
//
// [ParseConfig] reads the few facts of a Hugging Face config.json that the quantizer needs.
// [Classify] takes a tensor's name and shape and returns its role, whether it is quantized by
// default and why not otherwise, and whether the checkpoint stores it as inputs x outputs. Without
// a config it decides by names alone and leaves a tensor unquantized, with the reason, where names
// do not suffice:
//
//	cfg, err := arch.ParseConfig(raw)
//	c := arch.Classify(cfg, "model.layers.0.mlp.experts.gate_up_proj", []int64{128, 2048, 1536})
//	if c.Quantize {
//		// c.Slices() matrices, each transposed if c.Transposed
//	} else {
//		// c.Reason
//	}
//
// A 2-D tensor of at least [MinRows] outputs is a projection unless its name says otherwise. A wrong
// guess about the order in which a matrix is stored would make a model useless without any error.
// The order is therefore never read off a shape: it comes from tables of architectures (orders.go),
// and a shape that contradicts the table leaves the tensor unquantized.
//
// [HeadName] returns the name of the lm_head that a tied checkpoint leaves out, [ScaleOf] the weight
// that a tensor of FP8 scales belongs to.
//
// # Forward passes
//
// [ParseForward] reads the same config.json as ParseConfig and demands to understand every key: an
// unknown key is an error. [Architectures] lists the model types that it knows; others are refused
// by name. architecture.go and families.go hold what each model type means.
//
// # Sources
//
// Names and orders are facts of the published checkpoints and of the code that loads them: Hugging
// Face transformers (modeling and configuration files of each architecture, conversion_mapping.py),
// mlx-lm (the sanitize method of each model) and llama.cpp's list of tensors that it never
// quantizes.
package arch
