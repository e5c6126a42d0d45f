// Package eval compares the predictions of a quantized model with its float model's on a text.
//
// [Compare] runs both models on windows of tokens (see internal/lm/text). It returns perplexities,
// the KL divergence of the next token's distribution, and the positions of the largest divergence.
// [CompareChoices] compares answers to multiple-choice questions. [Reference] keeps the float
// model's predictions for measuring several quantized versions in turn, as the choice of bits does.
//
// Every figure has the same bits on any CPU and for any number of threads: sums are float64 in a
// fixed order, products are rounded before the addition, and logarithms and exponentials come from
// internal/detmath.
package eval
