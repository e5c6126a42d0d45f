// Package model knows how checkpoints of language models are laid out: what
// config.json says, and what each tensor is for.
//
// [ParseConfig] reads the few facts of a Hugging Face config.json that the
// quantizer needs. [Classify] takes a tensor's name and shape and says its role,
// whether it is quantized by default, why not if not, and whether the checkpoint
// stores it as inputs x outputs. It works without a config too, by names alone;
// what then cannot be known is kept as it is, with the reason:
//
//	cfg, err := model.ParseConfig(raw)
//	c := model.Classify(cfg, "model.layers.0.mlp.experts.gate_up_proj", []int64{128, 2048, 1536})
//	if c.Quantize {
//		// c.Slices() matrices, each transposed if c.Transposed
//	} else {
//		// c.Reason
//	}
//
// The rule is that a 2-D tensor of at least [MinRows] outputs is a projection
// unless its name says otherwise. A wrong guess about the order in which a matrix
// is stored would make a model useless without any error, so the order is never
// read off a shape: it comes from tables of architectures (orders.go), and a shape
// that contradicts the table keeps the tensor unquantized.
//
// [HeadName] gives the name of the output head that a tied checkpoint leaves out,
// [ScaleOf] the weight that a tensor of FP8 scales belongs to.
//
// Names and orders are facts of the published checkpoints and of the code that
// loads them: Hugging Face transformers (modeling and configuration files of each
// architecture, conversion_mapping.py), mlx-lm (the sanitize method of each model)
// and llama.cpp's list of tensors that it never quantizes.
package model
