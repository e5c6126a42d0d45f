// Package model runs language models: [OpenCheckpoint] and [OpenGQF] make a [Model], whose sessions
// compute logits. Package arch says what a model's config.json and tensor names mean.
//
// # Running a model
//
//	m, err := model.OpenGQF(f, model.Options{}) // or OpenCheckpoint(dir, ...)
//	s := m.NewSession(2048)
//	logits := make([]float32, m.VocabSize())
//	err = s.Forward(ids, logits, false) // what follows the last of ids; more ids continue the sequence
//
// [arch.Architectures] lists the model types that run: their logits are held to an implementation in
// PyTorch that was written independently (testdata/torch). Other model types are refused by name,
// and so are tensors that have no place in the model.
//
// Linear layers run on package kernels: quantized ones on the packed bytes in the map,
// with int8 activations as on the device, or float32 ones ([Activations]). All else is
// float32 with sums in a fixed order. Logits have the same bits on every CPU, for any
// number of threads, and however a sequence is cut into calls.
//
// Weights stay in the map. A session for a 1B model takes 70 MB, and 64 KB a token for
// keys and values.
//
// Where to start reading: load.go finds the weights (source.go, source_gqf.go), session.go runs the
// layers, attention.go and mixture.go compute attention and mixtures of experts.
//
// A [Stream] runs many sequences layer by layer instead, so that a layer's linears can be studied, and replaced by others,
// before the next layer sees what they give; a [Batch] continues many sequences at a time.
package model
