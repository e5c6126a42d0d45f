// Package synth makes synthetic checkpoints of any Llama-like shape, for benchmarks and tests that
// need the size and the statistics of a real model but not its knowledge.
//
//	spec := synth.Presets["llama-3.2-1b"]
//	err := synth.Write(ctx, dir, spec, nil)
//
// The result is a directory as Transformers writes it: config.json and model.safetensors, or shards
// with an index. There is no tokenizer, so such a model cannot continue a text.
//
// # Weights
//
// A weight is a sum of four uniform variables (nearly normal) times a factor with a Pareto tail of
// index 4, times the gain of its row and the scale of its tensor. A large tensor has a kurtosis
// near 5.5 and extremes near 12 standard deviations, like trained projections; a normal
// distribution has 3 and 6. Standard deviations are proportional to 1/sqrt(K), so that a forward
// pass keeps its scale. Norms are positive vectors.
//
// Every value is a function of the seed, the tensor's name and the position, computed with integers
// and with float32 products that are rounded separately. The same Spec gives the same bytes on
// every platform and with any number of threads.
package synth
