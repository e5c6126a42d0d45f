// Package vectors gives tests the recorded runs of KleidiAI's and TorchAO's own kernels, out of testdata/vectors: the
// packed weights, the activations as float32 and as those libraries quantized them, and the products. All kernels of gq
// have to give the same bits.
//
// Where they come from, shared/vectors/kleidiai/README.md and shared/vectors/torchao/README.md say.
package vectors
