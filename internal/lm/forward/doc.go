// Package forward runs language models. [OpenCheckpoint] and [OpenGQF] make a [Model]; its sessions
// compute logits. Package arch interprets the model's config.json and tensor names.
//
// # Running a model
//
//	m, err := forward.OpenGQF(f, forward.Options{}) // or OpenCheckpoint(dir, ...)
//	s := m.NewSession(2048)
//	logits := make([]float32, m.VocabSize())
//	err = s.Forward(ids, logits, false) // logits after the last id; more calls continue
//
// [arch.Architectures] lists the supported model types. Their logits are tested against an
// independent implementation in PyTorch (testdata/torch). Other model types are refused by name,
// and so are tensors that have no place in the model.
//
// Linear layers run on package kernels: quantized layers on the packed bytes in the map, with int8
// activations as on the device or with float32 activations ([Activations]). Everything else is
// float32 with sums in a fixed order. Logits have the same bits on every CPU, for any number of
// threads, and for any division of a sequence into calls.
//
// Weights stay in the map. A session for a 1B model takes 70 MB, plus 64 KB per token for keys and
// values.
//
// Where to start reading: parts.go says what a layer is made of, load.go opens the weights
// (source.go, source_gqf.go), session.go runs the layers. The parts are in attention.go, states.go
// (shortconv.go, deltanet.go, mamba.go), network.go and mixture.go.
//
// A [Stream] runs many sequences layer by layer, so that the linear layers of a decoder layer can
// be studied, and replaced, before the next layer runs.
//
// A [Batch] continues many sequences at a time, by single tokens and chunks of prompts, and reads
// the weights once for all of them. batch.go is the pass, pages.go owns the keys and values,
// prefix.go finds common prefixes.
//
// A [Tape] computes the gradients of a loss with respect to all weights, for every architecture.
// The operators of [Model.SetLinear] supply the weights, so a Tape knows nothing of quantization.
package forward
