// Package model knows how checkpoints of language models are laid out: what
// config.json says, and what each tensor is for. And it runs them: [OpenCheckpoint]
// and [OpenGQF] make a [Model], whose sessions compute logits.
//
// # Roles
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
// # The forward pass
//
//	m, err := model.OpenGQF(f, model.Options{}) // or OpenCheckpoint(dir, ...)
//	s := m.NewSession(2048)
//	logits := make([]float32, m.VocabSize())
//	err = s.Forward(ids, logits, false) // what follows the last of ids; more ids continue the sequence
//
// [ParseForward] reads the same config.json as ParseConfig, but wants to understand
// every key of it: one that it does not know is an error. The architectures are those
// whose logits are held to an implementation in PyTorch that was written apart from this
// one (testdata/torch); others are refused by name. So are tensors that have no place.
//
// Linear layers run on package kernels: quantized ones on the packed bytes in the map,
// with int8 activations as on the device, or float32 ones ([Activations]). All else is
// float32 with sums in a fixed order. Logits have the same bits on every CPU, for any
// number of threads, and however a sequence is cut into calls.
//
// Weights stay in the map. A session for a 1B model takes 70 MB, and 64 KB a token for
// keys and values.
//
// Where to start reading: architecture.go and families.go say what the models are,
// load.go finds their weights (source.go, source_gqf.go), session.go runs the layers,
// attention.go and mixture.go the parts that are not simple.
//
// A [Stream] runs many sequences layer by layer instead, so that a layer's linears can be studied, and replaced by others,
// before the next layer sees what they give; a [Batch] continues many sequences at a time.
//
// # Sources
//
// Names and orders are facts of the published checkpoints and of the code that
// loads them: Hugging Face transformers (modeling and configuration files of each
// architecture, conversion_mapping.py), mlx-lm (the sanitize method of each model)
// and llama.cpp's list of tensors that it never quantizes.
package model
