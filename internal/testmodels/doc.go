// Package testmodels writes checkpoints of random models of every architecture that package model
// runs, with rows of 256 values and a synthetic tokenizer. Only tests import it.
//
// The configurations are those of model/testdata/torch, made wider, so every variant that package
// model is tested with has a model here: biases, tied embeddings, mixtures of experts, sliding
// windows, scaled ropes. The same variant has the same bytes on every platform.
package testmodels
