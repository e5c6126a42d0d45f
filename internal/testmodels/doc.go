// Package testmodels writes checkpoints of random models of every architecture that package model
// runs, with rows of 256 values and a synthetic tokenizer. Only tests import it.
//
// The configurations of model/testdata/torch are made wider. Every variant that tests of package
// model run has a model here: biases, tied embeddings, mixtures of experts, sliding
// windows, scaled ropes. The same variant has the same bytes on every platform.
package testmodels
