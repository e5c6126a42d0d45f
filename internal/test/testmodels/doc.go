// Package testmodels writes checkpoints of random models of every architecture of package model,
// with rows of 256 values and a synthetic tokenizer. Only tests import testmodels.
//
// The configurations of internal/lm/forward/testdata/torch are made wider. Every variant that tests
// of package model run has a model here: biases, tied embeddings, mixtures of experts, sliding
// windows, scaled ropes. The same variant has the same bytes on every platform.
package testmodels
