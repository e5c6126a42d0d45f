// Package vectors provides tests with recorded runs of KleidiAI's and TorchAO's own kernels from
// testdata/vectors: the packed weights, the activations as float32 and as quantized by the library,
// and the products. All kernels of gq must give the same bits.
//
// shared/vectors/kleidiai/README.md and shared/vectors/torchao/README.md describe their origin.
package vectors
