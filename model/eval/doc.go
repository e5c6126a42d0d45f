// Package eval compares the predictions of a quantized model with its float model's on a text.
//
// [Compare] runs both models on windows of tokens (see model/text). It returns perplexities, the KL
// divergence of the next token's distribution, and the positions of the largest divergence.
// [CompareChoices] compares answers to multiple-choice questions.
// [Reference] keeps the float model's predictions, so that several quantized versions can be
// measured in turn; the choice of bits uses it.
//
// Every figure has the same bits on any CPU and for any number of threads: sums are float64 in a
// fixed order, products are rounded before they are added, and logarithms and exponentials come
// from internal/detmath.
package eval
