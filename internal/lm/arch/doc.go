// Package arch knows the architectures of language models: the meaning of config.json, and the role
// of each tensor of a checkpoint. Package model runs the models; the quantizer needs only this
// package.
//
// # Roles
//
// [ParseConfig] reads the few facts of a Hugging Face config.json that the quantizer needs.
// [Classify] takes a tensor's name and shape and returns its role, whether the tensor is quantized
// by default, the reason if not, and whether the checkpoint stores inputs x outputs. Without a
// config, Classify decides by names alone, and leaves a tensor unquantized if names do not suffice:
//
//	cfg, err := arch.ParseConfig(raw)
//	c := arch.Classify(cfg, "model.layers.0.mlp.experts.gate_up_proj", []int64{128, 2048, 1536})
//	if c.Quantize {
//		// c.Slices() matrices, each transposed if c.Transposed
//	} else {
//		// c.Reason
//	}
//
// A 2-D tensor of at least [MinRows] outputs is a projection unless its name says otherwise. A
// wrong guess about the order of a matrix would make a model useless without any error. The order
// is therefore never guessed from a shape: tables of architectures (orders.go) state the order, and
// a shape that contradicts the table leaves the tensor unquantized.
//
// [HeadName] returns the name of the lm_head that a tied checkpoint omits, [ScaleOf] the weight to
// which a tensor of FP8 scales belongs.
//
// # Forward passes
//
// [ParseForward] reads the same config.json as ParseConfig but must understand every key: an
// unknown key is an error. [Architectures] lists the known model types. Other types are refused by
// name. architecture.go and families.go define the model types.
//
// # Sources
//
// Names and orders come from the published checkpoints and from the code that loads them: Hugging
// Face transformers (modeling and configuration files of each architecture, conversion_mapping.py),
// mlx-lm (the sanitize method of each model) and llama.cpp's list of tensors that are never
// quantized.
package arch
